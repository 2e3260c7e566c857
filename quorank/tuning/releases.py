"""Releases of a gradient: what a client sends after a search (Hartmann et al. 2019, §5.3).

Rprop uses signs alone, so a client may send a sign for each weight, and the server takes the most common one. Two bits
tell +, − and 0 apart; one bit cannot say 0, and a coin decides there.

"The most common sign" is read as a vote among those who have one: a search in which a weight plays no role says nothing
about it. Read literally (`zeros` = "vote") such searches outvote all others, and the weight of a rare kind of visit
never moves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from quorank.errors import require
from quorank.kernels.arrays import Booleans, Bytes, Doubles
from quorank.parts import Family


@dataclass(frozen=True)
class GradientRelease:
    """Release of the whole gradient as 32-bit numbers."""

    kind: ClassVar[str] = "gradient"
    needs_coins: ClassVar[bool] = False

    def size(self, weights: int) -> int:
        """Return the bytes of one update."""
        return 4 * weights

    def pack(self, slopes: Doubles, coins: Booleans | None = None) -> Bytes:
        """Return the payloads (updates, bytes) of the gradients (updates, weights), little-endian."""
        exact = np.ascontiguousarray(slopes, dtype="<f4")
        return exact.view(np.uint8).reshape(len(slopes), self.size(slopes.shape[1]))

    def unpack(self, payload: Bytes, weights: int) -> Doubles:
        """Return the gradients (updates, weights) of payloads (updates, bytes)."""
        _check_size(payload, self.size(weights))
        return np.ascontiguousarray(payload).view("<f4").reshape(len(payload), weights).astype(np.float64)

    def per_step(self, values: Doubles, steps: Doubles) -> Doubles:
        """Return the change of the loss over a declared step of each weight: comparable between weights of any unit."""
        return values * steps

    def direction(self, total: Doubles, squares: Doubles, seen: Doubles) -> Doubles:
        """Return the mean gradient."""
        return np.asarray(total / np.maximum(seen, 1e-300), dtype=np.float64)


@dataclass(frozen=True)
class SignRelease:
    """Release of the sign of each coordinate; the server takes the majority."""

    kind: ClassVar[str] = "signs"

    bits: Literal[1, 2] = 2
    zeros: Literal["abstain", "vote"] = "abstain"

    def __post_init__(self) -> None:
        require(self.bits in (1, 2), "value.out-of-range", f"must be 1 or 2, got {self.bits}", "bits")
        known, wrong = self.zeros in ("abstain", "vote"), f"must be abstain or vote, got {self.zeros!r}"
        require(known, "value.out-of-range", wrong, "zeros")

    @property
    def needs_coins(self) -> bool:
        """Whether `pack` needs a random bit for every slope of 0."""
        return self.bits == 1

    def size(self, weights: int) -> int:
        """Return the bytes of one update: 22 weights take 6 with two bits and 3 with one."""
        return (self.bits * weights + 7) // 8

    def pack(self, slopes: Doubles, coins: Booleans | None = None) -> Bytes:
        """Return the payloads (updates, bytes) of the gradients (updates, weights).

        Two bits: positive, negative. One bit: positive, where `coins` (updates, weights) decide for zeros.
        """
        positive = slopes > 0.0
        if self.bits == 2:
            both = np.stack((positive, slopes < 0.0), axis=2)
            return np.packbits(both.reshape(len(slopes), -1), axis=1)
        zero = slopes == 0.0
        decided = coins is not None or not zero.any()
        require(decided, "release.coins-missing", "one bit cannot say 0: a coin must decide there")
        return np.packbits(positive if coins is None else positive | (zero & coins), axis=1)

    def unpack(self, payload: Bytes, weights: int) -> Doubles:
        """Return the signs (updates, weights), −1, 0 or 1, of payloads (updates, bytes)."""
        _check_size(payload, self.size(weights))
        bits = np.unpackbits(payload, axis=1, count=self.bits * weights).astype(np.float64)
        if self.bits == 1:
            return 2.0 * bits - 1.0
        both = bits.reshape(len(payload), weights, 2)
        values = both[:, :, 0] - both[:, :, 1]
        values[both.min(axis=2) > 0.0] = np.nan  # positive and negative at once: nobody packs that
        return values

    def per_step(self, values: Doubles, steps: Doubles) -> Doubles:
        """Return the signs as they are: they have no unit."""
        return values

    def direction(self, total: Doubles, squares: Doubles, seen: Doubles) -> Doubles:
        """Return the most common sign of each coordinate, from Σ signs and the number of those that are not 0."""
        positive, negative = (squares + total) / 2.0, (squares - total) / 2.0
        if self.zeros == "abstain":
            return np.sign(total)
        absent = seen - squares
        return np.where(absent > np.maximum(positive, negative), 0.0, np.sign(total))


def _check_size(payload: Bytes, size: int) -> None:
    fits = payload.ndim == 2 and payload.shape[1] == size and payload.dtype == np.uint8
    wrong = f"an update must have {size} bytes, got an array of {payload.shape} {payload.dtype}"
    require(fits, "update.wrong-size", wrong)


Release = GradientRelease | SignRelease
RELEASES: Family[Release] = Family("release", GradientRelease, SignRelease)
