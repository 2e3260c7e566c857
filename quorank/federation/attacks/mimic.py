"""Mimic (Karimireddy, He and Jaggi 2022, "Byzantine-robust learning on heterogeneous datasets via bucketing", §3.2).

All malicious clients copy the update of one honest client, which then counts m + 1 times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from quorank.federation.attacks.attack import Attack, Knowledge, rivals
from quorank.kernels.arrays import Booleans, Doubles, Uint64s


@dataclass(frozen=True)
class Mimic(Attack):
    """Copy u_i* of an honest client i*: the first, or the farthest.

    The paper takes the client with the largest |⟨z, u_i⟩| for the direction z of the largest variance, which it learns
    over rounds; "farthest" uses each round's own z, "first" copies the same client in all rounds.

    >>> Mimic(clients=2, victim="farthest").knowledge
    'full'
    """

    kind: ClassVar[str] = "mimic"

    knowledge: Knowledge = "full"  # honest updates that the attacker knows: its clients' or all
    victim: Literal["first", "farthest"] = "first"  # i*, the honest client that is copied

    def malicious_updates(
        self, honest: Doubles, malicious: Booleans, theta: Doubles, key: Uint64s, round_: int
    ) -> Doubles:
        """Return u_i* for all malicious clients."""
        known = rivals(honest, malicious, self.knowledge)
        if self.victim == "first":
            return np.array(known[0])
        centred = known - known.mean(axis=0)
        _, _, directions = np.linalg.svd(centred, full_matrices=False)
        return np.array(known[np.argmax(np.abs(known @ directions[0]))])
