"""The compiled half of `quorank.silos.sketch.reverse_top_k`: documents go into cells, and out of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from quorank.arrays import Bytes, Int32s, Integers
from quorank.compiled import kernel
from quorank.silos.sketch.cell_kernel import (
    BLOCK,
    CAP,
    FREE,
    FREE_BLOCKS,
    FRESH,
    STORED,
    Pool,
    keep_largest,
    read_cell,
    rewrite_cell,
    select,
    spare_of,
)
from quorank.silos.sketch.entries import SIGNED, document_of, entry_of, scatter, value_of

DONE, GROW, SHRINK = 0, 1, 2
"""What adding asks for: nothing, more blocks, or fewer entries."""


@kernel
def _insert(pool: Pool, cell: int, entry: int) -> None:
    """Put an entry into its cell unless the cell is full of larger ones; the pool has a block left."""
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
    """Whether `more` cells can grow by one: DONE, or what is needed first."""
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
    pool: Pool,
    limit: int,
    blocks: int,
    kept: int,
    columns: Int32s,
    signs: Any,
    width: int,
    offsets: Integers,
    terms: Int32s,
    occurrences: Int32s,
    documents: Integers,
    first: int,
) -> tuple[int, int]:
    """Sketch documents first, first + 1, … into the pool: (the document to go on with, what is needed first)."""
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
                    else:  # as there, without the cost of a call
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
    """Put the finished (z, w) sketch of a document into the pool, or say what is needed first."""
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
def remove_documents(pool: Pool, gone: Bytes) -> None:
    """Take the documents whose bit is set out of every cell."""
    cap = pool.state[CAP]
    for cell in range(len(pool.counts)):
        if not _holds(pool, cell, gone):
            continue
        entries = pool.scratch[: pool.counts[cell]]
        read_cell(pool, cell, entries)
        left = 0
        for entry in entries:
            if not _is_set(gone, document_of(entry)):
                entries[left] = entry
                left += 1
        rewrite_cell(pool, cell, entries[:left])
        if left < cap - spare_of(cap):
            pool.lows[cell] = -1  # there is room for whatever comes


@kernel
def _is_set(bits: Bytes, document: int) -> bool:
    return document >> 3 < len(bits) and bool((bits[document >> 3] >> (document & 7)) & 1)


@kernel
def _holds(pool: Pool, cell: int, gone: Bytes) -> bool:
    """Whether a cell has an entry of one of these documents."""
    left = pool.counts[cell]
    block, used = pool.heads[cell], (left - 1) % BLOCK + 1
    while left > 0:
        for i in range(used):
            if _is_set(gone, document_of(pool.entries[block * BLOCK + i])):
                return True
        left -= used
        used = BLOCK
        block = pool.following[block]
    return False


@kernel
def read_cells(
    pool: Pool, columns: Int32s, width: int, kept: int, most: int
) -> tuple[Integers, Int32s, Int32s, Int32s]:
    """Offsets of the rows, documents, values and floors of one cell a row; at most the `most` largest of each."""
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


@kernel
def all_entries(pool: Pool) -> Integers:
    """The entries of all cells, cell by cell, each in ascending order."""
    out = np.empty(pool.state[STORED], dtype=np.int64)
    at = 0
    for cell in range(len(pool.counts)):
        part = out[at : at + pool.counts[cell]]
        read_cell(pool, cell, part)
        part.sort()
        at += len(part)
    return out


@kernel
def lay_out(pool: Pool, entries: Integers) -> None:
    """Fill an unused pool whose cells know their counts."""
    at = 0
    for cell in range(len(pool.counts)):
        for i in range(pool.counts[cell]):
            if i % BLOCK == 0:
                block = pool.state[FRESH]
                pool.state[FRESH] += 1
                pool.following[block] = pool.heads[cell]
                pool.heads[cell] = block
            pool.entries[pool.heads[cell] * BLOCK + i % BLOCK] = entries[at]
            at += 1
    pool.state[STORED] = at
