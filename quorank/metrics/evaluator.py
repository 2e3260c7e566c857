"""Evaluator of rankers on a whole split, in one compiled pass for many rankers at once.

Every document is read from memory once and scored by all of the rankers while it is in cache; that is why a run
evaluates the rankers of several rounds together. A ranker's figures do not depend on which others are in the pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from quorank.data.ranking import RankingData
from quorank.kernels.arrays import Booleans, Doubles, Floats, Int8s, Integers
from quorank.kernels.compiled import fixed_memory_kernel, kernel
from quorank.metrics.lists import NoRelevant, discounts, err, gain
from quorank.rankers import Ranker, scores
from quorank.rankers.scoring import pack, packed_size, score_rows_of_all, width_of


@kernel
def _ideal(labels: Int8s, offsets: Integers, discount: Doubles, out: Doubles) -> None:
    counts = np.zeros(128, dtype=np.int64)
    for q in range(len(out)):
        counts[:] = 0
        for row in range(offsets[q], offsets[q + 1]):
            counts[labels[row]] += 1
        rank, total = 0, 0.0
        for label in range(127, 0, -1):
            for _ in range(counts[label]):
                if rank == len(discount):
                    break
                total += (2.0**label - 1.0) * discount[rank]
                rank += 1
        out[q] = total


def ideal_dcg(data: RankingData, k: int) -> Doubles:
    """DCG@k of the best possible list of every query; 0 where nothing is relevant."""
    out = np.empty(data.n_queries)
    _ideal(data.labels, data.offsets, discounts(k), out)
    return out


@fixed_memory_kernel
def top_k(scores: Floats | Doubles, n: int, k: int, top: Integers) -> int:
    """top[:min(k, n)] = positions of the highest scores, best first, ties by position; returns min(k, n)."""
    size = min(k, n)
    for i in range(size):
        at = i
        while at > 0 and scores[i] > scores[top[at - 1]]:
            top[at] = top[at - 1]
            at -= 1
        top[at] = i
    if size == 0:
        return 0
    least = scores[top[size - 1]]
    for i in range(size, n):
        if scores[i] > least:
            at = size - 1
            while at > 0 and scores[i] > scores[top[at - 1]]:
                top[at] = top[at - 1]
                at -= 1
            top[at] = i
            least = scores[top[size - 1]]
    return size


class _Judgement(NamedTuple):
    """Labels of a split, and the depths at which it is judged."""

    labels: Int8s  # (documents,)
    offsets: Integers  # (queries + 1,)
    ideal: Doubles  # (cutoffs, queries) DCG of the best list
    discount: Doubles  # (deepest,)
    gain: Doubles  # (128,) by label
    cutoffs: Integers  # ascending
    page: int  # documents among which the first relevant one is looked for


@kernel
def _judge_list(judgement: _Judgement, q: int, top: Integers, size: int, ndcg: Doubles) -> float:
    """Write nDCG of one ranked list at each cut-off into `ndcg`; return its reciprocal rank among the first `page`."""
    labels, start = judgement.labels, judgement.offsets[q]
    total, done = 0.0, 0
    for c in range(len(judgement.cutoffs)):
        until = min(judgement.cutoffs[c], size)
        for p in range(done, until):
            total += judgement.gain[labels[start + top[p]]] * judgement.discount[p]
        ndcg[c] = total / judgement.ideal[c, q]
        done = until
    for p in range(min(judgement.page, size)):
        if labels[start + top[p]] > 0:
            return 1.0 / (p + 1)
    return 0.0


@kernel
def _evaluate(
    judgement: _Judgement,
    packed: Floats,
    hidden: int,
    padded: Floats,
    scores: Floats,
    span: tuple[int, int],
    ndcg: Doubles,
    reciprocal: Doubles,
) -> None:
    """ndcg[c, r, q] is nDCG@cutoffs[c] by ranker r, reciprocal[r, q] the reciprocal rank, for q in the span.

    Both arrays are zero before; `scores` (rankers, longest) is scratch.
    """
    offsets, k = judgement.offsets, len(judgement.discount)
    activation = np.zeros(width_of(hidden), dtype=np.float32)
    top = np.zeros(k, dtype=np.int64)
    for q in range(span[0], span[1]):
        if judgement.ideal[0, q] <= 0.0:
            continue
        start, stop = offsets[q], offsets[q + 1]
        score_rows_of_all(packed, hidden, padded, start, stop, scores, activation)
        for r in range(packed.shape[0]):
            size = top_k(scores[r], stop - start, k, top)
            reciprocal[r, q] = _judge_list(judgement, q, top, size, ndcg[:, r, q])


@kernel
def _judge(judgement: _Judgement, scores: Doubles, ndcg: Doubles, reciprocal: Doubles) -> None:
    """Metrics of `_evaluate` for one ranker that has scored all rows, (rows,): ndcg[c, q], reciprocal[q]."""
    offsets, k = judgement.offsets, len(judgement.discount)
    top = np.zeros(k, dtype=np.int64)
    for q in range(len(offsets) - 1):
        if judgement.ideal[0, q] <= 0.0:
            continue
        start, stop = offsets[q], offsets[q + 1]
        size = top_k(scores[start:stop], stop - start, k, top)
        reciprocal[q] = _judge_list(judgement, q, top, size, ndcg[:, q])


@dataclass(frozen=True, eq=False)
class Evaluator:
    """Evaluates rankers on one split: nDCG@k, MaxRR of the first `page`, and nDCG at other `cutoffs` in the same pass.

    `no_relevant` says what a query without relevant documents counts: "skip" (the published code) or "zero".
    """

    data: RankingData
    ranker: Ranker
    k: int = 10
    no_relevant: NoRelevant = "skip"
    threads: int = 1
    page: int | None = None  # documents among which the first relevant one is looked for; k unless given
    cutoffs: tuple[int, ...] = ()  # further depths

    @cached_property
    def _inputs(self) -> RankingData:
        """The lists as the ranker scores them."""
        return self.ranker.prepared(self.data)

    def warm(self) -> None:
        """Compile, or load from the cache, so that the first evaluation is timed like the others."""
        padded, labels, offsets = self.data.padded[:0], self.data.labels[:0], np.zeros(1, np.int64)
        nothing = replace(self.data, padded=padded, labels=labels, offsets=offsets, query_ids=[], document_ids=None)
        replace(self, data=nothing, threads=1).per_query([np.zeros(self.ranker.size(self.data.n_features))])

    def per_query(self, thetas: Sequence[Doubles] | Doubles) -> tuple[Doubles, Doubles]:
        """(rankers, queries) of nDCG@k and of the reciprocal rank of the first relevant document; 0 without any."""
        ndcg, reciprocal = self._measured(thetas)
        return ndcg[0], reciprocal

    def _measured(self, thetas: Sequence[Doubles] | Doubles) -> tuple[Doubles, Doubles]:
        """(1 + cutoffs, rankers, queries) of nDCG at k and the further depths; (rankers, queries) of reciprocal ranks."""
        if self.ranker.grown:
            features = self.data.features
            return self._judged([self.ranker.score_features(theta, features) for theta in thetas])
        data, hidden = self._inputs, self.ranker.layer
        judgement, stride = self._judgement, data.padded.shape[1]
        for theta in thetas:
            self.ranker.check_size(theta, self.data.n_features)
        packed = np.zeros((len(thetas), packed_size(hidden, stride)), dtype=np.float32)
        for row, theta in zip(packed, thetas, strict=True):
            pack(np.ascontiguousarray(theta, dtype=np.float64), hidden, data.n_features, stride, row)
        ndcg = np.zeros((len(judgement.cutoffs), len(thetas), data.n_queries))
        reciprocal = np.zeros((len(thetas), data.n_queries))

        def part(span: tuple[int, int]) -> None:
            scores = np.empty((len(thetas), data.longest), dtype=np.float32)
            _evaluate(judgement, packed, hidden, data.padded, scores, span, ndcg, reciprocal)

        edges = np.linspace(0, data.n_queries, self.threads + 1).astype(int)
        spans = list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))
        if self.threads == 1:
            part(spans[0])
        else:
            with ThreadPoolExecutor(self.threads) as pool:
                list(pool.map(part, spans))
        return ndcg[self._wanted], reciprocal

    def _judged(self, scored: Sequence[Doubles]) -> tuple[Doubles, Doubles]:
        """Metrics of `_measured` of rankers that have scored all rows, (rows,) each."""
        judgement, n = self._judgement, self.data.n_queries
        ndcg, reciprocal = np.zeros((len(scored), len(judgement.cutoffs), n)), np.zeros((len(scored), n))
        for r, values in enumerate(scored):
            _judge(judgement, np.ascontiguousarray(values, dtype=np.float64), ndcg[r], reciprocal[r])
        return ndcg.transpose(1, 0, 2)[self._wanted], reciprocal

    @cached_property
    def _judgement(self) -> _Judgement:
        data, depths, page = self.data, sorted({self.k, *self.cutoffs}), self.page or self.k
        ideal = np.array([ideal_dcg(data, depth) for depth in depths])
        discount = discounts(max(depths[-1], page))
        cutoffs, gains = np.array(depths, dtype=np.int64), gain(np.arange(128))
        return _Judgement(data.labels, data.offsets, ideal, discount, gains, cutoffs, page)

    @property
    def _wanted(self) -> list[int]:
        """Index of k and of each further depth among the cut-offs."""
        depths = sorted({self.k, *self.cutoffs})
        return [depths.index(depth) for depth in (self.k, *self.cutoffs)]

    def scores(self, theta: Doubles) -> Floats | Doubles:
        """(rows,) scores by which lists are sorted: float32, of trees float64."""
        if self.ranker.grown:
            return self.ranker.score_features(theta, self.data.features)
        return scores(self.ranker, theta, self.data)

    def err(self, theta: Doubles) -> Doubles:
        """(queries,) expected reciprocal rank at k; labels are graded against 4, or 2 where none is higher."""
        values = scores(self.ranker, theta, self.data)
        highest = 4 if self.data.max_label > 2 else 2
        out = np.empty(self.data.n_queries)
        for q in range(self.data.n_queries):
            rows = self.data.rows_of(q)
            order = np.argsort(-values[rows], kind="stable")[: self.k]
            out[q] = err(self.data.labels[rows][order], self.k, highest)
        return out

    def counted(self) -> Booleans:
        """Queries that enter the mean."""
        if self.no_relevant == "zero":
            return np.ones(self.data.n_queries, dtype=np.bool_)
        return np.asarray(ideal_dcg(self.data, self.k) > 0.0)

    def all_means(self, thetas: Sequence[Doubles] | Doubles) -> Doubles:
        """(2 + cutoffs, rankers) means over the counted queries: nDCG@k, reciprocal rank, nDCG at the further depths."""
        return self._meant(*self._measured(thetas))

    def score_means(self, scored: Sequence[Doubles]) -> Doubles:
        """(2 + cutoffs, rankers) `all_means` of rankers that have scored all rows of the split, (rows,) each."""
        return self._meant(*self._judged(scored))

    def _meant(self, ndcg: Doubles, reciprocal: Doubles) -> Doubles:
        counted = self.counted()
        # one row at a time: NumPy's summation order must not depend on how many rankers are in the pass
        return np.array(
            [
                [row[counted].mean() if counted.any() else 0.0 for row in rows]
                for rows in (ndcg[0], reciprocal, *ndcg[1:])
            ]
        )


@kernel
def intersection_distance(a: Integers, b: Integers, k: int) -> float:
    """1 − (1/k)·Σ_{d ≤ k} |A_d ∩ B_d| / d, where A_d are the first d of a: 0 if the lists are equal, 1 if disjoint.

    Fagin, Kumar and Sivakumar (2003, "Comparing top k lists", §3.1): one minus the average overlap of the two lists over
    all depths, so that differences at the top count most. Labels play no part in it, so it sees changes that leave nDCG
    as it was.
    """
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
