"""One cell of an RTK-Sketch in compiled code: a chain of blocks in a pool that all cells share.

The newest block comes first, and it alone may be partly filled. Entries are those of `quorank.silos.sketch.entries`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from quorank.arrays import Int32s, Integers
from quorank.compiled import kernel

BLOCK = 16  # entries of a block
SPARE = 16  # a full cell gives up one part in so many at once
POOL_SPARE = 32  # and a full pool
STORED, FREE, FREE_BLOCKS, FRESH, CAP = range(5)
"""Places in a pool's state: entries, first free block, free blocks, first block never used, limit of a cell."""


class Pool(NamedTuple):
    """All cells: those of row a are a·w, …, a·w + w − 1."""

    entries: Integers  # (blocks · BLOCK,)
    following: Int32s  # (blocks,) the next block of the same cell, or the next free one
    heads: Int32s  # (cells,) newest block
    counts: Int32s  # (cells,)
    floors: Int32s  # (cells,) the largest order that was ever turned away, −1 if none was
    lows: Integers  # (cells,) an entry below this finds the cell full of larger ones
    state: Integers
    scratch: Integers  # as long as the longest cell


@kernel
def spare_of(cap: int) -> int:
    """How many entries a full cell gives up at once."""
    return max(1, cap // SPARE)


@kernel
def read_cell(pool: Pool, cell: int, out: Integers) -> None:
    """The entries of a cell, in no order."""
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
    """Replace what a cell holds by less; blocks that are not needed any more become free."""
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
    """Hoare's selection: afterwards entries[at] is what sorting would put there, with no larger one before it."""
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
    """Leave the `keep` largest entries in a cell that holds more; remember the largest that goes."""
    entries = pool.scratch[: pool.counts[cell]]
    read_cell(pool, cell, entries)
    select(entries, len(entries) - keep - 1)
    largest = entries[len(entries) - keep - 1]
    pool.lows[cell] = largest
    pool.floors[cell] = max(pool.floors[cell], np.int32(largest >> 32))
    rewrite_cell(pool, cell, entries[len(entries) - keep :])
