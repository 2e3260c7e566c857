"""Discrete Gaussian noise: integers k with probability proportional to exp(−k²/2σ²), drawn without rounding error.

Canonne, Kamath, Steinke 2020, "The Discrete Gaussian for Differential Privacy". Floating-point noise can be
removed from a sum (Mironov 2012, "On Significance of the Least Significant Bits for Differential Privacy"); integer noise
on an integer sum cannot: every total is possible with and without a client.

**The draw** is by rejection. Blocks of W = 2^w integers have constant hats of integer heights H_i, with
H_i ≥ c·exp(−(iW)²/2σ²) for an integer c and Σ H_i = 2^63. A block is drawn by an alias table of integers, a place in it by
w bits, a sign by one: k = place, or −1 − place, so that every integer stands for one outcome. It is accepted if a uniform
number U is below c·exp(−k²/2σ²)/H_i, the only comparison with a real number. It is first made with the drawn bits of U and
in float64, whose error is at most `MARGIN`·(1 + k²/2σ²) of the probability. Where that does not decide (about once in 2^40
draws for σ = 2^27, in proportion to σ), `_decided` draws more bits of U and computes more digits of the exponential. The
distribution is therefore exact on any machine, except that numbers beyond REACH·σ (at least 32 σ), whose probability is
below 2^-700 together, are never drawn.

**The price of discreteness.** P is the discrete Gaussian, Q a Gaussian number rounded to the nearest whole one. Then
Q(k)/P(k) = (1 + θ)·∫ exp(−x²/2σ²)·cosh(kx/σ²) dx over |x| ≤ ½, with 0 ≤ θ < 3·exp(−2π²σ²), and therefore

    1 − 1/24σ²  ≤  Q(k)/P(k)  ≤  (1 + θ)·exp(k²/24σ⁴).

Integers plus Q are rounded sums with Gaussian noise, to which the accountants' results apply. With P in
its place, m numbers in all, ε grows by no more than `epsilon_slack`, and δ by no more than the factor that
`gaussian_delta` sets aside. docs/privacy/README.md has the proof.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from quorank.errors import require
from quorank.kernels.arrays import Integers
from quorank.kernels.compiled import kernel
from quorank.privacy.streams import Key, words

BLOCKS = 512
REACH = BLOCKS // 16  # largest draw in standard deviations; a block is at least σ/16 wide
LARGEST = 2.0**46  # largest standard deviation; every draw is below 2^53, exact in float64
LEAST, COARSEST = 2.0**-10, 2.0**12  # smallest standard deviations for drawing and for accounting as Gaussian
MARGIN = 2.0**-42  # bound on the relative error of a probability in float64: see `_fill`
SET_ASIDE = 1e-7  # share of δ and ε that is reserved for discreteness

_FRACTION_BITS = np.uint64(54)
_COLUMN_MASK, _FRACTION_MASK = np.uint64(BLOCKS - 1), np.uint64((1 << 54) - 1)
_CAPACITY = 1 << 54  # of a column of the alias table: 2^63 / 512
_ONE, _32, _63 = np.uint64(1), np.uint64(32), np.uint64(63)
_TINY = 1e-280  # more than what float64 loses of a probability that nearly vanishes


class HatTable(NamedTuple):
    """Hat of one σ for the kernel."""

    sigma: float
    bits: int  # w: a block holds 2^w numbers
    top: float  # c
    columns: Integers  # (BLOCKS, 4) see the constants below


HEIGHT, CUT, ALIAS, SURE = 0, 1, 2, 3
"""Columns of a block: H_i; the fraction of its column of the alias table below which it is drawn; the block of the rest of
that column; the 63 − w bits of U below which each of its numbers is accepted."""


@lru_cache(maxsize=64)
def table_for(sigma: float) -> HatTable:
    """Return the hat for a standard deviation, in units of an integer."""
    sentence = f"the standard deviation of the noise must lie between {LEAST:g} and 2^46 units, got {sigma:g}"
    require(LEAST <= sigma <= LARGEST, "privacy.off-the-grid", sentence, "privacy")
    bits = max(0, math.frexp(sigma / 16.0)[1])
    columns = np.empty((BLOCKS, 4), dtype=np.int64)
    top = _build(sigma, bits, columns)
    return HatTable(sigma, bits, top, columns)


@kernel
def _build(sigma: float, bits: int, columns: Integers) -> float:
    """Fill the table and return c, in float64, since a hat only has to be high enough."""
    width = math.ldexp(1.0, bits)
    heights, cuts, aliases, sure = columns[:, 0], columns[:, 1], columns[:, 2], columns[:, 3]
    shape = np.empty(BLOCKS + 1)
    total = 0.0
    for i in range(BLOCKS + 1):
        shape[i] = math.exp(-0.5 * (i * width / sigma) ** 2)
        total += shape[i]
    top = np.floor(9223372036854775808.0 * (1.0 - 2.0**-28) / total)
    rest = np.int64(9223372036854775807)
    for i in range(BLOCKS):
        heights[i] = np.int64(top * shape[i] * (1.0 + 2.0**-30)) + 1
        rest -= heights[i]
    heights[0] += rest + 1
    for i in range(BLOCKS):
        sure[i] = np.int64(math.ldexp(top * shape[i + 1] / heights[i] * (1.0 - 2.0**-30), 63 - bits))
    # Vose's alias table in integers: each column holds 2^54, of at most two blocks
    left, waiting = heights.copy(), np.empty(BLOCKS, dtype=np.int64)
    smalls, larges = 0, BLOCKS  # small blocks wait at the front, large ones at the back
    for i in range(BLOCKS):
        if left[i] < _CAPACITY:
            waiting[smalls] = i
            smalls += 1
        else:
            larges -= 1
            waiting[larges] = i
    while smalls > 0:
        smalls -= 1
        low, high = waiting[smalls], waiting[larges]
        cuts[low], aliases[low] = left[low], high
        left[high] -= _CAPACITY - left[low]
        if left[high] < _CAPACITY:
            larges += 1
            waiting[smalls] = high
            smalls += 1
    for place in range(larges, BLOCKS):  # exactly full, since all weights fill all columns
        cuts[waiting[place]], aliases[waiting[place]] = _CAPACITY, waiting[place]
    return float(top)


@kernel
def _fill(
    key: Key, stream: int, round_: int, hat: HatTable, margin: float, start: int, attempt: int, out: Integers
) -> tuple[int, int]:
    """Draw out[start:], its first number from this attempt on; return the (place, attempt) left undecided, or (len, 0).

    t = k/σ has one rounding and ½t² one more, so that the error of the exponent is at most ½t²·2^-51; the exponential, the
    product with c, the division by H_i and U add a few 2^-53: all within 2^-42·(1 + ½t²) of the probability.
    """
    sigma, bits, top, columns = hat
    shift = np.uint64(bits)
    mask = (_ONE << shift) - _ONE
    scale = math.ldexp(1.0, bits - 63)
    for j in range(start, len(out)):
        while True:
            w0, w1, w2, w3 = words(key, attempt, j, stream, round_)
            first, second = (w0 << _32) | w1, (w2 << _32) | w3
            column = np.int64((first >> _FRACTION_BITS) & _COLUMN_MASK)
            block = column
            if np.int64(first & _FRACTION_MASK) >= columns[column, CUT]:
                block = columns[column, ALIAS]
            place = (block << bits) | np.int64(second & mask)
            drawn = np.int64((second >> _ONE) >> shift)  # the first 63 − w bits of U
            k = -1 - place if first >> _63 else place
            if drawn < columns[block, SURE]:
                out[j] = k
                break
            t = k / sigma
            exponent = 0.5 * t * t
            probability = top * math.exp(-exponent) / columns[block, HEIGHT]
            error = margin * (1.0 + exponent)
            if (drawn + 1.0) * scale <= probability * (1.0 - error) - _TINY:
                out[j] = k
                break
            if drawn * scale < probability * (1.0 + error) + _TINY:
                return j, attempt
            attempt += 1
        attempt = 0
    return len(out), 0


def discrete_gaussian(key: Key, round_: int, stream: int, sigma: float, out: Integers, margin: float = MARGIN) -> None:
    """Fill `out` with discrete Gaussian numbers of an address; streams 0 and 1 of a round are independent.

    A number depends on its place only. A larger `margin` gives the same numbers, more of them by exact arithmetic.
    """
    table, start, attempt = table_for(sigma), 0, 0
    while True:
        start, attempt = _fill(key, stream, round_, table, margin, start, attempt, out)
        if start == len(out):
            return
        decided = _decided(table, key, round_, stream, start, attempt)
        if decided is None:
            attempt += 1
        else:
            out[start] = decided
            start, attempt = start + 1, 0


def _decided(table: HatTable, key: Key, round_: int, stream: int, j: int, attempt: int) -> int | None:
    """Return the number of an attempt if U·H_i < c·exp(−k²/2σ²), with as many bits of U as that takes; else None.

    Decimal numbers of p digits round each step correctly, so the relative error of the exponential is below
    (2 + ½t²)·10^(2 − p).
    """
    first, second = _two_words(key, attempt, j, stream, round_)
    column = first >> 54 & BLOCKS - 1
    _, cut, alias, _ = table.columns[column].tolist()
    block = column if first & _CAPACITY - 1 < cut else alias
    place = block << table.bits | second & (1 << table.bits) - 1
    k = -1 - place if first >> 63 else place
    drawn, bits, turn = second >> 1 + table.bits, 63 - table.bits, 0
    height, top = int(table.columns[block, HEIGHT]), int(table.top)
    numerator, denominator = table.sigma.as_integer_ratio()
    while True:
        with localcontext() as context:
            context.prec = 60 + bits // 3
            exponent = Decimal((k * denominator) ** 2) / Decimal(2 * numerator**2)
            value = (-exponent).exp() * top
            error = value * (2 + exponent) * Decimal(10) ** (2 - context.prec) + Decimal(10) ** -900_000
            if Decimal((drawn + 1) * height) <= (value - error) * 2**bits:
                return k
            if Decimal(drawn * height) >= (value + error) * 2**bits:
                return None
        turn += 1
        high, low = _two_words(key, attempt, j, stream + 2 * turn, round_)
        drawn, bits = drawn << 128 | high << 64 | low, bits + 128


def _two_words(key: Key, block: int, interaction: int, client: int, round_: int) -> tuple[int, int]:
    w0, w1, w2, w3 = (int(word) for word in words(key, block, interaction, client, round_))
    return w0 << 32 | w1, w2 << 32 | w3


# ---------------------------------------------------------------- accounting


def gaussian_delta(delta: float) -> float:
    """Return the δ at which discrete noise is accounted as Gaussian: δ·(1 − SET_ASIDE)."""
    return delta * (1.0 - SET_ASIDE)


class IntegerNoise(NamedTuple):
    """Amount of discrete Gaussian noise in some releases."""

    sigma: float  # the least standard deviation, in units
    numbers: int


def epsilon_slack(drawn: Sequence[IntegerNoise], epsilon: float, delta: float) -> float:
    """Compute the contribution of discreteness to ε of releases with this noise, all counted as the coarsest.

    With m numbers of deviation ≥ σ, a = m/(24σ² − 1) ≥ log P/Q everywhere. b = ‖k‖²/24σ⁴ ≥ log Q/P, where by Laurent and
    Massart (2000, lemma 1) a Gaussian vector of m numbers has ‖x‖² ≤ σ²·(m + 2√(mτ) + 2τ) except with probability e^−τ,
    and rounding adds at most √m/2 to ‖x‖. τ is chosen so that e^(ε − τ) is a part of the reserved δ.
    """
    sigma, numbers = min(noise.sigma for noise in drawn), sum(noise.numbers for noise in drawn)
    sentence = f"noise of {sigma:g} units is too coarse to be accounted for as Gaussian; lower the cohort, or raise ε"
    require(sigma >= COARSEST, "privacy.off-the-grid", sentence, "privacy")
    tail = epsilon - math.log(delta * SET_ASIDE / 4.0)
    length = math.sqrt(numbers + 2.0 * math.sqrt(numbers * tail) + 2.0 * tail) + math.sqrt(numbers) / (2.0 * sigma)
    return numbers / (24.0 * sigma**2 - 1.0) + length**2 / (24.0 * sigma**2)
