"""The client's side of growing a tree: its documents in bins, sorted by node, their gradients and scores.

The rows may be one client's, or those of many clients of a simulation together: integer sums are the same.

A level's histograms hold, for every open node, feature and bin, Σ G, Σ H and the number of documents, as integers. One
compiled pass reads each document of a node once for each block of features. Documents are kept sorted by node, so that a
node is a run of `order`. H and the count share one number while they are summed, H + count·2^shift, with a shift leaving
room for all H of the pass (`shift_for`); it is taken apart at the end.

Gradients (Burges 2010, "From RankNet to LambdaRank to LambdaMART"): for documents i, j of one list with gains g_i > g_j
(2^label − 1, or clicks over propensities), scores s, ranks r by s and discounts d_r = 1/log2(r + 1), with σ the `sigmoid`:

    ΔNDCG_ij = (g_i − g_j)·|d_(r_i) − d_(r_j)| / DCG of the best list, both at the truncation
    ρ_ij     = 1 / (1 + exp(σ·(s_i − s_j)))
    G_i −= σ·ΔNDCG_ij·ρ_ij,  G_j += the same,  H_i, H_j += σ²·ΔNDCG_ij·ρ_ij·(1 − ρ_ij)

over the pairs of which at least one document is among the first `truncation`. With `norm`, as in LightGBM
(`lambdarank_norm`), ΔNDCG_ij is divided by 0.01 + |s_i − s_j| once scores differ, and the list's G and H are multiplied by
log2(1 + S)/S, S = Σ 2·σ·ΔNDCG_ij·ρ_ij.

G and H are rounded to integers in 1/UNIT: integers add up to the same total in any order, so that trees do not
depend on how lists are divided among clients, on threads, or on whether a sum is made under masks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from quorank.errors import require
from quorank.kernels.arrays import Bytes, Doubles, Integers
from quorank.kernels.compiled import kernel
from quorank.learning.trees.bins import TOGETHER
from quorank.learning.trees.growth import COUNT, SUM_G, SUM_H, UNIT, LambdaRule, LevelTask
from quorank.metrics.lists import discounts


@dataclass(eq=False)
class ClientRows:
    """Candidate lists of one or many clients."""

    bins: Bytes  # (blocks, rows, TOGETHER)
    n_features: int
    most_bins: int
    gains: Doubles  # (rows,)
    offsets: Integers  # (lists + 1,)
    rule: LambdaRule
    best: Doubles | None = None  # (lists,) divisor of ΔDCG; default: the best list's DCG
    threads: int = 1
    pool: Executor | None = None
    scores: Doubles = field(init=False, repr=False)

    def __post_init__(self) -> None:
        rows = len(self.gains)
        self.scores = np.zeros(rows)
        self._order, self._spare = np.arange(rows, dtype=np.int64), np.empty(rows, dtype=np.int64)
        self._runs: dict[int, tuple[int, int]] = {}
        self._shift = 1
        self.gradients, self.hessians = np.zeros(rows, dtype=np.int64), np.zeros(rows, dtype=np.int64)

    @cached_property
    def discount(self) -> Doubles:
        """(longest list,) discounts of the ranks."""
        return discounts(max(1, int(np.diff(self.offsets).max(initial=1))))

    @cached_property
    def best_dcg(self) -> Doubles:
        """(lists,) divisor of ΔDCG."""
        if self.best is not None:
            return self.best
        out = np.empty(len(self.offsets) - 1)
        fill_best_dcg(self.gains, self.offsets, self.discount, self.rule.truncation, out)
        return out

    def begin(self) -> None:
        """Compute the gradients at the present scores; all documents are in the root."""
        lists = len(self.offsets) - 1
        best, discount = self.best_dcg, self.discount  # computed before threads ask for them

        def some(first: int, last: int) -> None:
            fill_gradients(
                self.rule, self.gains, self.offsets, best, discount, self.scores, first, last, self.gradients,
                self.hessians,
            )  # fmt: skip

        self._divided(lists, some, 4 * self.threads)
        self._shift = shift_for(self.hessians)
        self._order[:] = np.arange(len(self._order))
        self._runs = {0: (0, len(self._order))}

    def histograms(self, task: LevelTask) -> Integers:
        """Divide the documents by the splits of a task; return (wanted, features, bins, 3) of the nodes it asks for."""
        self._split(task)
        blocks = len(self.bins)
        out = np.empty((len(task.wanted), blocks * self.bins.shape[2], self.most_bins, 3), dtype=np.int64)
        if task.wanted:
            starts, stops = np.array([self._runs[node] for node in task.wanted], dtype=np.int64).T.copy()

            def some(first: int, last: int) -> None:
                fill_histograms(
                    self.bins, self._order, starts, stops, self.gradients, self.hessians, self._shift, first, last, out
                )

            self._divided(blocks, some, self.threads)
        return out[:, : self.n_features]

    def finish(self, task: LevelTask, leaf_nodes: tuple[int, ...], values: Doubles) -> None:
        """Make the last splits of a tree and add its leaves' values to the scores."""
        self._split(task)
        starts, stops = np.array([self._runs[node] for node in leaf_nodes], dtype=np.int64).T.copy()
        add_leaf_values(self._order, starts, stops, values, self.scores)

    def _split(self, task: LevelTask) -> None:
        for split in task.splits:
            start, stop = self._runs.pop(split.node)
            at = divide_rows(self.bins, self._order, start, stop, split.feature, split.last_bin, self._spare)
            self._runs[split.left], self._runs[split.right] = (start, at), (at, stop)

    def _divided(self, count: int, work: Callable[[int, int], None], parts: int) -> None:
        """Call work(first, last) for `parts` runs of 0 … count − 1, on the threads that there are."""
        if self.pool is None or parts == 1:
            work(0, count)
            return
        edges = np.linspace(0, count, min(parts, count) + 1).astype(int).tolist()
        list(self.pool.map(work, edges[:-1], edges[1:]))


def shift_for(hessians: Integers) -> int:
    """Return the bits that all H of a pass need; data for which no bits are left to count documents are refused."""
    shift = max(1, int(hessians.sum()).bit_length())
    sentence = "these are too many documents for one party; divide them among several"
    require(shift + len(hessians).bit_length() <= 62, "trees.too-many-rows", sentence)
    return shift


@kernel
def fill_histograms(
    bins: Bytes,
    order: Integers,
    starts: Integers,
    stops: Integers,
    gradients: Integers,
    hessians: Integers,
    shift: int,
    first_block: int,
    last_block: int,
    out: Integers,
) -> None:
    """out[node, feature, bin] = (Σ G, Σ H, count) of the documents order[starts[node]:stops[node]], for some blocks.

    bins: (blocks, rows, TOGETHER); gradients, hessians: (rows,); out: (nodes, blocks·TOGETHER, most bins, 3).
    """
    most = out.shape[2]
    room = np.zeros((TOGETHER, most, 2), dtype=np.int64)
    flat = room.reshape(TOGETHER * most * 2)
    step = most * 2
    longest = 0
    for node in range(len(starts)):
        longest = max(longest, stops[node] - starts[node])
    g, h = np.empty(longest, dtype=np.int64), np.empty(longest, dtype=np.int64)
    one = np.int64(1) << shift
    mask = one - 1
    for node in range(len(starts)):
        start, n = starts[node], stops[node] - starts[node]
        for i in range(n):
            row = order[start + i]
            g[i], h[i] = gradients[row], hessians[row] + one
        for block in range(first_block, last_block):
            flat[:] = 0
            of_block = bins[block]
            for i in range(n):
                row = order[start + i]
                g_i, h_i = g[i], h[i]
                b = of_block[row]
                for f in range(TOGETHER):
                    at = f * step + 2 * np.intp(b[f])
                    flat[at] += g_i
                    flat[at + 1] += h_i
            for f in range(TOGETHER):
                for b_ in range(most):
                    both = room[f, b_, 1]
                    out[node, block * TOGETHER + f, b_, SUM_G] = room[f, b_, 0]
                    out[node, block * TOGETHER + f, b_, SUM_H] = both & mask
                    out[node, block * TOGETHER + f, b_, COUNT] = both >> shift


@kernel
def divide_rows(
    bins: Bytes, order: Integers, start: int, stop: int, feature: int, last_bin: int, spare: Integers
) -> int:
    """Sort order[start:stop] stably: bins up to `last_bin` of a feature first. Return where the others begin."""
    block, of = feature // TOGETHER, feature % TOGETHER
    at, others = start, 0
    for i in range(start, stop):
        row = order[i]
        if bins[block, row, of] <= last_bin:
            order[at] = row
            at += 1
        else:
            spare[others] = row
            others += 1
    for i in range(others):
        order[at + i] = spare[i]
    return at


@kernel
def add_leaf_values(order: Integers, starts: Integers, stops: Integers, values: Doubles, scores: Doubles) -> None:
    """scores[row] += values[leaf] for the documents of each leaf."""
    for leaf in range(len(starts)):
        for i in range(starts[leaf], stops[leaf]):
            scores[order[i]] += values[leaf]


FARTHEST = 600.0
"""Scores farther than this below the best of a list, times σ, count as this far: exp stays above 0."""


@kernel
def rank_rows(values: Doubles, start: int, n: int, order: Integers, spare: Integers) -> None:
    """order[:n] = positions of values[start:start + n], the highest first, ties by position (merge sort).

    NumPy's sort does the same, but takes Numba seconds to compile.
    """
    for i in range(n):
        order[i] = i
    width = 1
    while width < n:
        for low in range(0, n, 2 * width):
            middle, high = min(low + width, n), min(low + 2 * width, n)
            a, b = low, middle
            for at in range(low, high):
                if a < middle and (b >= high or values[start + order[a]] >= values[start + order[b]]):
                    spare[at] = order[a]
                    a += 1
                else:
                    spare[at] = order[b]
                    b += 1
        for i in range(n):
            order[i] = spare[i]
        width *= 2


@kernel
def fill_best_dcg(gains: Doubles, offsets: Integers, discount: Doubles, truncation: int, out: Doubles) -> None:
    """out[q] = DCG of the best list of query q at the truncation."""
    order, spare = np.empty(len(discount), dtype=np.int64), np.empty(len(discount), dtype=np.int64)
    for q in range(len(out)):
        start, n = offsets[q], offsets[q + 1] - offsets[q]
        rank_rows(gains, start, n, order, spare)
        total = 0.0
        for p in range(min(truncation, n)):
            total += gains[start + order[p]] * discount[p]
        out[q] = total


@kernel
def fill_gradients(
    rule: LambdaRule,
    gains: Doubles,
    offsets: Integers,
    best: Doubles,
    discount: Doubles,
    scores: Doubles,
    first: int,
    last: int,
    gradients: Integers,
    hessians: Integers,
) -> None:
    """gradients[r], hessians[r] = G and H of the rows of queries first … last − 1, as integers in 1/UNIT.

    `best` (queries,) is the divisor of ΔNDCG; 0 leaves a query out.
    """
    longest = 0
    for q in range(first, last):
        longest = max(longest, offsets[q + 1] - offsets[q])
    score, gain, power = np.empty(longest), np.empty(longest), np.empty(longest)
    g, h = np.empty(longest), np.empty(longest)
    order, spare = np.empty(longest, dtype=np.int64), np.empty(longest, dtype=np.int64)
    sigma = rule.sigmoid
    for q in range(first, last):
        start, n = offsets[q], offsets[q + 1] - offsets[q]
        for i in range(n):
            gradients[start + i] = 0
            hessians[start + i] = 0
        if n < 2 or best[q] <= 0.0:
            continue
        rank_rows(scores, start, n, order, spare)
        top = scores[start + order[0]]
        for p in range(n):
            row = start + order[p]
            score[p], gain[p] = scores[row], gains[row]
            power[p] = math.exp(max(sigma * (scores[row] - top), -FARTHEST))
            g[p], h[p] = 0.0, 0.0
        spread = rule.norm and score[0] != score[n - 1]
        inverse, total = 1.0 / best[q], 0.0
        for i in range(min(rule.truncation, n - 1)):
            gain_i, score_i, power_i, discount_i = gain[i], score[i], power[i], discount[i]
            g_i, h_i = 0.0, 0.0
            for j in range(i + 1, n):
                difference = gain_i - gain[j]
                if difference == 0.0:
                    continue
                # i stands above j: power_i ≥ power_j
                change = abs(difference) * (discount_i - discount[j]) * inverse
                away = 0.01 + (score_i - score[j]) if spread else 1.0
                both = power_i + power[j]
                once = 1.0 / (both * away)
                # ρ is the probability that the better one loses
                loser = power[j] if difference > 0.0 else power_i
                winner = power_i if difference > 0.0 else power[j]
                pull = sigma * change * loser * once
                curve = sigma * pull * winner * (once * away)
                total += 2.0 * pull
                if difference > 0.0:
                    g_i -= pull
                    g[j] += pull
                else:
                    g_i += pull
                    g[j] -= pull
                h_i += curve
                h[j] += curve
            g[i] += g_i
            h[i] += h_i
        factor = UNIT
        if rule.norm and total > 0.0:
            factor *= math.log2(1.0 + total) / total
        for p in range(n):
            gradients[start + order[p]] = np.int64(np.rint(g[p] * factor))
            hessians[start + order[p]] = np.int64(np.rint(h[p] * factor))
