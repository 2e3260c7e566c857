"""Bins under noise: quantiles of features from clients' own distributions, released with noise; or a public grid.

Features are taken from 0 to 1, as normalised within a query. Each client sends, for each feature, which share of its
documents lies in each of CELLS cells with edges (i/CELLS)², which are finer near 0, where most features crowd. The sum of
these shares with noise, its mean over several releases, gives edges at the quantiles. A cell that noise made negative
counts nothing.
"""

from __future__ import annotations

import numpy as np

from quorank.kernels.arrays import Doubles, Floats, Integers
from quorank.learning.trees.bins import Bins

CELLS = 16
GRID = (np.arange(CELLS + 1) / CELLS) ** 2


def cell_shares(features: Floats, offsets: Integers, owners: Integers, clients: int, length: float) -> Doubles:
    """(clients, features·CELLS) share of each client's documents in each cell; a client with any has the norm `length`."""
    n = features.shape[1]
    client = np.repeat(owners, np.diff(offsets))
    out = np.zeros((clients, n, CELLS))
    for f in range(n):
        cell = np.clip(np.searchsorted(GRID, features[:, f], side="left") - 1, 0, CELLS - 1)
        out[:, f] = np.bincount(client * CELLS + cell, minlength=clients * CELLS).reshape(clients, CELLS)
    rows = out.reshape(clients, -1)
    norms = np.linalg.norm(rows, axis=1)
    return np.asarray(rows * (length / np.where(norms > 0.0, norms, 1.0))[:, None], dtype=np.float64)


def quantile_bins(total: Doubles, n_features: int, most: int) -> Bins:
    """Return bins with edges at the quantiles of a noisy sum (features·CELLS,) of shares."""
    edges = []
    for counts in total.reshape(n_features, CELLS):
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
