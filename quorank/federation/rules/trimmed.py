"""The coordinate-wise trimmed mean and median (Yin et al. 2018, "Byzantine-robust distributed learning: towards optimal
statistical rates"; thesis eqs 5.4 and 5.5).

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
    """Without the β = m largest and the m smallest values of a parameter, the mean of the n − 2m others, eq. 5.4."""

    kind: ClassVar[str] = "trimmed-mean"

    byzantine: int = 1  # β = m, how many clients may be malicious

    def combine_rows(self, rows: Doubles) -> Doubles:
        """The trimmed mean of every parameter."""
        return trimmed_mean(rows, self.byzantine)


@dataclass(frozen=True)
class Median(RobustRule):
    """The median of every parameter, eq. 5.5. It uses no m; a given one is only held against the cohort."""

    kind: ClassVar[str] = "median"

    byzantine: int = 0  # m, how many clients may be malicious; held against the cohort only

    def combine_rows(self, rows: Doubles) -> Doubles:
        """The median of every parameter; of an even number of clients the mean of the two middle values."""
        return coordinate_median(rows)


def by_coordinate(rows: Doubles) -> Doubles:
    """(d, n): the values of every parameter, ascending."""
    return np.sort(np.ascontiguousarray(rows.T), axis=1)


def trimmed_mean(rows: Doubles, trim: int) -> Doubles:
    """eq. 5.4 with β = trim."""
    kept = by_coordinate(rows)[:, trim : len(rows) - trim]
    return np.asarray(kept.mean(axis=1), dtype=np.float64)


def coordinate_median(rows: Doubles) -> Doubles:
    """eq. 5.5."""
    return np.asarray(np.median(np.ascontiguousarray(rows.T), axis=1), dtype=np.float64)
