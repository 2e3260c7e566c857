"""Inner-product manipulation (Xie, Koyejo and Gupta 2019, eq. 3).

Paper: "Fall of empires: breaking Byzantine-tolerant SGD by inner product manipulation".

All malicious clients send −ϵ·μ, the honest mean against its direction. A small ϵ lies closer to the honest updates than
they lie to each other, and still the mean of what a rule chooses may point the wrong way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quorank.errors import require_range
from quorank.federation.attacks.attack import Attack, Knowledge, rivals
from quorank.kernels.arrays import Booleans, Doubles, Uint64s


@dataclass(frozen=True)
class InnerProduct(Attack):
    """−ϵ·μ, with the mean μ of the known honest updates.

    >>> InnerProduct().malicious_updates(np.array([[2.0], [4.0], [6.0]]), np.arange(3) < 1, np.zeros(1), np.zeros(2), 0)
    array([-2.5])
    """

    kind: ClassVar[str] = "inner-product"

    knowledge: Knowledge = "full"  # honest updates that the attacker knows: its clients' or all
    factor: float = 0.5  # ϵ, times which the reversed mean is sent; no privacy figure

    def __post_init__(self) -> None:
        super().__post_init__()
        require_range("factor", self.factor, above=0.0)

    def malicious_updates(
        self, honest: Doubles, malicious: Booleans, theta: Doubles, key: Uint64s, round_: int
    ) -> Doubles:
        """Return −ϵ·μ."""
        return np.asarray(-self.factor * rivals(honest, malicious, self.knowledge).mean(axis=0), dtype=np.float64)
