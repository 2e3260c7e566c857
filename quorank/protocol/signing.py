"""A member's or a service's long-term key (Ed25519), and the check of what it signed.

One key a member: it signs requests, enrolment, leaving and, in secure sums, keys and lists of survivors. Whatever is
signed begins with words that say what it is, so that no signature of one kind is ever one of another.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

PUBLIC, SIGNATURE = 32, 64
"""Bytes of a public key, and of a signature."""


class MemberKey:
    """The private half."""

    def __init__(self, secret: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(secret)

    @classmethod
    def create(cls, entropy: Callable[[int], bytes] = os.urandom) -> MemberKey:
        """Draw a new key."""
        return cls(entropy(32))

    @property
    def secret(self) -> bytes:
        """The private key, for its owner's private file."""
        return self._key.private_bytes_raw()

    @property
    def public(self) -> bytes:
        """The public key."""
        return self._key.public_key().public_bytes_raw()

    def sign(self, content: bytes) -> bytes:
        """Sign content, which begins with what it is."""
        return self._key.sign(content)


def is_signed(public: bytes, content: bytes, signature: bytes) -> bool:
    """Whether the owner of this public key signed this content."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, content)
    except (InvalidSignature, ValueError):
        return False
    return True
