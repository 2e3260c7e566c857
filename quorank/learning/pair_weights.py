"""Preference pairs of a clicked list and their weights (FPDGD eqs 5 and 6)."""

from __future__ import annotations

import math

import numpy as np

from quorank.kernels.arrays import Booleans, Floats
from quorank.kernels.compiled import fixed_memory_kernel
from quorank.learning.exploration import IN_BLOCKS, block_denominators
from quorank.learning.plackett_luce import Buffers, fast_exp, log_denominators


@fixed_memory_kernel
def pair_weight(p_shown: float, p_swapped: float) -> float:
    """Eq. 6: ρ = P(R*) / (P(R) + P(R*))."""
    return p_swapped / (p_shown + p_swapped)


@fixed_memory_kernel
def pair_slope(ratio: float) -> float:
    """The middle of eq. 5, e^f(k)·e^f(l) / (e^f(k) + e^f(l))², for ratio = e^−|f(k) − f(l)|."""
    return ratio / ((1.0 + ratio) * (1.0 + ratio))


@fixed_memory_kernel
def last_included(clicked: Booleans, k: int) -> int:
    """The last position whose document can be compared: one past the last click; −1 without clicks."""
    for p in range(k - 1, -1, -1):
        if clicked[p]:
            return min(p + 1, k - 1)
    return -1


@fixed_memory_kernel
def pair_coefficients(then: Floats, now: Floats, same: bool, n: int, k: int, rest: float, buffers: Buffers) -> bool:
    """buffers.coefficients[p] = Σ of ρ·slope over the pairs of position p, + if it is preferred, − if not.

    The gradient of eq. 5 is therefore Σ_p coefficients[p]·∇f(document at p). Returns False if there is no pair.

    Args:
        then: (n,) scores f/τ that the list was drawn from; ρ is theirs.
        now: (n,) scores of the ranker that learns; the slope is theirs.
        same: `then` and `now` are the same scores.
        n: Number of candidates.
        k: Length of the list in buffers.shown, with its shown_weights and clicked.
        rest: Result of `sample_list` or `draw_list`; documents of different blocks form no pair.
        buffers: `logarithms`, `inverses` and `shares` are scratch: a document's weight over a denominator is taken in
            logarithms where the weights span more than doubles hold.

    For positions a < b that hold x and y, only the denominators D_i between them differ between R and R*:
    P(R)/P(R*) = Π_{i=a+1..b} (D_i + x − y)/D_i. Each factor is 1 + x/D_i − y/D_i and at least x/D_i, because D_i
    holds y; it is tiny only where ρ is 1, so that what the subtraction cancels there does not matter. All factors
    of a pair lie on the same side of 1: the product may end at 0 or infinity, never at their quotient.
    """
    shown, weights, clicked, coefficients = buffers.shown, buffers.shown_weights, buffers.clicked, buffers.coefficients
    logarithms, inverses, shares = buffers.logarithms, buffers.inverses, buffers.shares
    last = last_included(clicked, k)
    for p in range(k):
        coefficients[p] = 0.0
    if last < 1:
        return False
    rescaled, blocks = rest < 0.0, rest <= IN_BLOCKS
    if blocks:
        block_denominators(then, n, rest, k, buffers)
    elif rescaled:
        log_denominators(then, n, k, buffers)
        for p in range(last + 1):
            for i in range(1, last + 1):
                shares[p, i] = math.exp(min(np.float64(then[shown[p]]) - logarithms[i], 700.0))
    else:
        denominator = rest
        for i in range(k - 1, -1, -1):
            denominator += weights[i]
            inverses[i] = 1.0 / denominator
    has_pair = False
    for b in range(1, last + 1):
        y, y_score = weights[b], np.float64(then[shown[b]])
        for a in range(b):
            if clicked[a] == clicked[b] or (blocks and weights[a] != weights[b]):
                continue
            has_pair = True
            x, x_score = weights[a], np.float64(then[shown[a]])
            odds = 1.0  # P(R) / P(R*)
            for i in range(a + 1, b + 1):
                if not rescaled:
                    x_share, y_share = x * inverses[i], y * inverses[i]
                elif not blocks:
                    x_share, y_share = shares[a, i], shares[b, i]
                else:
                    x_share = math.exp(min(x_score - logarithms[i], 700.0))
                    y_share = math.exp(min(y_score - logarithms[i], 700.0))
                odds *= max(1.0 + x_share - y_share, x_share)
            if same and not rescaled:
                ratio = min(x, y) / max(x, y)
            else:
                ratio = fast_exp(-abs(np.float64(now[shown[a]]) - np.float64(now[shown[b]])))
            weight = pair_weight(odds, 1.0) * pair_slope(ratio)
            sign = 1.0 if clicked[a] else -1.0
            coefficients[a] += sign * weight
            coefficients[b] -= sign * weight
    return has_pair
