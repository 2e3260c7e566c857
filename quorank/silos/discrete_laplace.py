"""Discrete Laplace noise: P(k) = (1 − q)/(1 + q)·q^|k| for integers k, with q = e^(−1/scale).

The two-sided geometric distribution (Ghosh, Roughgarden, Sundararajan 2009, "Universally utility-maximizing privacy
mechanisms"), drawn exactly from random bits with integers only (Canonne, Kamath, Steinke 2020, "The discrete Gaussian for
differential privacy", algorithms 1 and 2): no logarithm is rounded, so no low-order bit reveals what was perturbed
(Mironov 2012, "On significance of the least significant bits for differential privacy").
"""

from __future__ import annotations

import hashlib
import math
from fractions import Fraction
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from quorank.errors import require, require_range
from quorank.kernels.arrays import Integers, Uint32s
from quorank.kernels.compiled import kernel

UNIT = "one occurrence of one term in one document"  # unit of privacy of everything that parties release
FINEST = 1_000_000  # ε is rounded down to millionths, so the noise is never less than requested
_WORDS_EACH = 11  # a little more than a draw takes on average
_MASK = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_RANGE = np.uint64(4294967296)


class SystemStream:
    """Source of random 32-bit words: the key stream of ChaCha20 under a secret key that is used for nothing else."""

    def __init__(self, key: bytes) -> None:
        self._encryptor = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()

    def words(self, count: int) -> Uint32s:
        """Return the next words."""
        return np.frombuffer(self._encryptor.update(bytes(4 * count)), dtype=np.uint32)


class AddressedStream(SystemStream):
    """Stream for simulation, whose key is its address. Anybody with the seed can remove the noise."""

    def __init__(self, seed: int, *, round_: int = 0, client: int = 0, interaction: int = 0) -> None:
        address = f"{seed} {round_} {client} {interaction}".encode()
        super().__init__(hashlib.blake2b(address, digest_size=32, person=b"quorank noise").digest())


def scale_for(sensitivity: int, epsilon: float) -> Fraction:
    """Return sensitivity/ε as a fraction, ε rounded down to millionths."""
    require(isinstance(epsilon, int | float), "value.out-of-range", f"must be a number, got {epsilon}", "epsilon")
    require_range("epsilon", epsilon, least=1 / FINEST)
    require_range("sensitivity", sensitivity, least=1)
    scale = Fraction(sensitivity * FINEST, math.floor(Fraction(str(epsilon)) * FINEST))
    said = f"{epsilon:g} with sensitivity {sensitivity} is out of range; choose a rounder or larger epsilon"
    require(max(scale.numerator, scale.denominator) < 2**32, "value.out-of-range", said, "epsilon")
    return scale


def occurrence_statement(kind: str, epsilon: float | None, horizon: str) -> dict[str, Any]:
    """Return the guarantee for one occurrence of one term; an ε of None guarantees nothing."""
    neighbouring, delta = "add or remove the occurrence", None if epsilon is None else 0.0
    return {
        "kind": kind, "unit": UNIT, "neighbouring": neighbouring, "epsilon": epsilon, "delta": delta, "horizon": horizon
    }  # fmt: skip


def draw_noise(stream: SystemStream, scale: Fraction, count: int) -> Integers:
    """Draw `count` independent integers with this scale."""
    out = np.empty(count, dtype=np.int64)
    filled, words = 0, np.empty(0, dtype=np.uint32)
    while filled < count:
        # an unfinished draw restarts with the same words and more after them: discarding it would bias the noise
        words = np.concatenate((words, stream.words(_WORDS_EACH * (count - filled) + 64)))
        more, used = _draw(words, scale.numerator, scale.denominator, out[filled:])
        filled, words = filled + more, words[used:]
    return out


# ---------------------------------------------------------------- compiled


@kernel
def below(words: Uint32s, at: int, n: int) -> Any:
    """Draw uniformly from 0, …, n − 1 (Lemire 2019); return it and the next position, past the end if words ran out."""
    wide = np.uint64(n)
    while at < len(words):
        product = np.uint64(words[at]) * wide
        at += 1
        low = product & _MASK
        if low >= wide or low >= _RANGE % wide:
            return np.int64(product >> _32), at
    return np.int64(0), len(words) + 1


@kernel
def true_with_exponential(words: Uint32s, at: int, u: int, t: int) -> Any:
    """Draw true with probability e^(−u/t) for 0 ≤ u ≤ t (their algorithm 1): the first K with no success is odd."""
    k = 1
    while at <= len(words):
        success = True
        if u < t:
            first, at = below(words, at, t)
            success = first < u
        if success and k > 1 and at <= len(words):
            second, at = below(words, at, k)
            success = second == 0
        if not success:
            break
        k += 1
    return k % 2 == 1, at


@kernel
def _draw(words: Uint32s, t: int, s: int, out: Integers) -> Any:
    """Fill `out` with draws of scale t/s (their algorithm 2); return the numbers of draws and of words used."""
    used = 0
    for i in range(len(out)):
        at = used
        while True:
            u, at = below(words, at, t)
            accepted, at = true_with_exponential(words, at, u, t)
            if at > len(words):
                return i, used
            if not accepted:
                continue
            v = 0
            while True:
                again, at = true_with_exponential(words, at, 1, 1)
                if at > len(words) or not again:
                    break
                v += 1
            negative, at = below(words, at, 2)
            if at > len(words):
                return i, used
            y = (u + t * v) // s
            if negative == 1 and y == 0:
                continue
            out[i] = -y if negative == 1 else y
            break
        used = at
    return len(out), used
