"""Messages of the cross-silo protocol and their bytes.

All numbers are little-endian. An envelope starts with "QP", the version of the protocol, its kind (1 byte each) and its
number (8 bytes), then the names of sender and receiver, each after its length (1 byte), then the body after its length
(4 bytes). These are all that the relaying server sees; every body but that of a hello is sealed. Bytes that are anything
else are refused with a sentence.

Sealed bodies are questions, answers, refusals and catalogues. The size of a question depends on how many vectors it holds
and nothing else; that of an answer, on how many vectors were asked, the field, and how many documents the owner has at
most in a cell: the bytes behind the cells are filled up with zeros. So the server cannot tell one term from another by
their sizes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from quorank.errors import require
from quorank.files.documents import load_json
from quorank.kernels.arrays import Int32s, Integers
from quorank.kernels.compiled import kernel
from quorank.silos.protocol.group import Field, check_name
from quorank.silos.sketch.ranking import Cells

VERSION = 1
MOST_BYTES = 1 << 26
"""The largest body: 64 MiB. Questions whose answer would be larger go into several envelopes."""
KEY = 32
TAG = 16
"""What a seal adds to a text."""
MOST_REASON = 500

_MAGIC = b"QP"
_HEAD = struct.Struct("<2sBBQ")
_LENGTH = struct.Struct("<I")
_ASK = struct.Struct("<BHI")
_ANSWER = struct.Struct("<QIHI")
_REFUSE = struct.Struct("<QH")
_CATALOGUE = struct.Struct("<BI")
_MOST_SETTINGS = 4096
_STAMPS = 1 << 16


class Kind(IntEnum):
    """Purpose of an envelope. Numbers are part of the protocol: never reuse one."""

    HELLO = 1  # public keys and settings, in clear
    CONTRIBUTION = 2  # a party's share of the group key
    ASK = 3  # columns of a sketch
    ANSWER = 4  # their cells
    REFUSE = 5  # why there is no answer
    CATALOGUE = 6  # how many documents a party has and how long they are
    SEARCH = 7  # a query among decoys
    FOUND = 8  # the documents that an owner names for it
    DESCRIPTION = 9  # numbers and noisy lengths of the documents that searches name


@dataclass(frozen=True)
class Envelope:
    """One message: sender, receiver, purpose, number, and a body that only the receiver can read."""

    kind: Kind
    sender: str
    receiver: str
    number: int
    body: bytes

    def head(self) -> bytes:
        """Return everything but the body: in clear, and bound to the body by the seal."""
        head = _HEAD.pack(_MAGIC, VERSION, self.kind, self.number)
        for name in (self.sender.encode(), self.receiver.encode()):
            head += bytes([len(name)]) + name
        return head

    def to_bytes(self) -> bytes:
        """Return the envelope as it travels."""
        return self.head() + _LENGTH.pack(len(self.body)) + self.body

    @classmethod
    def from_bytes(cls, raw: bytes) -> Envelope:
        """Read an envelope from its bytes."""
        reader = EnvelopeReader(raw, "an envelope")
        magic, version, kind, number = reader.unpack(_HEAD)
        reader.check(magic == _MAGIC, "starts with other bytes than QP")
        check_version(version, "an envelope")
        reader.check(kind in set(Kind), f"is of the unknown kind {kind}")
        sender, receiver = reader.name(), reader.name()
        (length,) = reader.unpack(_LENGTH)
        reader.check(length <= MOST_BYTES, f"has a body of {length:,} bytes, more than {MOST_BYTES:,}")
        body = reader.bytes(length)
        reader.end()
        return cls(Kind(kind), sender, receiver, number, body)


@dataclass(frozen=True)
class Hello:
    """First message of a party, in clear: public keys, commitment to a contribution, and settings."""

    identity: bytes  # the party's lasting public key
    ephemeral: bytes  # its public key of this session
    commitment: bytes  # a digest of its contribution, so that it cannot choose it after the others'
    settings: Mapping[str, int | str]

    def to_bytes(self) -> bytes:
        """Return the body of the envelope."""
        return bytes([VERSION]) + self.identity + self.ephemeral + self.commitment + canonical_settings(self.settings)

    @classmethod
    def from_bytes(cls, raw: bytes, sender: str) -> Hello:
        """Read a hello from its bytes; only settings in their canonical form are accepted."""
        reader = EnvelopeReader(raw, f"the hello of {sender}")
        check_version(reader.bytes(1)[0], f"the hello of {sender}")
        identity, ephemeral, committed = reader.bytes(KEY), reader.bytes(KEY), reader.bytes(KEY)
        text = reader.bytes(len(raw) - reader.at)
        reader.check(len(text) <= _MOST_SETTINGS, f"has settings of more than {_MOST_SETTINGS} bytes")
        try:
            settings: Any = load_json(text)
        except ValueError:
            settings = None
        is_plain = isinstance(settings, dict) and all(type(value) in (int, str) for value in settings.values())
        sound = is_plain and canonical_settings(settings) == text
        reader.check(sound, "has settings that are no table of whole numbers and words")
        return cls(identity, ephemeral, committed, settings)


def canonical_settings(settings: Mapping[str, int | str]) -> bytes:
    """Return the one text of equal settings."""
    return json.dumps(dict(settings), sort_keys=True, separators=(",", ":")).encode("ascii")


def check_version(version: int, words: str) -> None:
    """Refuse another version of the protocol."""
    older = "older" if version < VERSION else "newer"
    said = f"{words} has version {version} of the protocol, {older} than this program's {VERSION}"
    require(version == VERSION, "silo-message.other-version", f"{said}; all parties must run the same")


class EnvelopeReader:
    """Reader of a message's bytes from the front; every step says what is missing."""

    def __init__(self, raw: bytes, words: str) -> None:
        self.raw, self.words, self.at = raw, words, 0

    def check(self, condition: object, fault: str) -> None:
        """Refuse the bytes, naming them and their fault."""
        said = f"{self.words} cannot be read: it {fault}; drop it and have it sent again"
        require(condition, "silo-message.malformed", said)

    def bytes(self, count: int) -> bytes:
        """Read the next `count` bytes."""
        self.check(0 <= count <= len(self.raw) - self.at, f"ends after {len(self.raw)} bytes, too early")
        self.at += count
        return self.raw[self.at - count : self.at]

    def unpack(self, item: struct.Struct) -> tuple[Any, ...]:
        """Read the next fixed fields."""
        return item.unpack(self.bytes(item.size))

    def name(self) -> str:
        """Read a party's name after its length."""
        name = self.bytes(self.bytes(1)[0])
        self.check(name.isascii(), "names a party in other letters")
        return check_name(name.decode("ascii"))

    def zeros(self, behind: str) -> None:
        """Check that nothing follows but the zeros that fill a message up."""
        rest = np.frombuffer(self.raw, dtype=np.uint8, offset=self.at)
        self.check(not rest.any(), f"has something behind {behind}")
        self.at = len(self.raw)

    def end(self) -> None:
        """Check that nothing follows."""
        self.check(self.at == len(self.raw), f"has {len(self.raw) - self.at} bytes too many")


@dataclass(frozen=True)
class Ask:
    """Question: (vectors, z) columns of a field's sketch."""

    field: int
    columns: Int32s

    def to_bytes(self) -> bytes:
        """Return the text to be sealed."""
        count, rows = self.columns.shape
        return _ASK.pack(self.field, rows, count) + self.columns.astype("<u4").tobytes()

    @classmethod
    def from_bytes(cls, raw: bytes, sender: str, fields: Sequence[Field]) -> Ask:
        """Read a question; its columns must be of the field's sketch."""
        reader = EnvelopeReader(raw, f"the question of {sender}")
        index, rows, count = reader.unpack(_ASK)
        reader.check(index < len(fields), f"is about field number {index}, and there are {len(fields)}")
        field = fields[index]
        reader.check(rows == field.rows, f"has {rows} rows where sketches of {field.name!r} have {field.rows}")
        reader.check(1 <= count <= MOST_BYTES, "holds no vector")
        columns = np.frombuffer(reader.bytes(4 * rows * count), dtype="<u4").reshape(count, rows)
        reader.end()
        largest = columns.max()
        words = f"names column {largest} where sketches of {field.name!r} have {field.columns}"
        reader.check(largest < field.columns, words)
        return cls(index, columns.astype(np.int32))


@dataclass(frozen=True)
class Answer:
    """Answer: the cells of every vector of a question, and the number of that question."""

    asked: int
    vectors: tuple[Cells, ...]
    width: int  # the most documents in a cell of this owner: part of the size

    def to_bytes(self) -> bytes:
        """Return the text to be sealed, filled up to its fixed size."""
        rows = len(self.vectors[0].floors)
        lengths = np.concatenate([np.diff(cells.offsets) for cells in self.vectors])
        longest = lengths.max(initial=0)
        said = f"a cell holds {longest:,} documents where {self.width:,} were announced; serve it anew"
        require(longest <= self.width, "silo-answer.too-large", said)
        parts = [_ANSWER.pack(self.asked, len(self.vectors), rows, self.width), lengths.astype("<u4").tobytes()]
        for name, kind in (("floors", "<i4"), ("documents", "<u4"), ("values", "<i4")):
            parts.append(np.concatenate([getattr(cells, name) for cells in self.vectors]).astype(kind).tobytes())
        return b"".join(parts).ljust(answer_bytes(len(self.vectors), rows, self.width), b"\0")

    @classmethod
    def from_bytes(cls, raw: bytes, sender: str, vectors: int, field: Field) -> Answer:
        """Read an answer: as many vectors as were asked, no more documents than agreed, none twice in a cell."""
        reader = EnvelopeReader(raw, f"the answer of {sender}")
        asked, count, rows, width = reader.unpack(_ANSWER)
        reader.check(count == vectors, f"holds {count} vectors where {vectors} were asked")
        reader.check(rows == field.rows, f"has {rows} rows where sketches have {field.rows}")
        reader.check(width <= field.entries, f"has cells of {width:,} documents, {field.entries:,} are agreed")
        reader.check(len(raw) == answer_bytes(count, rows, width), f"has {len(raw)} bytes, another size than it says")
        lengths = np.frombuffer(reader.bytes(4 * count * rows), dtype="<u4").astype(np.int64)
        reader.check(lengths.max(initial=0) <= width, "has a cell larger than it says")
        floors = np.frombuffer(reader.bytes(4 * count * rows), dtype="<i4").astype(np.int32)
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        ids = np.frombuffer(reader.bytes(4 * int(offsets[-1])), dtype="<u4")
        reader.check(ids.max(initial=0) < 2**31, "names a document above 2^31 − 1")
        ids = ids.astype(np.int32)
        values = np.frombuffer(reader.bytes(4 * int(offsets[-1])), dtype="<i4").astype(np.int32)
        reader.zeros("its cells")
        reader.check(not has_repeats(offsets, ids), "names a document twice in one cell")
        found = []
        for at in range(0, count * rows, rows):
            own = offsets[at : at + rows + 1]
            part = slice(int(own[0]), int(own[-1]))
            found.append(Cells(own - own[0], ids[part], values[part], floors[at : at + rows]))
        return cls(asked, tuple(found), width)


@dataclass(frozen=True)
class Refuse:
    """Refusal: why a question has no answer."""

    asked: int
    reason: str

    def to_bytes(self) -> bytes:
        """Return the text to be sealed, of one size for all reasons."""
        text = self.reason.encode()[:MOST_REASON].decode(errors="ignore").encode()
        return (_REFUSE.pack(self.asked, len(text)) + text).ljust(_REFUSE.size + MOST_REASON, b"\0")

    @classmethod
    def from_bytes(cls, raw: bytes, sender: str) -> Refuse:
        """Read a refusal; its reason is shown to people, so other than printable letters are replaced."""
        reader = EnvelopeReader(raw, f"the refusal of {sender}")
        asked, length = reader.unpack(_REFUSE)
        reader.check(length <= MOST_REASON, f"gives a reason of {length} bytes")
        text = reader.bytes(length).decode(errors="replace")
        reader.check(len(raw) == _REFUSE.size + MOST_REASON, f"has {len(raw)} bytes, another size than refusals have")
        reader.zeros("its reason")
        return cls(asked, "".join(letter if letter.isprintable() else "?" for letter in text))


@dataclass(frozen=True)
class Catalogue:
    """Catalogue: the numbers and lengths of an owner's documents in a field, as the owner tells them."""

    field: int
    ids: Int32s
    lengths: Int32s

    def to_bytes(self) -> bytes:
        """Return the text to be sealed, filled up to a power of two of documents."""
        room = 1 << max(len(self.ids) - 1, 0).bit_length()
        text = _CATALOGUE.pack(self.field, len(self.ids))
        text += self.ids.astype("<u4").tobytes() + self.lengths.astype("<i4").tobytes()
        return text.ljust(_CATALOGUE.size + 8 * room, b"\0")

    @classmethod
    def from_bytes(cls, raw: bytes, sender: str, fields: Sequence[Field]) -> Catalogue:
        """Read a catalogue, which names no document twice."""
        reader = EnvelopeReader(raw, f"the catalogue of {sender}")
        index, count = reader.unpack(_CATALOGUE)
        reader.check(index < len(fields), f"is about field number {index}, and there are {len(fields)}")
        ids = np.frombuffer(reader.bytes(4 * count), dtype="<u4")
        lengths = np.frombuffer(reader.bytes(4 * count), dtype="<i4").astype(np.int32)
        reader.check(ids.max(initial=0) < 2**31, "names a document above 2^31 − 1")
        reader.check(len(np.unique(ids)) == count, "names a document twice")
        reader.zeros("its documents")
        return cls(index, ids.astype(np.int32), lengths)


def answer_bytes(vectors: int, rows: int, width: int) -> int:
    """Return the size of an answer before it is sealed."""
    return _ANSWER.size + vectors * rows * (8 + 8 * width)


def most_vectors(field: Field) -> int:
    """Return how many vectors of a field fit into one envelope with their answer."""
    each = answer_bytes(1, field.rows, field.entries) - _ANSWER.size
    fit = (MOST_BYTES - TAG - _ANSWER.size) // each
    said = f"answers about {field.name!r} are larger than an envelope; settle on fewer entries"
    require(fit >= 1, "silo-answer.too-large", said)
    return fit


def has_repeats(offsets: Integers, ids: Int32s) -> bool:
    """Return whether a document stands twice in the same cell."""
    if len(ids) == 0:
        return False
    most = int(ids.max())
    if most < _STAMPS + 8 * len(ids):  # no more memory than the answer itself takes
        return bool(_has_repeats(offsets, ids, np.full(most + 1, -1, dtype=np.int64)))
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    return len(np.unique(rows << 32 | ids.astype(np.int64))) < len(ids)


@kernel
def _has_repeats(offsets: Integers, ids: Int32s, stamps: Integers) -> bool:
    for row in range(len(offsets) - 1):
        for at in range(offsets[row], offsets[row + 1]):
            if stamps[ids[at]] == row:
                return True
            stamps[ids[at]] = row
    return False
