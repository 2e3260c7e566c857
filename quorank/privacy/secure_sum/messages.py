"""Messages of a secure sum and their bytes (Bonawitz et al. 2017, fig. 4, without the signatures).

All numbers are little-endian. A message starts with 28 bytes: "QS", the version of this format, the kind of message,
the round (4), the session's tag (16) and the client (4) that sends it or, from the server, for which it is. Lists
start with their length (2 bytes, 4 for the vector). Bytes that are anything else are refused with a sentence.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from quorank.arrays import Uint32s
from quorank.errors import require
from quorank.privacy.secure_sum.masks import KEY, MOST_CLIENTS, SEALED, Occasion

VERSION = 1
_HEAD = struct.Struct("<2sBBI16sI")
_SHORT = struct.Struct("<H")
_LONG = struct.Struct("<I")
_NUMBER = struct.Struct("<I")
_WITH_KEY = struct.Struct(f"<I{KEY}s")
_WITH_SEALED = struct.Struct(f"<I{SEALED}s")

Keyed = tuple[tuple[int, bytes], ...]
"""Clients, each with a key, a share or sealed shares."""


@dataclass(frozen=True)
class SecureSumMessage:
    """Base of all messages; `client` is the sender, or the receiver of what the server sends."""

    KIND: ClassVar[int]
    WORDS: ClassVar[str]

    round: int
    tag: bytes
    client: int

    def to_bytes(self) -> bytes:
        """Write the message."""
        head = _HEAD.pack(b"QS", VERSION, self.KIND, self.round, self.tag, self.client)
        return head + self._body()

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        """Read the message; bytes that are anything else are refused."""
        reader = MessageReader(raw, cls.WORDS)
        magic, version, kind, round_, tag, client = reader.unpack(_HEAD)
        reader.check(magic == b"QS", "starts with other bytes than QS")
        reader.check(
            version == VERSION, f"has version {version} and this program reads {VERSION}", "secure-sum.version"
        )
        reader.check(kind == cls.KIND, f"is of kind {kind}, expected {cls.KIND}")
        reader.check(client < MOST_CLIENTS, f"names client {client}, above 2^31 − 1")
        message = cls(round_, tag, client, *cls._read(reader))
        reader.check(reader.at == len(raw), f"has {len(raw) - reader.at} bytes too many")
        return message

    def check_occasion(self, occasion: Occasion) -> None:
        """Refuse a message of another round or session."""
        require(
            self.round == occasion.round and self.tag == occasion.tag,
            "secure-sum.other-round",
            f"{self.WORDS} of client {self.client} is for another session or for round {self.round}, expected round "
            f"{occasion.round}; drop it",
        )

    def _body(self) -> bytes:
        raise NotImplementedError

    @classmethod
    def _read(cls, reader: MessageReader) -> Sequence[Any]:
        raise NotImplementedError


@dataclass(frozen=True)
class AdvertiseKeys(SecureSumMessage):
    """Client to server: its two public keys."""

    KIND: ClassVar[int] = 1
    WORDS: ClassVar[str] = "the keys"

    channel_key: bytes  # c^PK, seals shares
    mask_key: bytes  # s^PK, makes masks; its private half is rebuilt if the client leaves

    def _body(self) -> bytes:
        return self.channel_key + self.mask_key

    @classmethod
    def _read(cls, reader: MessageReader) -> Sequence[Any]:
        return reader.bytes(KEY), reader.bytes(KEY)


@dataclass(frozen=True)
class KeyList(SecureSumMessage):
    """Server to client: who holds its shares, at the places 1, 2, …, itself among them, and with whom it masks."""

    KIND: ClassVar[int] = 2
    WORDS: ClassVar[str] = "the key list"

    threshold: int  # t
    holders: Keyed  # with their channel keys
    masks: Keyed  # with their mask keys

    def _body(self) -> bytes:
        return _SHORT.pack(self.threshold) + _listed(_WITH_KEY, self.holders) + _listed(_WITH_KEY, self.masks)

    @classmethod
    def _read(cls, reader: MessageReader) -> Sequence[Any]:
        return reader.unpack(_SHORT)[0], reader.keyed(_WITH_KEY), reader.keyed(_WITH_KEY)


@dataclass(frozen=True)
class _Sealed(SecureSumMessage):
    """Sealed shares, each with the client at the other end."""

    sealed: Keyed

    def _body(self) -> bytes:
        return _listed(_WITH_SEALED, self.sealed)

    @classmethod
    def _read(cls, reader: MessageReader) -> Sequence[Any]:
        return (reader.keyed(_WITH_SEALED),)


@dataclass(frozen=True)
class ShareKeys(_Sealed):
    """Client to server: for each other holder its sealed shares, by receiver."""

    KIND: ClassVar[int] = 3
    WORDS: ClassVar[str] = "the shares"


@dataclass(frozen=True)
class ShareDelivery(_Sealed):
    """Server to client: the shares that others sealed for it, by sender."""

    KIND: ClassVar[int] = 4
    WORDS: ClassVar[str] = "the delivery of shares"


@dataclass(frozen=True)
class MaskedInput(SecureSumMessage):
    """Client to server: its vector plus all of its masks, modulo 2^32."""

    KIND: ClassVar[int] = 5
    WORDS: ClassVar[str] = "the masked input"

    words: bytes  # four for each number

    @property
    def vector(self) -> Uint32s:
        """The numbers."""
        return np.frombuffer(self.words, dtype="<u4").astype(np.uint32, copy=False)

    def _body(self) -> bytes:
        return _LONG.pack(len(self.words) // 4) + self.words

    @classmethod
    def _read(cls, reader: MessageReader) -> Sequence[Any]:
        return (reader.bytes(4 * int(reader.unpack(_LONG)[0])),)


@dataclass(frozen=True)
class UnmaskRequest(SecureSumMessage):
    """Server to client: of those whose shares it holds, whose input is in the sum and whose is not."""

    KIND: ClassVar[int] = 6
    WORDS: ClassVar[str] = "the unmask request"

    survivors: tuple[int, ...]  # U3: their self-mask shares are wanted
    dropped: tuple[int, ...]  # U2 \ U3: their mask-key shares are wanted

    def _body(self) -> bytes:
        return _numbers(self.survivors) + _numbers(self.dropped)

    @classmethod
    def _read(cls, reader: MessageReader) -> Sequence[Any]:
        return reader.numbers(), reader.numbers()


@dataclass(frozen=True)
class UnmaskReply(SecureSumMessage):
    """Client to server: for each survivor a share of its self-mask seed, for each dropped client one of its mask key."""

    KIND: ClassVar[int] = 7
    WORDS: ClassVar[str] = "the unmask reply"

    seeds: Keyed
    keys: Keyed

    def _body(self) -> bytes:
        return _listed(_WITH_KEY, self.seeds) + _listed(_WITH_KEY, self.keys)

    @classmethod
    def _read(cls, reader: MessageReader) -> Sequence[Any]:
        return reader.keyed(_WITH_KEY), reader.keyed(_WITH_KEY)


def _listed(item: struct.Struct, pairs: Keyed) -> bytes:
    pack: Callable[..., bytes] = item.pack
    return _SHORT.pack(len(pairs)) + b"".join([pack(client, value) for client, value in pairs])


def _numbers(clients: tuple[int, ...]) -> bytes:
    return _SHORT.pack(len(clients)) + b"".join([_NUMBER.pack(client) for client in clients])


class MessageReader:
    """Reader of a message's bytes from the front; every step says what is missing."""

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
        raw = self.bytes(self.unpack(_SHORT)[0] * _NUMBER.size)
        clients = tuple(client for (client,) in _NUMBER.iter_unpack(raw))
        self._distinct(clients)
        return clients

    def _distinct(self, clients: Sequence[int]) -> None:
        self.check(len(set(clients)) == len(clients), "names a client twice")
        self.check(max(clients, default=0) < MOST_CLIENTS, "names a client above 2^31 − 1")
