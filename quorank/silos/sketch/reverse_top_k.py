"""RTK-Sketch: the K documents of a party with most occurrences of a term (CS-F-LTR §V-B, algorithms 4 and 5).

A table of z rows and w columns whose cells list documents with their values there, the largest ones only: an owner
answers a query with z cells, however many documents it has.

The *literal* reading keeps the αK largest values of a cell and takes the median over the rows in which a document occurs.
Half of all terms have g_a(t) = −1 in a row: their documents lie at the other end and are dropped; and the median over the
rows that kept a document is biased upwards (`ranking`). The *recommended* reading differs in four points:

1. A cell keeps the values largest in size, |v|, from both ends, and no zeros: their absence says the same.
2. A cell knows its floor, the largest size that it dropped, so that absence bounds a value.
3. All cells share a number of entries, so a cell with few terms leaves its space to the others: one limit c for all
   cells is the largest with Σ_cells min(count, c) within that number (water filling).
4. Few rows of many columns: a row is informative about a term only if the term's documents are among the largest of the
   cell, and so the cell's other terms must be few.

Of equal values the kept documents are selected by a fixed scattering of their numbers, the same in all rows: with another
selection in each row, few documents would remain in all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from scipy.sparse import csc_array

from quorank.errors import require, require_range
from quorank.kernels.arrays import Doubles, Int32s, Integers
from quorank.silos.hashing import Hashing, RememberedPlaces
from quorank.silos.sketch.count_sketch import MOST_OCCURRENCES, CountedField
from quorank.silos.sketch.ranking import Cells, rank_literal, rank_recommended

Perturb = Callable[[int, Int32s], Int32s]
"""Function of a document's number and (z, w) sketch that returns the sketch to store."""
_MASK = (1 << 31) - 1
_OFFSET = MOST_OCCURRENCES + 1


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


class ReverseTopK:
    """RTK-Sketch of one field of a party's documents, which are numbered 0, 1, … unless `documents` says otherwise.

    Attributes:
        limit: The most entries that a cell may hold.
    """

    def __init__(
        self,
        hashing: Hashing,
        shape: Shape,
        field: CountedField,
        documents: Integers | None = None,
        perturb: Perturb | None = None,
    ) -> None:
        given, needed = (hashing.rows, hashing.columns), (shape.rows, shape.columns)
        said = f"the hashing has (rows, columns) = {given}, the shape {needed}; take shape.hashing(key)"
        require(given == needed, "sketch.other-hashing", said)
        self.hashing, self.shape = hashing, shape
        self._places = RememberedPlaces(hashing)
        numbers = np.arange(field.documents) if documents is None else documents
        self.documents = len(numbers)
        order = np.argsort(_scatter(numbers))
        ranks = np.argsort(order)
        rows: Any = field.sketch_rows(hashing, shape.sketch)
        if perturb:
            tables = np.stack([row.toarray() for row in rows], axis=1)
            rows = np.stack([perturb(*each) for each in zip(numbers.tolist(), tables, strict=True)], axis=1)
        kept = [_truncate(*self._entries(row, ranks), shape.capacity) for row in rows]
        entries = np.concatenate([row[0] for row in kept])
        counts = np.concatenate([row[1] for row in kept])
        self.limit = _largest_limit(counts, shape.entries) if counts.sum() > shape.entries else shape.capacity
        entries, self._counts, floors = _truncate(entries, counts, self.limit)
        self._ends = np.cumsum(self._counts)
        floors = np.maximum(floors, np.concatenate([row[2] for row in kept]))
        self._documents = numbers[order].astype(np.int32)[(entries >> 1) & _MASK]
        sizes, shift = (entries >> 32).astype(np.int32), _OFFSET if shape.reading == "literal" else 0
        self._values = np.where(entries & 1, -sizes, sizes - shift)
        self._floors = np.where(floors < 0, 0, floors - shift).astype(np.int32)

    @property
    def stored(self) -> int:
        """Entries in all cells."""
        return len(self._values)

    @property
    def memory_bytes(self) -> int:
        """Size of all arrays but the remembered places of terms."""
        return sum(a.nbytes for a in (self._documents, self._values, self._floors, self._counts, self._ends))

    def cells(self, columns: npt.ArrayLike) -> Cells:
        """Return what the owner sends for the (z,) columns of one query: the cell of each row, without any term or sign."""
        rows, width = self.shape.rows, self.shape.columns
        chosen = np.asarray(columns) + width * np.arange(rows)
        ends, counts = self._ends[chosen], self._counts[chosen]
        parts = [slice(end - count, end) for end, count in zip(ends.tolist(), counts.tolist(), strict=True)]
        return Cells(
            np.concatenate(([0], np.cumsum(counts))),
            np.concatenate([self._documents[part] for part in parts]),
            np.concatenate([self._values[part] for part in parts]),
            self._floors[chosen],
        )

    def top(self, term: str, k: int) -> tuple[Int32s, Doubles]:
        """Return the K documents of a term and their estimated counts, with the key at hand."""
        columns, signs = self._places.places([term])
        return rank(self.cells(columns[0]), signs[0], np.arange(self.shape.rows), k, self.shape)

    def _entries(self, row: Any, ranks: Integers) -> tuple[Integers, Integers]:
        """Return the entries of one row's cells, cell by cell, and the number of each cell's.

        An entry is an integer ordered as a cell keeps it: 31 bits of size, 31 of the document's rank, and the sign.
        """
        if self.shape.reading == "literal":
            values = (row if isinstance(row, np.ndarray) else row.toarray()).T.astype(np.int64)
            return ((values + _OFFSET << 32) | (ranks << 1)).ravel(), np.full(len(values), len(ranks))
        cells = csc_array(row)
        cells.data[(cells.data < 0) & (self.shape.sketch == "count-min")] = 0
        cells.eliminate_zeros()
        values = cells.data.astype(np.int64)
        entries = (np.abs(values) << 32) | (ranks[cells.indices] << 1) | (values < 0)
        return entries, np.diff(cells.indptr).astype(np.int64)


def _scatter(documents: Integers) -> Integers:
    """Map 0, …, 2^31 − 1 onto itself, one to one and without any order left."""
    x = (documents.astype(np.int64) * 0x2C1B3C6D) & _MASK
    return ((x ^ (x >> 16)) * 0x297A2D39) & _MASK


def _truncate(entries: Integers, counts: Integers, limit: int) -> tuple[Integers, Integers, Integers]:
    """Keep the `limit` largest entries of each cell; return them, their numbers, and the largest dropped size or −1."""
    floors = np.full(len(counts), -1)
    if counts.max(initial=0) <= limit:
        return entries, counts, floors
    kept = np.ones(len(entries), dtype=bool)
    ends = np.cumsum(counts)
    for cell in np.flatnonzero(counts > limit):
        start, end = ends[cell] - counts[cell], ends[cell] - limit
        entries[start : ends[cell]].partition(end - start - 1)
        floors[cell] = entries[end - 1] >> 32
        kept[start:end] = False
    return entries[kept], np.minimum(counts, limit), floors


def _largest_limit(counts: Integers, target: int) -> int:
    """Return the largest c ≥ 2 with Σ_cells min(count, c) ≤ target, or 2."""
    longer = len(counts) - np.cumsum(np.bincount(counts))  # cells with more than c entries, c = 0, 1, …
    held = np.concatenate(([0], np.cumsum(longer)))  # Σ min(count, c)
    return max(2, int(np.searchsorted(held, target, side="right")) - 1)


def rank(cells: Cells, signs: npt.ArrayLike, rows: npt.ArrayLike, k: int, shape: Shape) -> tuple[Int32s, Doubles]:
    """Rank the documents of an answer (algorithm 5): the K best, best first, and their estimated counts.

    `signs` are g_a(t) of all z rows, `rows` the z1 rows that were really asked about.
    """
    require_range("k", k, least=1)
    is_minimum = shape.sketch == "count-min"
    sides, real = np.asarray(signs, dtype=np.int32), np.asarray(rows, dtype=np.int64)
    sides = np.ones_like(sides) if is_minimum else sides
    if shape.reading == "literal":
        return rank_literal(cells, sides, real, k, shape.beta, is_minimum)
    return rank_recommended(cells, sides, real, k, is_minimum)
