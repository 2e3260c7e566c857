"""Rows of ranking data made from text: candidates of each query, their features, their labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from quorank.data.normalisation import normalize_queries
from quorank.data.ranking import RankingData
from quorank.errors import require
from quorank.kernels.arrays import Doubles
from quorank.text.features import FEATURE_NAMES


@dataclass(frozen=True, eq=False)
class QueryRows:
    """The candidate documents of one query."""

    query_id: str
    document_ids: Sequence[str] = field(repr=False)  # (documents,)
    features: Doubles = field(repr=False)  # (documents, features)
    labels: npt.ArrayLike = field(repr=False)  # (documents,) grades, 0 is not relevant


def to_ranking_data(queries: Iterable[QueryRows], n_features: int = len(FEATURE_NAMES)) -> RankingData:
    """Return the columns that learners and evaluation read; each feature is brought to [0, 1] within a query.

    `n_features` is the number of features where there is no query at all.
    """
    kept = list(queries)
    for query in kept:
        where, count, labels = f"query {query.query_id}", len(query.document_ids), np.asarray(query.labels)
        found = f"{count} documents, features of the shape {query.features.shape} and {labels.size} labels"
        same = query.features.ndim == 2 and len(query.features) == count == labels.size
        require(same, "query-rows.malformed", f"{found}; expected one of each a document", where)
        within = np.all((labels >= 0) & (labels <= 127))
        require(within, "query-rows.bad-label", "expected labels from 0 to 127", where)
    widths = {query.features.shape[1] for query in kept}
    sentence = f"queries with {sorted(widths)} features; expected the same number for all"
    require(len(widths) <= 1, "query-rows.malformed", sentence)
    width = widths.pop() if widths else n_features
    data = RankingData.from_arrays(
        np.concatenate([np.zeros((0, width)), *(query.features for query in kept)]),
        np.concatenate([np.zeros(0, np.int8), *(np.asarray(query.labels, np.int8) for query in kept)]),
        np.concatenate(([0], np.cumsum([len(query.document_ids) for query in kept]))),
        [query.query_id for query in kept],
        [id_ for query in kept for id_ in query.document_ids],
    )
    return normalize_queries(data)
