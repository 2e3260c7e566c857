"""Rows of ranking data made from text: candidates of each query, their features and labels; and LETOR files of them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from quorank.data.letor.writer import write_letor
from quorank.data.normalisation import normalize_queries
from quorank.data.ranking import RankingData
from quorank.data.source import write_feature_names
from quorank.errors import require, require_range
from quorank.kernels.arrays import Doubles
from quorank.text.collection import SkipRecord, TextCollection, add_skipped
from quorank.text.features import FEATURE_NAMES
from quorank.text.index import IndexedDocuments

DEPTH = 100  # candidates of a query
HIGHEST = 4  # grades above are taken as this one
FEWEST = 5  # queries that three splits take


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
    return normalize_queries(_data_of(kept, width))


def judged_rows(collection: TextCollection, depth: int = DEPTH) -> list[QueryRows]:
    """Return the candidates of each judged query, (at most depth, 16) raw features; one that finds nothing is left out."""
    require_range("depth", depth, least=2, most=100_000)
    indexed, found = IndexedDocuments.build(collection.without_empty().documents), []
    for query in collection.queries:
        terms, grades = indexed.body.tokeniser.tokenise(query.text), collection.judgements.get(query.id)
        rows = indexed.best(terms, depth) if grades else np.empty(0, np.int64)
        if grades and len(rows):
            ids = [indexed.ids[row] for row in rows]
            labels = [min(max(grades.get(id_, 0), 0), HIGHEST) for id_ in ids]
            found.append(QueryRows(_word(query.id), [_word(id_) for id_ in ids], indexed.features(terms, rows), labels))
    return found


def write_letor_folder(collection: TextCollection, folder: Path, depth: int = DEPTH) -> SkipRecord:
    """Write train.txt (three fifths of the queries, by a digest of their ids), vali.txt, test.txt and features.txt.

    Return the collection's record of skipped content, with the queries that have no judgement or find no document.
    """
    rows = sorted(judged_rows(collection, depth), key=lambda row: hashlib.sha256(row.query_id.encode()).digest())
    sentence = f"has {len(rows)} judged queries that find a document; expected at least {FEWEST} for three splits"
    require(len(rows) >= FEWEST, "text.too-few-queries", sentence, collection.name)
    first, second = len(rows) * 3 // 5, len(rows) * 4 // 5
    for split, part in (("train", rows[:first]), ("vali", rows[first:second]), ("test", rows[second:])):
        write_letor(_data_of(part), folder / f"{split}.txt")
    write_feature_names(folder, FEATURE_NAMES)
    kept, ids = {row.query_id for row in rows}, [query.id for query in collection.queries]
    judged = [id_ for id_ in ids if collection.judgements.get(id_)]
    return add_skipped(
        collection.skipped,
        queries_without_judgements=[id_ for id_ in ids if not collection.judgements.get(id_)],
        judged_queries_that_find_no_document=[id_ for id_ in judged if _word(id_) not in kept],
    )


def _data_of(rows: Sequence[QueryRows], width: int = len(FEATURE_NAMES)) -> RankingData:
    """Return the rows of some queries as they are."""
    return RankingData.from_arrays(
        np.concatenate([np.zeros((0, width)), *(row.features for row in rows)]),
        np.concatenate([np.zeros(0, np.int8), *(np.asarray(row.labels, np.int8) for row in rows)]),
        np.cumsum([0, *(len(row.document_ids) for row in rows)]),
        [row.query_id for row in rows],
        [id_ for row in rows for id_ in row.document_ids],
    )


def _word(id_: str) -> str:
    """An id as LETOR files can hold it."""
    return re.sub(r"[\s#]", "_", id_)
