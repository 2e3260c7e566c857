"""Distance of two rankers: how much the pages that they would show differ.

The intersection distance of Fagin, Kumar and Sivakumar (2003, "Comparing top k lists", §3.1): one minus the average
overlap of the two lists over all depths, so that differences at the top count most. Labels play no part in it, which
is what makes it see changes that leave nDCG as it was.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from quorank.data.ranking import RankingData
from quorank.kernels.arrays import Doubles, Floats, Integers
from quorank.kernels.compiled import kernel
from quorank.metrics.evaluator import top_k
from quorank.rankers import Ranker, scores


@kernel
def intersection_distance(a: Integers, b: Integers, k: int) -> float:
    """1 − (1/k)·Σ_{d ≤ k} |A_d ∩ B_d| / d, where A_d are the first d of a: 0 if the lists are equal, 1 if disjoint."""
    shared, total = 0, 0.0
    for d in range(k):
        if a[d] == b[d]:
            shared += 1
        else:
            for e in range(d):
                shared += int(a[d] == b[e]) + int(b[d] == a[e])
        total += shared / (d + 1)
    return 1.0 - total / k


@kernel
def _distances(first: Floats, second: Floats, offsets: Integers, k: int, out: Doubles) -> None:
    a, b = np.zeros(k, dtype=np.int64), np.zeros(k, dtype=np.int64)
    for q in range(len(out)):
        start, stop = offsets[q], offsets[q + 1]
        size = top_k(first[start:stop], stop - start, k, a)
        top_k(second[start:stop], stop - start, k, b)
        out[q] = intersection_distance(a, b, size) if size > 0 else 0.0


def ranking_distances(ranker: Ranker, one: Doubles, other: Doubles, data: RankingData, k: int = 10) -> Doubles:
    """(queries,) the intersection distance at k of the rankings by two parameter vectors; ties by position."""
    out = np.empty(data.n_queries)
    _distances(scores(ranker, one, data), scores(ranker, other, data), data.offsets, k, out)
    return out


def mean_distance(ranker: Ranker, one: Doubles, other: Doubles, splits: Sequence[RankingData], k: int = 10) -> float:
    """The mean over all queries of some splits, those without a relevant document among them."""
    return float(np.concatenate([ranking_distances(ranker, one, other, data, k) for data in splits]).mean())
