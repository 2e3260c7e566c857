"""From text to ranking data: candidates of each query, their features, their labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from quorank.arrays import Doubles
from quorank.data.normalize import normalize_queries
from quorank.data.ranking import RankingData
from quorank.errors import require
from quorank.text.collection import Collection
from quorank.text.documents import IndexedDocuments
from quorank.text.features import FEATURE_NAMES, Features


@dataclass(frozen=True, eq=False)
class QueryRows:
    """The candidate documents of one query."""

    query_id: str
    document_ids: Sequence[str] = field(repr=False)  # (documents,)
    features: Doubles = field(repr=False)  # (documents, features)
    labels: npt.ArrayLike = field(repr=False)  # (documents,) grades, 0 is not relevant


def collection_rows(
    collection: Collection,
    documents: IndexedDocuments,
    features: Features | None = None,
    depth: int = 100,
    judged: bool = True,
) -> list[QueryRows]:
    """For each judged query, its `depth` best documents by BM25, and with `judged` every judged one behind them.

    A document without judgement is labelled 0. Adding the judged documents keeps relevant ones that BM25 misses; it
    also lets in documents that no search would have shown, so leave them out where a search is to be measured.
    Documents that are not among `documents`, which may be one party's share, are passed over.
    """
    found = []
    for query in collection.queries:
        grades = collection.judgements.get(query.id)
        terms = documents.tokeniser.tokenise(query.text)
        if not grades or not terms:
            continue
        rows = documents.best(terms, depth, features)
        if judged:
            known = [documents.rows[id_] for id_ in grades if id_ in documents.rows]
            rows = np.concatenate((rows, np.setdiff1d(np.array(known, dtype=np.int64), rows)))
        if len(rows):
            ids = [documents.ids[row] for row in rows]
            labels = [grades.get(id_, 0) for id_ in ids]
            found.append(QueryRows(query.id, ids, documents.features(terms, rows, features), labels))
    return found


def to_ranking_data(
    queries: Iterable[QueryRows], normalise: Literal["query", "none"] = "query"
) -> RankingData:
    """The columns that learners and evaluation read; with "query", each feature is brought to [0, 1] in a query."""
    require(normalise in ("query", "none"), f"normalise: expected 'query' or 'none', got {normalise!r}")
    kept = list(queries)
    for query in kept:
        count = len(query.document_ids)
        require(
            query.features.ndim == 2 and len(query.features) == count == np.size(query.labels),
            f"query {query.query_id}: {count} documents, features of the shape {query.features.shape} and "
            f"{np.size(query.labels)} labels; expected one of each a document",
        )
        labels = np.asarray(query.labels)
        require(
            not count or (labels.min() >= 0 and labels.max() <= 127),
            f"query {query.query_id}: expected labels from 0 to 127",
        )
    widths = {query.features.shape[1] for query in kept}
    require(len(widths) <= 1, f"queries with {sorted(widths)} features; expected the same number for all")
    width = widths.pop() if widths else len(FEATURE_NAMES)
    data = RankingData.from_arrays(
        np.concatenate([query.features for query in kept]) if kept else np.zeros((0, width)),
        np.concatenate([np.asarray(query.labels, dtype=np.int8) for query in kept]) if kept else [],
        np.concatenate(([0], np.cumsum([len(query.document_ids) for query in kept]))),
        [query.query_id for query in kept],
        [id_ for query in kept for id_ in query.document_ids],
    )
    return normalize_queries(data) if normalise == "query" else data
