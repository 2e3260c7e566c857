"""Histograms of a level: for every open node, feature and bin, Σ G, Σ H and the number of documents, as integers.

One compiled pass reads each document of a node once for each block of features. Documents are kept sorted by node, so that
a node is a run of `order`. H and the count share one number while they are summed, H + count·2^shift, with a shift that
leaves room for all H of the pass (`shift_for`); it is taken apart at the end.
"""

from __future__ import annotations

import numpy as np

from quorank.errors import require
from quorank.kernels.arrays import Bytes, Doubles, Integers
from quorank.kernels.compiled import kernel
from quorank.learning.trees.bins import TOGETHER

SUM_G, SUM_H, COUNT = 0, 1, 2
"""Last index of a histogram."""


def shift_for(hessians: Integers) -> int:
    """Return the bits that all H of a pass need; data for which no bits are left to count documents are refused."""
    shift = max(1, int(hessians.sum()).bit_length())
    sentence = "these are too many documents for one party; divide them among several"
    require(shift + len(hessians).bit_length() <= 62, "trees.too-many-rows", sentence)
    return shift


@kernel
def fill_histograms(
    bins: Bytes,
    order: Integers,
    starts: Integers,
    stops: Integers,
    gradients: Integers,
    hessians: Integers,
    shift: int,
    first_block: int,
    last_block: int,
    out: Integers,
) -> None:
    """out[node, feature, bin] = (Σ G, Σ H, count) of the documents order[starts[node]:stops[node]], for some blocks.

    bins: (blocks, rows, TOGETHER); gradients, hessians: (rows,); out: (nodes, blocks·TOGETHER, most bins, 3).
    """
    most = out.shape[2]
    room = np.zeros((TOGETHER, most, 2), dtype=np.int64)
    flat = room.reshape(TOGETHER * most * 2)
    step = most * 2
    longest = 0
    for node in range(len(starts)):
        longest = max(longest, stops[node] - starts[node])
    g, h = np.empty(longest, dtype=np.int64), np.empty(longest, dtype=np.int64)
    one = np.int64(1) << shift
    mask = one - 1
    for node in range(len(starts)):
        start, n = starts[node], stops[node] - starts[node]
        for i in range(n):
            row = order[start + i]
            g[i], h[i] = gradients[row], hessians[row] + one
        for block in range(first_block, last_block):
            flat[:] = 0
            of_block = bins[block]
            for i in range(n):
                row = order[start + i]
                g_i, h_i = g[i], h[i]
                b = of_block[row]
                at = 2 * np.intp(b[0])
                flat[at] += g_i
                flat[at + 1] += h_i
                at = step + 2 * np.intp(b[1])
                flat[at] += g_i
                flat[at + 1] += h_i
                at = 2 * step + 2 * np.intp(b[2])
                flat[at] += g_i
                flat[at + 1] += h_i
                at = 3 * step + 2 * np.intp(b[3])
                flat[at] += g_i
                flat[at + 1] += h_i
                at = 4 * step + 2 * np.intp(b[4])
                flat[at] += g_i
                flat[at + 1] += h_i
                at = 5 * step + 2 * np.intp(b[5])
                flat[at] += g_i
                flat[at + 1] += h_i
                at = 6 * step + 2 * np.intp(b[6])
                flat[at] += g_i
                flat[at + 1] += h_i
                at = 7 * step + 2 * np.intp(b[7])
                flat[at] += g_i
                flat[at + 1] += h_i
            for f in range(TOGETHER):
                for b_ in range(most):
                    both = room[f, b_, 1]
                    out[node, block * TOGETHER + f, b_, SUM_G] = room[f, b_, 0]
                    out[node, block * TOGETHER + f, b_, SUM_H] = both & mask
                    out[node, block * TOGETHER + f, b_, COUNT] = both >> shift


@kernel
def divide_rows(
    bins: Bytes, order: Integers, start: int, stop: int, feature: int, last_bin: int, spare: Integers
) -> int:
    """Sort order[start:stop] stably: bins up to `last_bin` of a feature first. Return where the others begin."""
    block, of = feature // TOGETHER, feature % TOGETHER
    at, others = start, 0
    for i in range(start, stop):
        row = order[i]
        if bins[block, row, of] <= last_bin:
            order[at] = row
            at += 1
        else:
            spare[others] = row
            others += 1
    for i in range(others):
        order[at + i] = spare[i]
    return at


@kernel
def add_leaf_values(order: Integers, starts: Integers, stops: Integers, values: Doubles, scores: Doubles) -> None:
    """scores[row] += values[leaf] for the documents of each leaf."""
    for leaf in range(len(starts)):
        for i in range(starts[leaf], stops[leaf]):
            scores[order[i]] += values[leaf]
