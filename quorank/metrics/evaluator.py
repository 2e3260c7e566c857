"""Evaluation of rankers on a whole split, in one compiled pass for many rankers at once.

Every document is read from memory once and scored by all rankers while it is in cache; therefore a run evaluates the
rankers of several rounds together. The metrics of a ranker do not depend on the other rankers in the pass.

nDCG has gain 2^rel − 1 and discount log2(rank + 1) (Burges et al., ICML 2005). Documents with equal scores count by the
expected value of each metric over all orders of them (McSherry and Najork, ECIR 2008), so that the order of the file does
not matter. Compiled code is checked against the metrics of one list in `lists`.
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
    """Return DCG@k (queries,) of the best possible list of every query; 0 if nothing is relevant.

    >>> ideal_dcg(RankingData.from_arrays([[1.0], [2.0]], labels=[0, 2], offsets=[0, 2]), k=10)  # (2² − 1)/log2(2)
    array([3.])
    """
    out = np.empty(data.n_queries)
    _ideal(data.labels, data.offsets, discounts(k), out)
    return out


@fixed_memory_kernel
def top_k(scores: Floats | Doubles, n: int, k: int, top: Integers) -> int:
    """Find the positions of the highest scores, best first, ties by position.

    Args:
        scores: (≥ n,) scores.
        n: Number of documents.
        k: Length of the list.
        top: (≥ min(k, n),) output.

    Returns:
        min(k, n), the number of positions.

    >>> top = np.zeros(2, dtype=np.int64)
    >>> top_k(np.array([0.1, 0.9, 0.5]), 3, 2, top), top
    (2, array([1, 2]))
    """
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
    """Labels of a split, and the depths of its metrics."""

    labels: Int8s  # (documents,)
    offsets: Integers  # (queries + 1,)
    ideal: Doubles  # (cutoffs, queries) DCG of the best list
    discount: Doubles  # (deepest,)
    gain: Doubles  # (128,) by label
    cutoffs: Integers  # ascending
    page: int  # depth of the reciprocal rank
    ordered: bool  # equal scores keep the order of the list


@kernel
def _average_ties(
    judgement: _Judgement, start: int, scores: Floats | Doubles, n: int, top: Integers, expected: Doubles
) -> float:
    """Write the expected gain at each rank into `expected`; return the expected reciprocal rank.

    Each rank of a tie has the mean gain of its documents (McSherry and Najork 2008, eq. 4). Of m tied documents with r
    relevant ones, the first relevant one has place i with probability r/(m − i + 1) · Π_{j<i} (m − r − j + 1)/(m − j + 1).
    """
    labels, size, p, reciprocal, found = judgement.labels, min(n, len(expected)), 0, 0.0, False
    while p < size:
        score, members, relevant, gains = scores[top[p]], 0, 0, 0.0
        for i in range(n):  # a tie may continue behind the last rank
            if scores[i] == score:
                members += 1
                relevant += labels[start + i] > 0
                gains += judgement.gain[labels[start + i]]
        stop = min(p + members, size)
        for i in range(p, stop):
            expected[i] = gains / members
        if relevant > 0 and not found:
            found, none = True, 1.0  # probability that no earlier rank is relevant
            for i in range(p, min(stop, judgement.page)):
                left = members - (i - p)
                reciprocal += none * (relevant / left) / (i + 1)
                none *= (left - relevant) / left
        p = stop
    return reciprocal


@kernel
def _judge_list(
    judgement: _Judgement, q: int, scores: Floats | Doubles, n: int, top: Integers, expected: Doubles, ndcg: Doubles
) -> float:
    """Write the expected nDCG of one list at each cut-off into `ndcg`; return the expected reciprocal rank.

    Args:
        judgement: Labels and depths.
        q: Query.
        scores: (≥ n,) scores of its documents.
        n: Number of its documents.
        top: (deepest + 1,) scratch.
        expected: (deepest,) scratch.
        ndcg: (cutoffs,) output.
    """
    labels, start, size = judgement.labels, judgement.offsets[q], min(n, len(expected))
    longer = top_k(scores, n, len(expected) + 1, top)
    tied = False
    for p in range(longer - 1):
        tied |= scores[top[p]] == scores[top[p + 1]]
    reciprocal = 0.0
    if tied and not judgement.ordered:
        reciprocal = _average_ties(judgement, start, scores, n, top, expected)
    else:
        for p in range(size):
            expected[p] = judgement.gain[labels[start + top[p]]]
        for p in range(min(judgement.page, size)):
            if labels[start + top[p]] > 0:
                reciprocal = 1.0 / (p + 1)
                break
    total, done = 0.0, 0
    for c in range(len(judgement.cutoffs)):
        until = min(judgement.cutoffs[c], size)
        for p in range(done, until):
            total += expected[p] * judgement.discount[p]
        ndcg[c] = total / judgement.ideal[c, q]
        done = until
    return reciprocal


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
    """Write the metrics of all rankers for the queries of a span into arrays of zeros.

    Args:
        judgement: Labels and depths.
        packed: (rankers, packed size) parameters, from `pack`.
        hidden: Units of the hidden layer; 0 for linear rankers.
        padded: (documents, stride) features.
        scores: (rankers, longest list) scratch.
        span: First query and the one behind the last.
        ndcg: (cutoffs, rankers, queries) output.
        reciprocal: (rankers, queries) output.
    """
    offsets, k = judgement.offsets, len(judgement.discount)
    activation = np.zeros(width_of(hidden), dtype=np.float32)
    top, expected = np.zeros(k + 1, dtype=np.int64), np.zeros(k)
    for q in range(span[0], span[1]):
        if judgement.ideal[0, q] <= 0.0:
            continue
        start, stop = offsets[q], offsets[q + 1]
        score_rows_of_all(packed, hidden, padded, start, stop, scores, activation)
        for r in range(packed.shape[0]):
            reciprocal[r, q] = _judge_list(judgement, q, scores[r], stop - start, top, expected, ndcg[:, r, q])


@kernel
def _judge(judgement: _Judgement, scores: Doubles, ndcg: Doubles, reciprocal: Doubles) -> None:
    """Add the metrics of (rows,) scores of one ranker to zeros: ndcg (cutoffs, queries), reciprocal (queries,)."""
    offsets, k = judgement.offsets, len(judgement.discount)
    top, expected = np.zeros(k + 1, dtype=np.int64), np.zeros(k)
    for q in range(len(offsets) - 1):
        if judgement.ideal[0, q] <= 0.0:
            continue
        start, stop = offsets[q], offsets[q + 1]
        reciprocal[q] = _judge_list(judgement, q, scores[start:stop], stop - start, top, expected, ndcg[:, q])


@dataclass(frozen=True, eq=False)
class Evaluator:
    """Evaluator of rankers on one split: nDCG and the reciprocal rank of the first relevant document.

    Documents with equal scores count by their expected value over all orders, so that a ranker that scores all alike has
    the nDCG of a random order.

    Args:
        data: Split.
        ranker: Scoring function.
        k: Depth of nDCG.
        no_relevant: Treatment of queries without a relevant document in means: "skip" (the published code) or "zero".
        threads: Number of threads; the bits do not depend on it.
        page: Depth of the reciprocal rank; k by default.
        cutoffs: Further depths of nDCG, measured in the same pass.
        ordered: Documents with equal scores keep the order of their list, as the results of a search do.

    >>> from quorank.rankers import Linear
    >>> data = RankingData.from_arrays([[3.0], [2.0], [1.0]], labels=[0, 1, 0], offsets=[0, 3])
    >>> ndcg, reciprocal = Evaluator(data, Linear()).per_query([np.array([1.0]), np.array([-1.0])])
    >>> reciprocal.tolist()
    [[0.5], [0.5]]
    """

    data: RankingData
    ranker: Ranker
    k: int = 10
    no_relevant: NoRelevant = "skip"
    threads: int = 1
    page: int | None = None
    cutoffs: tuple[int, ...] = ()
    ordered: bool = False

    @cached_property
    def _inputs(self) -> RankingData:
        """Split with the ranker's transform of the features."""
        return self.ranker.prepared(self.data)

    def warm(self) -> None:
        """Compile the kernels or load them from the cache, so that the first evaluation takes no longer than others."""
        padded, labels, offsets = self.data.padded[:0], self.data.labels[:0], np.zeros(1, np.int64)
        nothing = replace(self.data, padded=padded, labels=labels, offsets=offsets, query_ids=[], document_ids=None)
        replace(self, data=nothing, threads=1).per_query([np.zeros(self.ranker.size(self.data.n_features))])

    def per_query(self, thetas: Sequence[Doubles] | Doubles) -> tuple[Doubles, Doubles]:
        """Measure rankers on every query.

        Args:
            thetas: (rankers, size) parameters.

        Returns:
            nDCG@k and reciprocal rank, (rankers, queries) each; 0 without a relevant document.
        """
        ndcg, reciprocal = self._measured(thetas)
        return ndcg[0], reciprocal

    def _measured(self, thetas: Sequence[Doubles] | Doubles) -> tuple[Doubles, Doubles]:
        """Return (1 + cutoffs, rankers, queries) nDCG at k and the further depths, (rankers, queries) reciprocal ranks."""
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
        """Return the metrics of `_measured` from the scores (rows,) of each ranker."""
        judgement, n = self._judgement, self.data.n_queries
        ndcg, reciprocal = np.zeros((len(scored), len(judgement.cutoffs), n)), np.zeros((len(scored), n))
        for r, values in enumerate(scored):
            _judge(judgement, np.ascontiguousarray(values, dtype=np.float64), ndcg[r], reciprocal[r])
        return ndcg.transpose(1, 0, 2)[self._wanted], reciprocal

    @cached_property
    def _judgement(self) -> _Judgement:
        data, depths, page = self.data, self._depths, self.page or self.k
        ideal = np.array([ideal_dcg(data, depth) for depth in depths])
        discount = discounts(max(depths[-1], page))
        cutoffs, gains = np.array(depths, dtype=np.int64), gain(np.arange(128))
        return _Judgement(data.labels, data.offsets, ideal, discount, gains, cutoffs, page, self.ordered)

    @property
    def _depths(self) -> list[int]:
        return sorted({self.k, *self.cutoffs})

    @property
    def _wanted(self) -> list[int]:
        """Indices of k and of each further depth among the cut-offs."""
        return [self._depths.index(depth) for depth in (self.k, *self.cutoffs)]

    def scores(self, theta: Doubles) -> Floats | Doubles:
        """Return the scores (rows,) that sort the lists: float32, of trees float64."""
        if self.ranker.grown:
            return self.ranker.score_features(theta, self.data.features)
        return scores(self.ranker, theta, self.data)

    def err(self, theta: Doubles) -> Doubles:
        """Return the expected reciprocal rank at k (queries,), with highest grade 4, or 2 if no label is above 2."""
        values, data = self.scores(theta), self.data
        highest = 4 if data.max_label > 2 else 2
        if self.ordered:
            values = -np.argsort(np.lexsort((-values, data.query_of_rows()))).astype(np.float64)
        lists = [data.rows_of(q) for q in range(data.n_queries)]
        return np.array([err(data.labels[rows], self.k, highest, values[rows]) for rows in lists])

    def counted(self) -> Booleans:
        """Return the mask (queries,) of the queries in means."""
        if self.no_relevant == "zero":
            return np.ones(self.data.n_queries, dtype=np.bool_)
        return np.asarray(ideal_dcg(self.data, self.k) > 0.0)

    def all_means(self, thetas: Sequence[Doubles] | Doubles) -> Doubles:
        """Average the metrics of rankers over the counted queries.

        Args:
            thetas: (rankers, size) parameters.

        Returns:
            (2 + cutoffs, rankers): nDCG@k, reciprocal rank, nDCG at each further depth; 0 if no query counts.
        """
        return self._meant(*self._measured(thetas))

    def score_means(self, scored: Sequence[Doubles]) -> Doubles:
        """Return the `all_means` of rankers from their scores (rows,) of the split."""
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


def intersection_distance(a: Integers, b: Integers) -> float:
    """Compute 1 − (1/k)·Σ_{d ≤ k} |A_d ∩ B_d| / d of two lists, A_d the first d of a: 0 if equal, 1 if disjoint.

    Fagin, Kumar and Sivakumar 2003, "Comparing top k lists", §3.1: one minus the average overlap over all depths, so that
    differences at the top count most. Labels are not used, so it detects changes that leave nDCG as it was.

    Args:
        a: (k,) distinct documents, best first.
        b: (k,) distinct documents, best first.

    >>> intersection_distance(np.array([3, 1]), np.array([1, 3]))  # 1 − (0/1 + 2/2)/2
    0.5
    """
    depths = np.arange(1, len(a) + 1)
    shared_from = np.maximum(*np.nonzero(a[:, None] == b))  # place from which a document is in both
    overlap = np.bincount(shared_from, minlength=len(a)).cumsum() / depths
    return float(1.0 - overlap.mean())


def ranking_distances(ranker: Ranker, one: Doubles, other: Doubles, data: RankingData, k: int = 10) -> Doubles:
    """Return the intersection distance at k (queries,) of the rankings by two parameter vectors; ties by position.

    Args:
        ranker: Scoring function.
        one: (size,) parameters.
        other: (size,) parameters.
        data: Split.
        k: Number of ranks that are compared.
    """
    first, second = scores(ranker, one, data), scores(ranker, other, data)
    found = np.zeros(data.n_queries)
    for q in range(data.n_queries):
        rows = data.rows_of(q)
        a, b = (np.argsort(-of[rows], kind="stable")[:k] for of in (first, second))
        found[q] = intersection_distance(a, b) if len(a) else 0.0
    return found


def mean_distance(ranker: Ranker, one: Doubles, other: Doubles, splits: Sequence[RankingData], k: int = 10) -> float:
    """Return the mean of `ranking_distances` over all queries of several splits, with or without relevant documents."""
    return float(np.concatenate([ranking_distances(ranker, one, other, data, k) for data in splits]).mean())
