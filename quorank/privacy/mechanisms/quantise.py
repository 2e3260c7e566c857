"""Updates as integers modulo 2^32, rounded at random so that their mean is exact, for sums that are masked.

Stochastic quantisation as in Kairouz, Liu, Steinke 2021, "The distributed discrete Gaussian mechanism for federated
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

from quorank.arrays import Doubles, Integers, Uint32s
from quorank.compiled import kernel
from quorank.errors import BadInput, require
from quorank.privacy.streams import Key, uniform_pair

LARGEST = 2**31 - 1
"""The largest quantised number, of either sign, that is told from another modulo 2^32."""
_TAIL_BITS = 80
_TAIL = math.sqrt(2.0 * math.log(2.0) * (_TAIL_BITS + 1))  # 2·exp(−z²/2) = 2^-80


def quantise(
    rows: Doubles,
    scale: float,
    key: Key,
    round_: int,
    clients: Integers,
) -> Uint32s:
    """Each client's row times `scale`, rounded at random, modulo 2^32; `key` is that of Purpose.QUANTISATION."""
    require(
        rows.ndim == 2 and rows.dtype == np.float64 and len(rows) == len(clients),
        f"one float64 row is quantised for each of {len(clients)} clients, got {rows.dtype} of shape {rows.shape}",
    )
    _check_scale(scale)
    out = np.empty(rows.shape, dtype=np.uint32)
    bad = _quantise(np.ascontiguousarray(rows), scale, key, round_, np.asarray(clients, np.int64), out)
    if bad >= 0:
        at, coordinate = divmod(int(bad), rows.shape[1])
        raise BadInput(
            f"client {int(clients[at])}: number {coordinate} of its update is {rows[at, coordinate]}, which times the "
            f"scale {scale:g} is not a number within ±(2^31 − 1); clip the update or leave the client out"
        )
    return out


def dequantise(total: Uint32s, scale: float) -> Doubles:
    """The sum that a total modulo 2^32 stands for: from −2^31 to 2^31 − 1, divided by `scale`."""
    require(total.dtype == np.uint32, f"a total is of uint32 numbers, got {total.dtype}")
    _check_scale(scale)
    return total.view(np.int32).astype(np.float64) / scale


def scale_for(clip: float, cohort: int, noise_std_on_sum: float) -> float:
    """The largest power of two at which a sum of `cohort` updates of norm ≤ clip, plus noise, does not wrap.

    A number of the sum is at most cohort·clip, rounding moves it by less than cohort after scaling, and Gaussian noise
    of standard deviation σ (discrete or not, in the units of an update; both are σ-subgaussian) passes z·σ with
    probability at most 2·exp(−z²/2). With z = 10.6 that is 2^-80 for a number, so that a sum of up to 2^20 numbers
    wraps with probability at most 2^-60. Without noise it never wraps.
    """
    require(
        math.isfinite(clip) and clip > 0.0,
        f"the clip must be a positive number, got {clip}: without a bound a sum may wrap",
    )
    require(
        math.isfinite(noise_std_on_sum) and noise_std_on_sum >= 0.0,
        f"the noise's standard deviation must be a number not below 0, got {noise_std_on_sum}",
    )
    require(1 <= cohort < LARGEST, f"a quantised sum is of 1 to 2^31 − 2 clients, got {cohort}")
    most = Fraction(clip) * cohort + Fraction(_TAIL) * Fraction(noise_std_on_sum)
    room = Fraction(LARGEST - cohort) / most
    exponent = room.numerator.bit_length() - room.denominator.bit_length()
    if Fraction(2) ** exponent > room:
        exponent -= 1
    require(
        -1000 <= exponent <= 1000,
        f"no scale fits a clip of {clip} and noise of {noise_std_on_sum}; rescale the updates",
    )
    return 2.0**exponent


def quantised_norm_bound(clip: float, scale: float, d: int, failure: float = 0.0) -> float:
    """The most that the L2 norm of a quantised update of d numbers and norm ≤ clip can be, in integer units.

    With failure = 0 it always holds. If every number x_j is rounded away from 0, |y_j| = ⌈|x_j|⌉: all d numbers can be
    1 for nothing, and for each number to go from level to level + 1 costs 2·level − 1 of ‖x‖² ≤ (clip·scale)² = c² and
    gives 2·level + 1. The cheapest steps first, and the last in part, is the most that any update can reach: with all
    numbers beyond level L = ⌊c/√d⌋, ‖y‖² ≤ d(L + 1)² + (c² − dL²)(2L + 3)/(2L + 1), which is at most (c + √d)².

    With failure = β > 0 it holds with probability 1 − β over the rounding, which the accounting must add to δ: then
    ‖y‖² ≤ c² + d/4 + √(2 log(1/β))·(c + √d/2) if that is less, the bound of the
    paper's conditional rounding: Hoeffding's, since y_j² takes two values that are at most 2|x_j| + 1 apart.
    """
    require(math.isfinite(clip) and clip >= 0.0, f"the clip must be a number not below 0, got {clip}")
    require(d >= 1, f"an update has at least one number, got {d}")
    require(0.0 <= failure < 1.0, f"a failure probability lies from 0 to below 1, got {failure}")
    _check_scale(scale)
    square = (Fraction(clip) * Fraction(scale)) ** 2
    level = math.isqrt(square // d)
    always = d * (level + 1) ** 2 + (square - d * level**2) * Fraction(2 * level + 3, 2 * level + 1)
    bound = Fraction(math.floor(always)) if square > 0 else Fraction(0)
    if failure > 0.0:
        c = clip * scale
        bound = min(bound, Fraction(likely_square(c, d, failure)))
    return math.nextafter(math.sqrt(bound), math.inf) if bound > 0 else 0.0


def likely_square(c: float, d: int, failure: float) -> float:
    """c² + d/4 + √(2 log(1/β))·(c + √d/2): what ‖y‖² does not pass with probability 1 − β when ‖x‖ ≤ c."""
    return c * c + d / 4.0 + math.sqrt(-2.0 * math.log(failure)) * (c + math.sqrt(d) / 2.0)


def _check_scale(scale: float) -> None:
    require(math.isfinite(scale) and scale > 0.0, f"the scale must be a positive number, got {scale}")


@kernel
def rounded(x: float, u: float) -> Any:
    """x rounded down or up to a whole number, up if u is below the part behind the point."""
    low = math.floor(x)
    return low + 1 if u < x - low else low


@kernel
def _quantise(
    rows: Doubles,
    scale: float,
    key: Key,
    round_: int,
    clients: Integers,
    out: Uint32s,
) -> int:
    """−1, or where in the rows stands the first number that has no place."""
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
