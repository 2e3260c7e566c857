"""Little Is Enough (Baruch, Baruch and Goldberg 2019, "A little is enough: circumventing defenses for distributed
learning"; thesis §5.2.3).

All malicious clients send μ − z·σ, near enough to the mean to pass for honest. z is as large as it may be if so many
honest updates shall lie beyond the malicious ones that these and the malicious ones are a majority.

For the ten clients of the thesis that z is −0.14, 0, 0.18 and 0.43 for one to four malicious ones: with one the attack
moves the wrong way (by nothing, if it knows its own update only, whose σ is 0), with two it sends the mean. That the
thesis finds this attack harmless says so much about ten clients and nothing about ranking; `z` may be given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quorank.arrays import Booleans, Doubles, Uint64s
from quorank.attacks.colluders import Knowledge, check_clients, check_rows, check_share, honest_view
from quorank.errors import require


@dataclass(frozen=True)
class LittleIsEnough:
    """θ_mal = μ − z·σ, with μ and σ of the honest updates that the attacker knows."""

    kind: ClassVar[str] = "little-is-enough"
    poisons_clicks: ClassVar[bool] = False

    clients: int = 1  # m
    knowledge: Knowledge = "partial"
    z: float | None = None  # z; by default from n and m

    def __post_init__(self) -> None:
        check_clients(self.clients)
        require(self.z is None or np.isfinite(self.z), f"z must be a finite number, got {self.z}")

    def check(self, n: int) -> None:
        """Refuse a federation of n clients in which half or more are malicious."""
        check_share(self.kind, self.clients, n)

    def poison(
        self, updates: Doubles, malicious: Booleans, theta: Doubles, rng_key: Uint64s, round_: int
    ) -> Doubles:
        """The updates that are sent; the thesis's θ_g cancels, as μ and μ − z·σ are both rankers."""
        check_rows(updates, malicious, theta)
        sent = np.array(updates, dtype=np.float64)
        if malicious.any():
            known = honest_view(sent, malicious, self.knowledge)
            z = largest_z(len(sent), int(malicious.sum())) if self.z is None else self.z
            sent[malicious] = known.mean(axis=0) - z * known.std(axis=0)
        return sent


def largest_z(n: int, m: int) -> float:
    """The largest z with Φ(z) ≤ (n − m − s) / (n − m), where s = ⌊n/2⌋ + 1 − m honest clients make a majority.

    A cohort that is drawn may hold a majority of malicious clients; then one honest client beyond them is enough.
    """
    from scipy.special import ndtri

    supporters = max(n // 2 + 1 - m, 1)
    honest = n - m
    return float(ndtri((honest - supporters) / honest)) if honest > supporters else 0.0
