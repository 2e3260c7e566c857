"""Plackett-Luce lists without replacement (FPDGD eqs 1 and 2).

The compiled sampler draws from sums of positive weights only: a remaining mass is added up, never the difference of
two larger ones, so a document that carries nearly all of the mass leaves exact probabilities for the others. Where
the remaining weights become tiny next to the first ones (`TINY`), they are rescaled by their own maximum, and the
list is marked so that its probabilities are computed in logarithms.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from quorank.kernels.arrays import Booleans, Doubles, Floats, Integers, Uint64s
from quorank.kernels.compiled import Intrinsic, fixed_memory_kernel
from quorank.kernels.draws import BATCH, Address, fill_batch
from quorank.rankers.scoring import ask_for

BLOCK = 8
"""Weights are summed in blocks of this many documents: a draw looks through block sums, then through one block."""

LINE = 16
"""Floats in a cache line (64 bytes on the processors of today; elsewhere only the speed differs)."""

LINES_PER_DRAW = 10

_BITS, _DOUBLE = struct.Struct("<Q"), struct.Struct("<d")

LARGEST = np.finfo(np.float32).max

TINY = 1e-30
"""Below this remaining mass (the first document's weight is 1), the quotients of pair weights could lose digits."""


class Buffers(NamedTuple):
    """Working memory for one list at a time, allocated once per call of a compiled loop."""

    shown: Integers  # (longest,) the list: positions among the candidates, best first
    shown_weights: Doubles  # (longest,) weight of each shown document (`sample_list`), or its block (`draw_list`)
    clicked: Booleans  # (longest,) by rank
    ranking: Integers  # (longest,) the highest-scored candidates
    tempered: Floats  # (longest,) f/τ, from which the list was drawn
    weights: Doubles  # (longest, in whole blocks) e^(score − max); 0 for documents that are out
    prefix: Doubles  # running sums of the weights within their block
    before: Doubles  # (blocks + 1,) sums of all blocks before each, and the total
    taken: Integers  # 1 for documents already shown
    draws: Doubles  # (BATCH,)
    coefficients: Doubles  # (longest,) of ∇f, by rank
    logarithms: Doubles  # (longest,) of the denominators or of their scale, by rank; scratch
    inverses: Doubles  # (longest,) inverse denominators by rank; scratch
    shares: Doubles  # (k, k) weights over denominators; scratch
    ratios: Doubles  # (k²,) e^−|f(k) − f(l)| of pairs; scratch
    activation: Floats  # (width,) of the hidden layer
    memory: Floats  # feature rows of all lists
    wanted: Integers  # (2,) range of `memory` to prefetch, see `ask_ahead`


def buffers_for(longest: int, width: int, memory: Floats, k: int) -> Buffers:
    """Allocate buffers.

    Args:
        longest: Candidates of the longest list.
        width: Units of the hidden layer in whole vectors (`width_of`).
        memory: Features of all candidates.
        k: Longest list of a learner that uses `pair_coefficients`.
    """
    blocks = -(-longest // BLOCK)
    size, whole, single = blocks * BLOCK, np.int64, np.float32
    return Buffers(
        shown=np.zeros(longest, whole), shown_weights=np.zeros(longest), clicked=np.zeros(longest, np.bool_),
        ranking=np.zeros(longest, whole), tempered=np.zeros(longest, single), weights=np.zeros(size),
        prefix=np.zeros(size), before=np.zeros(blocks + 1), taken=np.zeros(size, whole), draws=np.zeros(BATCH),
        coefficients=np.zeros(longest), logarithms=np.zeros(longest), inverses=np.zeros(longest),
        shares=np.zeros((k, k)), ratios=np.zeros(k * k),
        activation=np.zeros(width, single), memory=memory, wanted=np.zeros(2, whole),
    )  # fmt: skip


@fixed_memory_kernel
def ask_ahead(buffers: Buffers, lines: int) -> None:
    """Prefetch the next few cache lines of the wanted range.

    Drawing a list leaves memory idle. Prefetching a few lines of the next list between the steps of this one uses that
    time; prefetching many at once would stall the processor.
    """
    stop = min(buffers.wanted[1], buffers.wanted[0] + lines * LINE)
    for at in range(buffers.wanted[0], stop, LINE):
        ask_for(buffers.memory, at)
    buffers.wanted[0] = stop


@fixed_memory_kernel
def _highest(scores: Floats, n: int) -> float:
    """The maximum, in four independent chains: one alone would wait for each comparison."""
    a = b = c = d = scores[0]
    whole = n // 4 * 4
    for i in range(0, whole, 4):
        a = max(a, scores[i])
        b = max(b, scores[i + 1])
        c = max(c, scores[i + 2])
        d = max(d, scores[i + 3])
    for i in range(whole, n):
        a = max(a, scores[i])
    return np.float64(max(max(a, b), max(c, d)))


@fixed_memory_kernel
def _sum_block(block: int, buffers: Buffers) -> None:
    """Compute the running sums of a block's weights."""
    total = 0.0
    for i in range(block * BLOCK, block * BLOCK + BLOCK):
        total += buffers.weights[i]
        buffers.prefix[i] = total


@fixed_memory_kernel
def _sum_blocks(n: int, buffers: Buffers) -> float:
    """Compute the running sums of all blocks; return the total."""
    total = 0.0
    for b in range((n + BLOCK - 1) // BLOCK):
        total += buffers.prefix[b * BLOCK + BLOCK - 1]
        buffers.before[b + 1] = total
    return total


@fixed_memory_kernel
def _add_up(n: int, buffers: Buffers) -> float:
    """Compute all running sums of the weights; return the total."""
    for b in range((n + BLOCK - 1) // BLOCK):
        _sum_block(b, buffers)
    return _sum_blocks(n, buffers)


@fixed_memory_kernel
def _weigh(scores: Floats, n: int, buffers: Buffers) -> float:
    """weights = e^(score − max), zero behind the list, and all running sums; returns the total."""
    highest = _highest(scores, n)
    for i in range(n):
        buffers.weights[i] = fast_exp(np.float64(scores[i]) - highest)
    for i in range(n, (n + BLOCK - 1) // BLOCK * BLOCK):
        buffers.weights[i] = 0.0
    return _add_up(n, buffers)


@fixed_memory_kernel
def _weigh_remaining(scores: Floats, n: int, buffers: Buffers) -> float:
    """weights = e^(score − max) over the documents not taken, 0 for the others; returns the maximum.

    Weights of taken documents are computed too, because LLVM vectorises a loop without branches only.
    """
    highest = -np.inf
    for i in range(n):
        scores[i] = max(scores[i], -LARGEST)
        highest = max(highest, -np.inf if buffers.taken[i] else np.float64(scores[i]))
    for i in range(n):
        weight = fast_exp(np.float64(scores[i]) - highest)
        buffers.weights[i] = 0.0 if buffers.taken[i] else weight
    return highest


@fixed_memory_kernel
def _find(target: float, n: int, buffers: Buffers) -> int:
    """The document whose share of the running sums holds `target`; counting comparisons needs no branch."""
    block = 0
    for b in range(1, (n + BLOCK - 1) // BLOCK):
        block += buffers.before[b] <= target
    target -= buffers.before[block]
    within = 0
    for i in range(BLOCK):
        within += buffers.prefix[block * BLOCK + i] <= target
    return min(block * BLOCK + within, n - 1)  # rounding may count one too many


@fixed_memory_kernel
def sample_list(scores: Floats, n: int, k: int, key: Uint64s, address: Address, buffers: Buffers) -> float:
    """Draw shown[:k] (eq. 2) and its weights; returns the weight left behind, or −1 if the weights were rescaled.

    A document that is drawn but shown already is drawn again, which is the distribution over the remaining ones
    and needs no new sums; once half of the mass is taken, the sums are recomputed without it.
    """
    total = _weigh(scores, n, buffers)
    if not total < np.inf:
        # a score overflowed or is no number: the largest floats stand in, so that a list is shown all the same
        for i in range(n):
            if not abs(scores[i]) < np.inf:
                scores[i] = LARGEST if scores[i] > 0.0 else -LARGEST
        total = _weigh(scores, n, buffers)
    rescaled = False
    draw, taken_mass, out, p = 0, 0.0, 0, 0
    while p < k:
        if taken_mass > 0.5 * total:
            while out < p:
                buffers.weights[buffers.shown[out]] = 0.0
                _sum_block(buffers.shown[out] // BLOCK, buffers)
                out += 1
            total, taken_mass = _sum_blocks(n, buffers), 0.0
            if total < TINY:
                rescaled = True
                _weigh_remaining(scores, n, buffers)
                total = _add_up(n, buffers)
        if draw % BATCH == 0:
            fill_batch(key, draw >> 1, address.interaction, address.client, address.round, buffers.draws)
        document = _find(buffers.draws[draw % BATCH] * total, n, buffers)
        draw += 1
        ask_ahead(buffers, LINES_PER_DRAW)
        # without a branch, which could not be foreseen: a document shown already is overwritten by the next draw
        new = 1 - buffers.taken[document]
        buffers.taken[document] = 1
        buffers.shown[p] = document
        buffers.shown_weights[p] = buffers.weights[document]
        taken_mass += new * buffers.shown_weights[p]
        p += new
    for i in range(k):
        buffers.taken[buffers.shown[i]] = 0
        buffers.weights[buffers.shown[i]] = 0.0
    return -1.0 if rescaled else _sum(buffers.weights, n)


@fixed_memory_kernel
def _sum(weights: Doubles, n: int) -> float:
    """Σ weights, in four independent chains."""
    a = b = c = d = 0.0
    for i in range(0, (n + BLOCK - 1) // BLOCK * BLOCK, 4):
        a += weights[i]
        b += weights[i + 1]
        c += weights[i + 2]
        d += weights[i + 3]
    return (a + b) + (c + d)


@fixed_memory_kernel
def scaled_denominators(scores: Floats, n: int, k: int, buffers: Buffers) -> None:
    """Compute Σ e^score over the documents not shown before each position p as e^logarithms[p] / inverses[p].

    logarithms[p] is the highest of these scores, so that weights which span more than doubles hold keep their digits.
    """
    shown, taken, logarithms, inverses = buffers.shown, buffers.taken, buffers.logarithms, buffers.inverses
    for p in range(k):
        taken[shown[p]] = 1
    behind, total = _weigh_remaining(scores, n, buffers), 0.0
    for i in range(n):
        total += buffers.weights[i]
    top = behind
    for p in range(k - 1, -1, -1):
        taken[shown[p]] = 0
        score = np.float64(scores[shown[p]])
        inverses[p] = -abs(top - score)
        top = max(top, score)
        logarithms[p] = top
    for p in range(k):  # a loop of its own, which LLVM vectorises
        inverses[p] = fast_exp(inverses[p])
    for p in range(k - 1, -1, -1):
        before = logarithms[p + 1] if p < k - 1 else behind
        total = total * inverses[p] + 1.0 if logarithms[p] > before else total + inverses[p]
        inverses[p] = 1.0 / total


@fixed_memory_kernel
def remains(shown: Integers, position: int, document: int) -> bool:
    """Tell if a document is not among shown[:position]."""
    for p in range(position):  # noqa: SIM110  numba compiles no generator expression
        if shown[p] == document:
            return False
    return True


@Intrinsic
def as_double(bits: int) -> float:
    """The float64 of the lowest 64 bits of a number."""
    return float(_DOUBLE.unpack(_BITS.pack(bits & 0xFFFFFFFFFFFFFFFF))[0])


as_double.instructions("float64")(lambda emit: emit.builder.bitcast(emit.args[0], emit.ir.DoubleType()))


@Intrinsic
def as_bits(value: float) -> int:
    """The bits of a float64."""
    return int(_BITS.unpack(_DOUBLE.pack(value))[0])


as_bits.instructions("int64")(lambda emit: emit.builder.bitcast(emit.args[0], emit.ir.IntType(64)))


@fixed_memory_kernel
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
    scale: float = as_double((as_bits(shifted) + 1023) << 52)
    return p * scale
