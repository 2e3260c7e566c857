"""RTK-Sketch: which K documents of a party hold a term most often (CS-F-LTR §V-B, algorithms 4 and 5).

A table of z rows and w columns whose cells list documents with their values there, the largest ones only: an owner
answers a query with z cells, however many documents it has. A document is added and removed where it stands; nothing is
ever built again, and memory is bounded.

The *literal* reading keeps the αK largest values of a cell and takes the median over the rows where a document happens to
stand. Half of all terms have g_a(t) = −1 in a row: their documents lie at the other end and are thrown away; and
the median over the rows that kept a document is biased upwards (`ranking_cells`). The *recommended* reading
differs in four things:

1. a cell keeps what is largest in size, |v|, from both ends, and no zeros: these are what their absence says;
2. a cell knows its floor, the largest size that it turned away, so that absence bounds a value;
3. one pool of entries for all cells: a cell that few terms fall into leaves its room to the others. Where all would be
   too many, one limit for all cells is lowered until they fit;
4. few rows of many columns: a row can only say something about a term if the term's documents are among the largest of
   the cell, and so the cell's other terms must be few.

Of equal values the documents kept are chosen by a fixed scattering of their numbers, the same in all rows: chosen
differently in each row, few would be left in all of them.

A removed document is out of all cells at once. What had been turned away for its sake does not come back: a floor stays
where it is, which is still true and only says less, and the room is taken by documents that are added later. A floor may
be the size of a value of a document that has left.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from quorank.arrays import Doubles, Int8s, Int32s, Integers
from quorank.errors import BadInput, require
from quorank.silos.sketch.cell_kernel import SPARE
from quorank.silos.sketch.count_sketch import MOST_OCCURRENCES, checked_counts
from quorank.silos.sketch.entry_pool import EntryPool
from quorank.silos.sketch.hashing import Hashing, Places
from quorank.silos.sketch.ranking_cells import Cells, checked, rank_literal, rank_recommended
from quorank.silos.sketch.shape import Shape

__all__ = ["MOST_DOCUMENTS", "Cells", "ReverseTopK", "Shape", "rank"]


MOST_DOCUMENTS = 1 << 27
"""Document numbers are the owner's own, counted from 0, and below this."""


class ReverseTopK:
    """The structure of one party and one field of its documents."""

    def __init__(self, hashing: Hashing, shape: Shape) -> None:
        require(
            (hashing.rows, hashing.columns) == (shape.rows, shape.columns),
            f"the hashing has {hashing.rows} rows and {hashing.columns:,} columns, the shape {shape.rows} and "
            f"{shape.columns:,}; take shape.hashing(key)",
        )
        self.hashing, self.shape = hashing, shape
        self._places = Places(hashing)
        # a literal cell has room for more than αK so that exactly αK are left when it gives up its spare part
        cap = (
            shape.capacity
            if shape.reading == "recommended"
            else -(-shape.capacity * SPARE // (SPARE - 1)) + 1
        )
        cells = shape.rows * shape.columns
        entries = shape.entries if shape.reading == "recommended" else cells * cap
        self._pool = EntryPool(cells, cap, entries, shape.kept)
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
        return self._pool.stored

    @property
    def limit(self) -> int:
        """The most entries that a cell may hold at present."""
        return self._pool.limit

    @property
    def memory_bytes(self) -> int:
        """All arrays that are kept; the remembered places of terms, which may be forgotten, are not among them."""
        return self._pool.memory_bytes + self._present.nbytes

    def add(self, document: int, terms: Sequence[str], counts: Sequence[int] | npt.ArrayLike) -> None:
        """Algorithm 4 for a document with these different terms and their counts."""
        require(len(terms) > 0, f"document {document} is empty: there is nothing to find it by; leave it out")
        require(len(set(terms)) == len(terms), f"document {document}: a term stands twice; add up its counts")
        occurrences = checked_counts(counts, len(terms)).astype(np.int32)
        documents = self._new_documents([document])
        columns, signs = self._places.of(terms)
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
        """Algorithm 4 for many documents: the i-th has the terms offsets[i] ≤ j < offsets[i + 1].

        They are vocabulary[terms[j]], different ones, with counts[j] occurrences. Documents are numbered 0, 1, … unless
        `documents` says otherwise. All of them are added or, where something is wrong with one, none.
        """
        bounds = np.ascontiguousarray(offsets, dtype=np.int64)
        words = np.ascontiguousarray(terms, dtype=np.int32)
        occurrences = np.ascontiguousarray(counts, dtype=np.int32)
        n = len(bounds) - 1
        require(
            n >= 0 and bounds[0] == 0 and bounds[-1] == len(words) == len(occurrences),
            "offsets must run from 0 to the number of terms, with a count for each",
        )
        if n == 0:
            return
        numbers = self._new_documents(np.arange(n) if documents is None else documents)
        require(len(numbers) == n, f"offsets speak of {n} documents, {len(numbers)} numbers are given")
        lengths = np.diff(bounds)
        if lengths.min() < 1:
            raise BadInput(
                f"document {numbers[lengths.argmin()]} is empty: there is nothing to find it by; leave it out"
            )
        require(
            words.min() >= 0 and words.max() < len(vocabulary),
            f"terms must be numbers from 0 to {len(vocabulary) - 1}, places in the vocabulary",
        )
        largest = np.add.reduceat(occurrences.astype(np.int64), bounds[:-1]).max()
        require(
            occurrences.min() >= 1 and largest <= MOST_OCCURRENCES,
            f"counts must be 1 or more, at most {MOST_OCCURRENCES:,} a document",
        )
        columns, signs = self.hashing.places(vocabulary)
        self._add(columns, signs, bounds, words, occurrences, numbers)

    def add_sketch(self, document: int, table: npt.ArrayLike) -> None:
        """Algorithm 4 for a finished (z, w) sketch, such as one with noise on its cells."""
        cells = np.ascontiguousarray(table, dtype=np.int32)
        require(
            cells.shape == (self.shape.rows, self.shape.columns)
            and int(cells.min()) >= -MOST_OCCURRENCES
            and int(cells.max()) <= MOST_OCCURRENCES,
            f"a sketch must have {self.shape.rows} rows and {self.shape.columns:,} columns of numbers within ±{MOST_OCCURRENCES:,}, "
            f"got {cells.shape}",
        )
        documents = self._new_documents([document])
        self._pool.add_sketch(cells, int(documents[0]))
        self._set_present(documents)

    def remove(self, *documents: int) -> None:
        """Take documents out of every cell, in one pass for all of them."""
        for document in documents:
            require(document in self, f"document {document} is not in this sketch; nothing was removed")
        gone = np.zeros_like(self._present)
        for document in documents:
            gone[document >> 3] |= 1 << (document & 7)
        self._pool.remove(gone)
        self._present &= ~gone
        self._n -= len(set(documents))

    def cells(self, columns: npt.ArrayLike) -> Cells:
        """What the owner sends for one query: the cell of each row. Neither the term nor its signs are needed."""
        chosen = np.ascontiguousarray(columns, dtype=np.int32)
        require(
            chosen.shape == (self.shape.rows,) and chosen.min() >= 0 and chosen.max() < self.shape.columns,
            f"a query must have {self.shape.rows} columns, one a row, from 0 to {self.shape.columns - 1:,}",
        )
        most = self.shape.capacity
        return Cells(*self._pool.read(chosen, self.shape.columns, most))

    def top(self, term: str, k: int) -> tuple[Int32s, Doubles]:
        """A whole query at once, for whoever has the key: documents and estimates."""
        columns, signs = self._places.of([term])
        return rank(self.cells(columns[0]), signs[0], np.arange(self.shape.rows), k, self.shape)

    def save(self, path: Path | str) -> Path:
        """Write the structure to a file (`quorank.silos.sketch.files`)."""
        from quorank.silos.sketch.files import save

        return save(self, path)

    @classmethod
    def load(cls, path: Path | str, hashing: Hashing) -> ReverseTopK:
        """Read a file that `save` wrote; a damaged one, or one of another key, is refused."""
        from quorank.silos.sketch.files import load

        return load(path, hashing)

    def _add(
        self,
        columns: Int32s,
        signs: Int8s,
        offsets: Integers,
        terms: Int32s,
        occurrences: Int32s,
        documents: Integers,
    ) -> None:
        sides = signs if self.shape.sketch == "count" else np.ones_like(signs)
        self._pool.add(columns, sides, self.shape.columns, offsets, terms, occurrences, documents)
        self._set_present(documents)

    def _new_documents(self, documents: npt.ArrayLike) -> Integers:
        """Their numbers, if none of them is here yet."""
        given = np.asarray(documents)
        numbers = np.ascontiguousarray(given, dtype=np.int64)
        require(
            given.ndim == 1
            and given.dtype.kind in "iu"
            and bool(np.all((given >= 0) & (given < MOST_DOCUMENTS))),
            f"document numbers must be whole numbers from 0 to {MOST_DOCUMENTS - 1:,}",
        )
        values, times = np.unique(numbers, return_counts=True)
        require(len(values) == len(numbers), f"document {values[times.argmax()]} is given twice")
        known = values[values >> 3 < len(self._present)]
        again = known[(self._present[known >> 3] >> (known & 7) & 1).astype(bool)]
        require(
            not len(again),
            f"document {again.min(initial=MOST_DOCUMENTS)} is already in this sketch; remove it before adding it anew",
        )
        return numbers

    def _set_present(self, documents: Integers) -> None:
        needed = (int(documents.max()) >> 3) + 1
        if needed > len(self._present):
            longer = np.zeros(max(needed, 2 * len(self._present)), dtype=np.uint8)
            longer[: len(self._present)] = self._present
            self._present = longer
        np.bitwise_or.at(self._present, documents >> 3, (1 << (documents & 7)).astype(np.uint8))
        self._n += len(documents)


def rank(
    cells: Cells, signs: npt.ArrayLike, rows: npt.ArrayLike, k: int, shape: Shape
) -> tuple[Int32s, Doubles]:
    """What the querier does with an answer: its K documents, best first, and their estimated counts.

    `signs` are g_a(t) of all z rows, `rows` the z1 rows that were really asked about.
    """
    given, sides, real = checked(cells, signs, rows, k)
    if shape.sketch == "count-min":
        sides = np.ones_like(sides)
    if shape.reading == "literal":
        return rank_literal(given, sides, real, k, shape.beta, shape.sketch == "count-min")
    return rank_recommended(given, sides, real, k, shape.sketch == "count-min")
