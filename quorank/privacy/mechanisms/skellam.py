"""Integers modulo 2^32 for masked sums: stochastic quantisation of updates, and Skellam noise that clients draw in shares.

**Quantisation**, as in Kairouz, Liu, Steinke 2021, "The distributed discrete Gaussian mechanism for federated learning with
secure aggregation": x·scale is rounded down or up, up with probability the part behind the point, so E[quantised] = x·scale
(to the 2^-53 of a uniform draw, if the scale is a power of two). Rounding can lengthen an update, and the sensitivity that
is accounted must be that of the rounded one: `quantised_norm_bound`. A negative number z stands as 2^32 + z.

**Skellam noise** (Agarwal, Kairouz, Liu 2021, "The Skellam Mechanism for Differentially Private Federated Learning") is the
difference of two Poisson numbers of mean μ/2, with variance μ. A sum of Skellam numbers is Skellam and variances add up, so
n shares of variance μ/n have together exactly the distribution of noise of variance μ drawn in one place; the discrete
Gaussian lacks this.

Poisson numbers come from inversion below a mean of 10 and from transformed rejection above (Hörmann 1993, "The
transformed rejection method for generating Poisson random variables", algorithm PTRS, with a hat that covers). Both
are exact up to the rounding of float64. A simulation's draws are addressed by its seed, from which the noise can be
subtracted; a device's key is a secret (`streams`).
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from quorank.errors import BadInput, require, require_range
from quorank.kernels.arrays import Doubles, Integers, Uint32s
from quorank.kernels.compiled import kernel
from quorank.privacy.accounting import smallest
from quorank.privacy.streams import Key, uniform_pair

ORDERS = (*range(2, 129), *(round(128 * 2 ** (step / 8)) for step in range(1, 73)))
"""Whole orders α from 2 to 65,536: the theorem behind `skellam_rdp` is stated for whole orders."""
_ORDERS = np.array(ORDERS, dtype=np.float64)

_HALF_LOG_TAU = 0.5 * math.log(2.0 * math.pi)
LARGEST = 2**31 - 1  # largest quantised number, of either sign, that is unique modulo 2^32
TAIL = math.sqrt(2.0 * math.log(2.0) * 81)  # z: 2·exp(−z²/2) = 2^-80


def quantise(rows: Doubles, scale: float, key: Key, round_: int, clients: Integers) -> Uint32s:
    """Round each client's row (clients, d) times `scale` at random, modulo 2^32; `key` is of Purpose.QUANTISATION."""
    out = np.empty(rows.shape, dtype=np.uint32)
    bad = _quantise(np.ascontiguousarray(rows), scale, key, round_, np.asarray(clients, np.int64), out)
    if bad >= 0:
        at, coordinate = divmod(int(bad), rows.shape[1])
        number = f"number {coordinate} of its update is {rows[at, coordinate]}, which times the scale {scale:g}"
        sentence = f"{number} is not a number within ±(2^31 − 1); clip the update or leave the client out"
        raise BadInput("update.out-of-range", sentence, f"client {int(clients[at])}")
    return out


def dequantise(total: Uint32s, scale: float) -> Doubles:
    """Return the sum of a total modulo 2^32, from −2^31 to 2^31 − 1, divided by `scale`."""
    return total.view(np.int32).astype(np.float64) / scale


def scale_for(clip: float, cohort: int, noise_std_on_sum: float) -> float:
    """Return the largest power of two at which a sum of `cohort` updates of norm ≤ clip, plus noise, does not wrap.

    A number of the sum is at most cohort·clip, rounding moves it by less than cohort after scaling, and Gaussian noise
    of standard deviation σ (discrete or not, in the units of an update; both are σ-subgaussian) passes z·σ with
    probability at most 2·exp(−z²/2). With z = 10.6 that is 2^-80 for a number, so that a sum of up to 2^20 numbers
    wraps with probability at most 2^-60. Without noise it never wraps.
    """
    require_range("cohort", cohort, least=1, below=LARGEST)
    most = Fraction(clip) * cohort + Fraction(TAIL) * Fraction(noise_std_on_sum)
    room = Fraction(LARGEST - cohort) / most
    exponent = room.numerator.bit_length() - room.denominator.bit_length()
    if Fraction(2) ** exponent > room:
        exponent -= 1
    sentence = f"no scale fits a clip of {clip} and noise of {noise_std_on_sum}; rescale the updates"
    require(-1000 <= exponent <= 1000, "scale.none-fits", sentence)
    return 2.0**exponent


@lru_cache(maxsize=64)
def quantised_norm_bound(clip: float, scale: float, d: int) -> float:
    """Compute the largest L2 norm of a quantised update of d numbers and norm ≤ clip, in integer units.

    If every number x_j is rounded away from 0, |y_j| = ⌈|x_j|⌉. All |y_j| can be 1 at no cost; raising one from level l to
    l + 1 costs 2l − 1 of ‖x‖² ≤ (clip·scale)² = c² and adds 2l + 1 to ‖y‖². Taking the cheapest steps first, the last one
    in part, with all numbers above level L = ⌊c/√d⌋: ‖y‖² ≤ d(L + 1)² + (c² − dL²)(2L + 3)/(2L + 1) ≤ (c + √d)².
    """
    square = (Fraction(clip) * Fraction(scale)) ** 2
    level = math.isqrt(square // d)
    always = d * (level + 1) ** 2 + (square - d * level**2) * Fraction(2 * level + 3, 2 * level + 1)
    bound = Fraction(math.floor(always)) if square > 0 else Fraction(0)
    return math.nextafter(math.sqrt(bound), math.inf) if bound > 0 else 0.0


@kernel
def rounded(x: float, u: float) -> Any:
    """Round x down, or up if u is below its fractional part."""
    low = math.floor(x)
    return low + 1 if u < x - low else low


@kernel
def _quantise(rows: Doubles, scale: float, key: Key, round_: int, clients: Integers, out: Uint32s) -> int:
    """Quantise all rows; return −1, or the place of the first number out of range."""
    d: int = rows.shape[1]
    for at in range(len(clients)):
        u, v = 0.0, 0.0
        for j in range(d):
            if j % 2 == 0:
                u, v = uniform_pair(key, j >> 1, 0, clients[at], round_)
            x = rows[at, j] * scale
            if not abs(x) <= LARGEST:
                return at * d + j
            out[at, j] = np.uint32(np.int64(rounded(x, u if j % 2 == 0 else v)) & 0xFFFFFFFF)
    return -1


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
    """Draw one client's noise of a round, Sk(variance) in each number: the difference of two Poisson numbers.

    A draw depends on its place only.
    """
    if not 0.0 <= variance <= 1e15:  # integers stay exact as float64
        sentence = "the variance of Skellam noise must lie between 0 and 1e15; lower the scale"
        raise BadInput("value.out-of-range", sentence)
    mean = 0.5 * variance
    for j in range(len(out)):
        if mean < 10.0:  # below which algorithm PTRS is not exact
            u, v = uniform_pair(key, 0, j, client, round_)
            out[j] = poisson_by_inversion(mean, u) - poisson_by_inversion(mean, v)
        else:
            plus = _poisson_by_rejection(mean, key, 0, j, client, round_)
            out[j] = plus - _poisson_by_rejection(mean, key, 1, j, client, round_)


@kernel
def skellam_rows(key: Key, round_: int, clients: Integers, variance: float, out: Integers) -> None:
    """Draw the shares of many clients: row i holds the numbers that `skellam` draws for clients[i]."""
    for i in range(len(clients)):
        skellam(key, round_, clients[i], variance, out[i])


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
    """Return the Rényi divergences at ORDERS of `rounds` releases with Skellam noise of this variance."""
    return tuple((rounds * np.asarray(skellam_rdp(_ORDERS, variance, l2, l1))).tolist())


def skellam_epsilon(variance: float, l2: float, l1: float, rounds: int, delta: float) -> float:
    """Return ε at δ of `rounds` releases with Skellam noise of this variance, whose Rényi divergences add up."""
    from dp_accounting.rdp import compute_epsilon  # imported late: it is slow

    require_range("rounds", rounds, least=1)
    epsilon, _ = compute_epsilon(ORDERS, skellam_divergences(variance, l2, l1, rounds), delta)
    return float(epsilon)


@lru_cache(maxsize=64)
def skellam_variance(epsilon: float, delta: float, rounds: int, l2: float, l1: float) -> float:
    """Return the smallest variance, to nine digits from above, with which `rounds` releases stay within (ε, δ)."""
    unit = rounds * l2 * l2
    return unit * smallest(lambda x: skellam_epsilon(unit * x, l2, l1, rounds, delta) <= epsilon, 1.0, 1e-9, 1e-12)
