"""Updates that are turned round or blown up, without hiding it.

`SignFlip` is how the thesis makes a leaver's trace visible before it is unlearned (§6.1.4, eqs 6.3 and 6.4); `Scaled`
multiplies the honest update, below 0 against its direction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quorank.arrays import Booleans, Doubles, Uint64s
from quorank.attacks.colluders import check_clients, check_rows, check_share
from quorank.errors import require


@dataclass(frozen=True)
class SignFlip:
    """Sends the ranker −z·θ_local (eq. 6.3). Unlike `Scaled` it pulls back what all rounds before have learned."""

    kind: ClassVar[str] = "sign-flip"
    poisons_clicks: ClassVar[bool] = False

    clients: int = 1  # m
    z: float = 2.0  # z

    def __post_init__(self) -> None:
        check_clients(self.clients)
        require(0.0 < self.z < float("inf"), f"z must be above 0, got {self.z}")

    def check(self, n: int) -> None:
        """Refuse a federation of n clients in which half or more are malicious."""
        check_share(self.kind, self.clients, n)

    def poison(
        self, updates: Doubles, malicious: Booleans, theta: Doubles, rng_key: Uint64s, round_: int
    ) -> Doubles:
        """The updates that are sent."""
        check_rows(updates, malicious, theta)
        sent = np.array(updates, dtype=np.float64)
        sent[malicious] = flipped(sent[malicious], theta, self.z)
        return sent


@dataclass(frozen=True)
class Scaled:
    """Sends factor·Δ instead of Δ."""

    kind: ClassVar[str] = "scaled"
    poisons_clicks: ClassVar[bool] = False

    clients: int = 1  # m
    factor: float = -5.0

    def __post_init__(self) -> None:
        check_clients(self.clients)
        require(np.isfinite(self.factor), f"factor must be a finite number, got {self.factor}")

    def check(self, n: int) -> None:
        """Refuse a federation of n clients in which half or more are malicious."""
        check_share(self.kind, self.clients, n)

    def poison(
        self, updates: Doubles, malicious: Booleans, theta: Doubles, rng_key: Uint64s, round_: int
    ) -> Doubles:
        """The updates that are sent."""
        check_rows(updates, malicious, theta)
        sent = np.array(updates, dtype=np.float64)
        sent[malicious] *= self.factor
        return sent


def flipped(update: Doubles, theta: Doubles, z: float) -> Doubles:
    """Δ_mal = −z·Δ − (z + 1)·θ_g, eq. 6.4."""
    return np.asarray(-z * update - (z + 1.0) * theta, dtype=np.float64)
