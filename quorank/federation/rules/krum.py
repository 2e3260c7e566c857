"""Krum and Multi-Krum (Blanchard et al. 2017, "Machine learning with adversaries"; thesis eqs 5.2 and 5.3).

A harmful update lies far from the honest ones, so the update with the nearest neighbours is chosen. Updates are
differences to the same ranker, so a choice among updates is a choice among rankers.

The thesis sums distances (eq. 5.2), the original paper squared distances; this is the thesis's version. The guarantees of
Blanchard et al. need n ≥ 2m + 3; the thesis's four malicious clients among ten are outside of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quorank.federation.rules.distances import PAIR_ARRAYS, distances, distances_to, is_direct
from quorank.federation.rules.rule import RobustRule
from quorank.kernels.arrays import Doubles, Integers

UNSURE = 1e-9
"""Relative difference of scores below which rounding of a matrix product may decide their order."""


@dataclass(frozen=True)
class Krum(RobustRule):
    """θ_g = arg min_θi s(i), eq. 5.2; ties are decided by the bytes of the updates.

    >>> Krum(byzantine=1).combine_all(np.array([[0.0], [0.1], [0.3], [9.0]]), np.ones(4))
    array([0.])
    """

    kind: ClassVar[str] = "krum"
    pair_arrays: ClassVar[int] = PAIR_ARRAYS

    def least_cohort(self) -> int:
        """Return m + 3: Krum needs at least one of n − m − 2 neighbours."""
        return self.byzantine + 3

    def combine_rows(self, rows: Doubles) -> Doubles:
        """Return the update with the lowest score."""
        return np.array(rows[lowest(rows, self.byzantine, 1)[0]])


@dataclass(frozen=True)
class MultiKrum(Krum):
    """Mean of the f = n − m updates with the lowest scores, eq. 5.3.

    >>> MultiKrum(byzantine=1).combine_all(np.array([[0.0], [0.1], [0.2], [9.0]]), np.ones(4))
    array([0.1])
    """

    kind: ClassVar[str] = "multi-krum"

    def combine_rows(self, rows: Doubles) -> Doubles:
        """Return (1/f)·Σ of the f updates with the lowest scores."""
        chosen = lowest(rows, self.byzantine, len(rows) - self.byzantine)
        return np.asarray(rows[chosen].mean(axis=0), dtype=np.float64)


def krum_scores(distance: Doubles, neighbours: int) -> Doubles:
    """Return s(i) = Σ_{i→j} ‖θ_i − θ_j‖ over the nearest `neighbours` of θ_i, from (n, n) distances."""
    others = np.array(distance)
    np.fill_diagonal(others, np.inf)
    return np.asarray(np.sort(others, axis=1)[:, :neighbours].sum(axis=1), dtype=np.float64)


def lowest(rows: Doubles, byzantine: int, count: int) -> Integers:
    """Return the rows with the `count` lowest scores, ascending; ties go to the earlier row.

    Scores near the limit that come from a matrix product, whose rounding differs between machines, are computed again
    pair by pair, so the choice is the same on every machine.
    """
    neighbours = len(rows) - byzantine - 2
    scores = krum_scores(distances(rows), neighbours)
    if not is_direct(rows):
        limit = np.sort(scores)[count - 1]
        unsure = np.flatnonzero(np.abs(scores - limit) <= UNSURE * limit)
        scores[unsure] = limit
        if len(unsure) > 1:
            exact = np.array([_score(rows, int(i), neighbours) for i in unsure])
            sure = np.flatnonzero(scores < limit)
            taken = unsure[np.argsort(exact, kind="stable")[: count - len(sure)]]
            return np.sort(np.concatenate((sure, taken)))
    return np.sort(np.argsort(scores, kind="stable")[:count])


def _score(rows: Doubles, i: int, neighbours: int) -> float:
    others = np.delete(distances_to(rows, rows[i]), i)
    return float(np.sort(others)[:neighbours].sum())
