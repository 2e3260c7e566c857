"""Little Is Enough (Baruch, Baruch and Goldberg 2019; thesis §5.2.3).

Paper: "A little is enough: circumventing defenses for distributed learning".

All malicious clients send μ − z·σ, close enough to the mean to pass for honest. z is the largest value for which the honest
updates beyond the malicious ones and the malicious ones together form a majority.

For the ten clients of the thesis z is −0.14, 0, 0.18 and 0.43 for one to four malicious ones: with one the attack moves the
wrong way (by 0 with partial knowledge), with two it sends the mean. The thesis's finding that this attack is harmless is
due to ten clients; `z` may be set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quorank.errors import require_range
from quorank.federation.attacks.attack import Attack, Knowledge, honest_view
from quorank.kernels.arrays import Booleans, Doubles, Uint64s


@dataclass(frozen=True)
class LittleIsEnough(Attack):
    """θ_mal = μ − z·σ, with mean μ and deviation σ of the known honest updates.

    >>> round(largest_z(10, 4), 4)
    0.4307
    """

    kind: ClassVar[str] = "little-is-enough"

    knowledge: Knowledge = "partial"  # honest updates that the attacker knows: its clients' or all
    z: float | None = None  # z, standard deviations from the mean; by default from n and m

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.z is not None:
            require_range("z", self.z)

    def malicious_updates(
        self, honest: Doubles, malicious: Booleans, theta: Doubles, key: Uint64s, round_: int
    ) -> Doubles:
        """Return μ − z·σ; the thesis's θ_g cancels, as μ and μ − z·σ are both rankers."""
        known = honest_view(honest, malicious, self.knowledge)
        z = largest_z(len(honest), int(malicious.sum())) if self.z is None else self.z
        return np.asarray(known.mean(axis=0) - z * known.std(axis=0), dtype=np.float64)


def largest_z(n: int, m: int) -> float:
    """Return the largest z with Φ(z) ≤ (n − m − s) / (n − m), where s = ⌊n/2⌋ + 1 − m honest clients make a majority.

    A drawn cohort may hold a majority of malicious clients; then one honest client beyond them suffices.
    """
    from scipy.special import ndtri

    supporters = max(n // 2 + 1 - m, 1)
    honest = n - m
    return float(ndtri((honest - supporters) / honest)) if honest > supporters else 0.0
