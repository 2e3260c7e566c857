"""Shamir's secret sharing (1979, "How to share a secret") of byte strings, each byte over the field of 256 elements.

The secret is the constant term of a random polynomial of degree t − 1, a share is its value at the holder's place
1, 2, …: any t shares give the secret, any t − 1 are uniform for every secret. The field is GF(2)[z] modulo
z⁸ + z⁴ + z³ + z + 1 (that of AES). Eight bytes are multiplied at once in a 64-bit word by shifts and exclusive ors. Only
places, which are public, decide branches, and no table is read, so the time taken does not depend on a secret.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from quorank.kernels.arrays import Uint64s
from quorank.kernels.compiled import kernel

MOST_HOLDERS = 255  # places are the field's elements other than 0, where the secret stands
_0, _1, _3, _4, _7 = (np.uint64(n) for n in (0, 1, 3, 4, 7))
_HIGH_OFF = np.uint64(0x7F7F7F7F7F7F7F7F)
_LOWEST = np.uint64(0x0101010101010101)


def split_secret(secret: bytes, threshold: int, holders: int, entropy: Callable[[int], bytes]) -> list[bytes]:
    """Return the shares of a secret for the places 1 … holders.

    Args:
        secret: Multiple of 8 bytes.
        threshold: t, number of shares that give the secret, at most `holders`.
        holders: Number of shares, at most `MOST_HOLDERS`.
        entropy: Source of random bytes.
    """
    size = len(secret)
    coefficients = np.frombuffer(secret + entropy((threshold - 1) * size), dtype=np.uint64)
    shares = np.empty((holders, size // 8), dtype=np.uint64)
    _evaluate(coefficients.reshape(threshold, size // 8), shares)
    raw = shares.tobytes()
    return [raw[at : at + size] for at in range(0, len(raw), size)]


def join_shares(shares: Sequence[bytes], places: Sequence[int]) -> bytes:
    """Return the secret of exactly `threshold` shares of equal length, given their distinct places."""
    size = len(shares[0])
    words = np.frombuffer(b"".join(shares), dtype=np.uint64).reshape(len(shares), size // 8)
    secret = np.zeros(size // 8, dtype=np.uint64)
    _interpolate(np.asarray(places, dtype=np.uint64), words, secret)
    return secret.tobytes()


@kernel
def doubled(word: Any) -> Any:
    """Multiply each of the eight bytes of `word` by z."""
    carry = (word >> _7) & _LOWEST
    return ((word & _HIGH_OFF) << _1) ^ carry ^ (carry << _1) ^ (carry << _3) ^ (carry << _4)


@kernel
def times(word: Any, factor: Any) -> Any:
    """Multiply each of the eight bytes of `word` by the public field element `factor`."""
    product = _0
    while factor != _0:
        if factor & _1:
            product ^= word
        word = doubled(word)
        factor >>= _1
    return product


@kernel
def inverse(element: Any) -> Any:
    """Return 1/element: its 254th power, since the 255th of every element but 0 is 1."""
    power, result = np.uint64(element), _1
    for _ in range(7):
        power = times(power, power)
        result = times(result, power)
    return result


@kernel
def _evaluate(coefficients: Uint64s, shares: Uint64s) -> None:
    """Evaluate by Horner's rule at each place; the inner loops are over words, which vectorises them."""
    size = shares.shape[1]
    value, step = np.empty(size, dtype=np.uint64), np.empty(size, dtype=np.uint64)
    for holder in range(shares.shape[0]):
        for w in range(size):
            value[w] = coefficients[-1, w]
        for degree in range(coefficients.shape[0] - 2, -1, -1):
            for w in range(size):
                step[w] = coefficients[degree, w]
            place = np.uint64(holder + 1)
            while place != _0:
                if place & _1:
                    for w in range(size):
                        step[w] ^= value[w]
                for w in range(size):
                    value[w] = doubled(value[w])
                place >>= _1
            for w in range(size):
                value[w] = step[w]
        for w in range(size):
            shares[holder, w] = value[w]


@kernel
def _interpolate(places: Uint64s, shares: Uint64s, secret: Uint64s) -> None:
    """Interpolate at 0 (Lagrange): share i weighs Π_{j≠i} x_j/(x_j − x_i), where minus is exclusive or."""
    for i in range(len(places)):
        above, below = _1, _1
        for j in range(len(places)):
            if j != i:
                above = times(above, places[j])
                below = times(below, places[j] ^ places[i])
        weight = times(above, inverse(below))
        for w in range(len(secret)):
            secret[w] ^= times(shares[i, w], weight)
