"""List of a service's members: append-only, and the same for everybody who takes part in a secure sum.

The service appends the number and public key of each device that enrols. A digest chains each entry to all before it, so
one `Head` stands for a whole list. The head is part of the occasion of a secure sum: members who were shown different lists
reject each other's keys. A service can therefore still enrol devices of its own, but not for one member's eyes only, and
never take an entry back.

Where the terms name an attester, each entry also holds its signature (`attestation`): it vouches that the key belongs to
one real device. How it finds out is its own matter; anybody with a key that the operator does not have can be one.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

from quorank.errors import require
from quorank.protocol.keys import PUBLIC, SIGNATURE, MemberKey, is_signed

START = 16  # random bytes that name a list
MOST_MEMBERS = 1 << 22  # entries of a list at most
PAGE = 8192  # entries of one answer at most
_ENTRY = struct.Struct(f"<I{PUBLIC}s")
_HEAD = struct.Struct("<I32s")
_MALFORMED = "the list of members cannot be read; ask again"


class Head(NamedTuple):
    """Number of entries of a list, and the digest of them all."""

    size: int
    digest: bytes

    def to_bytes(self) -> bytes:
        """Encode the head in 36 bytes."""
        return _HEAD.pack(*self)

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        """Decode `to_bytes`; reject everything else."""
        require(len(raw) == _HEAD.size, "members.malformed", _MALFORMED)
        return cls(*_HEAD.unpack(raw))

    def __str__(self) -> str:
        return f"{self.size}:{self.digest.hex()}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse what `str` returns, as another member reads it out."""
        size, _, digest = text.partition(":")
        valid = (
            size.isdecimal()
            and len(size) < 10
            and len(digest) == 64
            and not set(digest.lower()) - {*"0123456789abcdef"}
        )
        require(
            valid, "value.malformed", f"expected NUMBER:DIGEST as `quorank join --status` shows it, got {text[:80]!r}"
        )
        return cls(int(size), bytes.fromhex(digest))


def first_digest(start: bytes) -> bytes:
    """Return the digest of an empty list."""
    return hashlib.sha256(b"quorank members 1\n" + start).digest()


def next_digest(digest: bytes, entry: bytes) -> bytes:
    """Return the digest of a list with one more entry."""
    return hashlib.sha256(digest + entry).digest()


def entry_of(number: int, key: bytes, attested: bytes = b"") -> bytes:
    """Return the entry of a member."""
    return _ENTRY.pack(number, key) + attested


def attestation(attester: MemberKey, service: bytes, member: bytes) -> bytes:
    """Return an attester's signature for the public key of one member of one service.

    >>> attester, member = MemberKey.create(), MemberKey.create().public
    >>> is_attested(attester.public, bytes(32), member, attestation(attester, bytes(32), member))
    True
    """
    return attester.sign(_attested(service, member))


def is_attested(attester: bytes, service: bytes, member: bytes, signature: bytes) -> bool:
    """Return whether the attester has vouched for this public key."""
    return is_signed(attester, _attested(service, member), signature)


def _attested(service: bytes, member: bytes) -> bytes:
    return f"quorank attest 1\n{service.hex()}\n{member.hex()}".encode()


class MemberList:
    """List of members as one device knows it.

    Args:
        start: Random bytes that name the list.
        service: Public key of the service.
        attester: Public key of the attester; empty where there is none.
    """

    def __init__(self, start: bytes, service: bytes, attester: bytes = b"") -> None:
        require(len(start) == START, "members.malformed", _MALFORMED)
        self.start, self._service, self._attester = start, service, attester
        self._digests = [first_digest(start)]
        self._entries: dict[int, tuple[int, bytes, bytes]] = {}  # by number: position, key, attestation
        self._keys: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def head(self) -> Head:
        """Head of the list."""
        return Head(len(self), self._digests[-1])

    def split(self, raw: bytes) -> list[bytes]:
        """Split the entries of an answer."""
        size = _ENTRY.size + (SIGNATURE if self._attester else 0)
        require(len(raw) % size == 0, "members.malformed", _MALFORMED)
        return [raw[at : at + size] for at in range(0, len(raw), size)]

    def append(self, entries: Iterable[bytes]) -> None:
        """Append entries; no number and no key stands twice in a list.

        Raises:
            BadInput: `members.malformed`.
        """
        for entry in entries:
            number, key = _ENTRY.unpack_from(entry)
            fresh = number not in self._entries and key not in self._keys and len(self) < MOST_MEMBERS
            require(fresh, "members.malformed", _MALFORMED)
            self._entries[number] = len(self), key, entry[_ENTRY.size :]
            self._keys.add(key)
            self._digests.append(next_digest(self._digests[-1], entry))

    def starts_with(self, head: Head) -> bool:
        """Return whether the first entries of this list are those of the head."""
        return head.size <= len(self) and self._digests[head.size] == head.digest

    def key(self, number: int, size: int | None = None) -> bytes | None:
        """Return the key of a member among the first `size` entries, by default among all; None of an unknown one."""
        position, key, _ = self._entries.get(number, (MOST_MEMBERS, None, b""))
        return key if position < (len(self) if size is None else size) else None

    def unattested(self, numbers: Sequence[int]) -> list[int]:
        """Return the members for which the attester has not vouched; none where the terms name no attester."""
        if not self._attester:
            return []
        found = ((number, *self._entries[number]) for number in numbers)
        return [number for number, _, key, mark in found if not is_attested(self._attester, self._service, key, mark)]

    def contradicts(self, other: MemberList) -> bool:
        """Return whether a number has one key here and another one there."""
        return any(
            key != there[1] for number, (_, key, _) in self._entries.items() if (there := other._entries.get(number))
        )
