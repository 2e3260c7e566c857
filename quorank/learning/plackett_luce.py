"""Plackett-Luce lists without replacement (FPDGD eqs 1 and 2).

The compiled sampler draws from sums of positive weights only: a remaining mass is added up, never the difference of
two larger ones, so a document that carries nearly all of the mass leaves exact probabilities for the others. Where
the remaining weights become tiny next to the first ones (`TINY`), they are rescaled by their own maximum, and the
list is marked so that its probabilities are computed in logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from quorank.compiled import kernel
from quorank.draws import uniform_pair

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]

BLOCK = 16
"""Weights are summed in blocks of this many documents: a draw looks through block sums, then through one block."""

TINY = 1e-30
"""Below this remaining mass (the first document's weight is 1), products of ten denominators could underflow."""


@intrinsic  # type: ignore[untyped-decorator,unused-ignore]
def _as_double(_context: Any, bits: Any) -> Any:
    def codegen(_c: Any, builder: Any, _s: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator,unused-ignore]
def _as_bits(_context: Any, value: Any) -> Any:
    def codegen(_c: Any, builder: Any, _s: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), codegen


@kernel
def fast_exp(x: float) -> float:
    """e^x for x ≤ 0 to within 2 units in the last place; never below e^−701, so that no weight is lost.

    Plain arithmetic, unlike the C library's, so that LLVM vectorises a loop over it and its bits are the same everywhere.
    """
    x = max(x, -701.0)
    shifted = x * 1.4426950408889634 + 6755399441055744.0  # adding 1.5·2^52 rounds to an integer
    n = shifted - 6755399441055744.0
    r = (x - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10
    p = 1.6059043836821613e-10
    p = p * r + 2.08767569878681e-09
    p = p * r + 2.505210838544172e-08
    p = p * r + 2.755731922398589e-07
    p = p * r + 2.7557319223985893e-06
    p = p * r + 2.48015873015873e-05
    p = p * r + 1.984126984126984e-04
    p = p * r + 1.388888888888889e-03
    p = p * r + 8.333333333333333e-03
    p = p * r + 4.1666666666666664e-02
    p = p * r + 1.6666666666666666e-01
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    return p * _as_double((_as_bits(shifted) + 1023) << 52)


@kernel
def _weigh(scores: Floats, n: int, shown: npt.NDArray[np.int64], taken: int, weights: Doubles, blocks: Doubles) -> None:
    """weights = e^(score − max) over the documents not yet taken, 0 for those taken; and the blocks' sums."""
    top = np.float32(-np.inf)
    for i in range(n):
        top = max(top, scores[i])
    if taken > 0:
        top = np.float32(-np.inf)
        for i in range(n):
            free = True
            for p in range(taken):
                free &= shown[p] != i
            if free:
                top = max(top, scores[i])
    highest = np.float64(top)
    for i in range(n):
        # a taken document may score above the maximum: it is set to 0 below
        weights[i] = fast_exp(min(np.float64(scores[i]) - highest, 0.0))
    for p in range(taken):
        weights[shown[p]] = 0.0
    for b in range((n + BLOCK - 1) // BLOCK):
        blocks[b] = _block_sum(weights, b, n)


@kernel
def _block_sum(weights: Doubles, block: int, n: int) -> float:
    total = 0.0
    for i in range(block * BLOCK, min(block * BLOCK + BLOCK, n)):
        total += weights[i]
    return total


@kernel
def sample_list(
    scores: Floats,
    n: int,
    k: int,
    key: npt.NDArray[np.uint64],
    interaction: int,
    client: int,
    round_: int,
    weights: Doubles,
    blocks: Doubles,
    shown: npt.NDArray[np.int64],
    shown_weights: Doubles,
) -> float:
    """Draw shown[:k] (eq. 2) and its weights; returns the weight left behind, or −1 if the weights were rescaled."""
    _weigh(scores, n, shown, 0, weights, blocks)
    n_blocks = (n + BLOCK - 1) // BLOCK
    rescaled = False
    second = 0.0
    for p in range(k):
        if p & 1:
            u = second
        else:
            u, second = uniform_pair(key, p >> 1, interaction, client, round_)
        total = 0.0
        for b in range(n_blocks):
            total += blocks[b]
        if total < TINY:
            rescaled = True
            _weigh(scores, n, shown, p, weights, blocks)
            total = 0.0
            for b in range(n_blocks):
                total += blocks[b]
        left = u * total
        block = 0
        while block < n_blocks - 1 and left >= blocks[block]:
            left -= blocks[block]
            block += 1
        # rounding may carry the search past the last document that has weight: step back to it
        while blocks[block] <= 0.0:
            block -= 1
        document = -1
        for i in range(block * BLOCK, min(block * BLOCK + BLOCK, n)):
            if weights[i] > 0.0:
                document = i
                if left < weights[i]:
                    break
                left -= weights[i]
        shown[p] = document
        shown_weights[p] = weights[document]
        weights[document] = 0.0
        blocks[block] = _block_sum(weights, block, n)
    if rescaled:
        return -1.0
    rest = 0.0
    for b in range(n_blocks):
        rest += blocks[b]
    return rest


@kernel
def log_denominators(scores: Floats, n: int, shown: npt.NDArray[np.int64], k: int, skip: int, out: Doubles) -> None:
    """out[p] = log Σ e^score over the documents not shown before position p, leaving out the one at position `skip`."""
    for p in range(k):
        top = -np.inf
        for i in range(n):
            if _remains(shown, p, i) and not (skip >= 0 and shown[skip] == i):
                top = max(top, np.float64(scores[i]))
        total = 0.0
        if top > -np.inf:
            for i in range(n):
                if _remains(shown, p, i) and not (skip >= 0 and shown[skip] == i):
                    total += fast_exp(np.float64(scores[i]) - top)
            out[p] = top + math.log(total)
        else:
            out[p] = -np.inf


@kernel
def _remains(shown: npt.NDArray[np.int64], position: int, document: int) -> bool:
    for p in range(position):
        if shown[p] == document:
            return False
    return True


def document_probabilities(scores: npt.ArrayLike) -> Doubles:
    """Eq. 1: P(d | D) = e^f(d) / Σ e^f(d') for every document of D."""
    shifted = np.asarray(scores, dtype=np.float64)
    weights = np.exp(shifted - shifted.max())
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def list_probability(ranking: Sequence[int], scores: npt.ArrayLike) -> float:
    """Eq. 2: P(R | D) = Π_i P(d_i | D \\ {d_1 … d_(i−1)}), term by term."""
    left = list(range(len(np.asarray(scores))))
    probability = 1.0
    for document in ranking:
        probability *= float(document_probabilities(np.asarray(scores)[left])[left.index(document)])
        left.remove(document)
    return probability
