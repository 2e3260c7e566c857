"""Preference pairs of a clicked list and their weights (FPDGD eqs 5 and 6)."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from quorank.compiled import kernel
from quorank.learning.exponential import fast_exp
from quorank.learning.plackett_luce import log_denominators

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]


@kernel
def pair_weight(p_shown: float, p_swapped: float) -> float:
    """Eq. 6: ρ = P(R*) / (P(R) + P(R*))."""
    return p_swapped / (p_shown + p_swapped)


@kernel
def pair_slope(ratio: float) -> float:
    """The middle of eq. 5, e^f(k)·e^f(l) / (e^f(k) + e^f(l))², for ratio = e^−|f(k) − f(l)|."""
    return ratio / ((1.0 + ratio) * (1.0 + ratio))


@kernel
def last_included(clicked: npt.NDArray[np.bool_], k: int) -> int:
    """The last position whose document can be compared: one past the last click; −1 without clicks."""
    for p in range(k - 1, -1, -1):
        if clicked[p]:
            return min(p + 1, k - 1)
    return -1


@kernel
def pair_coefficients(
    scores: Floats,
    n: int,
    shown: npt.NDArray[np.int64],
    shown_weights: Doubles,
    rest: float,
    clicked: npt.NDArray[np.bool_],
    k: int,
    coefficients: Doubles,
    denominators: Doubles,
    without: Doubles,
) -> bool:
    """coefficients[p] = Σ of ρ·slope over the pairs of position p, + if it is preferred, − if not.

    So the gradient of eq. 5 is Σ_p coefficients[p]·∇f(document at p). False if there is no pair.
    `denominators` and `without` are scratch of length k + 1.
    """
    last = last_included(clicked, k)
    for p in range(k):
        coefficients[p] = 0.0
    if last < 1:
        return False
    if rest < 0.0:
        return _pair_coefficients_log(scores, n, shown, clicked, k, last, coefficients, denominators, without)
    found = False
    denominators[k] = rest
    for i in range(k - 1, -1, -1):
        denominators[i] = denominators[i + 1] + shown_weights[i]
    for b in range(1, last + 1):
        y = shown_weights[b]
        without[k] = rest
        for i in range(k - 1, 0, -1):
            without[i] = without[i + 1] + (0.0 if i == b else shown_weights[i])
        for a in range(b):
            if clicked[a] == clicked[b]:
                continue
            found = True
            x = shown_weights[a]
            p_shown, p_swapped = 1.0, 1.0
            for i in range(a + 1, b + 1):  # only these denominators differ between R and R*
                p_shown *= without[i] + x
                p_swapped *= denominators[i]
            weight = pair_weight(p_shown, p_swapped) * pair_slope(min(x, y) / max(x, y))
            sign = 1.0 if clicked[a] else -1.0
            coefficients[a] += sign * weight
            coefficients[b] -= sign * weight
    return found


@kernel
def _pair_coefficients_log(
    scores: Floats,
    n: int,
    shown: npt.NDArray[np.int64],
    clicked: npt.NDArray[np.bool_],
    k: int,
    last: int,
    coefficients: Doubles,
    denominators: Doubles,
    without: Doubles,
) -> bool:
    """The same in logarithms, for lists whose weights span more than a product of doubles holds."""
    found = False
    log_denominators(scores, n, shown, k, -1, denominators)
    for b in range(1, last + 1):
        y = np.float64(scores[shown[b]])
        log_denominators(scores, n, shown, k, b, without)
        for a in range(b):
            if clicked[a] == clicked[b]:
                continue
            found = True
            x = np.float64(scores[shown[a]])
            log_ratio = 0.0  # log P(R*) / P(R)
            for i in range(a + 1, b + 1):
                high, low = max(without[i], x), min(without[i], x)
                log_ratio += denominators[i] - (high + math.log1p(fast_exp(low - high)))
            odds = fast_exp(-abs(log_ratio))
            rho = pair_weight(odds, 1.0) if log_ratio > 0.0 else pair_weight(1.0, odds)
            weight = rho * pair_slope(fast_exp(-abs(x - y)))
            sign = 1.0 if clicked[a] else -1.0
            coefficients[a] += sign * weight
            coefficients[b] -= sign * weight
    return found
