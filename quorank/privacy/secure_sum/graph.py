"""Roster and neighbour graph of a secure sum: masks, holders of shares, and tolerated colluders.

The roster lists the clients of a round in ascending order, each with a digest of its two public keys. Every client gets
the whole roster and computes its neighbours from it: all others in a small cohort, else the nearest on a ring in an order
drawn from a hash of the roster. The keys are fresh in every round, so the order is unknown before them. Sealed shares and
signed lists of survivors are bound to the roster: clients with different rosters cannot complete a round.

Bell et al. 2020, "Secure single-server aggregation with (poly)logarithmic overhead": small cohorts are complete graphs,
large ones are rings in random order. A client and its k nearest neighbours hold its shares, of which any t give its
secrets, and it shares a mask with each of its m nearest (in the paper m = k).

`tolerated_colluders` counts the clients that may collude with a server that lies about dropouts without learning the input
of any other client:

- fewer than t holders of any one client's shares, since t of them know both of its secrets;
- fewer than 2·least − n or 2t − n clients, whichever is more, else two lists of survivors can be signed by enough clients,
  and one part of a client's holders reveals one secret and the other part the other;
- at most least − 2 clients, since the sum without the colluders' inputs is that of the others;
- on a ring, so few that the masks connect the honest survivors whichever dropouts the server names. Two gaps of m/2
  places without honest survivors would separate them, so clients refuse a list of survivors on which two such gaps hold
  no more survivors than there could be colluders in them (`margin`).

Up to that number a complete graph is safe with certainty, and a ring but with probability 2^-56 for each order that a
server tries. It may leave out keys, or let colluders draw new ones, until an order suits it; each try costs a slow hash
of the roster (scrypt, 16 MB).
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache

import numpy as np

from quorank.errors import BadInput, require
from quorank.kernels.arrays import Integers
from quorank.privacy.secure_sum.masks import MOST_CLIENTS, Occasion
from quorank.privacy.secure_sum.messages import AdvertiseKeys
from quorank.privacy.secure_sum.shamir import MOST_HOLDERS

SECURITY_BITS = 56
"""A ring, once drawn, is unsafe with probability at most 2^-56; after 2^16 tries of the server at most 2^-40."""
CORRECTNESS_BITS = 16
EVERYBODY = 128  # up to this many clients each is the neighbour of all others


_ENTRY = np.dtype([("client", "<u4"), ("keys", "V16")])
_ROUND = struct.Struct("<I")
_SLOW = {"n": 2**14, "r": 8, "p": 1, "maxmem": 2**26}  # 16 MB and tens of milliseconds


@dataclass(frozen=True)
class Neighbourhood:
    """Size of a client's neighbourhood; its neighbours and itself hold its shares."""

    neighbours: int  # k, other holders of a client's shares
    threshold: int  # t, shares that give the secret: more than half, else each half of the holders tells one secret
    masks: int  # m ≥ k, clients with which a client shares a mask; the holders of its shares are among them
    margin: int = 0  # number of survivors that any two gaps of m/2 places on a ring must exceed


@cache
def neighbours_for(n: int, dropouts: float = 0.1, colluding: float = 0.05) -> Neighbourhood:
    """Return the neighbourhood for a cohort of n, of whom the share `dropouts` leaves and `colluding` colludes.

    Up to 128 clients are all neighbours; their threshold is n − max(1, ⌈dropouts·n⌉), but more than half.

    Larger cohorts get the smallest ring that is safe by exact hypergeometric tails, summed over all clients: a round fails
    with probability at most 2^-16 if ⌊dropouts·n⌋ random clients leave at any time after the keys, and is unsafe with
    probability at most 2^-56 against a server with ⌊colluding·n⌋ clients that chooses the dropouts and as many missing
    keys. Without such a ring all are neighbours, up to 255 clients.
    """
    sentence = f"a secure sum needs at least 2 clients, got {n}: the sum of one is its update"
    require(2 <= n < 2**31, "secure-sum.too-few", sentence)
    sentence = f"the shares of clients who leave ({dropouts}) and collude ({colluding}) must be below 1 together"
    require(min(dropouts, colluding) >= 0.0 and dropouts + colluding < 1.0, "value.out-of-range", sentence)
    everybody = n - 1, max(n // 2 + 1, n - max(1, math.ceil(dropouts * n))), n - 1
    if n <= EVERYBODY:
        return Neighbourhood(*everybody)
    leaving, spying = math.floor(dropouts * n), math.floor(colluding * n)
    there, unsafe, failed = n - leaving, 2.0 ** -(SECURITY_BITS + 1), 2.0 ** -(CORRECTNESS_BITS + 1)
    masks, margin = 0, 0
    while masks < there and (margin >= masks or scattering(n, masks, margin, leaving) > failed):
        masks += 2
        while masks < there and separation(there, masks, margin, spying) > unsafe:
            margin += 1
    for k in range(2, min(there, MOST_HOLDERS) if masks < there else 0, 2):
        t = k // 2 + 1
        while t <= k and exposure(there, k, t, spying) > unsafe:
            t += 1
        if t <= k and shortage(n, k, t, leaving) <= failed:
            return Neighbourhood(k, t, max(k, masks), margin)
    if n <= MOST_HOLDERS:
        return Neighbourhood(*everybody)
    raise BadInput(
        "secure-sum.neighbourhood",
        f"no neighbourhood of at most {MOST_HOLDERS - 1} clients is safe when {dropouts:.0%} of {n} clients leave and "
        f"{colluding:.0%} collude; ask for fewer",
    )


def shortage(n: int, k: int, t: int, leaving: int) -> float:
    """Bound P(some client keeps fewer than t of its k neighbours) from above, when `leaving` of n leave."""
    return n * _tail(k - t + 1, n - 1, leaving, k)


def exposure(n: int, k: int, t: int, colluding: int) -> float:
    """Bound P(some client has t colluding clients among its k neighbours) from above."""
    return n * _tail(t, n - 1, colluding, k)


def scattering(n: int, m: int, margin: int, leaving: int) -> float:
    """Bound P(some two gaps of m/2 places on the ring keep no more than `margin` clients) from above."""
    return n * (n - 1) / 2 * _tail(m - margin, n, leaving, m)


def separation(n: int, m: int, margin: int, colluding: int) -> float:
    """Bound P(some two gaps of m/2 places on the ring hold more than `margin` colluding clients) from above."""
    return n * (n - 1) / 2 * _tail(margin + 1, n, colluding, m)


def _tail(least: int, population: int, marked: int, drawn: int) -> float:
    """Return P(at least `least` marked clients among `drawn` of the population)."""
    from scipy import stats  # half a second that other runs need not wait

    return float(stats.hypergeom.sf(least - 1, population, marked, drawn))


@cache
def tolerated_colluders(n: int, plan: Neighbourhood, least: int) -> int:
    """Return the number of n clients that may collude with the server without learning another client's input.

    `least` is the smallest number of survivors that clients sign; the module's docstring has the conditions.
    """
    alone = least - 2
    if plan.neighbours >= n - 1:
        return max(0, min(alone, plan.threshold - 1, 2 * max(least, plan.threshold) - n - 1))
    safe, unsafe = 0, max(0, min(alone, 2 * least - n - 1)) + 1
    while unsafe - safe > 1:
        middle = (safe + unsafe) // 2
        unsafe_ring = exposure(least, plan.neighbours, plan.threshold, middle)
        unsafe_ring += separation(least, plan.masks, plan.margin, middle)
        fits = unsafe_ring <= 2.0**-SECURITY_BITS
        safe, unsafe = (middle, unsafe) if fits else (safe, middle)
    return safe


class Ring:
    """The clients of a round in their order, each with its neighbours."""

    def __init__(self, order: Sequence[int], neighbourhood: Neighbourhood) -> None:
        self.order = tuple(order)
        self.neighbourhood = neighbourhood
        self.place = {client: at for at, client in enumerate(self.order)}

    @classmethod
    def drawn(cls, clients: Iterable[int], neighbourhood: Neighbourhood, entropy: Callable[[int], bytes]) -> Ring:
        """Draw a uniform order: clients sorted by 16 random bytes each."""
        named = sorted(clients)
        raw = entropy(16 * len(named))
        order = sorted(range(len(named)), key=lambda at: raw[16 * at : 16 * at + 16])
        return cls([named[at] for at in order], neighbourhood)

    def holders(self, client: int) -> list[int]:
        """Return the holders of the client's shares in the order of their places 1, 2, …: its neighbours and itself."""
        return self._around(client, self.neighbourhood.neighbours)

    def masked_with(self, client: int) -> list[int]:
        """Return the clients with which the client shares a mask, and itself."""
        return self._around(client, self.neighbourhood.masks)

    def _everybody(self, count: int) -> bool:
        return count >= len(self.order) - 1

    def _around(self, client: int, count: int) -> list[int]:
        if self._everybody(count):
            return list(self.order)
        at, half = self.place[client], count // 2
        return [self.order[(at + step) % len(self.order)] for step in range(-half, half + 1)]

    def joins(self, survivors: Collection[int]) -> bool:
        """Return whether the masks connect the honest survivors, whichever of the survivors collude.

        Any two disjoint gaps of m/2 places must hold more than `margin` survivors. A list with unknown clients is refused.
        """
        if not self.place.keys() >= set(survivors):
            return False
        n, half = len(self.order), self.neighbourhood.masks // 2
        if self._everybody(self.neighbourhood.masks):
            return True
        here = np.zeros(n, dtype=np.int64)
        here[[self.place[client] for client in survivors]] = 1
        ends = np.concatenate(([0], np.cumsum(np.concatenate((here, here[:half])))))
        inside = ends[half : half + n] - ends[:n]  # survivors in the gap that begins at each place
        apart = _sliding_least(inside, n - 2 * half + 1)  # the least of the gaps that begin there or later
        return bool(np.all(inside + np.roll(apart, -half) > self.neighbourhood.margin))


def _sliding_least(values: Integers, width: int) -> Integers:
    """Return the minimum of the `width` values from each place of a circle on."""
    least, reach = values, 1
    while 2 * reach <= width:
        least, reach = np.minimum(least, np.roll(least, -reach)), 2 * reach
    return np.minimum(least, np.roll(least, -(width - reach)))


class Roster:
    """Clients of a round, ascending, each with the digest of its keys; `raw` is how it is sent."""

    def __init__(self, raw: bytes) -> None:
        sentence = "the roster of a secure sum cannot be read; have it sent again"
        require(len(raw) % _ENTRY.itemsize == 0, "secure-sum.malformed", sentence)
        entries = np.frombuffer(raw, dtype=_ENTRY)
        self.raw, self.clients = raw, tuple(entries["client"].tolist())
        ascending = bool(np.all(np.diff(entries["client"].astype(np.int64)) > 0))
        known = max(self.clients, default=0) < MOST_CLIENTS
        require(len(self.clients) >= 2 and ascending and known, "secure-sum.malformed", sentence)
        self._keys = entries["keys"]

    def __len__(self) -> int:
        return len(self.clients)

    @classmethod
    def of(cls, keys: Iterable[AdvertiseKeys]) -> Roster:
        """Return the roster of the senders of these keys."""
        found = sorted((message.client, keys_digest(message.channel_key, message.mask_key)) for message in keys)
        return cls(np.array(found, dtype=_ENTRY).tobytes())

    @cached_property
    def digest(self) -> bytes:
        """Digest of the roster."""
        return hashlib.blake2b(self.raw, digest_size=32, person=b"quorank roster").digest()

    @cached_property
    def _places(self) -> Mapping[int, int]:
        return {client: at for at, client in enumerate(self.clients)}

    def holds(self, client: int, channel_key: bytes, mask_key: bytes) -> bool:
        """Return whether the client takes part with these keys."""
        at = self._places.get(client)
        return at is not None and self._keys[at].tobytes() == keys_digest(channel_key, mask_key)

    def pack(self, clients: Collection[int]) -> bytes:
        """Encode a subset of the clients, one bit each."""
        chosen = set(clients)
        return np.packbits([client in chosen for client in self.clients], bitorder="little").tobytes()

    def unpack(self, raw: bytes) -> frozenset[int]:
        """Decode a subset that `pack` encoded."""
        bits = np.unpackbits(np.frombuffer(raw, dtype=np.uint8), bitorder="little")
        fits = len(raw) == -(-len(self) // 8) and not bits[len(self) :].any()
        require(fits, "secure-sum.malformed", "a choice of the roster's clients cannot be read; have it sent again")
        return frozenset(self.clients[at] for at in np.flatnonzero(bits).tolist())

    def ring(self, occasion: Occasion, neighbourhood: Neighbourhood) -> Ring:
        """Return the order of the clients: ascending where all are neighbours, else drawn from the roster."""
        if min(neighbourhood.neighbours, neighbourhood.masks) >= len(self) - 1:
            return Ring(self.clients, neighbourhood)
        salt = occasion.tag + _ROUND.pack(occasion.round)
        seed = hashlib.scrypt(self.digest, salt=salt, dklen=32, **_SLOW)
        return Ring.drawn(self.clients, neighbourhood, lambda size: hashlib.shake_256(seed).digest(size))


@lru_cache(maxsize=8)
def roster_and_ring(raw: bytes, occasion: Occasion, neighbourhood: Neighbourhood) -> tuple[Roster, Ring]:
    """Read a roster and draw its ring, once for all clients of one process."""
    roster = Roster(raw)
    return roster, roster.ring(occasion, neighbourhood)


@lru_cache(maxsize=4096)
def keys_digest(channel_key: bytes, mask_key: bytes) -> bytes:
    """Return the digest of a client's two public keys."""
    return hashlib.blake2b(channel_key + mask_key, digest_size=16, person=b"quorank keys").digest()
