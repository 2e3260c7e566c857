"""From a text collection to ranking data."""

from __future__ import annotations

import numpy as np
import pytest
from generated_text import make_documents

from quorank.errors import BadInput
from quorank.text import (
    Collection,
    IndexedDocuments,
    Query,
    QueryRows,
    Tokeniser,
    collection_rows,
    to_ranking_data,
)

QUERIES = (Query("q1", "word3 word20"), Query("q2", "word90"), Query("q3", "word1"), Query("q4", "!"))
JUDGEMENTS = {"q1": {"d1": 2, "d40": 1, "d2": 0}, "q2": {"d59": 1}, "q4": {"d1": 1}}


@pytest.fixture(scope="module")
def small() -> tuple[Collection, IndexedDocuments]:
    collection = Collection("small", tuple(make_documents(60)), QUERIES, JUDGEMENTS)
    return collection, IndexedDocuments.build(collection.documents, Tokeniser("none"))


def test_judged_queries_have_rows(small) -> None:
    """q3 is not judged and q4 holds no term."""
    rows = collection_rows(*small, depth=5)
    assert [query.query_id for query in rows] == ["q1", "q2"]
    first = rows[0]
    assert set(first.document_ids) >= {"d1", "d40", "d2"}
    assert len(set(first.document_ids)) == len(first.document_ids) <= 8
    assert dict(zip(first.document_ids, first.labels, strict=True))["d1"] == 2
    assert sum(first.labels) == 3


def test_a_document_that_is_found_and_judged_has_one_row(small) -> None:
    collection, indexed = small
    rows = collection_rows(collection, indexed, depth=60)[0]
    found = {indexed.ids[row] for row in indexed.best(["word3", "word20"], 60)}
    assert found & set(JUDGEMENTS["q1"])
    assert sorted(rows.document_ids) == sorted(found | set(JUDGEMENTS["q1"]))


def test_a_search_shows_its_best_documents_alone(small) -> None:
    collection, indexed = small
    rows = collection_rows(collection, indexed, depth=5, judged=False)[0]
    best = indexed.best(["word3", "word20"], 5)
    assert rows.document_ids == [indexed.ids[row] for row in best]
    assert np.array_equal(rows.features, indexed.features(["word3", "word20"], best))


def test_ranking_data(small) -> None:
    rows = collection_rows(*small, depth=5)
    raw, normal = to_ranking_data(rows, "none"), to_ranking_data(rows)
    assert raw.n_features == 16
    assert raw.query_ids == ["q1", "q2"]
    assert raw.document_ids[: len(rows[0].document_ids)] == rows[0].document_ids
    assert raw.features[raw.rows_of(1)] == pytest.approx(rows[1].features.astype(np.float32))
    assert raw.labels.tolist() == [*rows[0].labels, *rows[1].labels]
    for query in range(2):
        part = normal.features[normal.rows_of(query)]
        assert set(part.min(axis=0)) == {0.0}
        assert set(part.max(axis=0)) <= {0.0, 1.0}


def test_a_party_s_share_of_the_documents(small) -> None:
    collection, _ = small
    share = IndexedDocuments.build(collection.documents[:30], Tokeniser("none"))
    for query in collection_rows(collection, share, depth=50):
        assert set(query.document_ids) <= set(share.ids)


def test_nothing_gives_empty_data() -> None:
    empty = to_ranking_data([])
    assert (empty.n_rows, empty.n_queries, empty.n_features) == (0, 0, 16)


@pytest.mark.parametrize(
    ("documents", "features", "labels"),
    [(["a"], np.zeros((2, 3)), [0]), (["a"], np.zeros((1, 3)), [0, 1]), (["a"], np.zeros((1, 3)), [-1]),
     (["a"], np.zeros((1, 3)), [200]), (["a"], np.zeros(3), [0])],
)  # fmt: skip
def test_rows_that_do_not_fit_are_refused_by_the_query_s_name(documents, features, labels) -> None:
    with pytest.raises(BadInput, match="query q7"):
        to_ranking_data([QueryRows("q7", documents, features, labels)])


def test_queries_of_different_width_are_refused() -> None:
    with pytest.raises(BadInput, match="same number"):
        to_ranking_data([QueryRows("a", ["x"], np.zeros((1, n)), [0]) for n in (3, 4)])
