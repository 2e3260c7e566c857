"""Masks and sealed shares of a secure sum: X25519, keyed BLAKE2b, SHAKE-256 and ChaCha20-Poly1305.

Bonawitz et al. 2017, "Practical secure aggregation for privacy-preserving machine learning" (§4): two clients agree on
a secret by X25519, keyed BLAKE2b derives a seed from it, and SHAKE-256 expands the seed to a mask modulo 2^32. Every seed
is bound to the session, the round and the clients it is for: a key that is used again gives another mask.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from quorank.errors import BadInput, require
from quorank.kernels.arrays import Uint32s, Uint64s

KEY = 32  # bytes of a key, a seed, and of a share of either
SEALED = 2 * KEY + 16  # bytes of two sealed shares: their own and the authentication tag
COMMITMENT = 16  # bytes of a commitment to a share
COMMITMENTS = 2 * COMMITMENT  # to the two shares of a holder
MOST_CLIENTS = 2**31
_PLACE = struct.Struct("<III")


@dataclass(frozen=True)
class Occasion:
    """Session and round of a secure sum, part of every seed and message."""

    session: bytes
    round: int

    def __post_init__(self) -> None:
        size = len(self.session)
        require(1 <= size <= 255, "secure-sum.session", f"a session is named by 1 to 255 bytes, got {size}")
        sentence = f"a round is an integer from 0 to 2^32 − 1, got {self.round}"
        require(0 <= self.round < 2**32, "secure-sum.round", sentence)

    @cached_property
    def digest(self) -> bytes:
        """Digest of the session in signatures, 32 bytes."""
        return hashlib.sha256(self.session).digest()

    @cached_property
    def tag(self) -> bytes:
        """Tag of the session on messages, 16 bytes."""
        return self.digest[:16]

    def seed(self, secret: bytes, purpose: bytes, first: int, second: int) -> bytes:
        """Derive a seed for one purpose of a pair, or of one client named twice, in this round: keyed BLAKE2b."""
        info = purpose + _PLACE.pack(self.round, first, second)
        return hashlib.blake2b(info, digest_size=KEY, key=secret, person=self.tag).digest()


def shared_secret(private: X25519PrivateKey, public: bytes, whose: int) -> bytes:
    """Return the secret that two clients share: Diffie-Hellman on Curve25519."""
    try:
        return private.exchange(_public_key(public))
    except ValueError:
        sentence = f"client {whose} sent a public key that agrees on no secret; leave the client out"
        raise BadInput("secure-sum.public-key", sentence) from None


@lru_cache(maxsize=4096)
def _public_key(raw: bytes) -> X25519PublicKey:
    """Read a public key, once for all clients of one process."""
    return X25519PublicKey.from_public_bytes(raw)


def share_commitment(occasion: Occasion, owner: int, holder: int, of: bytes, share: bytes) -> bytes:
    """Commit a client to a holder's share of its seed (b"b") or of its mask key (b"s"): a digest under both names.

    A share is uniform while fewer than a threshold are known, so its digest says nothing about it.
    """
    place = _PLACE.pack(occasion.round, owner, holder)
    return hashlib.blake2b(place + of + share, digest_size=COMMITMENT, person=occasion.tag).digest()


def commitments(occasion: Occasion, owner: int, holder: int, shares: bytes) -> bytes:
    """Commit a client to both shares that a holder gets."""
    first = share_commitment(occasion, owner, holder, b"b", shares[:KEY])
    return first + share_commitment(occasion, owner, holder, b"s", shares[KEY:])


def is_committed(occasion: Occasion, owner: int, holder: int, of: bytes, share: bytes, committed: bytes) -> bool:
    """Return whether a share of one secret matches its owner's commitments to a holder's shares."""
    expected = committed[:COMMITMENT] if of == b"b" else committed[COMMITMENT:]
    return share_commitment(occasion, owner, holder, of, share) == expected


def seed_commitment(occasion: Occasion, owner: int, seed: bytes) -> bytes:
    """Commit a client to the seed of its self mask."""
    place = _PLACE.pack(occasion.round, owner, owner)
    return hashlib.blake2b(place + b"seed" + seed, digest_size=KEY, person=occasion.tag).digest()


def expand_seed(seed: bytes, length: int) -> Uint32s:
    """Return (length,) integers modulo 2^32 that look uniform without the seed: SHAKE-256, an extendable output."""
    raw = hashlib.shake_256(seed).digest(4 * length)
    return np.frombuffer(raw, dtype="<u4").astype(np.uint32, copy=False)


def self_mask(occasion: Occasion, seed: bytes, client: int, length: int) -> Uint32s:
    """Return PRG(b_u), (length,): the mask that only the client's own seed removes."""
    return expand_seed(occasion.seed(seed, b"quorank self mask", client, client), length)


def pair_mask(occasion: Occasion, secret: bytes, client: int, other: int, length: int) -> Uint32s:
    """Return ±PRG(s_uv), (length,), plus for the client with the smaller number, so that the two masks cancel."""
    low, high = min(client, other), max(client, other)
    mask = expand_seed(occasion.seed(secret, b"quorank pair mask", low, high), length)
    return mask if client == low else np.negative(mask)


def wide_pair_mask(occasion: Occasion, secret: bytes, client: int, other: int, length: int) -> Uint64s:
    """Return the same modulo 2^64, (length,), for sums that 32 bits cannot hold."""
    low, high = min(client, other), max(client, other)
    seed = occasion.seed(secret, b"quorank wide mask", low, high)
    mask = expand_seed(seed, 2 * length).astype("<u4").view("<u8").astype(np.uint64)
    return mask if client == low else np.negative(mask)


class ShareChannel:
    """Authenticated cipher between two clients of a roster, with a fresh key for each pair and round.

    Each direction is used once, with sender and receiver as its nonce.
    """

    def __init__(self, occasion: Occasion, secret: bytes, client: int, other: int, roster: bytes = b"") -> None:
        low, high = min(client, other), max(client, other)
        self._roster = roster
        self._cipher = ChaCha20Poly1305(occasion.seed(secret, b"quorank shares", low, high))
        self._round, self._client, self._other = occasion.round, client, other

    def seal(self, shares: bytes) -> bytes:
        """Encrypt shares for the other client."""
        return self._cipher.encrypt(_PLACE.pack(self._round, self._client, self._other), shares, self._roster)

    def open(self, sealed: bytes) -> bytes | None:
        """Decrypt shares of the other client; None if another has sealed them."""
        try:
            return self._cipher.decrypt(_PLACE.pack(self._round, self._other, self._client), sealed, self._roster)
        except InvalidTag:
            return None
