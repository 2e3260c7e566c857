"""Bins of features that clients agree on: the order of float32 numbers in 16 bits, counted and summed.

Each client counts, for every feature, how many of its documents lie in each of 2^16 cells: those of the first 16 bits of a
float32 in an order-preserving code (sign, exponent, 7 bits of the fraction), which need no range to be known. Whole
counts add up exactly. From the sum, edges between cells are chosen greedily so that bins hold about as many documents
each, as LightGBM does: a cell that holds more than its share of documents is a bin of its own.

Under noise, features are taken from 0 to 1, as normalised within a query. Each client releases, for each feature, the share
of its documents in each of SHARES cells with edges (i/SHARES)², which are finer near 0, where most features crowd. The mean
of several noisy sums gives edges at the quantiles; a cell that noise made negative counts nothing. Or: a public grid.

A document is in bin b of a feature if edge b − 1 < x ≤ edge b; the last bin has no edge. Edges are float32 numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from quorank.errors import require
from quorank.kernels.arrays import Bytes, Doubles, Floats, Int32s, Integers
from quorank.kernels.compiled import kernel

CELLS = 1 << 16
MOST_BINS = 256
SHARES = 16
GRID = (np.arange(SHARES + 1) / SHARES) ** 2
"""Edges of the cells whose shares are released under noise."""
TOGETHER = 8
"""Features whose bins of a document lie side by side, so that a histogram kernel reads them at once."""


def cells_of(values: Floats) -> Integers:
    """Return the cell of each finite value: the first 16 bits of its float32 code, in the order of the numbers."""
    bits = np.ascontiguousarray(values + np.float32(0.0), dtype=np.float32).view(np.uint32)  # −0 is 0
    code = np.where(bits >> np.uint32(31), ~bits, bits | np.uint32(1 << 31))
    return (code >> np.uint32(16)).astype(np.int64)


def largest_in(cells: npt.ArrayLike) -> Floats:
    """Return the largest float32 of each cell: the edge above it."""
    code = (np.asarray(cells, dtype=np.uint32) << np.uint32(16)) | np.uint32(0xFFFF)
    bits = np.where(code >> np.uint32(31), code & np.uint32(0x7FFFFFFF), ~code)
    return np.asarray(bits, dtype=np.uint32).view(np.float32)


def cell_counts(features: Floats) -> Integers:
    """(features, CELLS) how many of the documents (rows, features) lie in each cell: what one client counts."""
    out = np.zeros((features.shape[1], CELLS), dtype=np.int64)
    for f in range(features.shape[1]):
        out[f] = np.bincount(cells_of(features[:, f]), minlength=CELLS)
    return out


@dataclass(frozen=True, eq=False)
class Bins:
    """The edges of every feature, ascending; a feature with e edges has e + 1 bins."""

    edges: tuple[Floats, ...]

    @property
    def most(self) -> int:
        """Bins of the feature that has most."""
        return max((len(edge) for edge in self.edges), default=0) + 1

    @property
    def counts(self) -> Int32s:
        """(features,) bins of each."""
        return np.array([len(edge) + 1 for edge in self.edges], dtype=np.int32)

    def place(self, features: Floats) -> Bytes:
        """(blocks, rows, TOGETHER) the bin of each document in each feature, in blocks of features."""
        rows, n = features.shape
        sentence = f"the bins are of {len(self.edges)} features, the data has {n}"
        require(n == len(self.edges), "bins.other-features", sentence)
        blocks = -(-n // TOGETHER)
        out = np.zeros((blocks, rows, TOGETHER), dtype=np.uint8)
        for f, edges in enumerate(self.edges):
            out[f // TOGETHER, :, f % TOGETHER] = np.searchsorted(edges, features[:, f], side="left")
        return out


def agreed_bins(counts: Integers, most: int) -> Bins:
    """Return the bins, `most` at most of each feature, from the summed (features, CELLS) counts.

    Bins are filled from below: one is closed when it holds its share of what is left, or before a cell that alone holds
    more than the share of all (LightGBM's GreedyFindBin on cells in place of values).
    """
    return Bins(tuple(_edges(row, most) for row in counts))


def _edges(counts: Integers, most: int) -> Floats:
    cells = np.flatnonzero(counts)
    if len(cells) <= 1:
        return np.zeros(0, dtype=np.float32)
    if len(cells) <= most:
        return largest_in(cells[:-1])
    closed = np.zeros(len(cells), dtype=np.bool_)
    _close(counts[cells], most, closed)
    return largest_in(cells[closed])


@kernel
def _close(counts: Integers, most: int, closed: Any) -> None:
    """closed[i] = a bin ends after cell i."""
    n, total = len(counts), np.int64(0)
    for i in range(n):
        total += counts[i]
    big, left, bins = np.zeros(n, dtype=np.bool_), total, most
    for i in range(n):
        if counts[i] >= total / most:
            big[i] = True
            left -= counts[i]
            bins -= 1
    share = left / max(bins, 1)
    made, held = 0, 0
    for i in range(n - 1):
        if not big[i]:
            left -= counts[i]
        held += counts[i]
        if big[i] or held >= share or (big[i + 1] and held >= max(1.0, share * 0.5)):
            closed[i] = True
            made, held = made + 1, 0
            if made >= most - 1:
                return
            if not big[i]:
                bins -= 1
                share = left / max(bins, 1)


def cell_shares(features: Floats, offsets: Integers, owners: Integers, clients: int, length: float) -> Doubles:
    """(clients, features·SHARES) share of each client's documents in each cell; a client with any has the norm `length`."""
    n = features.shape[1]
    client = np.repeat(owners, np.diff(offsets))
    out = np.zeros((clients, n, SHARES))
    for f in range(n):
        cell = np.clip(np.searchsorted(GRID, features[:, f], side="left") - 1, 0, SHARES - 1)
        out[:, f] = np.bincount(client * SHARES + cell, minlength=clients * SHARES).reshape(clients, SHARES)
    rows = out.reshape(clients, -1)
    norms = np.linalg.norm(rows, axis=1)
    return np.asarray(rows * (length / np.where(norms > 0.0, norms, 1.0))[:, None], dtype=np.float64)


def quantile_bins(total: Doubles, n_features: int, most: int) -> Bins:
    """Return bins with edges at the quantiles of a noisy sum (features·SHARES,) of shares."""
    edges = []
    for counts in total.reshape(n_features, SHARES):
        below = np.concatenate([[0.0], np.cumsum(np.maximum(counts, 0.0))])
        if below[-1] <= 0.0:
            edges.append(np.zeros(0, dtype=np.float32))
            continue
        found = np.interp(np.arange(1, most) / most, below / below[-1], GRID).astype(np.float32)
        edges.append(np.unique(found[(found > 0.0) & (found < 1.0)]))
    return Bins(tuple(edges))


def grid_bins(n_features: int, most: int) -> Bins:
    """Return the public bins: edges evenly from 0 to 1."""
    return Bins((np.linspace(0.0, 1.0, most + 1)[1:-1].astype(np.float32),) * n_features)
