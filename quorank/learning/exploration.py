"""Exploration that can be stated: the distance and frequency by which lists may depart from the ranking.

Three dials. Temperature τ: lists are drawn from the scores f/τ (Plackett-Luce, FPDGD eqs 1 and 2). Share s: a list is drawn
with probability s; otherwise it is the ranking itself. Window w: the ranking is cut into blocks of w + 1 neighbours, the
first of a random length from 0 to w, and documents are drawn within their block only, so that none is shown more than w
positions from its rank. With w = 1 and τ → ∞ neighbours are swapped by a fair coin: FairPairs (Radlinski and Joachims 2006,
"Minimally invasive randomization for collecting unbiased preferences from clickthrough logs").

Given the blocks, a list R and the list R* with two documents of a block exchanged have the probabilities of eq. 2 within
that block, so the weight ρ of eq. 6 stays exact. Documents of different blocks never change places: they form no pair.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from quorank.kernels.arrays import Floats, Integers, Uint64s
from quorank.kernels.compiled import fixed_memory_kernel
from quorank.kernels.draws import BATCH, Address, fill_batch, uniform_pair
from quorank.learning.plackett_luce import LARGEST, Buffers, fast_exp, remains, sample_list
from quorank.metrics.evaluator import top_k

IN_BLOCKS = -2.0
"""Result of `draw_list` for a list in blocks, minus the documents of its last block that are not shown."""

DIAL_DRAW = 0x7FFFFFFF
"""Address, among the draws of a list, of whether it is explored and where its blocks begin."""


class Dial(NamedTuple):
    """Settings of exploration; a window of 0 means no limit."""

    temperature: float  # τ
    window: int  # w
    share: float  # s


FREE = Dial(1.0, 0, 1.0)
"""Every list is drawn from the scores as they are: what PDGD does by default."""


@fixed_memory_kernel
def _temper(scores: Floats, n: int, temperature: float, tempered: Floats) -> bool:
    """tempered = scores/τ within ±LARGEST, without branches; return whether all scores are finite."""
    highest, infinite = np.float64(LARGEST), 0
    for i in range(n):
        infinite += 0 if abs(scores[i]) < np.inf else 1
        tempered[i] = max(min(np.float64(scores[i]) / temperature, highest), -highest)
    return infinite == 0


@fixed_memory_kernel
def draw_list(dial: Dial, scores: Floats, n: int, k: int, key: Uint64s, address: Address, buffers: Buffers) -> float:
    """Draw buffers.shown[:k] from buffers.tempered = scores/τ.

    Returns the weight left behind, as `sample_list` does, or ≤ IN_BLOCKS for a list in blocks. Such a list has each
    document's block number in `shown_weights`; an unexplored list has blocks of one document.
    """
    shown, weights, ranking, tempered = buffers.shown, buffers.shown_weights, buffers.ranking, buffers.tempered
    if not _temper(scores, n, dial.temperature, tempered):
        for i in range(n):
            if not abs(scores[i]) < np.inf:
                scores[i] = LARGEST if scores[i] > 0.0 else -LARGEST
        _temper(scores, n, dial.temperature, tempered)
    if dial.window == 0 and dial.share >= 1.0:
        return sample_list(tempered, n, k, key, address, buffers)
    chance, place = uniform_pair(key, DIAL_DRAW, address.interaction, address.client, address.round)
    explored = chance < dial.share
    if explored and dial.window == 0:
        return sample_list(tempered, n, k, key, address, buffers)
    top_k(scores, n, k + dial.window, ranking)
    if not explored:
        for p in range(k):
            shown[p] = ranking[p]
            weights[p] = p
        return IN_BLOCKS
    size = dial.window + 1
    block, first, last = 0, 0, min(int(place * size), n)
    while first < k:
        for p in range(first, min(last, k)):
            if p % BATCH == 0:
                fill_batch(key, p >> 1, address.interaction, address.client, address.round, buffers.draws)
            at = _pick(tempered, ranking, p, last, buffers.draws[p % BATCH])
            shown[p] = ranking[at]
            ranking[at] = ranking[p]
            weights[p] = block
        block, first, last = block + 1, last, min(last + size, n)
    return IN_BLOCKS - max(0, first - k)


@fixed_memory_kernel
def _pick(tempered: Floats, ranking: Integers, first: int, last: int, draw: float) -> int:
    """Draw one of ranking[first:last] by eq. 1; return its index."""
    top = -np.inf
    for i in range(first, last):
        top = max(top, np.float64(tempered[ranking[i]]))
    total = 0.0
    for i in range(first, last):
        total += fast_exp(np.float64(tempered[ranking[i]]) - top)
    target, running = draw * total, 0.0
    for i in range(first, last):
        running += fast_exp(np.float64(tempered[ranking[i]]) - top)
        if target < running:
            return i
    return last - 1


@fixed_memory_kernel
def block_denominators(tempered: Floats, n: int, rest: float, k: int, buffers: Buffers) -> None:
    """logarithms[p] = log Σ e^(f/τ) over the documents of p's block not shown before p, for a list drawn in blocks.

    The undisplayed documents of the last block are the remaining ones among the k + extra highest.
    """
    shown, weights = buffers.shown, buffers.shown_weights
    behind, extra = -np.inf, int(IN_BLOCKS - rest)
    if extra > 0:
        for i in range(top_k(tempered, n, k + extra, buffers.ranking)):
            if remains(shown, k, buffers.ranking[i]):
                behind = _log_add(behind, np.float64(tempered[buffers.ranking[i]]))
    for p in range(k - 1, -1, -1):
        if p < k - 1 and weights[p] != weights[p + 1]:
            behind = -np.inf
        behind = _log_add(behind, np.float64(tempered[shown[p]]))
        buffers.logarithms[p] = behind


@fixed_memory_kernel
def _log_add(a: float, b: float) -> float:
    high, low = max(a, b), min(a, b)
    return high + math.log1p(fast_exp(low - high))
