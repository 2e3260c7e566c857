"""Coordinate-wise trimmed mean and median (Yin et al. 2018; thesis eqs 5.4 and 5.5).

Paper: "Byzantine-robust distributed learning: towards optimal statistical rates".

Each parameter is aggregated on its own from its sorted values, so both are the same for every order of the clients, to
the bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quorank.federation.rules.rule import RobustRule
from quorank.kernels.arrays import Doubles


@dataclass(frozen=True)
class TrimmedMean(RobustRule):
    """Mean of each parameter without its β = m largest and m smallest values, eq. 5.4.

    >>> TrimmedMean(byzantine=1).combine_all(np.array([[0.0], [1.0], [2.0], [90.0]]), np.ones(4))
    array([1.5])
    """

    kind: ClassVar[str] = "trimmed-mean"

    byzantine: int = 1  # β = m, tolerated number of malicious clients

    def combine_rows(self, rows: Doubles) -> Doubles:
        """Return the trimmed mean of every parameter."""
        return trimmed_mean(rows, self.byzantine)


@dataclass(frozen=True)
class Median(RobustRule):
    """Median of every parameter, eq. 5.5; m is only checked against the cohort.

    >>> Median().combine_all(np.array([[0.0], [1.0], [90.0]]), np.ones(3))
    array([1.])
    """

    kind: ClassVar[str] = "median"

    byzantine: int = 0  # m, tolerated number of malicious clients; only checked against the cohort

    def combine_rows(self, rows: Doubles) -> Doubles:
        """Return the median of every parameter; for even n the mean of the two middle values."""
        return coordinate_median(rows)


def by_coordinate(rows: Doubles) -> Doubles:
    """Return (d, n) values of every parameter, ascending."""
    return np.sort(np.ascontiguousarray(rows.T), axis=1)


def trimmed_mean(rows: Doubles, trim: int) -> Doubles:
    """Return eq. 5.4 with β = trim."""
    kept = by_coordinate(rows)[:, trim : len(rows) - trim]
    return np.asarray(kept.mean(axis=1), dtype=np.float64)


def coordinate_median(rows: Doubles) -> Doubles:
    """Return eq. 5.5."""
    return np.asarray(np.median(np.ascontiguousarray(rows.T), axis=1), dtype=np.float64)
