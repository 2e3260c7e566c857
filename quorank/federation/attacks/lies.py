"""Lies in a sum that hides who sent what: a client ignores its clip and sends any whole numbers that it likes.

Where updates are clipped on the client and summed under masks, nothing stops a client from sending others. `words` are
uniform words of 32 bits. `worst` knows what all others in its sum send and turns the sum round: as long as a sum may be and
still be used, against the direction of the honest one. It does not take part in the guesses of rules: over sums in groups
it is one of the group means that the rule sees.
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
"""Of what is still used: the bounds hold for those who stay, and a liar cannot know who leaves."""


@dataclass(frozen=True)
class Lies(Attack):
    """Malicious clients that send whole numbers of their own choice into a secure sum."""

    kind: ClassVar[str] = "lies"

    sends: Literal["words", "worst"] = "worst"  # uniform words of 32 bits, or what turns the sum round

    def lie(
        self, releases: Doubles, malicious: Booleans, clients: Integers, mechanism: Mechanism, key: Uint64s, round_: int
    ) -> Doubles:
        """Return the malicious rows. Of several liars in a sum the first turns it round, and the others send nothing."""
        lies, liars = np.zeros((int(malicious.sum()), releases.shape[1])), clients[malicious]
        for at, client in enumerate(liars.tolist()):
            if self.sends == "words":
                fill_uniform(key, 0, client, round_, lies[at])
                lies[at] = np.floor(lies[at] * 2.0**32) - 2.0**31
                continue
            together = mechanism.companions(client, clients, round_)
            if client == liars[np.isin(liars, clients[together])][0]:
                others = releases[together & ~malicious].sum(axis=0)
                lies[at] = turned_round(others, *mechanism.reach(int(together.sum()), releases.shape[1])) - others
        return lies


def turned_round(total: Doubles, number: float, length: float) -> Doubles:
    """Return the longest whole numbers against `total` within a largest number and a length; unbounded: ten times it."""
    norm = math.sqrt(total.dot(total))
    if norm == 0.0:
        return np.zeros_like(total)
    farthest = min(length / norm, number / float(np.abs(total).max()))
    return np.rint(-total * (ALMOST * farthest if math.isfinite(farthest) else 10.0))
