"""False integers in a secure sum, which hides the senders.

Where updates are clipped on the client and summed under masks, a malicious client may send other numbers. `words` are
uniform 32-bit words. `worst` knows the other inputs of its sum and reverses it, at the largest norm with which a sum is
still used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from quorank.federation.attacks.attack import Attack
from quorank.kernels.arrays import Booleans, Doubles, Integers, Uint64s
from quorank.kernels.draws import fill_uniform
from quorank.privacy import Mechanism

ALMOST = 0.999
"""Fraction of the bound that is used: the bound is that of the remaining clients, unknown to a liar."""


@dataclass(frozen=True)
class Lies(Attack):
    """Malicious clients that send arbitrary integers into a secure sum.

    >>> Lies(clients=2, sends="words").sends
    'words'
    """

    kind: ClassVar[str] = "lies"

    sends: Literal["words", "worst"] = "worst"  # uniform 32-bit words, or the reversed sum

    def lie(
        self, releases: Doubles, malicious: Booleans, clients: Integers, mechanism: Mechanism, key: Uint64s, round_: int
    ) -> Doubles:
        """Return the malicious rows; of several liars in a sum the first reverses it, and the others send zeros."""
        lies, liars = np.zeros((int(malicious.sum()), releases.shape[1])), clients[malicious]
        for at, client in enumerate(liars.tolist()):
            if self.sends == "words":
                fill_uniform(key, 0, client, round_, lies[at])
                lies[at] = np.floor(lies[at] * 2.0**32) - 2.0**31
                continue
            together = mechanism.companions(client, clients, round_)
            if client == liars[np.isin(liars, clients[together])][0]:
                others = releases[together & ~malicious].sum(axis=0)
                lies[at] = reversed_sum(others, *mechanism.reach(int(together.sum()), releases.shape[1])) - others
        return lies


def reversed_sum(total: Doubles, number: float, length: float) -> Doubles:
    """Return the longest integers opposite to `total` within bounds on number and norm; −10·total without bounds."""
    norm = math.sqrt(total.dot(total))
    if norm == 0.0:
        return np.zeros_like(total)
    farthest = min(length / norm, number / float(np.abs(total).max()))
    return np.rint(-total * (ALMOST * farthest if math.isfinite(farthest) else 10.0))
