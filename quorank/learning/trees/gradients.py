"""LambdaRank gradients of a candidate list, in integers (Burges 2010, "From RankNet to LambdaRank to LambdaMART").

For documents i, j of one list with gains g_i > g_j (2^label − 1, or clicks over propensities), scores s, ranks r by s and
discounts d_r = 1/log2(r + 1), with σ the `sigmoid`:

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
from typing import NamedTuple

import numpy as np

from quorank.kernels.arrays import Doubles, Integers
from quorank.kernels.compiled import kernel

UNIT = 2.0**24
"""G and H are integers in 1/UNIT: as fine as float32 numbers about 1, which LightGBM has."""
FARTHEST = 600.0
"""Scores farther than this below the best of a list, times σ, count as this far: exp stays above 0."""


class LambdaRule(NamedTuple):
    """Settings of LambdaRank gradients."""

    sigmoid: float  # σ
    truncation: int
    norm: bool


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
