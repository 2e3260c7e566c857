"""Nearest-neighbour mixing (Allouah et al. 2023, "Fixing by mixing: a recipe for optimal Byzantine ML under
heterogeneity").

Before another rule sees them, every update is replaced by the mean of the n − m updates nearest to it, itself included.
Honest updates come close to each other by that, so what the rule loses on their spread shrinks, while a malicious update
is either left alone or drowned in honest ones.

Single rounds of online learning say little: the honest mean soon is a small fraction of the honest spread, and whoever
hides in that spread is not told apart. With `history` = β the rule looks at an exponential mean of each client's updates
instead (Karimireddy, He and Jaggi 2021, "Learning from history for Byzantine robust optimization"): chance averages out
of honest clients, an attack does not.
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
"""Parameters that are mixed at a time, so that a thousand clients' share of them stays in cache."""


@dataclass(frozen=True)
class Mixing(RobustRule):
    """Mix, then aggregate by the rule named in `then`. Equal distances are decided by the bytes of the updates."""

    kind: ClassVar[str] = "nearest-neighbour-mixing"
    pair_arrays: ClassVar[int] = PAIR_ARRAYS

    then: Literal["trimmed-mean", "median", "geometric-median"] = "trimmed-mean"  # the rule that sees the mixed updates
    history: float = 0.0  # β, how much of a client's past its update is judged with

    def __post_init__(self) -> None:
        super().__post_init__()
        require_range("history", self.history, least=0.0, below=1.0)

    def combine_rows(self, rows: Doubles) -> Doubles:
        """The rule `then` of the mixed updates."""
        mixed = mix(rows, self.byzantine)
        if self.then == "trimmed-mean":
            return trimmed_mean(mixed, self.byzantine)
        return coordinate_median(mixed) if self.then == "median" else geometric_median(mixed, 1e-6, 100)


def mix(rows: Doubles, byzantine: int) -> Doubles:
    """y_i = (1 / (n − m))·Σ of the n − m updates nearest to x_i."""
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
