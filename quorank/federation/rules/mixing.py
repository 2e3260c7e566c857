"""Nearest-neighbour mixing (Allouah et al. 2023).

Paper: "Fixing by mixing: a recipe for optimal Byzantine ML under heterogeneity".

Before another rule, every update is replaced by the mean of its n − m nearest updates, itself included. This reduces the
spread of the honest updates, on which the rule's error depends, and averages malicious updates with honest ones.

In a single round of online learning the honest mean is a small fraction of the honest spread, in which an attack can hide.
With `history` = β the rule combines an exponential mean of each client's updates instead (Karimireddy, He and Jaggi 2021,
"Learning from history for Byzantine robust optimization"): noise of honest clients averages out, an attack does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from quorank.errors import require_range
from quorank.federation.rules.distances import PAIR_ARRAYS, distances
from quorank.federation.rules.geometric_median import geometric_median
from quorank.federation.rules.rule import RobustRule
from quorank.federation.rules.trimmed import coordinate_median, trimmed_mean
from quorank.kernels.arrays import Doubles, Integers
from quorank.kernels.compiled import kernel

COLUMNS = 128
"""Parameters per block, so that a block of a thousand clients stays in cache."""


@dataclass(frozen=True)
class Mixing(RobustRule):
    """Nearest-neighbour mixing, then the rule `then`; ties are decided by the bytes of the updates.

    >>> Mixing(byzantine=1, then="median").combine_all(np.array([[0.0], [0.1], [0.2], [90.0]]), np.ones(4)).round(3)
    array([0.1])
    """

    kind: ClassVar[str] = "nearest-neighbour-mixing"
    pair_arrays: ClassVar[int] = PAIR_ARRAYS

    then: Literal["trimmed-mean", "median", "geometric-median"] = "trimmed-mean"  # rule for the mixed updates
    history: float = 0.0  # β of the exponential mean of a client's updates

    def __post_init__(self) -> None:
        super().__post_init__()
        require_range("history", self.history, least=0.0, below=1.0)

    def combine_rows(self, rows: Doubles) -> Doubles:
        """Return the rule `then` of the mixed updates."""
        mixed = mix(rows, self.byzantine)
        if self.then == "trimmed-mean":
            return trimmed_mean(mixed, self.byzantine)
        return coordinate_median(mixed) if self.then == "median" else geometric_median(mixed, 1e-6, 100)


def mix(rows: Doubles, byzantine: int) -> Doubles:
    """Return y_i = (1 / (n − m))·Σ of the n − m updates nearest to x_i."""
    order = np.argsort(distances(rows), axis=1, kind="stable")
    nearest = np.sort(order[:, : len(rows) - byzantine], axis=1)
    mixed = np.empty_like(rows)
    _mean_of(rows, nearest, mixed)
    return mixed


@kernel
def _mean_of(rows: Doubles, nearest: Integers, out: Doubles) -> None:
    count, d = nearest.shape[1], rows.shape[1]
    fours = count - count % 4
    total = np.empty(COLUMNS)
    for start in range(0, d, COLUMNS):
        width = min(COLUMNS, d - start)
        for i in range(len(rows)):
            total[:] = 0.0
            for p in range(0, fours, 4):
                r0 = rows[nearest[i, p], start : start + width]
                r1 = rows[nearest[i, p + 1], start : start + width]
                r2 = rows[nearest[i, p + 2], start : start + width]
                r3 = rows[nearest[i, p + 3], start : start + width]
                for k in range(width):
                    total[k] += (r0[k] + r1[k]) + (r2[k] + r3[k])
            for p in range(fours, count):
                for k in range(width):
                    total[k] += rows[nearest[i, p], start + k]
            for k in range(width):
                out[i, start + k] = total[k] / count
