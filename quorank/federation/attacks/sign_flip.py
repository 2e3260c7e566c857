"""Attacks by reversed or scaled updates.

The thesis uses `SignFlip` to make a leaver's influence visible before it is unlearned (§6.1.4, eqs 6.3 and 6.4); `Scaled`
multiplies the honest update.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quorank.errors import require_range
from quorank.federation.attacks.attack import Attack
from quorank.kernels.arrays import Booleans, Doubles, Uint64s


@dataclass(frozen=True)
class SignFlip(Attack):
    """Malicious clients that send the ranker −z·θ_local (eq. 6.3), which also reverses all earlier rounds.

    >>> flipped(np.array([1.0]), theta=np.array([2.0]), z=2.0)
    array([-8.])
    """

    kind: ClassVar[str] = "sign-flip"

    z: float = 2.0  # z, scale of the reversed local ranker

    def __post_init__(self) -> None:
        super().__post_init__()
        require_range("z", self.z, above=0.0)

    def malicious_updates(
        self, honest: Doubles, malicious: Booleans, theta: Doubles, key: Uint64s, round_: int
    ) -> Doubles:
        return flipped(honest[malicious], theta, self.z)


@dataclass(frozen=True)
class Scaled(Attack):
    """Malicious clients that send factor·Δ instead of Δ.

    >>> Scaled(clients=1, factor=-5.0).factor
    -5.0
    """

    kind: ClassVar[str] = "scaled"

    factor: float = -5.0  # factor of the honest update

    def __post_init__(self) -> None:
        super().__post_init__()
        require_range("factor", self.factor)

    def malicious_updates(
        self, honest: Doubles, malicious: Booleans, theta: Doubles, key: Uint64s, round_: int
    ) -> Doubles:
        return honest[malicious] * self.factor


def flipped(update: Doubles, theta: Doubles, z: float) -> Doubles:
    """Return Δ_mal = −z·Δ − (z + 1)·θ_g, eq. 6.4."""
    return np.asarray(-z * update - (z + 1.0) * theta, dtype=np.float64)
