"""Features of a (query, document) pair: eight for the body, eight for the title.

They are those of Wang et al. 2021 ("An efficient approach for cross-silo federated learning to rank", §VI-A): length,
TF, IDF, TF-IDF, BM25, LMIR.ABS, LMIR.DIR, LMIR.JM, each summed over the terms of the query; the last three are log
likelihoods of the query, as in LETOR 4.0.

One equation is one function over (documents, terms). Symbols: c, the count of the term in the document; L, the
document's length; |d|_u, its distinct terms; N, documents; df, documents with the term; p(t|C), the term's share of all
text. TF, IDF and BM25 as published are those of Wang et al. 2021, §III; Robertson's BM25 is that of Robertson and
Zaragoza 2009 ("The probabilistic relevance framework"); the language models are those of Zhai and Lafferty 2001 ("A
study of smoothing methods for language models"), which LETOR uses. A term that no document holds has an IDF and a
p(t|C) as if it occurred half a time: no logarithm of zero, and less than any term that does occur. A document without
text has the language model p(·|C).

All features are computed from numbers alone: counts of the query's terms, lengths, and statistics of the field. So
another party's estimates may stand for counts. An estimate below 0 is taken as 0, one above the document's length as
that length; fractions are taken as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from quorank.errors import require, require_choice, require_range
from quorank.kernels.arrays import Doubles

FIELD_FEATURES = ("length", "TF", "IDF", "TF-IDF", "BM25", "LMIR.ABS", "LMIR.DIR", "LMIR.JM")
FEATURE_NAMES = tuple(f"{name} of {part}" for part in ("body", "title") for name in FIELD_FEATURES)
FIELD_DEFINITIONS = (
    "L",
    "Σ c/L",
    "Σ idf over the terms with c > 0, idf = ln(1 + (N − df + ½)/(df + ½))",
    "Σ idf·c/L",
    "Σ idf·c·(k₁ + 1)/(c + k₁·(1 − b + b·L/mean L)), k₁ = 1.2, b = 0.75",
    "Σ ln(max(c − δ, 0)/L + δ·u/L·p), δ = 0.7",
    "Σ ln((c + μ·p)/(L + μ)), μ = 2000",
    "Σ ln((1 − λ)·c/L + λ·p), λ = 0.1",
)
"""Formulas of FIELD_FEATURES with the default parameters; sums are over the terms of the query."""
SYMBOLS = (
    "c: count of the term in the field of the document; L: terms in the field; u: different terms in it; N: documents; "
    "df: documents whose field holds the term; p: count of the term in all documents / length of all documents"
)
HALF = 0.5  # occurrences that stand for none


def idf_published(documents: float, frequency: Doubles) -> Doubles:
    """Compute log(N / df), §III; 0 for a term of every document."""
    if documents <= 0:
        return np.zeros(len(frequency))
    return np.log(max(documents, HALF) / np.clip(frequency, HALF, max(documents, HALF)))


def idf_smoothed(documents: float, frequency: Doubles) -> Doubles:
    """Compute log(1 + (N − df + ½) / (df + ½)): Robertson's, never negative, as in Lucene."""
    df = np.clip(frequency, 0.0, documents)
    return np.log1p((documents - df + HALF) / (df + HALF))


_IDF = {"smoothed": idf_smoothed, "published": idf_published}


def background(collection_length: float, frequency: Doubles) -> Doubles:
    """Compute p(t|C) = cf / |C|, at least half an occurrence and at most 1."""
    if collection_length <= 0:
        return np.ones(len(frequency))
    return np.clip(np.maximum(frequency, HALF) / collection_length, 0.0, 1.0)


def term_frequency(count: Doubles, length: Doubles) -> Doubles:
    """Compute TF(t, d) = c / L, definition 2."""
    return np.divide(count, length, out=np.zeros_like(count), where=length > 0.0)


def bm25_published(frequency: Doubles, k1: float) -> Doubles:
    """Compute TF·(k1 + 1) / (TF + k1), §III: of the relative frequency, without normalisation by length."""
    return frequency * (k1 + 1.0) / (frequency + k1)


def bm25_robertson(count: Doubles, length: Doubles, mean_length: float, k1: float, b: float) -> Doubles:
    """Compute c·(k1 + 1) / (c + k1·(1 − b + b·L/mean L)); 0 for a term that does not occur."""
    relative = length / mean_length if mean_length > 0.0 else np.ones_like(length)
    over = count + k1 * (1.0 - b + b * relative)
    return np.divide(count * (k1 + 1.0), over, out=np.zeros_like(over), where=count > 0.0)


def absolute_discounting(count: Doubles, length: Doubles, distinct: Doubles, p: Doubles, delta: float) -> Doubles:
    """Compute p(t|d) = max(c − δ, 0)/L + δ·|d|_u/L·p(t|C); at most 1, which estimates might exceed."""
    seen = np.maximum(count - delta, 0.0) + delta * distinct * p
    return np.where(length > 0.0, np.minimum(seen / np.where(length > 0.0, length, 1.0), 1.0), p)


def dirichlet(count: Doubles, length: Doubles, p: Doubles, mu: float) -> Doubles:
    """Compute p(t|d) = (c + μ·p(t|C)) / (L + μ)."""
    return (count + mu * p) / (length + mu)


def jelinek_mercer(count: Doubles, length: Doubles, p: Doubles, lambda_: float) -> Doubles:
    """Compute p(t|d) = (1 − λ)·c/L + λ·p(t|C)."""
    return np.where(length > 0.0, (1.0 - lambda_) * count / np.where(length > 0.0, length, 1.0) + lambda_ * p, p)


@dataclass(frozen=True, eq=False)
class FieldStatistics:
    """Statistics of one field (body or title) of a set of documents, for the terms of one query.

    A party's own numbers are exact. Those of several parties add up, and estimates from sketches may stand for counts,
    so none needs to be whole: it need only be a finite number.
    """

    documents: float  # N
    document_frequency: Doubles  # (terms,) documents that hold the term
    collection_frequency: Doubles  # (terms,) occurrences of the term in all documents
    collection_length: float  # |C|, occurrences of all terms
    distinct_total: float | None = None  # Σ_d |d|_u, distinct terms summed over the documents; None where unknown

    def __post_init__(self) -> None:
        for name in ("document_frequency", "collection_frequency"):
            values = np.ascontiguousarray(getattr(self, name), dtype=np.float64)
            sentence = f"expected one number a query term, got the shape {values.shape}"
            require(values.ndim == 1, "field-statistics.malformed", sentence, name)
            _require_finite(values, name)
            object.__setattr__(self, name, values)
        terms, others = len(self.document_frequency), len(self.collection_frequency)
        sentence = f"document and collection frequencies of {terms} and {others} terms; expected the same terms"
        require(terms == others, "field-statistics.malformed", sentence)
        for name in ("documents", "collection_length", "distinct_total"):
            value = getattr(self, name)
            if value is not None:
                require_range(name, value, least=0.0)

    @property
    def mean_length(self) -> float:
        """Terms of a document on average."""
        return self.collection_length / self.documents if self.documents > 0 else 0.0

    def likely_distinct(self, lengths: Doubles) -> Doubles:
        """Estimate |d|_u for documents of which only the length is known: the share that all have on average."""
        if self.distinct_total is None or self.collection_length <= 0:
            return lengths
        return np.asarray(lengths * min(self.distinct_total / self.collection_length, 1.0))


def pooled(*parties: FieldStatistics) -> FieldStatistics:
    """Add up the statistics of all parties' documents for the same terms (the sums in IDF, §III)."""
    sentence = "statistics of no party or of different terms cannot be added up; expected those of one query's terms"
    require(len({len(party.document_frequency) for party in parties}) == 1, "field-statistics.malformed", sentence)
    known = [party.distinct_total for party in parties if party.distinct_total is not None]
    return FieldStatistics(
        documents=sum(party.documents for party in parties),
        document_frequency=np.sum([party.document_frequency for party in parties], axis=0),
        collection_frequency=np.sum([party.collection_frequency for party in parties], axis=0),
        collection_length=sum(party.collection_length for party in parties),
        distinct_total=sum(known) if len(known) == len(parties) else None,
    )


@dataclass(frozen=True)
class Features:
    """Parameters of the features.

    IDF over the `matched` terms sums over the terms that the document holds; over all terms of the `query` it is the
    same for all documents of a query, as in LETOR 4.0, and then cannot order them. A fractional count below 1 counts
    as that fraction of a match. `bm25 = "published"` always takes the published IDF.
    """

    kind: ClassVar[str] = "letor"

    k1: float = 1.2  # k₁ of BM25
    b: float = 0.75  # b of BM25, the normalisation by length
    mu: float = 2000.0  # μ of LMIR.DIR
    lambda_: float = 0.1  # λ of LMIR.JM
    delta: float = 0.7  # δ of LMIR.ABS
    bm25: Literal["robertson", "published"] = "robertson"  # Robertson's, or the paper's formula
    idf: Literal["smoothed", "published"] = "smoothed"  # which inverse document frequency
    idf_over: Literal["matched", "query"] = "matched"  # over terms that a document holds, or all

    def __post_init__(self) -> None:
        for name, most in (("k1", 1e6), ("mu", 1e12), ("lambda_", 1.0), ("delta", 1.0)):
            require_range(name, getattr(self, name), above=0.0, most=most)
        require_range("b", self.b, least=0.0, most=1.0)
        require_choice("bm25", self.bm25, ("robertson", "published"))
        require_choice("idf", self.idf, tuple(_IDF))
        require_choice("idf_over", self.idf_over, ("matched", "query"))

    def inverse_document_frequency(self, statistics: FieldStatistics) -> Doubles:
        """Return (terms,) the chosen IDF of each term."""
        return _IDF[self.idf](statistics.documents, statistics.document_frequency)


@dataclass(frozen=True, eq=False)
class FieldCounts:
    """Counts and lengths of one field of some documents, for the terms of one query."""

    counts: npt.ArrayLike  # (pairs, terms) occurrences of each term in each document, exact or estimated
    lengths: npt.ArrayLike  # (pairs,)
    statistics: FieldStatistics
    distinct: npt.ArrayLike | None = None  # (pairs,) distinct terms |d|_u; None where only lengths are shared


def field_features(known: FieldCounts, features: Features | None = None) -> Doubles:
    """Compute (pairs, 8) the features of one field, in the order of FIELD_FEATURES.

    A term that stands twice in a query has two columns. Without `known.distinct`, LMIR.ABS takes the number of distinct
    terms that documents of this length are likely to have (`FieldStatistics.likely_distinct`).
    """
    part, statistics = features or Features(), known.statistics
    counted = np.ascontiguousarray(known.counts, dtype=np.float64)
    length = np.ascontiguousarray(known.lengths, dtype=np.float64)
    terms = len(statistics.document_frequency)
    expected = f"expected one row for each of {len(length)} documents and one column for each of {terms} terms"
    sentence = f"{expected}, got the shape {counted.shape}"
    require(counted.shape == (len(length), terms), "features.malformed", sentence, "counts")
    _require_finite(counted, "counts")
    _require_finite(length, "lengths", least=0.0)
    if known.distinct is None:
        unique = statistics.likely_distinct(length)
    else:
        unique = np.ascontiguousarray(known.distinct, dtype=np.float64)
        sentence = f"expected a finite number for each of {len(length)} documents"
        valid = unique.shape == length.shape and np.isfinite(unique).all()
        require(valid, "features.malformed", sentence, "distinct")
    length, unique = length[:, None], np.clip(unique, 0.0, length)[:, None]
    count = np.clip(counted, 0.0, length)
    tf, idf = term_frequency(count, length), part.inverse_document_frequency(statistics)
    p = background(statistics.collection_length, statistics.collection_frequency)
    if part.bm25 == "published":
        published = idf_published(statistics.documents, statistics.document_frequency)
        bm25 = published * bm25_published(tf, part.k1)
    else:
        bm25 = idf * bm25_robertson(count, length, statistics.mean_length, part.k1, part.b)
    of_terms = (
        tf,
        np.minimum(count, 1.0) * idf if part.idf_over == "matched" else np.broadcast_to(idf, count.shape),
        tf * idf,
        bm25,
        np.log(absolute_discounting(count, length, unique, p, part.delta)),
        np.log(dirichlet(count, length, p, part.mu)),
        np.log(jelinek_mercer(count, length, p, part.lambda_)),
    )
    return np.column_stack([length, *(values.sum(axis=1) for values in of_terms)])


def pair_features(body: FieldCounts, title: FieldCounts, features: Features | None = None) -> Doubles:
    """Compute (pairs, 16) body then title, in the order of FEATURE_NAMES; both fields must hold the same documents."""
    both = [field_features(part, features) for part in (body, title)]
    sentence = f"{len(both[0])} bodies and {len(both[1])} titles; expected the same documents"
    require(len(both[0]) == len(both[1]), "features.malformed", sentence)
    return np.hstack(both)


def _require_finite(values: Doubles, name: str, least: float = -np.inf) -> None:
    expected = "expected finite numbers" if least == -np.inf else f"expected finite numbers, at least {least:g}"
    require(np.isfinite(values).all() and (values >= least).all(), "features.not-finite", expected, name)
