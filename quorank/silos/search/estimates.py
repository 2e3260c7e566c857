"""Estimates from noisy cells: the posterior of a count, the expected BM25, and lengths drawn towards their mean.

A cell is v = c + X, with X discrete Laplace, P(X = x) ∝ q^|x|, and with a chance of λ another term of the document is
counted in the same column. The prior of a count has P(0) = 1 − π and P(c) = π(1 − r)r^(c−1) for 1 ≤ c ≤ 24: π = df/N
documents hold the term, r = 1 − df/cf makes cf/df its mean count. The score of a document is its expected BM25,
Σ_t idf_t·E[c(k1 + 1)/(c + k1(1 − b + b·L/mean L)) | v], in which a cell below 1 counts nothing.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from quorank.kernels.arrays import Doubles
from quorank.text import Features
from quorank.text.features import bm25_robertson

BM25 = Features()
MOST_COUNT = 24  # largest count in the posterior; larger cells count as this many
_COUNTS = np.arange(MOST_COUNT + 1, dtype=np.float64)


def count_prior(df: float, cf: float, n: float) -> Doubles:
    """Return (25,) P(c): π = df/N documents hold the term, geometric counts with mean cf/df."""
    pi = min(max(df, 0.5) / max(n, 1.0), 0.999)
    r = min(max(1.0 - df / cf if cf > 0 else 0.0, 0.02), 0.9)
    return np.concatenate(([1.0 - pi], pi * (1.0 - r) * r ** _COUNTS[:-1]))


def posterior(values: npt.ArrayLike, prior: Doubles, q: float, collide: float = 0.0) -> Doubles:
    """Compute (values, 25) P(c | v) ∝ P(c)·((1 − λ)q^|v−c| + λq^|v−c−1|)."""
    x = np.minimum(np.asarray(values, dtype=np.float64), MOST_COUNT)[:, None] - _COUNTS[None, :]
    likelihood = (1.0 - collide) * q ** np.abs(x) + collide * q ** np.abs(x - 1.0)
    weighed = prior[None, :] * likelihood
    return np.asarray(weighed / weighed.sum(axis=1, keepdims=True))


def expected_count(values: npt.ArrayLike, prior: Doubles, q: float, collide: float = 0.0) -> Doubles:
    """Compute (values,) E[c | v]."""
    return np.asarray(posterior(values, prior, q, collide) @ _COUNTS)


def expected_frequency(
    values: npt.ArrayLike, relative_lengths: Doubles, prior: Doubles, q: float, collide: float = 0.0
) -> Doubles:
    """Compute (values,) E[c(k1 + 1)/(c + k1(1 − b + b·ℓ)) | v] for documents of lengths ℓ in mean lengths."""
    different, which = np.unique(np.asarray(values), return_inverse=True)
    frequencies = bm25_robertson(_COUNTS[None, :], relative_lengths[:, None], 1.0, BM25.k1, BM25.b)
    return np.asarray((posterior(different, prior, q, collide)[which] * frequencies).sum(axis=1))


def estimated_frequency(named: int, n: int, q: float) -> float:
    """Estimate df of a column from the number of n cells that are 1 or more; noise alone lifts a share φ = q/(1 + q)."""
    phi = q / (1.0 + q)
    return min(max((named - n * phi) / (1.0 - 2.0 * phi), 0.5), float(max(n, 1)))


def shrink_lengths(noisy: npt.ArrayLike, epsilon: float | None) -> Doubles:
    """Compute m + (ℓ − m)·max(0, s² − σ²)/s², at least 1: σ² = 2q/(1 − q)² of s² is noise (None: nothing)."""
    told = np.asarray(noisy, dtype=np.float64)
    if epsilon is None or len(told) == 0:
        return np.maximum(told, 1.0)
    q = math.exp(-epsilon)
    mean, spread = float(told.mean()), max(float(told.var()), 1e-9)
    kept = max(spread - 2.0 * q / (1.0 - q) ** 2, 0.0) / spread
    return np.asarray(np.maximum(mean + (told - mean) * kept, 1.0))
