"""Roster of a secure sum: its clients with their keys, and the neighbours that follow from it.

The server sends every client the whole roster: the clients in their order, each with a digest of its two public keys. From
it a client computes its neighbours: all others in a small cohort, else the nearest on a ring in an order drawn from a hash
of the roster. The keys are fresh in every round, so the order is unknown before the keys; a server that tries rosters to
choose the order pays a slow hash (scrypt, 16 MB) for each. Sealed shares and signed lists of survivors are bound to the
roster: clients with different rosters cannot complete a round.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property, lru_cache

import numpy as np

from quorank.errors import require
from quorank.privacy.secure_sum.graph import Neighbourhood, Ring
from quorank.privacy.secure_sum.masks import MOST_CLIENTS, Occasion
from quorank.privacy.secure_sum.messages import AdvertiseKeys

DIGEST = 16  # bytes of a client's digest
_ENTRY = np.dtype([("client", "<u4"), ("keys", f"V{DIGEST}")])
_ROUND = struct.Struct("<I")
_SLOW = {"n": 2**14, "r": 8, "p": 1, "maxmem": 2**26}  # 16 MB and tens of milliseconds


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
    """Read a roster and draw its ring; clients that are played in one process do so once."""
    roster = Roster(raw)
    return roster, roster.ring(occasion, neighbourhood)


@lru_cache(maxsize=4096)
def keys_digest(channel_key: bytes, mask_key: bytes) -> bytes:
    """Return the digest of a client's two public keys."""
    return hashlib.blake2b(channel_key + mask_key, digest_size=DIGEST, person=b"quorank keys").digest()
