"""RTK-Sketch: which K documents of a party hold a term most often (CS-F-LTR §V-B, algorithms 4 and 5).

A table of z rows and w columns whose cells list documents with their values there, the largest ones only: an owner
answers a query with z cells, however many documents it has. Documents are added and removed in place, and memory is
bounded.

The *literal* reading keeps the αK largest values of a cell and takes the median over the rows where a document happens to
stand. Half of all terms have g_a(t) = −1 in a row: their documents lie at the other end and are thrown away; and the
median over the rows that kept a document is biased upwards (`ranking`). The *recommended* reading differs in four things:

1. a cell keeps what is largest in size, |v|, from both ends, and no zeros: these are what their absence says;
2. a cell knows its floor, the largest size that it turned away, so that absence bounds a value;
3. one pool of entries for all cells (`cell_pool`): a cell that few terms fall into leaves its room to the others. Where
   all would be too many, one limit for all cells is lowered until they fit;
4. few rows of many columns: a row can only say something about a term if the term's documents are among the largest of
   the cell, and so the cell's other terms must be few.

Of equal values the documents kept are chosen by a fixed scattering of their numbers, the same in all rows: chosen
differently in each row, few would be left in all of them.

A removed document is out of all cells at once. What had been turned away for its sake does not come back: a floor stays
where it is, which is still true and only says less, and the room is taken by documents that are added later. A floor may
be the size of a value of a document that has left.

A saved sketch is a line of JSON, the arrays, and a checksum over both. The checksum is BLAKE2b under the hashing's own
key, so a file that somebody without the key has altered is refused like one that a disk has damaged. The file holds no
key and no term; it does hold documents' numbers and values, and belongs to its owner alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import numpy as np
import numpy.typing as npt

from quorank.errors import BadInput, require, require_range
from quorank.files.atomic import write_whole
from quorank.files.documents import load_json
from quorank.files.untrusted import read_bounded
from quorank.kernels.arrays import Doubles, Int8s, Int32s, Integers
from quorank.silos.sketch.cell_pool import (
    ABSOLUTE,
    CAP,
    POSITIVE,
    SIGNED,
    SPARE,
    STORED,
    EntryPool,
    documents_of,
    remove_documents,
)
from quorank.silos.sketch.count_sketch import MOST_OCCURRENCES, checked_columns, checked_counts, count_sketch_table
from quorank.silos.sketch.hashing import Hashing, RememberedPlaces
from quorank.silos.sketch.ranking import Cells, checked_cells, rank_literal, rank_recommended

MOST_DOCUMENTS = 1 << 27
"""Document numbers are the owner's own, counted from 0, and below this."""
FORMAT = "quorank reverse top-k sketch"
VERSION = 1
_CHECKSUM = 32
_ARRAYS = (("counts", "<i4"), ("floors", "<i4"), ("lows", "<i8"), ("entries", "<i8"), ("present", "|u1"))


@dataclass(frozen=True)
class Shape:
    """Proportions and reading of an RTK-Sketch; `Shape()` is the recommended one for K = 150."""

    kind: ClassVar[str] = "reverse-top-k"

    sketch: Literal["count", "count-min"] = "count"
    reading: Literal["recommended", "literal"] = "recommended"
    rows: int = 2  # z
    columns: int = 12_288  # w
    capacity: int = 2_000  # most entries of a cell (published: αK)
    entries: int = 4_500_000  # most entries of all cells together (published: z·w·αK)
    beta: float = 0.1  # β: share of the rows in which a candidate must stand, literal reading only

    def __post_init__(self) -> None:
        for name, words in (("sketch", ("count", "count-min")), ("reading", ("recommended", "literal"))):
            given = getattr(self, name)
            require(given in words, "value.unknown", f"must be {words[0]!r} or {words[1]!r}, got {given!r}", name)
        Hashing(bytes(16), self.rows, self.columns)
        require_range("capacity", self.capacity, least=2, most=2**24)
        cells = self.rows * self.columns
        fits = 3 * cells <= self.entries <= 2**32 or self.entries == cells * self.capacity
        said = f"must be at least three for each of the {cells:,} cells, got {self.entries:,}"
        require(fits, "value.out-of-range", said, "entries")
        require_range("beta", self.beta, least=0.0, most=1.0)

    @classmethod
    def published(cls, *, rows: int = 30, columns: int = 200, alpha: float = 5, k: int = 150) -> Shape:
        """Return the shape of algorithms 4 and 5, by default with the paper's α = 5, w = 200, z = 30, K = 150, β = 0.1."""
        capacity = max(1, round(alpha * k))
        return cls("count", "literal", rows, columns, capacity, rows * columns * capacity)

    @classmethod
    def recommended(cls, k: int = 150) -> Shape:
        """Return a shape of two rows with as many entries as the published one has for this K."""
        return cls(capacity=max(16, 2_000 * k // 150), entries=max(8 * 12_288, 30_000 * k))

    def hashing(self, key: bytes) -> Hashing:
        """Return the hash functions of this shape under a key."""
        return Hashing(key, self.rows, self.columns)

    @property
    def kept(self) -> int:
        """Which values a cell keeps, for `EntryPool`."""
        if self.reading == "literal":
            return SIGNED
        return ABSOLUTE if self.sketch == "count" else POSITIVE


class ReverseTopK:
    """RTK-Sketch of one party and one field of its documents."""

    def __init__(self, hashing: Hashing, shape: Shape) -> None:
        given, needed = (hashing.rows, hashing.columns), (shape.rows, shape.columns)
        said = f"the hashing has (rows, columns) = {given}, the shape {needed}; take shape.hashing(key)"
        require(given == needed, "sketch.other-hashing", said)
        self.hashing, self.shape = hashing, shape
        self._places = RememberedPlaces(hashing)
        cells = shape.rows * shape.columns
        if shape.reading == "recommended":
            self._pool = EntryPool(cells, shape.capacity, shape.entries, shape.kept)
        else:  # a literal cell has room for more than αK so that exactly αK are left when it gives up its spare part
            cap = -(-shape.capacity * SPARE // (SPARE - 1)) + 1
            self._pool = EntryPool(cells, cap, cells * cap, shape.kept)
        self._present = np.zeros(1024, dtype=np.uint8)  # a bit for each document number
        self._n = 0

    def __len__(self) -> int:
        return self._n

    def __contains__(self, document: int) -> bool:
        byte = document >> 3
        return 0 <= byte < len(self._present) and bool(self._present[byte] >> (document & 7) & 1)

    @property
    def stored(self) -> int:
        """Entries in all cells."""
        return int(self._pool.arrays.state[STORED])

    @property
    def limit(self) -> int:
        """The most entries that a cell may hold at present."""
        return int(self._pool.arrays.state[CAP])

    @property
    def memory_bytes(self) -> int:
        """Size of all arrays that are kept; the remembered places of terms, which may be forgotten, are not among them."""
        return sum(array.nbytes for array in self._pool.arrays) + self._present.nbytes

    def add(self, document: int, terms: Sequence[str], counts: Sequence[int] | npt.ArrayLike) -> None:
        """Add a document with these different terms and their counts (algorithm 4)."""
        documents, columns, signs, occurrences = self._checked_document(document, terms, counts)
        offsets = np.array([0, len(terms)], dtype=np.int64)
        self._add(columns, signs, offsets, np.arange(len(terms), dtype=np.int32), occurrences, documents)

    def add_many(
        self,
        offsets: npt.ArrayLike,
        terms: npt.ArrayLike,
        counts: npt.ArrayLike,
        vocabulary: Sequence[str],
        documents: npt.ArrayLike | None = None,
    ) -> None:
        """Add many documents (algorithm 4): the i-th has the terms offsets[i] ≤ j < offsets[i + 1].

        They are vocabulary[terms[j]], different ones, with counts[j] occurrences. Documents are numbered 0, 1, … unless
        `documents` says otherwise. All of them are added or, where something is wrong with one, none.
        """
        bounds, words, occurrences = checked_columns(offsets, terms, counts, vocabulary)
        n = len(bounds) - 1
        if n == 0:
            return
        numbers = self._new_documents(np.arange(n) if documents is None else documents)
        said = f"offsets speak of {n} documents, {len(numbers)} numbers are given"
        require(len(numbers) == n, "sketch.bad-offsets", said)
        lengths = np.diff(bounds)
        _check_not_empty(int(numbers[lengths.argmin()]), int(lengths.min()))
        largest = np.add.reduceat(occurrences.astype(np.int64), bounds[:-1]).max()
        said = f"counts must be 1 or more, at most {MOST_OCCURRENCES:,} a document"
        require(occurrences.min() >= 1 and largest <= MOST_OCCURRENCES, "sketch.out-of-range", said)
        columns, signs = self.hashing.places(vocabulary)
        self._add(columns, signs, bounds, words, occurrences, numbers)

    def document_table(self, document: int, terms: Sequence[str], counts: Sequence[int] | npt.ArrayLike) -> Int32s:
        """Compute the (z, w) sketch of a document that could be added, for `add_sketch`."""
        _, columns, signs, occurrences = self._checked_document(document, terms, counts)
        return count_sketch_table(columns, self._sides(signs), occurrences, self.shape.columns)

    def add_sketch(self, document: int, table: npt.ArrayLike) -> None:
        """Add a document by its finished (z, w) sketch, such as one with noise on its cells (algorithm 4)."""
        cells, rows, width = np.ascontiguousarray(table, dtype=np.int32), self.shape.rows, self.shape.columns
        fits = cells.shape == (rows, width) and max(-int(cells.min()), int(cells.max())) <= MOST_OCCURRENCES
        said = f"a sketch must have {rows} rows and {width:,} columns within ±{MOST_OCCURRENCES:,}, got {cells.shape}"
        require(fits, "sketch.out-of-range", said)
        documents = self._new_documents([document])
        self._pool.add_sketch(cells, int(documents[0]))
        self._set_present(documents)

    def remove(self, *documents: int) -> None:
        """Remove documents from every cell, in one pass for all of them."""
        for document in documents:
            said = f"document {document} is not in this sketch; nothing was removed"
            require(document in self, "sketch.unknown-document", said)
        gone = np.zeros_like(self._present)
        for document in documents:
            gone[document >> 3] |= 1 << (document & 7)
        remove_documents(self._pool.arrays, gone)
        self._present &= ~gone
        self._n -= len(set(documents))

    def cells(self, columns: npt.ArrayLike) -> Cells:
        """Return what the owner sends for the (z,) columns of one query: the cell of each row, without any term or sign."""
        chosen, rows, width = np.ascontiguousarray(columns, dtype=np.int32), self.shape.rows, self.shape.columns
        said = f"a query must have {rows} columns, one a row, from 0 to {width - 1:,}"
        require(chosen.shape == (rows,) and chosen.min() >= 0 and chosen.max() < width, "sketch.out-of-range", said)
        return Cells(*self._pool.read(chosen, width, self.shape.capacity))

    def top(self, term: str, k: int) -> tuple[Int32s, Doubles]:
        """Return the K documents of a term and their estimated counts, with the key at hand."""
        columns, signs = self._places.places([term])
        return rank(self.cells(columns[0]), signs[0], np.arange(self.shape.rows), k, self.shape)

    def save(self, path: Path | str) -> Path:
        """Write the sketch to a file, which appears complete or not at all."""
        arrays: dict[str, npt.NDArray[Any]] = self._pool.saved() | {"present": self._present}
        head = {
            "format": FORMAT,
            "version": VERSION,
            "fingerprint": self.hashing.fingerprint(),
            "shape": asdict(self.shape),
            "limit": self.limit,
            "documents": len(self),
            "lengths": {name: len(array) for name, array in arrays.items()},
        }
        content = json.dumps(head).encode() + b"\n"
        content += b"".join(np.ascontiguousarray(arrays[name], dtype=kind).tobytes() for name, kind in _ARRAYS)
        return write_whole(path, content + _checksum(self.hashing, content))

    @classmethod
    def load(cls, path: Path | str, hashing: Hashing) -> ReverseTopK:
        """Read a sketch that was saved under the same key, z and w; a damaged file is refused."""
        where = str(path)
        content = bytes(read_bounded(Path(path), expected="expected a saved sketch"))
        head = _read_head(content, where)
        said = f"version {head['version']} of the sketch format; this program reads version {VERSION}"
        require(head["version"] == VERSION, "sketch.other-version", said, where)
        said = "this sketch was made with another key, or another number of rows or columns; build it anew"
        require(head.get("fingerprint") == hashing.fingerprint(), "sketch.other-hashing", said, where)
        is_whole = content[-_CHECKSUM:] == _checksum(hashing, content[:-_CHECKSUM])
        require(is_whole, "file.damaged", "the file is damaged; build the sketch anew", where)
        try:
            return cls._restored(head, content[content.index(b"\n") + 1 : -_CHECKSUM], hashing)
        except BadInput as error:
            raise error.at(where) from None

    @classmethod
    def _restored(cls, head: Mapping[str, Any], content: bytes, hashing: Hashing) -> ReverseTopK:
        """Return the sketch of a file whose checksum is right: whoever has the key can sign anything, so all is checked."""

        def expect(condition: object, what: str) -> None:
            said = f"this sketch was signed with the group's key, but its {what}; build it anew"
            require(condition, "sketch.malformed", said)

        names = ("shape", "lengths", "limit", "documents")
        shape, lengths, limit, documents = (cast("Any", head.get(name)) for name in names)
        usual = asdict(Shape())
        is_table = isinstance(shape, dict) and shape.keys() == usual.keys()
        expect(is_table and all(type(shape[name]) in (int, type(usual[name])) for name in usual), "shape is none")
        sizes: list[Any] = [lengths.get(name) for name, _ in _ARRAYS] if isinstance(lengths, dict) else []
        expect(sizes and all(type(size) is int and size >= 0 for size in sizes), "lengths are no whole numbers")
        needed = sum(size * np.dtype(kind).itemsize for size, (_, kind) in zip(sizes, _ARRAYS, strict=True))
        expect(needed == len(content), "arrays are not as long as it says")
        arrays, at = {}, 0
        for size, (name, kind) in zip(sizes, _ARRAYS, strict=True):
            arrays[name] = np.frombuffer(content, dtype=kind, count=size, offset=at)
            at += arrays[name].nbytes
        sketch = cls(hashing, Shape(**shape))
        present = arrays.pop("present").copy()
        expect(len(present) <= MOST_DOCUMENTS // 8, "documents are too many")
        expect(type(documents) is int and documents == int(np.unpackbits(present).sum()), "documents are miscounted")
        expect(type(limit) is int, "limit is no whole number")
        sketch._pool.restore(**arrays, limit=limit, expect=expect)
        named = documents_of(arrays["entries"])
        inside = named.max(initial=-1) < 8 * len(present) and bool(np.all(present[named >> 3] >> (named & 7) & 1))
        expect(inside, "cells name a document that is not in it")
        sketch._present, sketch._n = present, documents
        return sketch

    def _checked_document(
        self, document: int, terms: Sequence[str], counts: Sequence[int] | npt.ArrayLike
    ) -> tuple[Integers, Int32s, Int8s, Int32s]:
        """Return number, (terms, z) columns, (terms, z) signs and counts of a document that can be added."""
        _check_not_empty(document, len(terms))
        said = "a term stands twice; add up its counts"
        require(len(set(terms)) == len(terms), "sketch.repeated-term", said, f"document {document}")
        occurrences = checked_counts(counts, len(terms)).astype(np.int32)
        documents = self._new_documents([document])
        return documents, *self._places.places(terms), occurrences

    def _sides(self, signs: Int8s) -> Int8s:
        return signs if self.shape.sketch == "count" else np.ones_like(signs)

    def _add(
        self, columns: Int32s, signs: Int8s, offsets: Integers, terms: Int32s, occurrences: Int32s, documents: Integers
    ) -> None:
        self._pool.add(columns, self._sides(signs), self.shape.columns, offsets, terms, occurrences, documents)
        self._set_present(documents)

    def _new_documents(self, documents: npt.ArrayLike) -> Integers:
        """Return their numbers, if none of them is here yet."""
        given = np.asarray(documents)
        numbers = np.ascontiguousarray(given, dtype=np.int64)
        fits = given.ndim == 1 and given.dtype.kind in "iu" and bool(np.all((given >= 0) & (given < MOST_DOCUMENTS)))
        said = f"document numbers must be whole numbers from 0 to {MOST_DOCUMENTS - 1:,}"
        require(fits, "sketch.out-of-range", said)
        values, times = np.unique(numbers, return_counts=True)
        said = f"document {values[times.argmax()]} is given twice"
        require(len(values) == len(numbers), "sketch.known-document", said)
        known = values[values >> 3 < len(self._present)]
        again = known[(self._present[known >> 3] >> (known & 7) & 1).astype(bool)]
        said = f"document {again.min(initial=MOST_DOCUMENTS)} is already in this sketch; remove it first"
        require(not len(again), "sketch.known-document", said)
        return numbers

    def _set_present(self, documents: Integers) -> None:
        needed = (int(documents.max()) >> 3) + 1
        if needed > len(self._present):
            longer = np.zeros(max(needed, 2 * len(self._present)), dtype=np.uint8)
            longer[: len(self._present)] = self._present
            self._present = longer
        np.bitwise_or.at(self._present, documents >> 3, (1 << (documents & 7)).astype(np.uint8))
        self._n += len(documents)


def rank(cells: Cells, signs: npt.ArrayLike, rows: npt.ArrayLike, k: int, shape: Shape) -> tuple[Int32s, Doubles]:
    """Rank the documents of an answer (algorithm 5): the K best, best first, and their estimated counts.

    `signs` are g_a(t) of all z rows, `rows` the z1 rows that were really asked about.
    """
    given, sides, real = checked_cells(cells, signs, rows, k)
    if shape.sketch == "count-min":
        sides = np.ones_like(sides)
    if shape.reading == "literal":
        return rank_literal(given, sides, real, k, shape.beta, shape.sketch == "count-min")
    return rank_recommended(given, sides, real, k, shape.sketch == "count-min")


def _check_not_empty(document: int, terms: int) -> None:
    require(terms > 0, "sketch.empty-document", f"document {document} is empty: nothing can find it; leave it out")


def _read_head(content: bytes, where: str) -> dict[str, Any]:
    """Read the first line, if it is that of a sketch."""
    try:
        head = load_json(content[: content.index(b"\n", 0, 1 << 16)])
        known = head["format"] == FORMAT and type(head["version"]) is int
    except (ValueError, KeyError, TypeError):
        known = False
    said = "not a saved sketch, or its beginning is damaged; expected a file that `save` wrote"
    require(known, "sketch.not-a-sketch", said, where)
    return dict(head)


def _checksum(hashing: Hashing, content: bytes) -> bytes:
    return hashlib.blake2b(content, key=hashing.key, digest_size=_CHECKSUM, person=b"quorank sketch").digest()
