"""How a party and its coordinator talk: two streams of records, carried by questions and answers that may be lost.

Everything that a party tells its coordinator is one stream of records, everything that it is told another. A record is
cut into pieces of at most a mebibyte. A message says how many pieces of the other's stream are there, and brings some of
one's own from a stated place on; pieces that are there already are passed over. So it does not matter which message was
lost, came twice or came late, and either side can be killed at any time: what it has said and heard is on disk.

A message is "QS" with a letter for the direction and the version, the number of the party, sixteen bytes of the digest of
the terms, the two places, a bundle of pieces (`frames`), each behind a byte that says whether it ends its record, and
a checksum: a byte that an engine changed would else end the run. A record is a byte for its kind and a bundle of parts.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from quorank.errors import BadInput, require
from quorank.files.documents import load_json
from quorank.kernels.arrays import Doubles
from quorank.protocol import frames
from quorank.silos.protocol.messages import MOST_BYTES, Envelope

PIECE = 1 << 20
"""The most bytes of a piece."""
ROOM = 8 * PIECE + 64
"""The most bytes of pieces in one message."""
MOST_MESSAGE = ROOM + PIECE
"""The most bytes of a message."""
MOST_RECORD = MOST_BYTES + (1 << 16)
"""The most bytes of a record: an envelope, and a little around it."""

_TO_PARTY, _TO_SERVER = b"QSp1", b"QSs1"
_HEAD = struct.Struct("<4sH16sQQ")
_CHECKSUM = 16
_MALFORMED = "a message of a silo run is malformed; it is refused"


class Record(IntEnum):
    """What a record is. Numbers are part of the protocol: never reuse one."""

    ENVELOPE = 1  # both ways: an envelope of the protocol between parties, which the coordinator hands on
    MASKED = 2  # to the coordinator: tables under masks, and how many envelopes with questions will follow
    SUM = 3  # to a party: the sum of all tables, and those numbers of all parties
    ROWS = 4  # to the coordinator: how many instances a party learns from
    LEARN = 5  # to a party: parameters to learn from
    LEARNED = 6  # to the coordinator: the parameters after that
    JUDGE = 7  # to a party: rankers to judge on the lists that were held out
    TALLY = 8  # to the coordinator: the sums of that
    RANKER = 9  # to a party: the weights that all end with
    KEPT = 10  # to the coordinator: they are kept


@dataclass(frozen=True)
class SiloMessage:
    """One way of one exchange."""

    number: int  # of the party that it is for or from
    digest: bytes  # of the terms, sixteen bytes
    have: int  # pieces of the other side's stream that are there
    start: int  # the place of the first piece here
    pieces: tuple[tuple[bool, bytes], ...]  # (ends its record, content)

    def to_bytes(self, *, to_party: bool) -> bytes:
        """As it travels."""
        magic = _TO_PARTY if to_party else _TO_SERVER
        head = _HEAD.pack(magic, self.number, self.digest, self.have, self.start)
        text = head + frames.pack([bytes([last]) + content for last, content in self.pieces])
        return text + _checksum(text)

    @classmethod
    def from_bytes(cls, raw: bytes, *, to_party: bool) -> SiloMessage:
        """A message from its bytes; anything else is refused with a sentence that quotes nothing of it."""
        require(_HEAD.size + _CHECKSUM <= len(raw) <= MOST_MESSAGE, "silo-message.malformed", _MALFORMED)
        raw, checksum = raw[:-_CHECKSUM], raw[-_CHECKSUM:]
        require(checksum == _checksum(raw), "silo-message.malformed", _MALFORMED)
        magic, number, digest, have, start = _HEAD.unpack_from(raw)
        require(magic == (_TO_PARTY if to_party else _TO_SERVER), "silo-message.malformed", _MALFORMED)
        parts = frames.unpack(raw[_HEAD.size :])
        require(
            all(1 <= len(part) <= PIECE + 1 and part[0] in (0, 1) for part in parts),
            "silo-message.malformed",
            _MALFORMED,
        )
        return cls(number, digest, have, start, tuple((bool(part[0]), part[1:]) for part in parts))


def _checksum(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=_CHECKSUM, person=b"quorank silo").digest()


def cut(record: bytes) -> list[tuple[bool, bytes]]:
    """A record in pieces."""
    require(
        len(record) <= MOST_RECORD,
        "silo-message.too-large",
        f"a record of {len(record):,} bytes is larger than {MOST_RECORD:,}",
    )
    starts = range(0, max(len(record), 1), PIECE)
    return [(at + PIECE >= len(record), record[at : at + PIECE]) for at in starts]


def written(kind: Record, head: Any = None, *arrays: npt.NDArray[Any]) -> bytes:
    """A record of a table and arrays."""
    parts = [json.dumps(head, separators=(",", ":")).encode(), *(array.tobytes() for array in arrays)]
    return bytes([kind]) + frames.pack(parts)


def enclosed(envelope: bytes) -> bytes:
    """A record that carries an envelope."""
    return bytes([Record.ENVELOPE]) + envelope


def kind_of(record: bytes) -> Record:
    """What a record is."""
    require(record and record[0] in set(Record), "silo-message.malformed", _MALFORMED)
    return Record(record[0])


def tag_of(record: bytes) -> str:
    """What a record is, in a word: of an envelope, what the envelope is."""
    kind = kind_of(record)
    return kind.name if kind is not Record.ENVELOPE else Envelope.from_bytes(record[1:]).kind.name


def read(record: bytes, arrays: int = 0) -> tuple[Any, list[bytes]]:
    """The table of a record and the bytes of its arrays."""
    parts = frames.unpack(record[1:])
    require(len(parts) == 1 + arrays and len(parts[0]) <= PIECE, "silo-message.malformed", _MALFORMED)
    try:
        return load_json(parts[0]), parts[1:]
    except ValueError:
        raise BadInput("silo-message.malformed", _MALFORMED) from None


def doubles(raw: bytes, *shape: int) -> Doubles:
    """Finite numbers of a shape."""
    require(len(raw) == 8 * int(np.prod(shape)), "silo-message.malformed", _MALFORMED)
    found = np.frombuffer(raw, dtype="<f8").astype(np.float64).reshape(shape)
    require(
        bool(np.isfinite(found).all()),
        "silo-message.not-finite",
        "a message of a silo run holds a number that is not finite",
    )
    return found


def whole_numbers(value: object, count: int | None = None, least: int = 0, most: int = 2**31) -> list[int]:
    """A list of whole numbers within bounds."""
    if not isinstance(value, list) or (count is not None and len(value) != count):
        raise BadInput("silo-message.malformed", _MALFORMED)
    require(all(type(n) is int and least <= n < most for n in value), "silo-message.malformed", _MALFORMED)
    return value


def table_of(value: object, *names: str) -> Sequence[Any]:
    """The values of a table with exactly these names."""
    if not isinstance(value, dict) or set(value) != set(names):
        raise BadInput("silo-message.malformed", _MALFORMED)
    return [value[name] for name in names]


def tells(kind: str) -> str:
    """In words what a record that left told, and whom."""
    return _TELLS[kind]


_TELLS = {
    "HELLO": "public keys and the agreed settings; to everybody on the way",
    "CONTRIBUTION": "a share of the group's key; sealed for the receiver",
    "MASKED": "counts of terms under masks, so nothing but their sum over all parties; and how many envelopes of questions "
    "will follow; to the coordinator",
    "CATALOGUE": "how many documents there are and how long each is; sealed for the receiver",
    "ASK": "the terms of queries, each hidden among others; sealed for the receiver",
    "ANSWER": "which documents hold the asked terms and how often, as far as the protocol's noise lets through; sealed for "
    "the receiver",
    "REFUSE": "why a question was not answered; sealed for the receiver",
    "SEARCH": "the terms of a query, hidden among decoys of as many terms; sealed for the receiver",
    "FOUND": "a few documents by number, and with noise how often they hold the terms of a search; sealed for the receiver",
    "DESCRIPTION": "how many documents there are and, with noise, how long each is; sealed for the receiver",
    "ROWS": "that this party is ready to learn, and in a training as published from how many instances; to the coordinator",
    "LEARNED": "sums of derivatives over this party's lists, or the histograms of a tree's level, under masks, so nothing "
    "but their sum over all parties; in a training as published parameters after its turn, which depend on its instances; "
    "to the coordinator",
    "TALLY": "how well rankers order this party's held-out lists, in sums, under masks but for a training as published; to "
    "the coordinator",
    "KEPT": "that the ranker has arrived; to the coordinator",
}
