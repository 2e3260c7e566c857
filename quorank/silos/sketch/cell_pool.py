"""Cells of an RTK-Sketch: a bounded number of entries shared by all cells, in compiled code.

An entry is one integer, ordered as a cell keeps its entries: 31 bits of order (the larger, the longer kept), 31 bits that
scatter the document's number, and one bit for a negative value. The scattering selects documents pseudo-randomly among
equal values, and the same documents in every row.

A cell is a chain of blocks in one pool. The newest block comes first, and only it may be partly filled.

One limit applies to all cells. It starts at their capacity; whenever the entries would exceed the pool, it is lowered to
the largest c with Σ_cells min(count, c) ≤ 31/32 of the pool (water filling), and longer cells drop their smallest entries.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from quorank.kernels.arrays import Int8s, Int32s, Integers
from quorank.kernels.compiled import kernel

MASK = (1 << 31) - 1
_SHIFT = 16
_A, _B = 0x2C1B3C6D, 0x297A2D39  # odd, so that they have inverses modulo 2^31
_A_INVERSE, _B_INVERSE = pow(_A, -1, 1 << 31), pow(_B, -1, 1 << 31)
_OFFSET = 1 << 30

ABSOLUTE, POSITIVE, SIGNED = range(3)
"""Kept values: the largest |v| ≠ 0, the largest v > 0, or, as published, the largest v, zeros and negatives included."""


@kernel
def scatter(document: int) -> int:
    """Map 0, …, 2^31 − 1 onto itself, one to one and without any order left."""
    x = (document * _A) & MASK
    x ^= x >> _SHIFT
    return (x * _B) & MASK


@kernel
def gather(x: int) -> int:
    """Invert `scatter`."""
    x = (x * _B_INVERSE) & MASK
    x ^= x >> _SHIFT
    return (x * _A_INVERSE) & MASK


@kernel
def entry_of(value: int, scattered: int, kept: int) -> int:
    """Return the entry of a value, or −1 if such a value is not kept."""
    if kept == SIGNED:
        return ((value + _OFFSET) << 32) | (scattered << 1)
    if value > 0:
        return (value << 32) | (scattered << 1)
    if value < 0 and kept == ABSOLUTE:
        return (-value << 32) | (scattered << 1) | 1
    return -1


@kernel
def value_of(entry: int, kept: int) -> int:
    """Return the value of an entry."""
    order = entry >> 32
    if kept == SIGNED:
        return order - _OFFSET
    return -order if entry & 1 else order


@kernel
def document_of(entry: int) -> int:
    """Return the document number of an entry."""
    return gather((entry >> 1) & MASK)


BLOCK = 16  # entries of a block
SPARE = 16  # a full cell drops 1/16 of its entries at once
POOL_SPARE = 32  # and a full pool 1/32
STORED, FREE, FREE_BLOCKS, FRESH, CAP = range(5)
"""Places in a pool's state: entries, first free block, free blocks, first block never used, limit of a cell."""


class Pool(NamedTuple):
    """Arrays of all cells; the cells of row a are a·w, …, a·w + w − 1."""

    entries: Integers  # (blocks · BLOCK,)
    following: Int32s  # (blocks,) the next block of the same cell, or the next free one
    heads: Int32s  # (cells,) newest block
    counts: Int32s  # (cells,)
    floors: Int32s  # (cells,) the largest order that was ever dropped, −1 if none was
    lows: Integers  # (cells,) smaller entries are not inserted
    state: Integers
    scratch: Integers  # as long as the longest cell


class HashedDocuments(NamedTuple):
    """Documents to add: document i has the terms terms[j], occurrences[j] times each, offsets[i] ≤ j < offsets[i + 1]."""

    columns: Int32s  # (vocabulary, z)
    signs: Int8s  # (vocabulary, z)
    offsets: Integers  # (documents + 1,)
    terms: Int32s
    occurrences: Int32s
    documents: Integers  # (documents,) numbers


@kernel
def spare_of(cap: int) -> int:
    """Return how many entries a full cell drops at once."""
    return max(1, cap // SPARE)


@kernel
def read_cell(pool: Pool, cell: int, out: Integers) -> None:
    """Copy the entries of a cell, in no order."""
    count = pool.counts[cell]
    block, used, at = pool.heads[cell], (count - 1) % BLOCK + 1, 0
    while at < count:
        for i in range(used):
            out[at + i] = pool.entries[block * BLOCK + i]
        at += used
        used = BLOCK
        block = pool.following[block]


@kernel
def rewrite_cell(pool: Pool, cell: int, entries: Integers) -> None:
    """Replace the entries of a cell by fewer; unused blocks become free."""
    count, keep, state = pool.counts[cell], len(entries), pool.state
    for _ in range((count + BLOCK - 1) // BLOCK - (keep + BLOCK - 1) // BLOCK):
        block = pool.heads[cell]
        pool.heads[cell] = pool.following[block]
        pool.following[block] = state[FREE]
        state[FREE] = block
        state[FREE_BLOCKS] += 1
    state[STORED] -= count - keep
    pool.counts[cell] = keep
    block, used, at = pool.heads[cell], (keep - 1) % BLOCK + 1, 0
    while at < keep:
        for i in range(used):
            pool.entries[block * BLOCK + i] = entries[at + i]
        at += used
        used = BLOCK
        block = pool.following[block]


@kernel
def select(entries: Integers, at: int) -> None:
    """Partition by Hoare's selection: entries[at] is then what sorting would put there, with no larger one before it."""
    low, high = 0, len(entries) - 1
    while low < high:
        first, middle, last = entries[low], entries[(low + high) >> 1], entries[high]
        pivot = max(min(first, middle), min(max(first, middle), last))
        i, j = low, high
        while i <= j:
            while entries[i] < pivot:
                i += 1
            while entries[j] > pivot:
                j -= 1
            if i <= j:
                entries[i], entries[j] = entries[j], entries[i]
                i += 1
                j -= 1
        if at <= j:
            high = j
        elif at >= i:
            low = i
        else:
            return


@kernel
def keep_largest(pool: Pool, cell: int, keep: int) -> None:
    """Keep the `keep` largest entries of a cell that holds more, and note the largest dropped one."""
    entries = pool.scratch[: pool.counts[cell]]
    read_cell(pool, cell, entries)
    select(entries, len(entries) - keep - 1)
    largest = entries[len(entries) - keep - 1]
    pool.lows[cell] = largest
    pool.floors[cell] = max(pool.floors[cell], np.int32(largest >> 32))
    rewrite_cell(pool, cell, entries[len(entries) - keep :])


DONE, GROW, SHRINK = 0, 1, 2
"""Requirement of an insertion: none, more blocks, or fewer entries."""


@kernel
def _insert(pool: Pool, cell: int, entry: int) -> None:
    """Insert an entry into its cell unless the cell is full of larger ones; the pool has a free block."""
    state = pool.state
    cap = state[CAP]
    if entry < pool.lows[cell]:
        return
    if pool.counts[cell] >= cap:
        keep_largest(pool, cell, cap - spare_of(cap))
        if entry < pool.lows[cell]:
            return
    slot = pool.counts[cell] % BLOCK
    if slot == 0:
        block = state[FREE]
        if block >= 0:
            state[FREE] = pool.following[block]
            state[FREE_BLOCKS] -= 1
        else:
            block = state[FRESH]
            state[FRESH] += 1
        pool.following[block] = pool.heads[cell]
        pool.heads[cell] = block
    pool.entries[pool.heads[cell] * BLOCK + slot] = entry
    pool.counts[cell] += 1
    state[STORED] += 1


@kernel
def _room(pool: Pool, more: int, limit: int, blocks: int) -> int:
    """Return DONE if `more` cells can grow by one, else the requirement."""
    cells = len(pool.counts)
    more = min(more, cells)
    if limit < cells * pool.state[CAP] and pool.state[STORED] + more > limit:
        return SHRINK
    unused = len(pool.following) - pool.state[FRESH] + pool.state[FREE_BLOCKS]
    if unused < more and len(pool.following) < blocks:
        return GROW
    return DONE


@kernel
def add_documents(
    pool: Pool, limit: int, blocks: int, kept: int, width: int, given: HashedDocuments, first: int
) -> tuple[int, int]:
    """Sketch documents first, first + 1, … into the pool; return the document to continue with, and the requirement."""
    columns, signs, offsets, terms, occurrences, documents = given
    rows = columns.shape[1]
    sketch = np.zeros((rows, width), dtype=np.int32)
    lows, counts, heads, cap = pool.lows, pool.counts, pool.heads, pool.state[CAP]
    for d in range(first, len(documents)):
        start, end = offsets[d], offsets[d + 1]
        needed = _room(pool, rows * width if kept == SIGNED else rows * (end - start), limit, blocks)
        if needed != DONE:
            return d, needed
        for i in range(start, end):
            term = terms[i]
            for a in range(rows):
                sketch[a, columns[term, a]] += signs[term, a] * occurrences[i]
        scattered = scatter(documents[d])
        if kept == SIGNED:
            _insert_sketch(pool, sketch, scattered, kept)
            sketch[:] = 0
            continue
        for i in range(start, end):
            term = terms[i]
            for a in range(rows):
                column = columns[term, a]
                if sketch[a, column] != 0:
                    cell = a * width + column
                    entry = entry_of(int(sketch[a, column]), scattered, kept)
                    sketch[a, column] = 0
                    if entry < 0 or entry < lows[cell]:
                        continue
                    slot = counts[cell] % BLOCK
                    if slot == 0 or counts[cell] >= cap:
                        _insert(pool, cell, entry)
                    else:  # inlined for speed
                        pool.entries[heads[cell] * BLOCK + slot] = entry
                        counts[cell] += 1
                        pool.state[STORED] += 1
    return len(documents), DONE


@kernel
def _insert_sketch(pool: Pool, sketch: Int32s, scattered: int, kept: int) -> None:
    rows, width = sketch.shape
    lows = pool.lows
    for a in range(rows):
        for j in range(width):
            entry = entry_of(int(sketch[a, j]), scattered, kept)
            if entry >= 0 and entry >= lows[a * width + j]:
                _insert(pool, a * width + j, entry)


@kernel
def add_sketch(pool: Pool, limit: int, blocks: int, kept: int, sketch: Int32s, document: int) -> int:
    """Insert the finished (z, w) sketch of a document, or return the requirement."""
    needed = _room(pool, sketch.size, limit, blocks)
    if needed == DONE:
        _insert_sketch(pool, sketch, scatter(document), kept)
    return needed


@kernel
def shrink(pool: Pool, cap: int) -> None:
    """Limit all cells to `cap` entries."""
    for cell in range(len(pool.counts)):
        if pool.counts[cell] > cap:
            keep_largest(pool, cell, cap)
    pool.state[CAP] = cap


@kernel
def read_cells(
    pool: Pool, columns: Int32s, width: int, kept: int, most: int
) -> tuple[Integers, Int32s, Int32s, Int32s]:
    """Read one cell of each row, at most its `most` largest entries: offsets, documents, values and floors."""
    rows = len(columns)
    offsets = np.zeros(rows + 1, dtype=np.int64)
    floors = np.empty(rows, dtype=np.int32)
    for a in range(rows):
        offsets[a + 1] = offsets[a] + min(most, pool.counts[a * width + columns[a]])
    documents = np.empty(offsets[rows], dtype=np.int32)
    values = np.empty(offsets[rows], dtype=np.int32)
    for a in range(rows):
        cell = a * width + columns[a]
        entries = pool.scratch[: pool.counts[cell]]
        read_cell(pool, cell, entries)
        floor = pool.floors[cell]
        taken = offsets[a + 1] - offsets[a]
        if taken < len(entries):
            select(entries, len(entries) - taken - 1)
            entries = entries[len(entries) - taken - 1 :]
            floor = max(floor, np.int32(entries[0] >> 32))
            entries = entries[1:]
        for i in range(taken):
            documents[offsets[a] + i] = document_of(entries[i])
            values[offsets[a] + i] = value_of(entries[i], kept)
        floors[a] = 0 if floor < 0 else value_of(int(floor) << 32, kept)
    return offsets, documents, values, floors


class EntryPool:
    """Pool of at most `entries` entries in `cells` cells of at most `cap` each; `kept` is ABSOLUTE, POSITIVE or SIGNED."""

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

    def add(self, given: HashedDocuments, width: int) -> None:
        """Sketch documents and insert the sketches."""
        at = 0
        while at < len(given.documents):
            at, needed = add_documents(self.arrays, self.entries, self.blocks, self.kept, width, given, at)
            if needed:
                self._make_room(needed, int(given.offsets[at + 1] - given.offsets[at]) * given.columns.shape[1])

    def add_sketch(self, sketch: Int32s, document: int) -> None:
        """Insert the finished (z, w) sketch of a document."""
        while needed := add_sketch(self.arrays, self.entries, self.blocks, self.kept, sketch, document):
            self._make_room(needed, sketch.size)

    def read(self, columns: Int32s, width: int, most: int) -> tuple[Integers, Int32s, Int32s, Int32s]:
        """Read one cell of each row: offsets, documents, values and floors."""
        return read_cells(self.arrays, columns, width, self.kept, most)

    def _make_room(self, needed: int, more: int) -> None:
        pool = self.arrays
        if needed == SHRINK:
            target = self.entries - max(self.entries // POOL_SPARE, min(more, len(pool.counts)))
            shrink(pool, largest_limit(pool.counts, target))
            return
        have = len(pool.following)
        size = min(self.blocks, max(have + have // 4, have + min(more, len(pool.counts)), 1024))
        entries, following = np.empty(size * BLOCK, dtype=np.int64), np.empty(size, dtype=np.int32)
        entries[: len(pool.entries)], following[:have] = pool.entries, pool.following
        self.arrays = pool._replace(entries=entries, following=following)


def largest_limit(counts: Int32s, target: int) -> int:
    """Return the largest c ≥ 2 with Σ_cells min(count, c) ≤ target, or 2."""
    longer = len(counts) - np.cumsum(np.bincount(counts))  # cells with more than c entries, c = 0, 1, …
    held = np.concatenate(([0], np.cumsum(longer)))  # Σ min(count, c)
    return max(2, int(np.searchsorted(held, target, side="right")) - 1)
