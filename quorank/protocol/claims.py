"""Which identity (Ed25519) each client of a secure sum goes by, as the coordinator tells it; that is a claim."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from quorank.errors import require

IDENTITY = 32
"""Bytes of a public key."""

_CLAIM = struct.Struct(f"<I{IDENTITY}s")
_MALFORMED = "what the coordinator says about identities cannot be read; it is refused"


@runtime_checkable
class Acquaintances(Protocol):
    """Whom a client knows: it judges claims, and remembers whom it meets."""

    def accept(self, mine: int, own: bytes, least: int, claims: Mapping[int, bytes]) -> dict[int, bytes]:
        """The identities of a round's clients, if nobody has changed; whoever is new is remembered."""


def claims_bytes(identities: Mapping[int, bytes]) -> bytes:
    """Which identity each client goes by, as it is sent."""
    return b"".join(_CLAIM.pack(client, key) for client, key in sorted(identities.items()))


def claims_from(raw: bytes) -> dict[int, bytes]:
    """The identities again; anything else is refused."""
    require(len(raw) % _CLAIM.size == 0, "secure-sum.malformed", _MALFORMED)
    found = dict(_CLAIM.iter_unpack(raw))
    require(len(found) * _CLAIM.size == len(raw), "secure-sum.malformed", _MALFORMED)
    return found
