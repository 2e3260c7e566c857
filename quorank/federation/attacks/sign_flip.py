"""Attacks by reversed or scaled updates, without any disguise.

`SignFlip` is how the thesis makes a leaver's trace visible before it is unlearned (§6.1.4, eqs 6.3 and 6.4); `Scaled`
multiplies the honest update, below 0 against its direction.
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
    """Malicious clients that send the ranker −z·θ_local (eq. 6.3).

    Unlike `Scaled` this pulls back what all rounds before have learned.
    """

    kind: ClassVar[str] = "sign-flip"

    z: float = 2.0  # z, by which the local ranker is scaled and reversed

    def __post_init__(self) -> None:
        super().__post_init__()
        require_range("z", self.z, above=0.0)

    def malicious_updates(
        self, honest: Doubles, malicious: Booleans, theta: Doubles, key: Uint64s, round_: int
    ) -> Doubles:
        return flipped(honest[malicious], theta, self.z)


@dataclass(frozen=True)
class Scaled(Attack):
    """Malicious clients that send factor·Δ instead of Δ."""

    kind: ClassVar[str] = "scaled"

    factor: float = -5.0  # times which the honest update is sent

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
