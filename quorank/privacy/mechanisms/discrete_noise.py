"""Skellam noise: integers that clients draw in shares, so that a secure sum of their updates is private.

Skellam noise (Agarwal, Kairouz, Liu 2021, "The Skellam Mechanism for Differentially Private Federated
Learning") is the difference of two Poisson numbers of mean μ/2, with variance μ. A sum of Skellam numbers is Skellam and
variances add up, so n shares of variance μ/n have together exactly the distribution of noise of variance μ drawn in one
place. The discrete Gaussian (Canonne, Kamath, Steinke 2020) lacks this: a sum of its shares is only close to one
(Kairouz, Liu, Steinke 2021, "The Distributed Discrete Gaussian Mechanism").

Poisson numbers come from inversion below a mean of 10 and from transformed rejection above (Hörmann 1993, "The
transformed rejection method for generating Poisson random variables", algorithm PTRS, with a hat that covers). Both
are exact up to the rounding of float64. A simulation's draws are addressed by its seed, from
which the noise can be subtracted; a device's key is a secret (`streams`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from quorank.errors import BadInput, require, require_range
from quorank.kernels.arrays import Doubles, Integers
from quorank.kernels.compiled import kernel
from quorank.privacy.streams import Key, uniform_pair

ORDERS = (*range(2, 129), *(round(128 * 2 ** (step / 8)) for step in range(1, 73)))
"""Whole orders α from 2 to 65,536: the theorem behind `skellam_rdp` is stated for whole orders."""
_ORDERS = np.array(ORDERS, dtype=np.float64)

_REJECTION_FROM = 10.0  # algorithm PTRS asks for a mean of at least 10
_LARGEST_VARIANCE = 1e15  # integers stay exact as float64
_HALF_LOG_TAU = 0.5 * math.log(2.0 * math.pi)


# ---------------------------------------------------------------- drawing


@kernel
def poisson_by_inversion(mean: float, u: float) -> int:
    """Return the smallest k whose cumulative probability exceeds u; where float64 adds no more, the tail ends."""
    k = 0
    probability = math.exp(-mean)
    cumulative = probability
    while u >= cumulative:
        k += 1
        probability *= mean / k
        if k > mean and cumulative + probability == cumulative:
            break
        cumulative += probability
    return k


@kernel
def log_poisson(k: float, mean: float) -> float:
    """Compute log(e^−λ λ^k / k!) without cancellation for large λ: Stirling's series around k log(λ/k) + k − λ."""
    if k < 16.0:
        return k * math.log(mean) - mean - math.lgamma(k + 1.0)
    x = (mean - k) / k
    series = (1.0 / 12.0 - (1.0 / 360.0 - 1.0 / (1260.0 * k * k)) / (k * k)) / k
    return k * (math.log1p(x) - x) - 0.5 * math.log(k) - _HALF_LOG_TAU - series


@kernel
def rejection_constants(mean: float) -> Any:
    """Return a, b, 1/α and v_r of algorithm PTRS: the hat's shape, its height, and the bound of the sure region.

    With the published constants probabilities stick out of the hat by up to 0.6 % (mean 13.24), and the sure region
    accepts too much by up to 0.003 (mean 34.44): not quite exact. Here the hat is 1 % higher and the region smaller.
    """
    b = 0.931 + 2.53 * math.sqrt(mean)
    a = -0.059 + 0.02483 * b
    return a, b, 1.01 * (1.1239 + 1.1328 / (b - 3.4)), 0.9277 / 1.01 - 0.005 - 3.6224 / (b - 2.0)


@kernel
def rejection_proposal(mean: float, a: float, b: float, u: Any) -> Any:
    """Propose ⌊(2a/(½ − |u|) + b) u + λ + 0.43⌋, as a float, for u between −½ and ½."""
    return np.floor((2.0 * a / (0.5 - np.abs(u)) + b) * u + mean + 0.43)


@kernel
def _poisson_by_rejection(mean: float, key: Key, side: int, coordinate: int, client: int, round_: int) -> int:
    a, b, inverse_alpha, sure = rejection_constants(mean)
    block = side
    while True:
        u, v = uniform_pair(key, block, coordinate, client, round_)
        block += 2  # the two sides of a coordinate take turns in its stream
        u -= 0.5
        room = 0.5 - abs(u)
        if room <= 0.0:
            continue
        k = rejection_proposal(mean, a, b, u)
        if room >= 0.07 and v <= sure:
            return int(k)
        if k < 0.0 or (room < 0.013 and v > room):
            continue
        if v * inverse_alpha / (a / (room * room) + b) < math.exp(log_poisson(k, mean)):
            return int(k)


@kernel
def skellam(key: Key, round_: int, client: int, variance: float, out: Integers) -> None:
    """Draw one client's noise of a round, Sk(variance) in each coordinate: the difference of two Poisson numbers.

    A coordinate's draw depends on its own address only, not on how many coordinates there are.
    """
    if not 0.0 <= variance <= _LARGEST_VARIANCE:
        raise BadInput(
            "value.out-of-range", "the variance of Skellam noise must lie between 0 and 1e15; lower the scale"
        )
    mean = 0.5 * variance
    for j in range(len(out)):
        if mean < _REJECTION_FROM:
            u, v = uniform_pair(key, 0, j, client, round_)
            out[j] = poisson_by_inversion(mean, u) - poisson_by_inversion(mean, v)
        else:
            plus = _poisson_by_rejection(mean, key, 0, j, client, round_)
            out[j] = plus - _poisson_by_rejection(mean, key, 1, j, client, round_)


@kernel
def skellam_rows(key: Key, round_: int, clients: Integers, variance: float, out: Integers) -> None:
    """Draw the shares of many clients, one row each: row i is what `skellam` draws for clients[i]."""
    for i in range(len(clients)):
        skellam(key, round_, clients[i], variance, out[i])


# ---------------------------------------------------------------- accounting


def l1_bound(l2: float, size: int) -> float:
    """Return the largest L1 norm of a vector of `size` integers with L2 norm l2: min(√size · l2, l2²)."""
    return min(math.sqrt(size) * l2, l2 * l2)


def skellam_rdp(order: float | Doubles, variance: float, l2: float, l1: float) -> float | Doubles:
    """Compute ε(α) ≤ αΔ₂²/2μ + min(((2α − 1)Δ₂² + 6Δ₁)/4μ², 3Δ₁/2μ): Rényi privacy of one release (their Theorem 3.5).

    Δ₂ and Δ₁ bound what one client can change in the sum of integers, after scaling and rounding. For neighbours
    that differ by adding or removing a client they are the norms of a client's own vector; for replacing, twice them.
    """
    gaussian = order * l2 * l2 / (2.0 * variance)
    near = ((2.0 * order - 1.0) * l2 * l2 + 6.0 * l1) / (4.0 * variance * variance)
    return gaussian + np.minimum(near, 3.0 * l1 / (2.0 * variance))


def skellam_divergences(variance: float, l2: float, l1: float, rounds: int) -> tuple[float, ...]:
    """Return the Rényi divergences, at ORDERS, of `rounds` releases that each hold Skellam noise of this variance."""
    return tuple((rounds * np.asarray(skellam_rdp(_ORDERS, variance, l2, l1))).tolist())


def skellam_epsilon(variance: float, l2: float, l1: float, rounds: int, delta: float) -> float:
    """Return the ε, at this δ, of `rounds` releases that each hold Skellam noise of this variance: Rényi orders add up."""
    from dp_accounting.rdp import compute_epsilon  # imported late: it is slow

    require_range("rounds", rounds, least=1)
    epsilon, _ = compute_epsilon(ORDERS, skellam_divergences(variance, l2, l1, rounds), delta)
    return float(epsilon)


def skellam_variance(epsilon: float, delta: float, rounds: int, l2: float, l1: float) -> float:
    """Return the least variance (to nine digits, rounded up) whose `rounds` releases stay within (ε, δ)."""
    low = high = rounds * l2 * l2
    while skellam_epsilon(high, l2, l1, rounds, delta) > epsilon:
        high *= 4.0
        sentence = f"no variance reaches epsilon = {epsilon} at delta = {delta} in {rounds} rounds; raise one of them"
        require(high < 1e300, "privacy.too-much-noise", sentence)
    while skellam_epsilon(low, l2, l1, rounds, delta) <= epsilon:
        low /= 4.0
    while high > low * (1.0 + 1e-9):
        middle = math.sqrt(low * high)
        enough = skellam_epsilon(middle, l2, l1, rounds, delta) <= epsilon
        low, high = (low, middle) if enough else (middle, high)
    return high
