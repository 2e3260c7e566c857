"""Messages of a secure sum and their bytes (Bonawitz et al. 2017, fig. 4, without the signatures).

All numbers are little-endian. A message starts with 28 bytes: "QS", the version of this format, the kind of message,
the round (4), the session's tag (16) and the client (4) that sends it or, from the server, for which it is. Lists
start with their length (2 bytes, 4 for the vector and the roster). Bytes that are anything else are refused with a
sentence.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from quorank.errors import require
from quorank.kernels.arrays import Uint32s
from quorank.privacy.secure_sum.masks import COMMITMENTS, KEY, MOST_CLIENTS, SEALED, Occasion

VERSION = 2
_HEAD = struct.Struct("<2sBBI16sI")
_SHORT = struct.Struct("<H")
_LONG = struct.Struct("<I")

Keyed = tuple[tuple[int, bytes], ...]
"""Clients, each with a key, a share or sealed shares."""


class MessageReader:
    """Sequential reader of a message's bytes."""

    def __init__(self, raw: bytes, words: str) -> None:
        self.raw, self.words, self.at = raw, words, 0

    def check(self, condition: object, fault: str, code: str = "secure-sum.malformed") -> None:
        """Refuse the message unless the condition holds, naming it and its fault."""
        require(condition, code, f"{self.words} cannot be read: it {fault}; have it sent again")

    def bytes(self, count: int) -> bytes:
        """Read the next `count` bytes."""
        self.check(self.at + count <= len(self.raw), f"ends after {len(self.raw)} bytes, too early")
        self.at += count
        return self.raw[self.at - count : self.at]

    def unpack(self, item: struct.Struct) -> tuple[Any, ...]:
        """Read the next fixed fields."""
        return item.unpack(self.bytes(item.size))

    def keyed(self, item: struct.Struct) -> Keyed:
        """Read a list of distinct clients, each with bytes."""
        pairs = tuple(item.iter_unpack(self.bytes(self.unpack(_SHORT)[0] * item.size)))
        self._distinct([client for client, _ in pairs])
        return pairs

    def numbers(self) -> tuple[int, ...]:
        """Read a list of distinct clients."""
        count = self.unpack(_SHORT)[0]
        clients = struct.unpack(f"<{count}I", self.bytes(4 * count))
        self._distinct(clients)
        return clients

    def _distinct(self, clients: Sequence[int]) -> None:
        self.check(len(set(clients)) == len(clients), "names a client twice")
        self.check(max(clients, default=0) < MOST_CLIENTS, "names a client above 2^31 − 1")


def _numbers(clients: tuple[int, ...]) -> bytes:
    return struct.pack(f"<H{len(clients)}I", len(clients), *clients)


class _Layout(NamedTuple):
    """Encoding and decoding of a message's field."""

    write: Callable[[Any], bytes]
    read: Callable[[MessageReader], Any]


def _pairs(size: int) -> _Layout:
    """Return the layout of a list of clients, each with `size` bytes."""
    item = struct.Struct(f"<I{size}s")
    pack: Callable[..., bytes] = item.pack

    def write(pairs: Keyed) -> bytes:
        return _SHORT.pack(len(pairs)) + b"".join([pack(client, value) for client, value in pairs])

    return _Layout(write, lambda reader: reader.keyed(item))


_KEY = _Layout(bytes, lambda reader: reader.bytes(KEY))
_COUNT = _Layout(_SHORT.pack, lambda reader: reader.unpack(_SHORT)[0])
_BLOB = _Layout(lambda raw: _LONG.pack(len(raw)) + raw, lambda reader: reader.bytes(reader.unpack(_LONG)[0]))
_CLIENTS = _Layout(_numbers, MessageReader.numbers)
_VECTOR = _Layout(
    lambda words: _LONG.pack(len(words) // 4) + words, lambda reader: reader.bytes(4 * reader.unpack(_LONG)[0])
)


@dataclass(frozen=True)
class SecureSumMessage:
    """Base of all messages; `client` is the sender, or the receiver of what the server sends."""

    KIND: ClassVar[int]
    WORDS: ClassVar[str]
    LAYOUT: ClassVar[tuple[_Layout, ...]]  # of the fields behind the head, in their order

    round: int
    tag: bytes
    client: int

    def to_bytes(self) -> bytes:
        """Write the message."""
        head = _HEAD.pack(b"QS", VERSION, self.KIND, self.round, self.tag, self.client)
        values = (getattr(self, one.name) for one in fields(self)[3:])
        return head + b"".join([layout.write(value) for layout, value in zip(self.LAYOUT, values, strict=True)])

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        """Read the message; bytes that are anything else are refused."""
        reader = MessageReader(raw, cls.WORDS)
        magic, version, kind, round_, tag, client = reader.unpack(_HEAD)
        reader.check(magic == b"QS", "starts with other bytes than QS")
        fault = f"has version {version} and this program reads {VERSION}"
        reader.check(version == VERSION, fault, "secure-sum.version")
        reader.check(kind == cls.KIND, f"is of kind {kind}, expected {cls.KIND}")
        reader.check(client < MOST_CLIENTS, f"names client {client}, above 2^31 − 1")
        message = cls(round_, tag, client, *[layout.read(reader) for layout in cls.LAYOUT])
        reader.check(reader.at == len(raw), f"has {len(raw) - reader.at} bytes too many")
        return message

    def check_occasion(self, occasion: Occasion) -> None:
        """Refuse a message of another round or session."""
        what = f"{self.WORDS} of client {self.client} is for another session or for round {self.round}"
        same = self.round == occasion.round and self.tag == occasion.tag
        require(same, "secure-sum.other-round", f"{what}, expected round {occasion.round}; drop it")


@dataclass(frozen=True)
class AdvertiseKeys(SecureSumMessage):
    """Client to server: its two public keys."""

    KIND: ClassVar[int] = 1
    WORDS: ClassVar[str] = "the keys"
    LAYOUT: ClassVar[tuple[_Layout, ...]] = (_KEY, _KEY)

    channel_key: bytes  # c^PK, seals shares
    mask_key: bytes  # s^PK, makes masks; its private half is rebuilt if the client leaves


@dataclass(frozen=True)
class KeyList(SecureSumMessage):
    """Server to client: the roster, and the keys of its neighbours and itself, in ring order."""

    KIND: ClassVar[int] = 2
    WORDS: ClassVar[str] = "the key list"
    LAYOUT: ClassVar[tuple[_Layout, ...]] = (_COUNT, _BLOB, _pairs(2 * KEY))

    threshold: int  # t
    roster: bytes  # encoded `Roster`
    neighbours: Keyed  # with their channel and mask keys


@dataclass(frozen=True)
class ShareKeys(SecureSumMessage):
    """Client to server: sealed shares by receiver, and the commitments to them."""

    KIND: ClassVar[int] = 3
    WORDS: ClassVar[str] = "the shares"
    LAYOUT: ClassVar[tuple[_Layout, ...]] = (_pairs(SEALED), _pairs(COMMITMENTS), _KEY)

    sealed: Keyed
    commitments: Keyed  # to both shares of each holder, itself among them
    seed: bytes  # commitment to the self mask's seed


@dataclass(frozen=True)
class ShareDelivery(SecureSumMessage):
    """Server to client: the sharing clients, and their sealed shares for it with commitments, by sender."""

    KIND: ClassVar[int] = 4
    WORDS: ClassVar[str] = "the delivery of shares"
    LAYOUT: ClassVar[tuple[_Layout, ...]] = (_BLOB, _pairs(SEALED + COMMITMENTS))

    sharers: bytes  # U2, as bits of the roster
    sealed: Keyed


@dataclass(frozen=True)
class MaskedInput(SecureSumMessage):
    """Client to server: its vector plus all of its masks, modulo 2^32."""

    KIND: ClassVar[int] = 5
    WORDS: ClassVar[str] = "the masked input"
    LAYOUT: ClassVar[tuple[_Layout, ...]] = (_VECTOR,)

    words: bytes  # four for each number

    @property
    def vector(self) -> Uint32s:
        """The numbers."""
        return np.frombuffer(self.words, dtype="<u4").astype(np.uint32, copy=False)


@dataclass(frozen=True)
class UnmaskRequest(SecureSumMessage):
    """Server to client: survivors and dropped clients among those whose shares it holds."""

    KIND: ClassVar[int] = 6
    WORDS: ClassVar[str] = "the unmask request"
    LAYOUT: ClassVar[tuple[_Layout, ...]] = (_CLIENTS, _CLIENTS)

    survivors: tuple[int, ...]  # U3: their self-mask shares are wanted
    dropped: tuple[int, ...]  # U2 \ U3: their mask-key shares are wanted


@dataclass(frozen=True)
class UnmaskReply(SecureSumMessage):
    """Client to server: for each survivor a share of its self-mask seed, for each dropped client one of its mask key."""

    KIND: ClassVar[int] = 7
    WORDS: ClassVar[str] = "the unmask reply"
    LAYOUT: ClassVar[tuple[_Layout, ...]] = (_pairs(KEY), _pairs(KEY))

    seeds: Keyed
    keys: Keyed
