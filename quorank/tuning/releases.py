"""Releases of a gradient: what leaves a client (Hartmann et al. 2019, §5.3).

Rprop uses signs alone, so a client may release a sign for each weight, and the server takes the most common one. Two
bits tell +, − and 0 apart; one bit cannot represent 0, and a coin decides there. Zeros abstain from the majority: a
search in which a weight plays no role says nothing about it, and most searches would outvote a rare kind of visit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from quorank.errors import require
from quorank.kernels.arrays import Booleans, Doubles
from quorank.parts import Family


@dataclass(frozen=True)
class GradientRelease:
    """Release of the whole gradient, rounded to 32-bit floats.

    >>> GradientRelease().apply(np.array([[1.5, -0.25]])).tolist()
    [[1.5, -0.25]]
    """

    kind: ClassVar[str] = "gradient"
    needs_coins: ClassVar[bool] = False

    def apply(self, slopes: Doubles, coins: Booleans | None = None) -> Doubles:
        """Return the released values (updates, weights) of gradients (updates, weights)."""
        with np.errstate(over="ignore"):
            return slopes.astype(np.float32).astype(np.float64)

    def accepts(self, values: Doubles) -> Booleans:
        """Return which rows (updates,) `apply` can have made: finite 32-bit floats."""
        return np.asarray((np.isfinite(values) & (self.apply(values) == values)).all(axis=1), dtype=np.bool_)

    def per_step(self, values: Doubles, steps: Doubles) -> Doubles:
        """Return the change of the loss over a declared step of each weight: comparable between weights of any unit."""
        return values * steps

    def direction(self, mean: Doubles) -> Doubles:
        """Return the direction (weights,) for the optimiser: the mean gradient."""
        return mean


@dataclass(frozen=True)
class SignRelease:
    """Release of the sign of each coordinate; the server takes the majority.

    Args:
        bits: 2 for −1, 0 and 1; 1 for −1 and 1, where coins decide for zeros.

    >>> SignRelease().apply(np.array([[1.5, -0.25, 0.0]])).tolist()
    [[1.0, -1.0, 0.0]]
    """

    kind: ClassVar[str] = "signs"

    bits: Literal[1, 2] = 2

    @property
    def needs_coins(self) -> bool:
        """Return whether `apply` needs a random bit for every slope of 0."""
        return self.bits == 1

    def apply(self, slopes: Doubles, coins: Booleans | None = None) -> Doubles:
        """Return the released signs (updates, weights) of gradients (updates, weights); `coins` have the same shape."""
        if self.bits == 2:
            return np.sign(slopes)
        zero = slopes == 0.0
        decided = coins is not None or not zero.any()
        require(decided, "release.coins-missing", "one bit cannot represent 0: a coin must decide there")
        positive = slopes > 0.0 if coins is None else (slopes > 0.0) | (zero & coins)
        return np.where(positive, 1.0, -1.0)

    def accepts(self, values: Doubles) -> Booleans:
        """Return which rows (updates,) `apply` can have made."""
        signs = (-1.0, 1.0) if self.bits == 1 else (-1.0, 0.0, 1.0)
        return np.asarray(np.isin(values, signs).all(axis=1), dtype=np.bool_)

    def per_step(self, values: Doubles, steps: Doubles) -> Doubles:
        """Return the signs unchanged: they have no unit."""
        return values

    def direction(self, mean: Doubles) -> Doubles:
        """Return the most common sign of each coordinate."""
        return np.sign(mean)


Release = GradientRelease | SignRelease
RELEASES: Family[Release] = Family("release", GradientRelease, SignRelease)
