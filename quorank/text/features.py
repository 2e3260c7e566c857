"""The sixteen features of a (query, document) pair: eight for the body, eight for the title.

They are those of Wang et al. 2021 ("An efficient approach for cross-silo federated learning to rank", §VI-A): length,
TF, IDF, TF-IDF, BM25, LMIR.ABS, LMIR.DIR, LMIR.JM, each summed over the terms of the query; the last three are log
likelihoods of the query, as in LETOR 4.0. The equations stand in `formulas`.

All are computed from numbers alone: counts of the query's terms, lengths, and statistics of the field. So another
party's estimates may stand for counts. An estimate below 0 is taken as 0, one above the document's length as that
length; fractions are taken as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from quorank.arrays import Doubles
from quorank.compiled import kernel
from quorank.errors import require
from quorank.parts import Family
from quorank.text import formulas
from quorank.text.field_statistics import FieldStatistics
from quorank.text.formulas import (
    absolute_discounting,
    bm25_published,
    bm25_robertson,
    dirichlet,
    jelinek_mercer,
    term_frequency,
)

FIELD_FEATURES = ("length", "TF", "IDF", "TF-IDF", "BM25", "LMIR.ABS", "LMIR.DIR", "LMIR.JM")
FEATURE_NAMES = tuple(f"{name} of {part}" for part in ("body", "title") for name in FIELD_FEATURES)
_IDF = {
    "smoothed": formulas.idf_smoothed,
    "published": formulas.idf_published,
    "robertson": formulas.idf_robertson,
}


@dataclass(frozen=True)
class Features:
    """The parameters of the features.

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
    bm25: Literal["robertson", "published"] = "robertson"
    idf: Literal["smoothed", "published", "robertson"] = "smoothed"
    idf_over: Literal["matched", "query"] = "matched"

    def __post_init__(self) -> None:
        for name, low, high in (
            ("k1", 0.0, 1e6),
            ("mu", 0.0, 1e12),
            ("lambda_", 0.0, 1.0),
            ("delta", 0.0, 1.0),
        ):
            value = getattr(self, name)
            require(low < value <= high, f"{name} must be above {low:g} and at most {high:g}, got {value}")
        require(0.0 <= self.b <= 1.0, f"b must lie between 0 and 1, got {self.b}")
        require(
            self.bm25 in ("robertson", "published"), f"bm25 must be robertson or published, got {self.bm25!r}"
        )
        require(self.idf in _IDF, f"idf must be one of {', '.join(_IDF)}, got {self.idf!r}")
        require(
            self.idf_over in ("matched", "query"), f"idf_over must be matched or query, got {self.idf_over!r}"
        )

    @classmethod
    def published(cls) -> Features:
        """BM25 and IDF as the paper writes them."""
        return cls(bm25="published", idf="published")

    def inverse_document_frequency(self, statistics: FieldStatistics) -> Doubles:
        """(terms,) the chosen IDF of each term."""
        return _IDF[self.idf](statistics.documents, statistics.document_frequency)


FEATURES: Family[Features] = Family("feature set", Features)


@dataclass(frozen=True, eq=False)
class FieldCounts:
    """What is known about one field of some documents, for the terms of one query."""

    counts: npt.ArrayLike  # (pairs, terms) occurrences of each term in each document, exact or estimated
    lengths: npt.ArrayLike  # (pairs,)
    statistics: FieldStatistics
    # (pairs,) distinct terms |d|_u of each document; None where only lengths are shared
    distinct: npt.ArrayLike | None = field(default=None)


def field_features(
    counts: npt.ArrayLike,
    lengths: npt.ArrayLike,
    statistics: FieldStatistics,
    features: Features | None = None,
    distinct: npt.ArrayLike | None = None,
) -> Doubles:
    """(pairs, 8) the features of one field, in the order of FIELD_FEATURES.

    A term that stands twice in a query has two columns. Without `distinct`, LMIR.ABS takes the number of distinct terms
    that documents of this length are likely to have (`FieldStatistics.likely_distinct`).
    """
    part = features or Features()
    counted = np.ascontiguousarray(counts, dtype=np.float64)
    length = np.ascontiguousarray(lengths, dtype=np.float64)
    terms = len(statistics.document_frequency)
    require(
        counted.ndim == 2 and counted.shape == (len(length), terms),
        f"counts: expected one row for each of {len(length)} documents and one column for each of {terms} terms, "
        f"got the shape {counted.shape}",
    )
    require(np.isfinite(counted).all(), "counts: expected finite numbers")
    require(
        np.isfinite(length).all() and (length >= 0.0).all(), "lengths: expected finite numbers, at least 0"
    )
    if distinct is None:
        unique = statistics.likely_distinct(length)
    else:
        unique = np.ascontiguousarray(distinct, dtype=np.float64)
        require(
            unique.shape == length.shape and np.isfinite(unique).all(),
            f"distinct: expected a finite number for each of {len(length)} documents",
        )
    out = np.zeros((len(length), len(FIELD_FEATURES)))
    published = formulas.idf_published(statistics.documents, statistics.document_frequency)
    _field_features(
        counted,
        length,
        np.clip(unique, 0.0, length),
        part.inverse_document_frequency(statistics),
        published,
        formulas.background(statistics.collection_length, statistics.collection_frequency),
        statistics.mean_length,
        part.bm25 == "published",
        part.idf_over == "query",
        np.array([part.k1, part.b, part.mu, part.lambda_, part.delta]),
        out,
    )
    return out


def pair_features(body: FieldCounts, title: FieldCounts, features: Features | None = None) -> Doubles:
    """(pairs, 16) body then title, in the order of FEATURE_NAMES; both fields must hold the same documents."""
    both = [
        field_features(part.counts, part.lengths, part.statistics, features, part.distinct)
        for part in (body, title)
    ]
    require(
        len(both[0]) == len(both[1]),
        f"{len(both[0])} bodies and {len(both[1])} titles; expected the same documents",
    )
    return np.hstack(both)


@kernel
def _field_features(
    counts: Doubles,
    lengths: Doubles,
    distinct: Doubles,
    idf: Doubles,
    published_idf: Doubles,
    p: Doubles,
    mean_length: float,
    as_published: bool,
    over_query: bool,
    parameters: Doubles,
    out: Doubles,
) -> None:
    k1, b, mu, lambda_, delta = parameters
    for d in range(len(lengths)):
        length = lengths[d]
        out[d, 0] = length
        for t in range(len(idf)):
            count = min(max(counts[d, t], 0.0), length)
            tf = term_frequency(count, length)
            out[d, 1] += tf
            out[d, 2] += idf[t] if over_query else min(count, 1.0) * idf[t]
            out[d, 3] += tf * idf[t]
            if as_published:
                out[d, 4] += published_idf[t] * bm25_published(tf, k1)
            else:
                out[d, 4] += idf[t] * bm25_robertson(count, length, mean_length, k1, b)
            out[d, 5] += np.log(absolute_discounting(count, length, distinct[d], p[t], delta))
            out[d, 6] += np.log(dirichlet(count, length, p[t], mu))
            out[d, 7] += np.log(jelinek_mercer(count, length, p[t], lambda_))
