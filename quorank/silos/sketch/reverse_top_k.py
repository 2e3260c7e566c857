"""RTK-Sketch: the K documents of a party with most occurrences of a term (CS-F-LTR §V-B, algorithms 4 and 5).

A table of z rows and w columns whose cells list documents with their values there, the largest ones only: an owner
answers a query with z cells, however many documents it has.

The *literal* reading keeps the αK largest values of a cell. A document in at least β·z1 of the z1 real cells is
a candidate; its estimate is the median (Count Sketch) or the minimum (Count-Min) of its values there. Half of all terms
have g_a(t) = −1 in a row: their documents are at the other end and are dropped. A document is in a cell because its
value there is large, so the estimate of one that seldom holds the term is taken from the very rows in which other terms
have driven it up. The *recommended* reading differs in five points:

1. A cell keeps the values largest in size, |v|, from both ends, and no zeros, which absence implies.
2. A cell has a floor F, the largest size that it dropped: an absent document has −F ≤ v ≤ F.
3. All cells share a number of entries, so a cell with few terms leaves its space to the others: one limit c for all
   cells is the largest with Σ_cells min(count, c) within that number (water filling).
4. Few rows of many columns: a row is informative about a term only if the term's documents are among the largest of the
   cell, and so the cell's other terms must be few.
5. A row scores a document s_a = g_a(t)·v_a if it is in the cell, else F_a / 2; the estimate is the lower
   quartile, the (⌊(z1 − 1)/4⌋ + 1)-th smallest: of four rows or fewer the smallest. With Count-Min it is always the
   smallest, since each row is an upper bound. A row in which a document lies on the wrong side rules it out; of many rows
   some are wrong by chance, which the quartile tolerates. Of equal documents those in more cells come first, then those
   whose values are smaller in sum and so agree better.

Of equal values the kept documents are selected by a fixed scattering of their numbers, the same in all rows: with another
selection in each row, few documents would remain in all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csc_array

from quorank.errors import require_choice, require_range
from quorank.kernels.arrays import Doubles, Int32s, Integers
from quorank.silos.count_sketch import MOST_OCCURRENCES, Hashing, sketch_rows
from quorank.text import Index

Perturb = Callable[[int, Int32s], Int32s]  # from a document's number and (z, w) sketch to the sketch to store
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
        require_choice("sketch", self.sketch, ("count", "count-min"))
        require_choice("reading", self.reading, ("recommended", "literal"))
        self.hashing(bytes(16))
        require_range("capacity", self.capacity, least=2, most=2**24)
        require_range("entries", self.entries, least=3 * self.rows * self.columns, most=2**40)
        require_range("beta", self.beta, least=0.0, most=1.0)

    @classmethod
    def published(cls, *, rows: int = 30, columns: int = 200, alpha: float = 5, k: int = 150) -> Shape:
        """Return the shape of algorithms 4 and 5, by default with the paper's α = 5, w = 200, z = 30, K = 150, β = 0.1."""
        capacity = max(3, round(alpha * k))
        return cls("count", "literal", rows, columns, capacity, rows * columns * capacity)

    @classmethod
    def recommended(cls, k: int = 150) -> Shape:
        """Return a shape of two rows with as many entries as the published one has for this K."""
        return cls(capacity=max(16, 2_000 * k // 150), entries=max(8 * 12_288, 30_000 * k))

    def hashing(self, key: bytes) -> Hashing:
        """Return the hash functions of this shape under a key."""
        return Hashing(key, self.rows, self.columns)


class Cells(NamedTuple):
    """Cell of each row, as an owner sends them: no term and no sign is needed to make them."""

    offsets: Integers  # (z + 1,) row a has entries offsets[a], …, offsets[a + 1] − 1
    documents: Int32s
    values: Int32s
    floors: Int32s  # (z,) of a document that is absent from the row: the largest size that its value may have


class ReverseTopK:
    """RTK-Sketch of the documents of an index that hold any term.

    Attributes:
        limit: The most entries that a cell may hold.
    """

    def __init__(self, key: bytes, shape: Shape, index: Index, perturb: Perturb | None = None) -> None:
        self.hashing, self.shape = shape.hashing(key), shape
        numbers = np.flatnonzero(index.lengths > 0)
        self.documents = len(numbers)
        order = np.argsort(_scatter(numbers))
        ranks = np.argsort(order)
        rows: Any = (row[numbers] for row in sketch_rows(index, self.hashing, shape.sketch))
        if perturb:
            tables = np.stack([row.toarray() for row in rows], axis=1)
            rows = np.stack([perturb(*each) for each in zip(numbers.tolist(), tables, strict=True)], axis=1)
        kept = [_truncate(*self._entries(row, ranks), shape.capacity) for row in rows]
        entries, counts, dropped = (np.concatenate(parts) for parts in zip(*kept, strict=True))
        self.limit = _largest_limit(counts, shape.entries) if counts.sum() > shape.entries else shape.capacity
        entries, self._counts, floors = _truncate(entries, counts, self.limit)
        self._ends = np.cumsum(self._counts)
        floors = np.maximum(floors, dropped)
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
        """Size of all arrays."""
        return sum(a.nbytes for a in (self._documents, self._values, self._floors, self._counts, self._ends))

    def cells(self, columns: npt.ArrayLike) -> Cells:
        """Return what the owner sends for the (z,) columns of one query: the cell of each row, without any term or sign."""
        chosen = np.asarray(columns) + self.shape.columns * np.arange(self.shape.rows)
        ends, counts = self._ends[chosen], self._counts[chosen]
        parts = [slice(end - count, end) for end, count in zip(ends.tolist(), counts.tolist(), strict=True)]
        documents, values = (np.concatenate([of[part] for part in parts]) for of in (self._documents, self._values))
        return Cells(np.concatenate(([0], np.cumsum(counts))), documents, values, self._floors[chosen])

    def top(self, term: str, k: int) -> tuple[Int32s, Doubles]:
        """Return the K documents of a term and their estimated counts, with the key at hand."""
        columns, signs = self.hashing.places([term])
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
    floors, kept, ends = np.full(len(counts), -1), np.ones(len(entries), dtype=bool), np.cumsum(counts)
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
    is_minimum, real = shape.sketch == "count-min", np.asarray(rows)
    sides = np.ones(shape.rows) if is_minimum else np.asarray(signs, dtype=np.float64)
    parts = [slice(cells.offsets[row], cells.offsets[row + 1]) for row in real]
    documents, place = np.unique(np.concatenate([cells.documents[part] for part in parts]), return_inverse=True)
    values = np.full((len(documents), len(real)), np.inf)  # where a document is absent
    for a, (row, part) in enumerate(zip(real, parts, strict=True)):
        values[place[: part.stop - part.start], a] = sides[row] * cells.values[part]
        place = place[part.stop - part.start :]
    present = np.isfinite(values)
    held = present.sum(axis=1)
    if shape.reading == "literal":
        ordered, each = np.sort(values, axis=1), np.arange(len(values))
        median = (ordered[each, (held - 1) // 2] + ordered[each, held // 2]) / 2.0
        worth = ordered[:, 0] if is_minimum else median
        candidates = np.flatnonzero(held >= shape.beta * len(real))
    else:
        said = np.sort(np.where(present, values, cells.floors[real] / 2.0), axis=1)
        worth, candidates = said[:, 0 if is_minimum else (len(real) - 1) // 4], np.arange(len(said))
        if len(said) > k:
            candidates = np.flatnonzero(worth >= np.partition(worth, len(worth) - k)[len(worth) - k])
    keys = [documents, -worth]
    if shape.reading == "recommended":
        keys[1:1] = [np.abs(np.where(present, values, 0.0)).sum(axis=1), -held]
    chosen = candidates[np.lexsort([key[candidates] for key in keys])[:k]]
    return documents[chosen], worth[chosen]
