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

Keyed = tuple[tuple[int, bytes], ...]  # clients, each with a key, a share or sealed shares


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

    def distinct(self, clients: Sequence[int]) -> None:
        """Refuse a list that names a client twice, or one that cannot be."""
        self.check(len(set(clients)) == len(clients), "names a client twice")
        self.check(max(clients, default=0) < MOST_CLIENTS, "names a client above 2^31 − 1")


class _Layout(NamedTuple):
    """Encoding and decoding of a message's field."""

    write: Callable[[Any], bytes]
    read: Callable[[MessageReader], Any]


def _pairs(size: int) -> _Layout:
    """Return the layout of a list of distinct clients, each with `size` bytes."""
    item = struct.Struct(f"<I{size}s" if size else "<I")

    def write(pairs: Sequence[Any]) -> bytes:
        each = pairs if size else [(client,) for client in pairs]
        return _SHORT.pack(len(each)) + b"".join([item.pack(*one) for one in each])

    def read(reader: MessageReader) -> tuple[Any, ...]:
        pairs = tuple(item.iter_unpack(reader.bytes(reader.unpack(_SHORT)[0] * item.size)))
        clients = tuple(pair[0] for pair in pairs)
        reader.distinct(clients)
        return pairs if size else clients

    return _Layout(write, read)


def _blob(unit: int) -> _Layout:
    """Return the layout of bytes behind their number of units."""
    return _Layout(
        lambda raw: _LONG.pack(len(raw) // unit) + raw, lambda reader: reader.bytes(unit * reader.unpack(_LONG)[0])
    )


_KEY = _Layout(bytes, lambda reader: reader.bytes(KEY))
_COUNT = _Layout(_SHORT.pack, lambda reader: reader.unpack(_SHORT)[0])


@dataclass(frozen=True)
class SecureSumMessage:
    """Base of all messages; `client` is the sender, or the receiver of what the server sends."""

    KIND: ClassVar[int]
    WORDS: ClassVar[str]
    LAYOUT: ClassVar[tuple[_Layout, ...]]  # of the fields behind the head, in their order

    round: int
    tag: bytes
    client: int

    def __init_subclass__(cls, kind: int, words: str, layout: tuple[_Layout, ...]) -> None:
        cls.KIND, cls.WORDS, cls.LAYOUT = kind, words, layout

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
class AdvertiseKeys(SecureSumMessage, kind=1, words="the keys", layout=(_KEY, _KEY)):
    """Client to server: its two public keys."""

    channel_key: bytes  # c^PK, seals shares
    mask_key: bytes  # s^PK, makes masks; its private half is rebuilt if the client leaves


@dataclass(frozen=True)
class KeyList(SecureSumMessage, kind=2, words="the key list", layout=(_COUNT, _blob(1), _pairs(2 * KEY))):
    """Server to client: the roster, and the keys of its neighbours and itself, in ring order."""

    threshold: int  # t
    roster: bytes  # encoded `Roster`
    neighbours: Keyed  # with their channel and mask keys


@dataclass(frozen=True)
class ShareKeys(SecureSumMessage, kind=3, words="the shares", layout=(_pairs(SEALED), _pairs(COMMITMENTS), _KEY)):
    """Client to server: sealed shares by receiver, and the commitments to them."""

    sealed: Keyed
    commitments: Keyed  # to both shares of each holder, itself among them
    seed: bytes  # commitment to the self mask's seed


@dataclass(frozen=True)
class ShareDelivery(
    SecureSumMessage, kind=4, words="the delivery of shares", layout=(_blob(1), _pairs(SEALED + COMMITMENTS))
):
    """Server to client: the sharing clients, and their sealed shares for it with commitments, by sender."""

    sharers: bytes  # U2, as bits of the roster
    sealed: Keyed


@dataclass(frozen=True)
class MaskedInput(SecureSumMessage, kind=5, words="the masked input", layout=(_blob(4),)):
    """Client to server: its vector plus all of its masks, modulo 2^32."""

    words: bytes  # four for each number

    @property
    def vector(self) -> Uint32s:
        """The numbers."""
        return np.frombuffer(self.words, dtype="<u4").astype(np.uint32, copy=False)


@dataclass(frozen=True)
class UnmaskRequest(SecureSumMessage, kind=6, words="the unmask request", layout=(_pairs(0), _pairs(0))):
    """Server to client: survivors and dropped clients among those whose shares it holds."""

    survivors: tuple[int, ...]  # U3: their self-mask shares are wanted
    dropped: tuple[int, ...]  # U2 \ U3: their mask-key shares are wanted


@dataclass(frozen=True)
class UnmaskReply(SecureSumMessage, kind=7, words="the unmask reply", layout=(_pairs(KEY), _pairs(KEY))):
    """Client to server: for each survivor a share of its self-mask seed, for each dropped client one of its mask key."""

    seeds: Keyed
    keys: Keyed
