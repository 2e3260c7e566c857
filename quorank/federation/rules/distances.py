"""Euclidean distances between all updates of a cohort, and to a point.

Small cohorts are compared pair by pair, large ones by a matrix product, ‖a − b‖² = ‖a‖² + ‖b‖² − 2⟨a, b⟩: about twenty
times faster, but inaccurate where a and b are close to each other and far from the origin. So the origin is moved to the
shortest update, and pairs that still lose more than three digits are compared directly.
"""

from __future__ import annotations

import math

import numpy as np

from quorank.kernels.arrays import Doubles, Integers
from quorank.kernels.compiled import kernel

PAIR_ARRAYS = 4
"""Number of (n, n) arrays of doubles that `distances` holds at once."""

DIRECT = 30_000_000
"""Limit on subtractions (pairs times parameters) of the direct comparison."""

CLOSE = 1e-3
"""Ratio of a squared distance to the two squared norms below which it is computed again directly."""

HUGE = 1e300
"""Squared norm above which the product may overflow; such an update counts as infinitely far."""


@kernel
def squared_distance(a: Doubles, b: Doubles) -> float:
    """Return ‖a − b‖², summed in four strands, with the same bits on every machine."""
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
    """Return ‖x_i − point‖ for every row."""
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
    """Return Σ w_i·x_i, in the order of the rows."""
    out = np.zeros(rows.shape[1])
    for i in range(len(rows)):
        if weights[i] != 0.0:
            for k in range(rows.shape[1]):
                out[k] += weights[i] * rows[i, k]
    return out


def is_direct(rows: Doubles) -> bool:
    """Return whether the distances of these rows are computed pair by pair."""
    n = len(rows)
    return n * (n - 1) // 2 * int(rows.shape[1]) <= DIRECT


def distances(rows: Doubles) -> Doubles:
    """Return (n, n) distances ‖x_i − x_j‖, symmetric, with a zero diagonal."""
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
