"""What parties tell each other inside sealed envelopes: questions, cells, refusals, catalogues, and their bytes.

The size of a question depends on how many vectors it holds and nothing else; that of an answer, on how many vectors were
asked, the field, and how many documents the owner has at most in a cell: the bytes behind the cells are filled up with
zeros. So the server cannot tell one term from another by their sizes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from quorank.arrays import Int32s, Integers
from quorank.compiled import kernel
from quorank.errors import require
from quorank.silos.protocol.group import Field
from quorank.silos.protocol.messages import MOST_BYTES, MessageReader
from quorank.silos.protocol.sealed import TAG
from quorank.silos.sketch.ranking_cells import Cells

MOST_REASON = 500
_ASK = struct.Struct("<BHI")
_ANSWER = struct.Struct("<QIHI")
_REFUSE = struct.Struct("<QH")
_CATALOGUE = struct.Struct("<BI")
_STAMPS = 1 << 24


@dataclass(frozen=True)
class Ask:
    """Columns of a field's sketch, (vectors, z)."""

    field: int
    columns: Int32s

    def to_bytes(self) -> bytes:
        """The sealed text."""
        count, rows = self.columns.shape
        return _ASK.pack(self.field, rows, count) + self.columns.astype("<u4").tobytes()

    @classmethod
    def from_bytes(cls, raw: bytes, sender: str, fields: Sequence[Field]) -> Ask:
        """The question; columns must be of the field's sketch."""
        reader = MessageReader(raw, f"the question of {sender}")
        index, rows, count = reader.take(_ASK)
        reader.check(index < len(fields), f"is about field number {index}, and there are {len(fields)}")
        field = fields[index]
        reader.check(
            rows == field.rows,
            f"has {rows} rows where sketches of {field.name!r} have {field.rows}",
        )
        reader.check(1 <= count <= MOST_BYTES, "holds no vector")
        columns = np.frombuffer(reader.bytes(4 * rows * count), dtype="<u4").reshape(count, rows)
        reader.end()
        reader.check(
            columns.max() < field.columns,
            f"names column {columns.max()} where sketches of {field.name!r} have {field.columns}",
        )
        return cls(index, columns.astype(np.int32))


@dataclass(frozen=True)
class Answer:
    """The cells of every vector of an ask, and the number of that ask."""

    asked: int
    vectors: tuple[Cells, ...]
    width: int  # the most documents in a cell of this owner: part of the size

    def to_bytes(self) -> bytes:
        """The sealed text, filled up to its fixed size."""
        rows = len(self.vectors[0].floors)
        lengths = np.concatenate([np.diff(cells.offsets) for cells in self.vectors])
        require(
            lengths.max(initial=0) <= self.width,
            f"a cell holds {lengths.max(initial=0):,} documents where {self.width:,} were announced; serve it anew",
        )
        parts = [
            _ANSWER.pack(self.asked, len(self.vectors), rows, self.width),
            lengths.astype("<u4").tobytes(),
            np.concatenate([cells.floors for cells in self.vectors]).astype("<i4").tobytes(),
            np.concatenate([cells.documents for cells in self.vectors]).astype("<u4").tobytes(),
            np.concatenate([cells.values for cells in self.vectors]).astype("<i4").tobytes(),
        ]
        return b"".join(parts).ljust(answer_bytes(len(self.vectors), rows, self.width), b"\0")

    @classmethod
    def from_bytes(cls, raw: bytes, sender: str, vectors: int, field: Field) -> Answer:
        """The cells; as many vectors as were asked, no more documents than agreed, none twice in a cell."""
        reader = MessageReader(raw, f"the answer of {sender}")
        asked, count, rows, width = reader.take(_ANSWER)
        reader.check(count == vectors, f"holds {count} vectors where {vectors} were asked")
        reader.check(rows == field.rows, f"has {rows} rows where sketches have {field.rows}")
        reader.check(
            width <= field.entries, f"has cells of {width:,} documents, {field.entries:,} are agreed"
        )
        reader.check(
            len(raw) == answer_bytes(count, rows, width), f"has {len(raw)} bytes, another size than it says"
        )
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
        for vector in range(count):
            own = offsets[vector * rows : (vector + 1) * rows + 1]
            part = slice(int(own[0]), int(own[-1]))
            own_floors = floors[vector * rows : (vector + 1) * rows]
            found.append(Cells(own - own[0], ids[part], values[part], own_floors))
        return cls(asked, tuple(found), width)


@dataclass(frozen=True)
class Refuse:
    """Why an ask has no answer."""

    asked: int
    reason: str

    def to_bytes(self) -> bytes:
        """The sealed text, of one size for all reasons."""
        text = self.reason.encode()[:MOST_REASON].decode(errors="ignore").encode()
        return (_REFUSE.pack(self.asked, len(text)) + text).ljust(_REFUSE.size + MOST_REASON, b"\0")

    @classmethod
    def from_bytes(cls, raw: bytes, sender: str) -> Refuse:
        """The reason; it is shown to people, so nothing but printable text is read."""
        reader = MessageReader(raw, f"the refusal of {sender}")
        asked, length = reader.take(_REFUSE)
        reader.check(length <= MOST_REASON, f"gives a reason of {length} bytes")
        text = reader.bytes(length).decode(errors="replace")
        return cls(asked, "".join(letter if letter.isprintable() else "?" for letter in text))


@dataclass(frozen=True)
class Catalogue:
    """An owner's documents in a field: their numbers and lengths, as the owner tells them."""

    field: int
    ids: Int32s
    lengths: Int32s

    def to_bytes(self) -> bytes:
        """The sealed text, filled up to a power of two of documents."""
        room = 1 << max(len(self.ids) - 1, 0).bit_length()
        text = _CATALOGUE.pack(self.field, len(self.ids))
        text += self.ids.astype("<u4").tobytes() + self.lengths.astype("<i4").tobytes()
        return text.ljust(_CATALOGUE.size + 8 * room, b"\0")

    @classmethod
    def from_bytes(cls, raw: bytes, sender: str, fields: Sequence[Field]) -> Catalogue:
        """The catalogue; no document twice."""
        reader = MessageReader(raw, f"the catalogue of {sender}")
        index, count = reader.take(_CATALOGUE)
        reader.check(index < len(fields), f"is about field number {index}, and there are {len(fields)}")
        ids = np.frombuffer(reader.bytes(4 * count), dtype="<u4")
        lengths = np.frombuffer(reader.bytes(4 * count), dtype="<i4").astype(np.int32)
        reader.check(ids.max(initial=0) < 2**31, "names a document above 2^31 − 1")
        reader.check(len(np.unique(ids)) == count, "names a document twice")
        reader.zeros("its documents")
        return cls(index, ids.astype(np.int32), lengths)


def answer_bytes(vectors: int, rows: int, width: int) -> int:
    """The size of an answer before it is sealed."""
    return _ANSWER.size + vectors * rows * (8 + 8 * width)


def most_vectors(field: Field) -> int:
    """How many vectors of a field fit into one envelope with their answer."""
    each = answer_bytes(1, field.rows, field.entries) - _ANSWER.size
    fit = (MOST_BYTES - TAG - _ANSWER.size) // each
    require(fit >= 1, f"answers about {field.name!r} are larger than an envelope; settle on fewer entries")
    return fit


def has_repeats(offsets: Integers, ids: Int32s) -> bool:
    """A document stands twice in the same cell."""
    if len(ids) == 0:
        return False
    most = int(ids.max())
    if most < _STAMPS:
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
