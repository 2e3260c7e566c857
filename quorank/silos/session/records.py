"""Records that a party and its coordinator exchange, and the messages that carry them.

Each side has one stream of records for the other. A record is cut into pieces of at most one mebibyte. A message states
how many pieces of the other side's stream have arrived and carries pieces of the own stream from a stated position on;
pieces that have already arrived are skipped. Messages may therefore be lost, repeated or delayed, and either side may be
killed at any time: sent and received records are on disk.

A message is "QS" with a letter for the direction and the version, the number of the party, sixteen bytes of the digest of
the terms, the two positions, a bundle of pieces (`frames`), each preceded by a byte that says whether it ends its record,
and a checksum against transport errors. A record is a byte for its kind and a bundle of parts.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from quorank.errors import BadInput, require
from quorank.files.codec import Range
from quorank.files.documents import json_bytes, parse_json
from quorank.kernels.arrays import Doubles
from quorank.protocol import frames
from quorank.silos.envelopes import MOST_BYTES, MOST_PARTIES, Envelope

PIECE = 1 << 20  # largest piece, bytes
ROOM = 8 * PIECE + 64  # limit on the pieces of one message, bytes
MOST_MESSAGE = ROOM + PIECE  # largest message, bytes
MOST_RECORD = MOST_BYTES + (1 << 16)  # largest record, bytes: an envelope and a little around it

_TO_PARTY, _TO_SERVER = b"QSp2", b"QSs2"
_HEAD = struct.Struct("<4sH16sQQ")
_CHECKSUM = 16
_MALFORMED = "a message of a silo session is malformed; it is refused"


class Record(IntEnum):
    """Kind of a record. The numbers are part of the protocol: never reuse one."""

    ENVELOPE = 1  # both ways: an envelope between two parties, which the coordinator passes on
    STATISTICS = 2  # to the coordinator: term statistics under masks
    TOTAL = 3  # to a party: the sum of all parties' statistics
    ASK_SUM = 5  # to a party: request for its part of a sum
    PART = 6  # to the coordinator: that part, under masks
    RANKER = 9  # to a party: the final parameters
    KEPT = 10  # to the coordinator: the party has stored them


MEANINGS = {
    "HELLO": "public keys and the agreed settings; readable by the coordinator",
    "CONTRIBUTION": "a share of the group's key; sealed for the receiver",
    "STATISTICS": "noisy counts of terms under masks: only their sum over all parties can be read; to the coordinator",
    "SEARCH": "the terms of a query, hidden among decoys of as many terms; sealed for the receiver",
    "FOUND": "a few documents by number, and noisy counts of a search's terms in them; sealed for the receiver",
    "REFUSE": "a search is not answered, without the reason; sealed for the receiver",
    "DESCRIPTION": "the number of documents and their lengths with noise; sealed for the receiver",
    "PART": "sums of derivatives, histograms or held-out gains over this party's lists, under masks: only their sum over "
    "all parties can be read; to the coordinator",
    "KEPT": "the ranker has arrived; to the coordinator",
}
"""Content of each kind of sent record, and who can read it."""


@dataclass(frozen=True)
class SumHead:
    """Head of `ASK_SUM` and, without `asked` and `judging`, of `PART`."""

    number: Annotated[int, Range(0, below=2**31)]  # of the sum
    among: tuple[Annotated[int, Range(0, below=MOST_PARTIES)], ...]  # numbers of the parties in the sum, ascending
    judging: bool = False  # whether it is over held-out lists
    asked: dict[str, Any] = field(default_factory=dict)  # what the training asks for


@dataclass(frozen=True)
class SiloMessage:
    """Message between a party and its coordinator."""

    number: int  # of the party that it is for or from
    digest: bytes  # of the terms, sixteen bytes
    have: int  # pieces of the other side's stream that have arrived
    start: int  # position of the first piece here
    pieces: tuple[tuple[bool, bytes], ...]  # (ends its record, content)

    def to_bytes(self, *, to_party: bool) -> bytes:
        """Return the encoded message."""
        magic = _TO_PARTY if to_party else _TO_SERVER
        head = _HEAD.pack(magic, self.number, self.digest, self.have, self.start)
        text = head + frames.pack([bytes([last]) + content for last, content in self.pieces])
        return text + _checksum(text)

    @classmethod
    def from_bytes(cls, raw: bytes, *, to_party: bool) -> SiloMessage:
        """Decode a message; the sentence of a refusal quotes nothing of it."""

        def check(condition: object) -> None:
            require(condition, "silo-message.malformed", _MALFORMED)

        check(_HEAD.size + _CHECKSUM <= len(raw) <= MOST_MESSAGE)
        raw, checksum = raw[:-_CHECKSUM], raw[-_CHECKSUM:]
        check(checksum == _checksum(raw))
        magic, number, digest, have, start = _HEAD.unpack_from(raw)
        check(magic == (_TO_PARTY if to_party else _TO_SERVER))
        parts = frames.unpack(raw[_HEAD.size :])
        check(all(1 <= len(part) <= PIECE + 1 and part[0] in (0, 1) for part in parts))
        return cls(number, digest, have, start, tuple((bool(part[0]), part[1:]) for part in parts))


def _checksum(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=_CHECKSUM, person=b"quorank silo").digest()


def cut(record: bytes) -> list[tuple[bool, bytes]]:
    """Cut a record into pieces."""
    said = f"a record of {len(record):,} bytes is larger than {MOST_RECORD:,}"
    require(len(record) <= MOST_RECORD, "silo-message.too-large", said)
    starts = range(0, max(len(record), 1), PIECE)
    return [(at + PIECE >= len(record), record[at : at + PIECE]) for at in starts]


def encode(kind: Record, *arrays: npt.NDArray[Any], head: SumHead | None = None) -> bytes:
    """Return a record of a head and arrays."""
    heads = [] if head is None else [json_bytes(head)]
    return bytes([kind]) + frames.pack([*heads, *(array.tobytes() for array in arrays)])


def enclose(envelope: bytes) -> bytes:
    """Return a record that carries an envelope."""
    return bytes([Record.ENVELOPE]) + envelope


def kind_of(record: bytes) -> Record:
    """Return the kind of a record."""
    require(record and record[0] in set(Record), "silo-message.malformed", _MALFORMED)
    return Record(record[0])


def tag_of(record: bytes) -> str:
    """Return the kind of a record, or of the envelope in it, as a word."""
    kind = kind_of(record)
    return kind.name if kind is not Record.ENVELOPE else Envelope.from_bytes(record[1:]).kind.name


def decode_array(record: bytes, bytes_: int) -> bytes:
    """Return the array of a record without a head, of `bytes_` bytes."""
    parts = frames.unpack(record[1:])
    require(len(parts) == 1 and len(parts[0]) == bytes_, "silo-message.shape", "an array has another size than agreed")
    return parts[0]


def decode_sum(record: bytes) -> tuple[SumHead, bytes]:
    """Return the head and the array of `ASK_SUM` or `PART`."""
    parts = frames.unpack(record[1:])
    require(len(parts) == 2 and len(parts[0]) <= PIECE, "silo-message.malformed", _MALFORMED)
    try:
        head = parse_json(parts[0], SumHead, "head")
    except BadInput:
        raise BadInput("silo-message.malformed", _MALFORMED) from None
    ascending = all(first < second for first, second in zip(head.among, head.among[1:], strict=False))
    require(ascending and len(parts[1]) % 8 == 0, "silo-message.malformed", _MALFORMED)
    return head, parts[1]


def finite_doubles(raw: bytes) -> Doubles:
    """Return an array of finite numbers."""
    require(len(raw) % 8 == 0, "silo-message.malformed", _MALFORMED)
    found = np.frombuffer(raw, dtype="<f8").astype(np.float64)
    said = "a message of a silo session holds a number that is not finite"
    require(bool(np.isfinite(found).all()), "silo-message.not-finite", said)
    return found
