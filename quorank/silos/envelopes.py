"""Envelopes that the parties of a group exchange through the coordinator, and the byte format of their bodies.

An envelope has a clear head (kind, sender, receiver, number) and a body. Bodies are sealed for the receiver, except
those of `HELLO` and `CONTRIBUTION`, which make the keys. Sizes of sealed bodies are padded, so that the coordinator
learns nothing from them beyond an order of magnitude. Numbers are little-endian.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from quorank.errors import BadInput, require
from quorank.files.documents import parse_json
from quorank.kernels.arrays import Int32s
from quorank.privacy.secure_sum.messages import MessageReader

VERSION = 1
MOST_BYTES = 1 << 26  # largest body of an envelope: 64 MiB
KEY = 32  # bytes of a key, a commitment or a contribution
TAG = 16  # overhead of a seal, bytes
MOST_PARTIES = 64

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MAGIC = b"QP"
_HEAD = struct.Struct("<2sBBQ")
_LENGTH = struct.Struct("<I")
_REFUSE = struct.Struct("<Q")
_MOST_SETTINGS = 4096


def check_name(name: str) -> str:
    """Return a party's name, or refuse it."""
    said = f"{name!r} is not a party name; expected 1 to 64 letters, digits, '.', '_' or '-', a letter or digit first"
    require(isinstance(name, str) and _NAME.fullmatch(name), "silo-group.bad-name", said)
    return name


def check_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of a group's parties, or refuse a bad or repeated one."""
    found = tuple(check_name(name) for name in names)
    require(len(set(found)) == len(found), "silo-group.repeated-name", f"a name occurs twice in {', '.join(found)}")
    n = len(found)
    require(2 <= n <= MOST_PARTIES, "silo-group.bad-size", f"a group has 2 to {MOST_PARTIES} parties, got {n}")
    return found


class Kind(IntEnum):
    """Purpose of an envelope. The numbers are part of the protocol: never reuse one."""

    HELLO = 1  # public keys and settings, in clear
    CONTRIBUTION = 2  # a party's share of the group key
    REFUSE = 5  # a search has no answer
    SEARCH = 7  # a query among decoys
    FOUND = 8  # documents that an owner names for it
    DESCRIPTION = 9  # numbers and noisy lengths of an owner's documents


@dataclass(frozen=True)
class Envelope:
    """Message between two parties; only the receiver can read a sealed body."""

    kind: Kind
    sender: str
    receiver: str
    number: int
    body: bytes

    def head(self) -> bytes:
        """Return everything but the body; the seal authenticates it."""
        head = _HEAD.pack(_MAGIC, VERSION, self.kind, self.number)
        for name in (self.sender.encode(), self.receiver.encode()):
            head += bytes([len(name)]) + name
        return head

    def to_bytes(self) -> bytes:
        """Return the encoded envelope."""
        return self.head() + _LENGTH.pack(len(self.body)) + self.body

    @classmethod
    def from_bytes(cls, raw: bytes) -> Envelope:
        """Decode an envelope."""
        reader = ByteReader(raw, "an envelope")
        magic, version, kind, number = reader.unpack(_HEAD)
        reader.check(magic == _MAGIC, "starts with other bytes than QP")
        reader.check_version(version)
        reader.check(kind in set(Kind), f"is of the unknown kind {kind}")
        sender, receiver = reader.name(), reader.name()
        (length,) = reader.unpack(_LENGTH)
        reader.check(length <= MOST_BYTES, f"has a body of {length:,} bytes, more than {MOST_BYTES:,}")
        body = reader.bytes(length)
        reader.end()
        return cls(Kind(kind), sender, receiver, number, body)


@dataclass(frozen=True)
class Hello:
    """First message of a party, in clear."""

    identity: bytes  # lasting public key
    ephemeral: bytes  # public key of this session
    commitment: bytes  # digest of its contribution, which it can then not choose after the others'
    settings: Mapping[str, str]  # settings that all parties must have in common

    def to_bytes(self) -> bytes:
        """Return the body of the envelope."""
        return bytes([VERSION]) + self.identity + self.ephemeral + self.commitment + canonical_settings(self.settings)

    @classmethod
    def from_bytes(cls, raw: bytes, sender: str) -> Hello:
        """Decode a hello; only the canonical encoding of its settings is accepted."""
        reader = ByteReader(raw, f"the hello of {sender}")
        reader.check_version(reader.bytes(1)[0])
        identity, ephemeral, committed = reader.bytes(KEY), reader.bytes(KEY), reader.bytes(KEY)
        text = reader.bytes(len(raw) - reader.at)
        reader.check(len(text) <= _MOST_SETTINGS, f"has settings of more than {_MOST_SETTINGS} bytes")
        try:
            settings = parse_json(text, dict[str, str])
        except BadInput:
            settings = {}
        reader.check(canonical_settings(settings) == text, "has settings that are not a table of strings")
        return cls(identity, ephemeral, committed, settings)


def canonical_settings(settings: Mapping[str, str]) -> bytes:
    """Return the one encoding of equal settings."""
    return json.dumps(dict(settings), sort_keys=True, separators=(",", ":")).encode("ascii")


def check_settings(own: Mapping[str, str], theirs: Mapping[str, str], sender: str) -> None:
    """Refuse a party with other settings, naming the first difference."""
    for key in sorted(own.keys() | theirs.keys()):
        here, there = own.get(key, "missing"), theirs.get(key, "missing")
        said = f"{sender} tokenises text differently; install the same versions of Quorank and PyStemmer at all parties"
        require(key != "text" or here == there, "silo-group.other-tokeniser", said)
        said = f"{sender} has {key} = {there} and this party {here}; agree on the same settings and start again"
        require(here == there, "silo-group.other-settings", said)


@dataclass(frozen=True)
class Refuse:
    """Refusal of a search: the same for every reason, since a reason could reveal documents."""

    asked: int  # number of the envelope with the search

    def to_bytes(self) -> bytes:
        """Return the text to be sealed."""
        return _REFUSE.pack(self.asked)

    @classmethod
    def from_bytes(cls, raw: bytes, sender: str) -> Refuse:
        """Decode a refusal."""
        reader = ByteReader(raw, f"the refusal of {sender}")
        (asked,) = reader.unpack(_REFUSE)
        reader.end()
        return cls(asked)


@dataclass(frozen=True)
class Catalogue:
    """Numbers and noisy lengths of an owner's documents."""

    ids: Int32s
    lengths: Int32s

    def to_bytes(self) -> bytes:
        """Return the text to be sealed, padded to a power of two of documents."""
        padded = 1 << max(len(self.ids) - 1, 0).bit_length()
        text = _LENGTH.pack(len(self.ids)) + self.ids.astype("<u4").tobytes() + self.lengths.astype("<i4").tobytes()
        return text.ljust(_LENGTH.size + 8 * padded, b"\0")

    @classmethod
    def from_bytes(cls, raw: bytes, sender: str) -> Catalogue:
        """Decode a catalogue, which names no document twice."""
        reader = ByteReader(raw, f"the catalogue of {sender}")
        (count,) = reader.unpack(_LENGTH)
        ids = np.frombuffer(reader.bytes(4 * count), dtype="<u4")
        lengths = np.frombuffer(reader.bytes(4 * count), dtype="<i4").astype(np.int32)
        reader.check(ids.max(initial=0) < 2**31, "names a document above 2^31 − 1")
        reader.check(len(np.unique(ids)) == count, "names a document twice")
        reader.zeros("its documents")
        return cls(ids.astype(np.int32), lengths)


class ByteReader(MessageReader):
    """Sequential reader of a message; every step refuses what does not fit, with the message's name."""

    def check(self, condition: object, fault: str, code: str = "silo-message.malformed") -> None:
        """Refuse the message unless `condition` holds."""
        super().check(condition, fault, code)

    def check_version(self, version: int) -> None:
        """Refuse another version of the protocol."""
        older = "older" if version < VERSION else "newer"
        said = f"{self.words} has version {version} of the protocol, {older} than this program's {VERSION}"
        require(version == VERSION, "silo-message.other-version", f"{said}; all parties must run the same")

    def name(self) -> str:
        """Return a party's name, which follows its length."""
        name = self.bytes(self.bytes(1)[0])
        self.check(name.isascii(), "names a party in other letters")
        return check_name(name.decode("ascii"))

    def zeros(self, behind: str) -> None:
        """Check that only padding follows."""
        rest = np.frombuffer(self.raw, dtype=np.uint8, offset=self.at)
        self.check(not rest.any(), f"has something behind {behind}")
        self.at = len(self.raw)

    def end(self) -> None:
        """Check that nothing follows."""
        self.check(self.at == len(self.raw), f"has {len(self.raw) - self.at} bytes too many")
