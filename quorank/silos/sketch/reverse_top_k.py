"""RTK-Sketch: the K documents of a party with most occurrences of a term (CS-F-LTR §V-B, algorithms 4 and 5).

A table of z rows and w columns whose cells list documents with their values there, the largest ones only: an owner
answers a query with z cells, however many documents it has. Documents are added in place, and memory is bounded.

The *literal* reading keeps the αK largest values of a cell and takes the median over the rows in which a document occurs.
Half of all terms have g_a(t) = −1 in a row: their documents lie at the other end and are dropped; and the median over the
rows that kept a document is biased upwards (`ranking`). The *recommended* reading differs in four points:

1. A cell keeps the values largest in size, |v|, from both ends, and no zeros: their absence says the same.
2. A cell knows its floor, the largest size that it dropped, so that absence bounds a value.
3. All cells share one pool of entries (`cell_pool`), so a cell with few terms leaves its space to the others. When the
   pool is full, one limit for all cells is lowered.
4. Few rows of many columns: a row is informative about a term only if the term's documents are among the largest of the
   cell, and so the cell's other terms must be few.

Of equal values the kept documents are selected by a fixed scattering of their numbers, the same in all rows: with another
selection in each row, few documents would remain in all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from quorank.errors import require, require_range
from quorank.kernels.arrays import Doubles, Int8s, Int32s, Integers
from quorank.silos.hashing import Hashing, RememberedPlaces
from quorank.silos.sketch.cell_pool import ABSOLUTE, CAP, POSITIVE, SIGNED, SPARE, STORED, EntryPool, HashedDocuments
from quorank.silos.sketch.count_sketch import MOST_OCCURRENCES, checked_columns, checked_counts, count_sketch_table
from quorank.silos.sketch.ranking import Cells, checked_cells, rank_literal, rank_recommended

MOST_DOCUMENTS = 1 << 27
"""Bound on document numbers, which are the owner's own and start at 0."""


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
        else:  # a literal cell holds more than αK, so that exactly αK remain when it drops its spare part
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
        given = HashedDocuments(columns, self._sides(signs), offsets, terms, occurrences, documents)
        self._pool.add(given, self.shape.columns)
        self._set_present(documents)

    def _new_documents(self, documents: npt.ArrayLike) -> Integers:
        """Return their numbers, if none of them is here yet."""
        given = np.asarray(documents)
        numbers = np.ascontiguousarray(given, dtype=np.int64)
        fits = given.ndim == 1 and given.dtype.kind in "iu" and bool(np.all((given >= 0) & (given < MOST_DOCUMENTS)))
        said = f"document numbers must be integers from 0 to {MOST_DOCUMENTS - 1:,}"
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
