"""Equations of the features, for one term and one document: one equation is one function.

Symbols: c, the count of the term in the document; L, the document's length; |d|_u, its distinct terms; N, documents;
df, documents with the term; p(t|C), the term's share of all text. TF, IDF and BM25 as published are those of Wang et
al. 2021 ("An efficient approach for cross-silo federated learning to rank", §III); Robertson's BM25 is that of
Robertson and Zaragoza 2009 ("The probabilistic relevance framework"); the language models are those of Zhai and
Lafferty 2001 ("A study of smoothing methods for language models"), which LETOR uses.

A term that no document holds has an IDF and a p(t|C) as if it occurred half a time: no logarithm of zero, and less than
any term that does occur. A document without text says nothing of its own, so its language model is p(·|C).
"""

from __future__ import annotations

import numpy as np

from quorank.arrays import Doubles
from quorank.compiled import kernel

HALF = 0.5
"""Occurrences that stand for none."""


def idf_published(documents: float, frequency: Doubles) -> Doubles:
    """log(N / df), §III; 0 for a term of every document."""
    if documents <= 0:
        return np.zeros(len(frequency))
    return np.log(max(documents, HALF) / np.clip(frequency, HALF, max(documents, HALF)))


def idf_robertson(documents: float, frequency: Doubles) -> Doubles:
    """log((N − df + ½) / (df + ½)); negative for a term of more than half of the documents."""
    df = np.clip(frequency, 0.0, documents)
    return np.log((documents - df + HALF) / (df + HALF))


def idf_smoothed(documents: float, frequency: Doubles) -> Doubles:
    """log(1 + (N − df + ½) / (df + ½)): Robertson's, never negative, as in Lucene."""
    df = np.clip(frequency, 0.0, documents)
    return np.log1p((documents - df + HALF) / (df + HALF))


def background(collection_length: float, frequency: Doubles) -> Doubles:
    """p(t|C) = cf / |C|, at least half an occurrence and at most 1."""
    if collection_length <= 0:
        return np.ones(len(frequency))
    return np.clip(np.maximum(frequency, HALF) / collection_length, 0.0, 1.0)


@kernel
def term_frequency(count: float, length: float) -> float:
    """TF(t, d) = c / L, definition 2."""
    return count / length if length > 0.0 else 0.0


@kernel
def bm25_published(frequency: float, k1: float) -> float:
    """TF·(k1 + 1) / (TF + k1), §III: of the relative frequency, without normalisation by length."""
    return frequency * (k1 + 1.0) / (frequency + k1)


@kernel
def bm25_robertson(count: float, length: float, mean_length: float, k1: float, b: float) -> float:
    """c·(k1 + 1) / (c + k1·(1 − b + b·L/mean L))."""
    relative = length / mean_length if mean_length > 0.0 else 1.0
    return count * (k1 + 1.0) / (count + k1 * (1.0 - b + b * relative)) if count > 0.0 else 0.0


@kernel
def absolute_discounting(count: float, length: float, distinct: float, p: float, delta: float) -> float:
    """p(t|d) = max(c − δ, 0)/L + δ·|d|_u/L·p(t|C); at most 1, which estimates might exceed."""
    if length <= 0.0:
        return p
    return min((max(count - delta, 0.0) + delta * distinct * p) / length, 1.0)


@kernel
def dirichlet(count: float, length: float, p: float, mu: float) -> float:
    """p(t|d) = (c + μ·p(t|C)) / (L + μ)."""
    return (count + mu * p) / (length + mu)


@kernel
def jelinek_mercer(count: float, length: float, p: float, lambda_: float) -> float:
    """p(t|d) = (1 − λ)·c/L + λ·p(t|C)."""
    if length <= 0.0:
        return p
    return (1.0 - lambda_) * count / length + lambda_ * p
