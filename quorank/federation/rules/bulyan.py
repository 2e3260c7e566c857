"""Bulyan (El Mhamdi, Guerraoui and Rouault 2018, "The hidden vulnerability of distributed learning in Byzantium").

Krum bounds the distance of its choice from the honest updates as a whole, so in many dimensions one parameter may still be
far off. Bulyan repeats Krum's choice until it holds n − 2m updates, then averages per parameter the n − 4m values nearest
to their median.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quorank.federation.rules.distances import PAIR_ARRAYS, distances
from quorank.federation.rules.rule import RobustRule
from quorank.federation.rules.trimmed import by_coordinate
from quorank.kernels.arrays import Booleans, Doubles, Integers
from quorank.kernels.compiled import kernel

ROUNDING = 1e-12
"""Rounding error of a score updated by subtractions, relative to the first score."""


@dataclass(frozen=True)
class Bulyan(RobustRule):
    """Krum's choices, then the mean around the median; ties are decided by the bytes of the updates.

    >>> Bulyan(byzantine=1).combine_all(np.array([[0.0], [0.1], [0.2], [0.3], [0.4], [0.5], [9.0]]), np.ones(7))
    array([0.26666667])
    """

    kind: ClassVar[str] = "bulyan"
    pair_arrays: ClassVar[int] = PAIR_ARRAYS

    def least_cohort(self) -> int:
        """Return 4m + 3, below which malicious values may outnumber honest ones in the second step."""
        return 4 * self.byzantine + 3

    def combine_rows(self, rows: Doubles) -> Doubles:
        """Return the mean of the n − 4m values around the median of Krum's choices, per parameter."""
        chosen = successive_krum(rows, self.byzantine)
        return mean_around_median(by_coordinate(rows[chosen]), len(rows) - 4 * self.byzantine)


def successive_krum(rows: Doubles, byzantine: int) -> Integers:
    """Return the n − 2m updates that Krum chooses successively.

    With r updates left Krum sums r − m − 2 distances. The paper lets r fall to 2m + 1, where that is m − 1: for m = 1 the
    nearest neighbour decides. With one neighbour the two nearest updates always tie, so for m ≤ 2 the last choice
    is decided by their bytes.
    """
    n, count = len(rows), len(rows) - 2 * byzantine
    if byzantine == 0:
        return np.arange(n)
    distance = distances(rows)
    np.fill_diagonal(distance, np.nan)  # sorts last, behind infinite distances
    order = np.argsort(distance, axis=1, kind="stable")[:, : n - 1]
    place = np.empty((n, n), dtype=np.int64)
    np.put_along_axis(place, order, np.arange(n - 1)[None, :], axis=1)
    return np.sort(_choose(distance, order, place, byzantine, count))


@kernel
def _score(distance: Doubles, order: Integers, left: Booleans, i: int, neighbours: int) -> float:
    """Return Krum's score of i among the remaining updates."""
    score, seen = 0.0, 0
    for j in order[i]:
        if left[j]:
            score += distance[i, j]
            seen += 1
            if seen == neighbours:
                break
    return score


@kernel
def _choose(distance: Doubles, order: Integers, place: Integers, byzantine: int, count: int) -> Integers:
    """Return Krum's successive choices.

    After each choice every update loses one neighbour: the chosen one, or else the farthest. So scores are updated by a
    subtraction, and only those that may be the lowest, within rounding, are summed again.
    """
    n = len(distance)
    left = np.ones(n, dtype=np.bool_)
    chosen = np.empty(count, dtype=np.int64)
    last = np.full(n, n - byzantine - 3)  # place of the farthest neighbour in the order of each
    carried = np.empty(n)
    error = np.empty(n)
    for i in range(n):
        carried[i] = _score(distance, order, left, i, n - byzantine - 2)
        error[i] = ROUNDING * carried[i]
    for c in range(count):
        limit = np.inf
        for i in range(n):
            if left[i] and carried[i] + error[i] < limit:
                limit = carried[i] + error[i]
        best, lowest = -1, np.inf
        neighbours = n - c - byzantine - 2
        for i in range(n):
            if left[i] and (neighbours < 1 or not (carried[i] - error[i] > limit)):
                score = _score(distance, order, left, i, max(neighbours, 1))
                if best < 0 or score < lowest:
                    best, lowest = i, score
        left[best] = False
        chosen[c] = best
        for i in range(n):
            if left[i]:
                removed = best
                if place[i, best] > last[i]:
                    while not left[order[i, last[i]]]:
                        last[i] -= 1
                    removed = order[i, last[i]]
                    last[i] -= 1
                carried[i] -= distance[i, removed]
    return chosen


@kernel
def mean_around_median(values: Doubles, count: int) -> Doubles:
    """Return the mean of the `count` values nearest to the median of each ascending row; ties go to the smaller."""
    d, n = values.shape
    out = np.empty(d)
    for k in range(d):
        middle = 0.5 * values[k, (n - 1) // 2] + 0.5 * values[k, n // 2]
        start = 0
        while start + count < n and values[k, start + count] - middle < middle - values[k, start]:
            start += 1
        total = 0.0
        for i in range(start, start + count):
            total += values[k, i]
        out[k] = total / count
    return out
