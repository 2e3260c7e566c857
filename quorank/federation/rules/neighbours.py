"""Rules that compare the distances between the updates of a cohort: Krum, Multi-Krum, Bulyan and mixing.

Rows come ordered by their bytes (`content_rows`), so ties are decided by content.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from quorank.errors import require_range
from quorank.federation.rules.centres import (
    by_coordinate,
    coordinate_median,
    geometric_median,
    squared_distance,
    trimmed_mean,
)
from quorank.federation.rules.rule import RobustRule
from quorank.kernels.arrays import Doubles, Integers
from quorank.kernels.compiled import kernel


@kernel
def distances(rows: Doubles) -> Doubles:
    """Return (n, n) distances ‖x_i − x_j‖, symmetric, with a zero diagonal."""
    out = np.zeros((len(rows), len(rows)))
    for i in range(len(rows)):
        for j in range(i):
            out[i, j] = out[j, i] = math.sqrt(squared_distance(rows[i], rows[j]))
    return out


@dataclass(frozen=True)
class Krum(RobustRule):
    """Update with the lowest score, θ_g = arg min_θi s(i) (thesis eq. 5.2).

    Blanchard et al. 2017, "Machine learning with adversaries".
    s(i) = Σ_{i→j} ‖θ_i − θ_j‖ over the n − m − 2 nearest neighbours j of i: a harmful update lies far from the honest
    ones. Updates are differences to the same ranker, so a choice among updates is a choice among rankers. The thesis
    sums distances, as here, the original paper squared distances. Its guarantees need n ≥ 2m + 3; the thesis's four
    malicious clients among ten are outside of them.

    Args:
        byzantine: Tolerated number of malicious clients m, at least 0; a cohort needs more than 2m and at least m + 3
            clients.

    >>> Krum(byzantine=1).combine_all(np.array([[0.0], [0.1], [0.3], [9.0]]), np.ones(4))
    array([0.])
    """

    kind: ClassVar[str] = "krum"
    compares_pairs: ClassVar[bool] = True

    def least_cohort(self) -> int:
        """Return m + 3: Krum needs at least one of n − m − 2 neighbours."""
        return self.byzantine + 3

    def combine_rows(self, rows: Doubles) -> Doubles:
        """Return the update with the lowest score."""
        return np.array(rows[self.lowest(rows, 1)[0]])

    def lowest(self, rows: Doubles, count: int) -> Integers:
        """Return the rows with the `count` lowest scores, ascending."""
        scores = krum_scores(distances(rows), len(rows) - self.byzantine - 2)
        return np.sort(np.argsort(scores, kind="stable")[:count])


@dataclass(frozen=True)
class MultiKrum(Krum):
    """Mean of the f = n − m updates with the lowest Krum scores (Blanchard et al. 2017; thesis eq. 5.3).

    Args:
        byzantine: Tolerated number of malicious clients m, at least 0; a cohort needs more than 2m and at least m + 3
            clients.

    >>> MultiKrum(byzantine=1).combine_all(np.array([[0.0], [0.1], [0.2], [9.0]]), np.ones(4))
    array([0.1])
    """

    kind: ClassVar[str] = "multi-krum"

    def combine_rows(self, rows: Doubles) -> Doubles:
        """Return (1/f)·Σ of the f updates with the lowest scores."""
        return np.asarray(rows[self.lowest(rows, len(rows) - self.byzantine)].mean(axis=0), dtype=np.float64)


def krum_scores(distance: Doubles, neighbours: int) -> Doubles:
    """Return s(i) = Σ_{i→j} ‖θ_i − θ_j‖ over the nearest `neighbours` of θ_i, from (n, n) distances."""
    others = np.array(distance)
    np.fill_diagonal(others, np.inf)
    return np.asarray(np.sort(others, axis=1)[:, :neighbours].sum(axis=1), dtype=np.float64)


@dataclass(frozen=True)
class Bulyan(RobustRule):
    """Mean of the n − 4m values around the median, per parameter, of the n − 2m updates that Krum chooses successively.

    El Mhamdi, Guerraoui and Rouault 2018, "The hidden vulnerability of distributed learning in Byzantium": Krum bounds
    the distance of its choice as a whole, so in many dimensions one parameter may still be far off.

    Args:
        byzantine: Tolerated number of malicious clients m, at least 0; a cohort needs at least 4m + 3 clients.

    >>> Bulyan(byzantine=1).combine_all(np.array([[0.0], [0.1], [0.2], [0.3], [0.4], [0.5], [9.0]]), np.ones(7))
    array([0.26666667])
    """

    kind: ClassVar[str] = "bulyan"
    compares_pairs: ClassVar[bool] = True

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
    if byzantine == 0:
        return np.arange(len(rows))
    distance = distances(rows)
    np.fill_diagonal(distance, np.nan)  # sorts last, behind infinite distances
    order = np.argsort(distance, axis=1, kind="stable")[:, : len(rows) - 1]
    return np.sort(_choose(distance, order, byzantine, len(rows) - 2 * byzantine))


@kernel
def _choose(distance: Doubles, order: Integers, byzantine: int, count: int) -> Integers:
    """Return Krum's successive choices, given the neighbours of each update in the order of their distance."""
    n = len(distance)
    left, chosen = np.ones(n, dtype=np.bool_), np.empty(count, dtype=np.int64)
    for c in range(count):
        neighbours, best, lowest = max(n - c - byzantine - 2, 1), -1, np.inf
        for i in range(n):
            if not left[i]:
                continue
            score, seen = 0.0, 0
            for j in order[i]:
                if left[j]:
                    score += distance[i, j]
                    seen += 1
                    if seen == neighbours:
                        break
            if best < 0 or score < lowest:
                best, lowest = i, score
        left[best], chosen[c] = False, best
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


@dataclass(frozen=True)
class Mixing(RobustRule):
    """Nearest-neighbour mixing, then another rule.

    Allouah et al. 2023, "Fixing by mixing: a recipe for optimal Byzantine ML under heterogeneity": every update is
    replaced by the mean of its n − m nearest updates, itself included, which reduces the spread of the honest updates,
    on which the rule's error depends.

    In a single round of online learning the honest mean is a small fraction of the honest spread, in which an attack
    can hide. With `history` the rule combines an exponential mean of each client's updates instead (Karimireddy, He and
    Jaggi 2021, "Learning from history for Byzantine robust optimization"): honest noise averages out, an attack does
    not.

    Args:
        byzantine: Tolerated number of malicious clients m, at least 0 and fewer than half of a cohort.
        then: Rule that combines the mixed updates.
        history: Decay β in [0, 1) of the exponential mean of a client's updates; above 0 needs full participation.

    Raises:
        BadInput: `value.out-of-range` if a field is outside its range.

    >>> Mixing(byzantine=1, then="median").combine_all(np.array([[0.0], [0.1], [0.2], [90.0]]), np.ones(4)).round(3)
    array([0.1])
    """

    kind: ClassVar[str] = "nearest-neighbour-mixing"
    compares_pairs: ClassVar[bool] = True

    then: Literal["trimmed-mean", "median", "geometric-median"] = "trimmed-mean"
    history: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_range("history", self.history, least=0.0, below=1.0)

    def combine_rows(self, rows: Doubles) -> Doubles:
        """Return the rule `then` of the mixed updates."""
        mixed = mix(rows, self.byzantine)
        if self.then == "trimmed-mean":
            return trimmed_mean(mixed, self.byzantine)
        return coordinate_median(mixed) if self.then == "median" else geometric_median(mixed)


def mix(rows: Doubles, byzantine: int) -> Doubles:
    """Return y_i = (1 / (n − m))·Σ of the n − m updates nearest to x_i."""
    count = len(rows) - byzantine
    nearest = np.sort(np.argsort(distances(rows), axis=1, kind="stable")[:, :count], axis=1)
    mixed, whole = np.empty_like(rows), count - count % 4
    for i, near in enumerate(nearest):
        x = rows[near]
        fours = (x[0:whole:4] + x[1:whole:4]) + (x[2:whole:4] + x[3:whole:4])
        mixed[i] = np.concatenate((fours, x[whole:])).sum(axis=0) / count
    return mixed
