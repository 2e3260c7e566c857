"""The messages of the cross-silo protocol and their bytes.

All numbers are little-endian. An envelope starts with "QP", the version of the protocol, its kind (1 byte each) and its
number (8 bytes), then the names of sender and receiver, each after its length (1 byte), then the body after its length
(4 bytes). These are all that the relaying server sees; every body but that of a hello is sealed. Bytes that are anything
else are refused with a sentence. What stands inside sealed bodies is in `quorank.silos.protocol.questions`.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from quorank.errors import BadInput, require

VERSION = 1
MOST_BYTES = 1 << 26
"""The largest body: 64 MiB. Questions whose answer would be larger go into several envelopes."""
MOST_PARTIES = 64
KEY = 32

_MAGIC = b"QP"
_HEAD = struct.Struct("<2sBBQ")
_LENGTH = struct.Struct("<I")
_MOST_SETTINGS = 4096
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Kind(IntEnum):
    """What an envelope is for. Numbers are part of the protocol: never reuse one."""

    HELLO = 1  # public keys and settings, in clear
    CONTRIBUTION = 2  # a party's share of the group key
    ASK = 3  # columns of a sketch
    ANSWER = 4  # their cells
    REFUSE = 5  # why there is no answer
    CATALOGUE = 6  # how many documents a party has and how long they are


@dataclass(frozen=True)
class Envelope:
    """What travels: who sends it to whom, what it is for, its number, and a body that only the receiver can read."""

    kind: Kind
    sender: str
    receiver: str
    number: int
    body: bytes

    def head(self) -> bytes:
        """Everything but the body: in clear, and bound to the body by the seal."""
        names = b"".join(_named(name) for name in (self.sender, self.receiver))
        return _HEAD.pack(_MAGIC, VERSION, self.kind, self.number) + names

    def to_bytes(self) -> bytes:
        """The envelope as it travels."""
        return self.head() + _LENGTH.pack(len(self.body)) + self.body

    @classmethod
    def from_bytes(cls, raw: bytes) -> Envelope:
        """The envelope from its bytes."""
        reader = MessageReader(raw, "an envelope")
        magic, version, kind, number = reader.take(_HEAD)
        reader.check(magic == _MAGIC, "starts with other bytes than QP")
        check_version(version, "an envelope")
        reader.check(kind in set(Kind), f"is of the unknown kind {kind}")
        sender, receiver = reader.name(), reader.name()
        (length,) = reader.take(_LENGTH)
        reader.check(length <= MOST_BYTES, f"has a body of {length:,} bytes, more than {MOST_BYTES:,}")
        body = reader.bytes(length)
        reader.end()
        return cls(Kind(kind), sender, receiver, number, body)


@dataclass(frozen=True)
class Hello:
    """A party's public keys, its commitment to a contribution, and the settings that it agrees to: all in clear."""

    identity: bytes  # the party's lasting public key
    ephemeral: bytes  # its public key of this session
    commitment: bytes  # a digest of its contribution, so that it cannot choose it after the others'
    settings: Mapping[str, int | str]

    def to_bytes(self) -> bytes:
        """The body of the envelope."""
        return bytes([VERSION]) + self.identity + self.ephemeral + self.commitment + canonical(self.settings)

    @classmethod
    def from_bytes(cls, raw: bytes, sender: str) -> Hello:
        """The hello from its bytes; only settings in their canonical form are read."""
        reader = MessageReader(raw, f"the hello of {sender}")
        check_version(reader.bytes(1)[0], f"the hello of {sender}")
        identity, ephemeral, committed = reader.bytes(KEY), reader.bytes(KEY), reader.bytes(KEY)
        text = reader.bytes(len(raw) - reader.at)
        reader.check(len(text) <= _MOST_SETTINGS, f"has settings of more than {_MOST_SETTINGS} bytes")
        try:
            settings: Any = json.loads(text)
        except (ValueError, RecursionError):
            settings = None
        reader.check(
            isinstance(settings, dict)
            and all(type(value) in (int, str) for value in settings.values())
            and canonical(settings) == text,
            "has settings that are no table of whole numbers and words",
        )
        return cls(identity, ephemeral, committed, settings)


def canonical(settings: Mapping[str, int | str]) -> bytes:
    """One text for equal settings."""
    return json.dumps(dict(settings), sort_keys=True, separators=(",", ":")).encode("ascii")


def check_name(name: str) -> str:
    """A party's name, or a refusal."""
    require(
        isinstance(name, str) and _NAME.fullmatch(name),
        f"{name!r} is no name of a party; expected 1 to 64 letters, digits, '.', '_' or '-', a letter or digit first",
    )
    return name


def check_version(version: int, words: str) -> None:
    """Refuse another version of the protocol."""
    older = "older" if version < VERSION else "newer"
    require(
        version == VERSION,
        f"{words} has version {version} of the protocol, {older} than this program's {VERSION}; "
        "all parties must run the same version",
    )


def _named(name: str) -> bytes:
    encoded = name.encode()
    return bytes([len(encoded)]) + encoded


class MessageReader:
    """Takes bytes apart from the front; every step says what is missing."""

    def __init__(self, raw: bytes, words: str) -> None:
        self.raw, self.words, self.at = raw, words, 0

    def check(self, condition: object, fault: str) -> None:
        """Refuse the bytes, naming them and their fault."""
        require(condition, f"{self.words} cannot be read: it {fault}; drop it and have it sent again")

    def bytes(self, count: int) -> bytes:
        """The next `count` bytes."""
        self.check(0 <= count <= len(self.raw) - self.at, f"ends after {len(self.raw)} bytes, too early")
        self.at += count
        return self.raw[self.at - count : self.at]

    def take(self, item: struct.Struct) -> tuple[Any, ...]:
        """The next fixed fields."""
        return item.unpack(self.bytes(item.size))

    def name(self) -> str:
        """A party's name after its length."""
        try:
            return check_name(self.bytes(self.bytes(1)[0]).decode("ascii"))
        except UnicodeDecodeError:
            raise BadInput(
                f"{self.words} cannot be read: it names a party in other letters; drop it"
            ) from None

    def zeros(self, behind: str) -> None:
        """Nothing but the zeros that fill a message up may follow."""
        rest = np.frombuffer(self.raw, dtype=np.uint8, offset=self.at)
        self.check(not rest.any(), f"has something behind {behind}")
        self.at = len(self.raw)

    def end(self) -> None:
        """Nothing may follow."""
        self.check(self.at == len(self.raw), f"has {len(self.raw) - self.at} bytes too many")
