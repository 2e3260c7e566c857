"""The cells of an RTK-Sketch: a bounded number of entries, dealt to cells as they need them.

One limit holds for all cells. It begins at their capacity; whenever the entries would be too many, it is lowered to the
largest c with Σ_cells min(count, c) ≤ 31/32 of them (water filling), and longer cells give up their smallest entries.
"""

from __future__ import annotations

import numpy as np

from quorank.arrays import Bytes, Int8s, Int32s, Integers
from quorank.silos.sketch import reverse_top_k_kernel as k_
from quorank.silos.sketch.cell_kernel import BLOCK, CAP, POOL_SPARE, STORED, Pool


class EntryPool:
    """`entries` at most in `cells` cells of at most `cap`; which values are kept is one of `entries`."""

    def __init__(self, cells: int, cap: int, entries: int, kept: int) -> None:
        self.entries, self.kept = entries, kept
        self.blocks = entries // BLOCK + cells  # enough however the entries lie
        self.arrays = Pool(
            entries=np.empty(0, dtype=np.int64),
            following=np.empty(0, dtype=np.int32),
            heads=np.full(cells, -1, dtype=np.int32),
            counts=np.zeros(cells, dtype=np.int32),
            floors=np.full(cells, -1, dtype=np.int32),
            lows=np.full(cells, -1, dtype=np.int64),
            state=np.array([0, -1, 0, 0, cap], dtype=np.int64),
            scratch=np.empty(cap, dtype=np.int64),
        )

    @property
    def stored(self) -> int:
        """Entries in all cells."""
        return int(self.arrays.state[STORED])

    @property
    def limit(self) -> int:
        """The most entries of a cell at present."""
        return int(self.arrays.state[CAP])

    @property
    def memory_bytes(self) -> int:
        """All arrays."""
        return sum(array.nbytes for array in self.arrays)

    def add(
        self,
        columns: Int32s,
        signs: Int8s,
        width: int,
        offsets: Integers,
        terms: Int32s,
        occurrences: Int32s,
        documents: Integers,
    ) -> None:
        """Sketch documents, given by the numbers of their terms, and put the sketches in."""
        at = 0
        while at < len(documents):
            at, needed = k_.add_documents(
                self.arrays, self.entries, self.blocks, self.kept, columns, signs, width,
                offsets, terms, occurrences, documents, at,
            )  # fmt: skip
            if needed:
                self._make_room(needed, int(offsets[at + 1] - offsets[at]) * columns.shape[1])

    def add_sketch(self, sketch: Int32s, document: int) -> None:
        """Put in a finished sketch."""
        while needed := k_.add_sketch(self.arrays, self.entries, self.blocks, self.kept, sketch, document):
            self._make_room(needed, sketch.size)

    def remove(self, gone: Bytes) -> None:
        """Take out the documents whose bits are set."""
        k_.remove_documents(self.arrays, gone)

    def read(self, columns: Int32s, width: int, most: int) -> tuple[Integers, Int32s, Int32s, Int32s]:
        """Offsets, documents, values and floors of one cell a row."""
        return k_.read_cells(self.arrays, columns, width, self.kept, most)

    def listing(self) -> Integers:
        """All entries, cell by cell, ascending."""
        return k_.all_entries(self.arrays)

    def restore(self, counts: Int32s, floors: Int32s, lows: Integers, entries: Integers, limit: int) -> None:
        """What a listing and the cells' own numbers say, in an unused pool."""
        blocks = int((-(-counts.astype(np.int64) // BLOCK)).sum())
        self.arrays = self.arrays._replace(
            entries=np.empty(blocks * BLOCK, dtype=np.int64),
            following=np.empty(blocks, dtype=np.int32),
            counts=counts.astype(np.int32),
            floors=floors.astype(np.int32),
            lows=lows.astype(np.int64),
        )
        self.arrays.state[CAP] = limit
        k_.lay_out(self.arrays, entries.astype(np.int64))

    def _make_room(self, needed: int, more: int) -> None:
        pool = self.arrays
        if needed == k_.SHRINK:
            target = self.entries - max(self.entries // POOL_SPARE, min(more, len(pool.counts)))
            k_.shrink(pool, largest_limit(pool.counts, target))
            return
        have = len(pool.following)
        size = min(self.blocks, max(have + have // 4, have + min(more, len(pool.counts)), 1024))
        entries, following = np.empty(size * BLOCK, dtype=np.int64), np.empty(size, dtype=np.int32)
        entries[: len(pool.entries)], following[:have] = pool.entries, pool.following
        self.arrays = pool._replace(entries=entries, following=following)


def largest_limit(counts: Int32s, target: int) -> int:
    """The largest c ≥ 2 with Σ_cells min(count, c) ≤ target; 2 if there is none."""
    longer = len(counts) - np.cumsum(np.bincount(counts))  # cells with more than c entries, c = 0, 1, …
    held = np.concatenate(([0], np.cumsum(longer)))  # Σ min(count, c)
    return max(2, int(np.searchsorted(held, target, side="right")) - 1)
