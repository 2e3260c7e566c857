"""Neighbour graph of a secure sum: who masks with whom, and who holds whose shares.

Bell et al. 2020, "Secure single-server aggregation with (poly)logarithmic overhead": the clients stand on a ring in
random order and each has the k nearest as neighbours, which is enough if three things hold (their good graphs): each
client keeps t neighbours who stay (else its masks cannot be removed), no client has t neighbours who collude with the
server (else its masks are known), and the clients who stay and do not collude are connected by masks (else the sum
falls apart into sums of smaller groups). Only the first two need many neighbours. Here, unlike in the paper, masks
therefore go to the nearest m ≤ k only, which saves a key agreement for each of the other k − m.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from quorank.errors import BadInput, require
from quorank.privacy.secure_sum.shamir import MOST_HOLDERS

SECURITY_BITS = 40
CORRECTNESS_BITS = 20
EVERYBODY = 64
"""Up to this many clients each is the neighbour of all others."""


@dataclass(frozen=True)
class Neighbourhood:
    """How far a client's neighbourhood reaches; a client's shares are held by its neighbours and by itself."""

    neighbours: int  # k, who hold a client's shares
    threshold: int  # t, how many shares give the secret
    masks: int  # m, with how many of the neighbours a client shares a mask

    def __post_init__(self) -> None:
        code, holders = "secure-sum.neighbourhood", self.neighbours + 1
        sentence = f"a secure sum needs from 1 to {MOST_HOLDERS - 1} neighbours a client, got {self.neighbours}"
        require(1 <= self.neighbours < MOST_HOLDERS, code, sentence)
        # else a server that lies about who left could ask one half of the holders for one secret and the other half for
        # the other
        sentence = f"the threshold must be above half of the {holders} holders and at most all, got {self.threshold}"
        require(holders < 2 * self.threshold <= 2 * holders, code, sentence)
        sentence = f"a client masks with at least 1 and at most its {self.neighbours} neighbours, got {self.masks}"
        require(1 <= self.masks <= self.neighbours, code, sentence)


@cache
def neighbours_for(n: int, dropouts: float = 0.1, colluding: float = 0.05) -> Neighbourhood:
    """Return the smallest neighbourhood for a cohort of n, of whom the share `dropouts` leaves and `colluding` colludes.

    It rests on exact hypergeometric tails over the random ring, summed over all clients: the round fails with
    probability at most 2^-20 when ⌊dropouts·n⌋ clients leave at any time after the keys, and with probability at most
    2^-40 the server and ⌊colluding·n⌋ clients who tell it everything learn more than the sum of the others. Those who
    leave or collude do not choose their places on the ring; the server follows the protocol but remembers all. Up to
    64 clients all are neighbours and a bare majority is enough, whoever leaves.
    """
    sentence = f"a secure sum needs at least 2 clients, got {n}: the sum of one is its update"
    require(2 <= n < 2**31, "secure-sum.too-few", sentence)
    sentence = f"the shares of clients who leave ({dropouts}) and collude ({colluding}) must be below 1 together"
    require(min(dropouts, colluding) >= 0.0 and dropouts + colluding < 1.0, "value.out-of-range", sentence)
    if n <= EVERYBODY:
        return Neighbourhood(n - 1, n // 2 + 1, n - 1)
    leaving, spying = math.floor(dropouts * n), math.floor(colluding * n)
    masks = 2
    while disconnection(n, masks, leaving + spying) > 2.0 ** -(SECURITY_BITS + 1):
        masks += 2
    for k in range(masks, min(n, MOST_HOLDERS), 2):
        t = k // 2 + 1
        while t <= k and exposure(n, k, t, spying) > 2.0 ** -(SECURITY_BITS + 1):
            t += 1
        if t <= k and shortage(n, k, t, leaving) <= 2.0**-CORRECTNESS_BITS:
            return Neighbourhood(k, t, masks)
    raise BadInput(
        "secure-sum.neighbourhood",
        f"no neighbourhood of at most {MOST_HOLDERS - 1} clients is safe when {dropouts:.0%} of {n} clients leave and "
        f"{colluding:.0%} collude; ask for fewer",
    )


def shortage(n: int, k: int, t: int, leaving: int) -> float:
    """Bound P(some client keeps fewer than t of its k neighbours) from above, when `leaving` of n leave."""
    from scipy import stats  # half a second that other runs need not wait

    return n * float(stats.hypergeom.sf(k - t, n - 1, leaving, k))


def exposure(n: int, k: int, t: int, colluding: int) -> float:
    """Bound P(some client has t colluding clients among its k neighbours) from above."""
    from scipy import stats  # half a second that other runs need not wait

    return n * float(stats.hypergeom.sf(t - 1, n - 1, colluding, k))


def disconnection(n: int, m: int, removed: int) -> float:
    """Bound P(a ring whose nearest m are joined falls apart without `removed` of its n clients) from above.

    Neighbours along the ring stay joined unless m/2 in a row between them are gone, and one such gap leaves a path:
    it takes two. There are n(n − 1)/2 pairs of gaps, each of them m given clients.
    """
    if removed < m:
        return 0.0
    logs = sum(math.log((removed - i) / (n - i)) for i in range(m))
    return n * (n - 1) / 2 * math.exp(logs)


class Ring:
    """The clients of a round in their random order, each with its holders and its mask neighbours."""

    def __init__(self, order: Sequence[int], neighbourhood: Neighbourhood) -> None:
        self.order = tuple(order)
        self.neighbourhood = neighbourhood
        self.place = {client: at for at, client in enumerate(self.order)}
        for count in (neighbourhood.neighbours, neighbourhood.masks):
            sentence = f"a ring of {len(self.order)} clients needs an even number of neighbours, got {count}"
            require(count % 2 == 0 or self._everybody(count), "secure-sum.neighbourhood", sentence)

    @classmethod
    def drawn(cls, clients: Iterable[int], neighbourhood: Neighbourhood, entropy: Callable[[int], bytes]) -> Ring:
        """Draw a uniform order: clients sorted by 16 random bytes each."""
        named = sorted(clients)
        raw = entropy(16 * len(named))
        order = sorted(range(len(named)), key=lambda at: raw[16 * at : 16 * at + 16])
        return cls([named[at] for at in order], neighbourhood)

    def holders(self, client: int) -> list[int]:
        """Return who holds the client's shares, in the order of their places 1, 2, …: its neighbours and itself."""
        return self._around(client, self.neighbourhood.neighbours)

    def mask_neighbours(self, client: int) -> list[int]:
        """Return with whom the client shares a mask."""
        return [other for other in self._around(client, self.neighbourhood.masks) if other != client]

    def connected(self, clients: Iterable[int]) -> bool:
        """Return whether masks join these clients into one group: at most one gap along the ring is too wide."""
        places = np.sort(np.array([self.place[client] for client in clients], dtype=np.int64))
        gaps = np.diff(np.append(places, places[:1] + len(self.order)))
        masks = self.neighbourhood.masks
        return self._everybody(masks) or int(np.sum(gaps > masks // 2)) <= 1

    def _everybody(self, count: int) -> bool:
        return count >= len(self.order) - 1

    def _around(self, client: int, count: int) -> list[int]:
        if self._everybody(count):
            return list(self.order)
        at, half = self.place[client], count // 2
        return [self.order[(at + step) % len(self.order)] for step in range(-half, half + 1)]
