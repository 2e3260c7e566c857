"""Long-term Ed25519 keys of members and services, and the contents that they sign.

A member has one key: it signs requests, its enrolment, its request to leave and, in secure sums, keys and survivor lists.
Every signed content begins with words that name its purpose, so a signature of one kind is never valid for another.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from quorank.errors import require

PUBLIC, SIGNATURE = 32, 64  # bytes of a public key and of a signature


class MemberKey:
    """Private key of a member or a service.

    >>> key = MemberKey.create()
    >>> is_signed(key.public, b"purpose: content", key.sign(b"purpose: content"))
    True
    """

    def __init__(self, secret: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(secret)

    @classmethod
    def create(cls, entropy: Callable[[int], bytes] = os.urandom) -> MemberKey:
        """Draw a new key."""
        return cls(entropy(32))

    @property
    def secret(self) -> bytes:
        """The 32 secret bytes, for the owner's private store."""
        return self._key.private_bytes_raw()

    @property
    def public(self) -> bytes:
        """The 32 bytes of the public key."""
        return self._key.public_key().public_bytes_raw()

    def sign(self, content: bytes) -> bytes:
        """Sign content that begins with its purpose."""
        return self._key.sign(content)


def is_signed(public: bytes, content: bytes, signature: bytes) -> bool:
    """Return whether the owner of this public key signed this content."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, content)
    except (InvalidSignature, ValueError):
        return False
    return True


def task_content(kind: str, body: bytes) -> bytes:
    """Content that a service signs for a task."""
    return f"quorank task 1\n{kind}\n{hashlib.sha256(body).hexdigest()}".encode()


def signed_letter(key: MemberKey, member: int, content: bytes) -> bytes:
    """Return a service's letter to a member: its signature, then the content."""
    return key.sign(_letter_content(member, content)) + content


def open_letter(service: bytes, member: int, letter: bytes) -> bytes:
    """Return the content of a letter; reject one that the service did not sign for this member."""
    signature, content = letter[:SIGNATURE], letter[SIGNATURE:]
    signed = is_signed(service, _letter_content(member, content), signature)
    require(signed, "mail.unsigned", "the letter is not signed by the service of the invitation; it was rejected")
    return content


def _letter_content(member: int, content: bytes) -> bytes:
    return f"quorank letter 1\n{member}\n{hashlib.sha256(content).hexdigest()}".encode()


def enrolment_content(service: bytes, code: bytes, key: bytes) -> bytes:
    """Content that a member signs to enrol: its own key, this service, this code or token."""
    return f"quorank enrol 1\n{service.hex()}\n{hashlib.sha256(code).hexdigest()}\n{key.hex()}".encode()
