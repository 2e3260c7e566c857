"""Plackett-Luce lists without replacement (FPDGD eqs 1 and 2).

The compiled sampler draws from sums of positive weights only: a remaining mass is added up, never the difference of
two larger ones, so a document that carries nearly all of the mass leaves exact probabilities for the others. Where
the remaining weights become tiny next to the first ones (`TINY`), they are rescaled by their own maximum, and the
list is marked so that its probabilities are computed in logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from quorank.compiled import kernel
from quorank.draws import uniform_pair
from quorank.learning.exponential import fast_exp

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]

BLOCK = 16
"""Weights are summed in blocks of this many documents: a draw looks through block sums, then through one block."""

LARGEST = np.finfo(np.float32).max

TINY = 1e-30
"""Below this remaining mass (the first document's weight is 1), the quotients of pair weights could lose digits."""


class Scratch(NamedTuple):
    """Room for one list, made once per call of a kernel."""

    weights: Doubles  # (longest, in whole blocks) e^(score − max)
    prefix: Doubles  # running sums of the weights within their block
    blocks: Doubles  # (blocks,) sums
    ends: Doubles  # (blocks,) running sums of the blocks
    taken: npt.NDArray[np.bool_]  # documents already shown


@kernel
def scratch_for(longest: int) -> Scratch:
    """Room for lists of up to `longest` documents."""
    blocks = (longest + BLOCK - 1) // BLOCK
    size = blocks * BLOCK
    return Scratch(
        np.zeros(size), np.zeros(size), np.zeros(blocks), np.zeros(blocks), np.zeros(size, dtype=np.bool_)
    )


@kernel
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


@kernel
def _block_sum(weights: Doubles, block: int) -> float:
    a = b = c = d = 0.0
    for i in range(block * BLOCK, block * BLOCK + BLOCK, 4):
        a += weights[i]
        b += weights[i + 1]
        c += weights[i + 2]
        d += weights[i + 3]
    return (a + b) + (c + d)


@kernel
def _weigh(scores: Floats, n: int, room: Scratch) -> None:
    """weights = e^(score − max), zero behind the list, and all running sums."""
    highest = _highest(scores, n)
    n_blocks = (n + BLOCK - 1) // BLOCK
    for i in range(n):
        room.weights[i] = fast_exp(np.float64(scores[i]) - highest)
    for i in range(n, n_blocks * BLOCK):
        room.weights[i] = 0.0
    end = 0.0
    for b in range(n_blocks):
        total = 0.0
        for i in range(b * BLOCK, b * BLOCK + BLOCK):
            total += room.weights[i]
            room.prefix[i] = total
        end += total
        room.ends[b] = end


@kernel
def _weigh_remaining(scores: Floats, n: int, room: Scratch) -> None:
    """weights = e^(score − max) of the documents not yet shown, zero for those shown, and the blocks' sums."""
    highest = -np.inf
    for i in range(n):
        scores[i] = max(scores[i], -LARGEST)
        if not room.taken[i]:
            highest = max(highest, np.float64(scores[i]))
    for i in range(n):
        room.weights[i] = 0.0 if room.taken[i] else fast_exp(np.float64(scores[i]) - highest)
    for b in range((n + BLOCK - 1) // BLOCK):
        room.blocks[b] = _block_sum(room.weights, b)


@kernel
def sample_list(
    scores: Floats,
    n: int,
    k: int,
    key: npt.NDArray[np.uint64],
    interaction: int,
    client: int,
    round_: int,
    room: Scratch,
    shown: npt.NDArray[np.int64],
    shown_weights: Doubles,
) -> float:
    """Draw shown[:k] (eq. 2) and its weights; returns the weight left behind, or −1 if the weights were rescaled.

    While at most half of the mass is taken, documents are drawn from all of them and drawn again when they are shown
    already, which is the same distribution and needs no new sums; after that, from the remaining ones.
    """
    _weigh(scores, n, room)
    n_blocks = (n + BLOCK - 1) // BLOCK
    total = room.ends[n_blocks - 1]
    if not total < np.inf:
        # a score overflowed or is no number: the largest floats stand in, so that a list is shown all the same
        for i in range(n):
            if not abs(scores[i]) < np.inf:
                scores[i] = LARGEST if scores[i] > 0.0 else -LARGEST
        _weigh(scores, n, room)
        total = room.ends[n_blocks - 1]
    draw, spare, taken_mass, p = 0, 0.0, 0.0, 0
    while p < k and taken_mass <= 0.5 * total:
        if draw & 1:
            u = spare
        else:
            u, spare = uniform_pair(key, draw >> 1, interaction, client, round_)
        draw += 1
        target = u * total
        block = 0
        for b in range(n_blocks - 1):
            block += room.ends[b] <= target
        if block > 0:
            target -= room.ends[block - 1]
        within = 0
        for i in range(BLOCK):
            within += room.prefix[block * BLOCK + i] <= target
        document = min(block * BLOCK + within, n - 1)  # rounding may count one too many
        if not room.taken[document]:
            room.taken[document] = True
            shown[p] = document
            shown_weights[p] = room.weights[document]
            taken_mass += room.weights[document]
            p += 1
    for i in range(p):
        room.weights[shown[i]] = 0.0
    for b in range(n_blocks):
        room.blocks[b] = _block_sum(room.weights, b)
    rest = _sample_remaining(
        scores, n, p, k, draw, spare, key, interaction, client, round_, room, shown, shown_weights
    )
    for i in range(k):
        room.taken[shown[i]] = False
    return rest


@kernel
def _sample_remaining(
    scores: Floats,
    n: int,
    first: int,
    k: int,
    draw: int,
    spare: float,
    key: npt.NDArray[np.uint64],
    interaction: int,
    client: int,
    round_: int,
    room: Scratch,
    shown: npt.NDArray[np.int64],
    shown_weights: Doubles,
) -> float:
    """Positions `first` to k from sums over the remaining documents, which are kept up to date."""
    n_blocks = (n + BLOCK - 1) // BLOCK
    rescaled = False
    for p in range(first, k):
        if draw & 1:
            u = spare
        else:
            u, spare = uniform_pair(key, draw >> 1, interaction, client, round_)
        draw += 1
        total = 0.0
        for b in range(n_blocks):
            total += room.blocks[b]
        if total < TINY:
            rescaled = True
            _weigh_remaining(scores, n, room)
            total = 0.0
            for b in range(n_blocks):
                total += room.blocks[b]
        left = u * total
        block = 0
        while block < n_blocks - 1 and left >= room.blocks[block]:
            left -= room.blocks[block]
            block += 1
        # rounding may carry the search past the last document that has weight: step back to it
        while room.blocks[block] <= 0.0:
            block -= 1
        document = -1
        for i in range(block * BLOCK, block * BLOCK + BLOCK):
            if room.weights[i] > 0.0:
                document = i
                if left < room.weights[i]:
                    break
                left -= room.weights[i]
        room.taken[document] = True
        shown[p] = document
        shown_weights[p] = room.weights[document]
        room.weights[document] = 0.0
        room.blocks[block] = _block_sum(room.weights, block)
    if rescaled:
        return -1.0
    rest = 0.0
    for b in range(n_blocks):
        rest += room.blocks[b]
    return rest


@kernel
def log_denominators(scores: Floats, n: int, shown: npt.NDArray[np.int64], k: int, out: Doubles) -> None:
    """out[p] = log Σ e^score over the documents not shown before position p, from the last position upwards."""
    top = -np.inf
    for i in range(n):
        if _remains(shown, k, i):
            top = max(top, np.float64(scores[i]))
    total = 0.0
    for i in range(n):
        if _remains(shown, k, i):
            total += fast_exp(np.float64(scores[i]) - top)
    behind = top + math.log(total) if total > 0.0 else -np.inf
    for p in range(k - 1, -1, -1):
        score = np.float64(scores[shown[p]])
        high, low = max(behind, score), min(behind, score)
        behind = high + math.log1p(fast_exp(low - high))
        out[p] = behind


@kernel
def _remains(shown: npt.NDArray[np.int64], position: int, document: int) -> bool:
    for p in range(position):  # noqa: SIM110  numba compiles no generator expression
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
