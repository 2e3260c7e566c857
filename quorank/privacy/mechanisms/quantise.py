"""Stochastic quantisation of updates to integers modulo 2^32, with an exact mean, for masked sums.

As in Kairouz, Liu, Steinke 2021, "The distributed discrete Gaussian mechanism for federated
learning with secure aggregation": x·scale is rounded down or up, up with probability the part behind the point, so
E[quantised] = x·scale (to the 2^-53 of a uniform draw, if the scale is a power of two). Rounding can lengthen an
update, and the sensitivity that is accounted must be that of the rounded one: `quantised_norm_bound`. A negative
number z stands as 2^32 + z.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from quorank.errors import BadInput, require, require_range
from quorank.kernels.arrays import Doubles, Integers, Uint32s
from quorank.kernels.compiled import kernel
from quorank.privacy.streams import Key, uniform_pair

LARGEST = 2**31 - 1
"""Largest quantised number, of either sign, that is unique modulo 2^32."""
_TAIL_BITS = 80
TAIL = math.sqrt(2.0 * math.log(2.0) * (_TAIL_BITS + 1))
"""z: 2·exp(−z²/2) = 2^-80."""


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


def quantised_norm_bound(clip: float, scale: float, d: int) -> float:
    """Compute the largest L2 norm of a quantised update of d numbers and norm ≤ clip, in integer units.

    If every number x_j is rounded away from 0, |y_j| = ⌈|x_j|⌉: all d numbers can be
    1 for nothing, and for each number to go from level to level + 1 costs 2·level − 1 of ‖x‖² ≤ (clip·scale)² = c² and
    gives 2·level + 1. The cheapest steps first, and the last in part, is the most that any update can reach: with all
    numbers beyond level L = ⌊c/√d⌋, ‖y‖² ≤ d(L + 1)² + (c² − dL²)(2L + 3)/(2L + 1), which is at most (c + √d)².
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
