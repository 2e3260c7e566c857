"""Euclidean distances between all updates of a cohort, and steps that weigh updates by their distance to a point.

Few updates are compared pair by pair. Many are one matrix product, ‖a − b‖² = ‖a‖² + ‖b‖² − 2⟨a, b⟩, which is about
twenty times faster but loses digits where a and b are close to each other and far from the origin. So the origin is
moved to the shortest update, and the pairs that still lose more than three digits are compared directly.
"""

from __future__ import annotations

import math

import numpy as np

from quorank.kernels.arrays import Doubles, Integers
from quorank.kernels.compiled import kernel

PAIR_ARRAYS = 4
"""(n, n) arrays of doubles that `distances` holds at once: products, sums of norms, and two on the way to the result."""

DIRECT = 30_000_000
"""Up to so many subtractions (pairs times parameters) all pairs are compared directly."""

CLOSE = 1e-3
"""A squared distance below this share of the two squared norms is computed again without the product."""

HUGE = 1e300
"""A squared norm above this would overflow in the product: such an update is infinitely far from all others."""


@kernel
def squared_distance(a: Doubles, b: Doubles) -> float:
    """‖a − b‖², summed in four strands, the same on every machine."""
    s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
    whole = len(a) - len(a) % 4
    for k in range(0, whole, 4):
        d0, d1, d2, d3 = a[k] - b[k], a[k + 1] - b[k + 1], a[k + 2] - b[k + 2], a[k + 3] - b[k + 3]
        s0 += d0 * d0
        s1 += d1 * d1
        s2 += d2 * d2
        s3 += d3 * d3
    for k in range(whole, len(a)):
        d0 = a[k] - b[k]
        s0 += d0 * d0
    return (s0 + s1) + (s2 + s3)


@kernel
def distances_to(rows: Doubles, point: Doubles) -> Doubles:
    """‖x_i − point‖ for every row."""
    out = np.empty(len(rows))
    for i in range(len(rows)):
        out[i] = math.sqrt(squared_distance(rows[i], point))
    return out


@kernel
def _compare(rows: Doubles, first: Integers, second: Integers) -> Doubles:
    out = np.empty(len(first))
    for p in range(len(first)):
        out[p] = squared_distance(rows[first[p]], rows[second[p]])
    return out


@kernel
def weighted_sum(rows: Doubles, weights: Doubles) -> Doubles:
    """Σ w_i·x_i, in the order of the rows."""
    out = np.zeros(rows.shape[1])
    for i in range(len(rows)):
        if weights[i] != 0.0:
            for k in range(rows.shape[1]):
                out[k] += weights[i] * rows[i, k]
    return out


def is_direct(rows: Doubles) -> bool:
    """Whether the distances of these rows are all computed pair by pair, without rounding worth a mention."""
    n = len(rows)
    return n * (n - 1) // 2 * int(rows.shape[1]) <= DIRECT


def distances(rows: Doubles) -> Doubles:
    """(n, n): ‖x_i − x_j‖; zero on the diagonal, symmetric."""
    n = len(rows)
    if is_direct(rows):
        squared = np.zeros((n, n))
        first, second = np.triu_indices(n, 1)
        squared[first, second] = squared[second, first] = _compare(rows, first, second)
    else:
        squared = _by_product(rows)
    return np.sqrt(squared)


def _by_product(rows: Doubles) -> Doubles:
    with np.errstate(over="ignore"):
        shortest = np.argmin(np.einsum("ij,ij->i", rows, rows))
        moved = rows - rows[shortest]
        far = ~(np.einsum("ij,ij->i", moved, moved) < HUGE)
    moved[far] = 0.0
    gram = moved @ moved.T
    norms = np.diag(gram)
    both = norms[:, None] + norms[None, :]
    squared = np.maximum(both - 2.0 * gram, 0.0)
    first, second = np.nonzero(np.triu(squared <= CLOSE * both, 1))
    squared[first, second] = squared[second, first] = _compare(moved, first, second)
    squared[far, :] = squared[:, far] = np.inf
    np.fill_diagonal(squared, 0.0)
    return np.asarray(squared, dtype=np.float64)
