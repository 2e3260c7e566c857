"""From candidates with features to ranking data."""

from __future__ import annotations

import numpy as np
import pytest
from generated_text import make_documents

from quorank.errors import BadInput
from quorank.text import IndexedDocuments, QueryRows, Tokeniser, to_ranking_data


def test_ranking_data() -> None:
    indexed = IndexedDocuments.build(make_documents(60), Tokeniser("none"))
    rows = []
    for name, terms in (("q1", ["word3", "word20"]), ("q2", ["word90"])):
        best = indexed.best(terms, 5)
        labels = [row % 3 for row in best.tolist()]
        rows.append(QueryRows(name, [indexed.ids[row] for row in best], indexed.features(terms, best), labels))
    data = to_ranking_data(rows)
    assert data.n_features == 16
    assert data.query_ids == ["q1", "q2"]
    assert data.document_ids == [*rows[0].document_ids, *rows[1].document_ids]
    assert data.labels.tolist() == [*rows[0].labels, *rows[1].labels]
    for query, row in enumerate(rows):
        low, high = row.features.min(axis=0), row.features.max(axis=0)
        expected = np.divide(row.features - low, high - low, out=np.zeros_like(row.features), where=high > low)
        assert data.features[data.rows_of(query)] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("documents", "features", "labels"),
    [(["a"], np.zeros((2, 3)), [0]), (["a"], np.zeros((1, 3)), [0, 1]), (["a"], np.zeros((1, 3)), [-1]),
     (["a"], np.zeros((1, 3)), [200]), (["a"], np.zeros(3), [0])],
)  # fmt: skip
def test_rows_that_do_not_fit_are_refused_by_the_query_s_name(documents, features, labels) -> None:
    with pytest.raises(BadInput, match="query q7"):
        to_ranking_data([QueryRows("q7", documents, features, labels)])
