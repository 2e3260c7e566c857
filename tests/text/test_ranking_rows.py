"""From text collections to ranking data: candidates by BM25 with their features, normalised rows, and LETOR folders."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from generated_text import make_documents
from refusals import refused

from quorank.data.source import DataSource, feature_names, load
from quorank.text import FEATURE_NAMES, IndexedDocuments, Query, QueryRows, TextCollection, Tokeniser, to_ranking_data
from quorank.text.ranking_rows import write_letor_folder


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
    code = "query-rows.bad-label" if features.shape == (1, 3) and len(labels) == 1 else "query-rows.malformed"
    with refused(code, "query q7"):
        to_ranking_data([QueryRows("q7", documents, features, labels)])


def collection(queries: int = 10) -> TextCollection:
    """Queries of two words; each judges a document, and the last finds nothing."""
    asked = [Query(f"q {n}", f"word{n} word{n + 7}") for n in range(queries)] + [Query("nothing", "absent")]
    judged = {query.id: {f"d{n}": 1 + n % 6, "gone": 2} for n, query in enumerate(asked)}
    return TextCollection("made", tuple(make_documents()), tuple(asked), judged)


def test_rows_are_the_best_documents_with_their_features(tmp_path: Path) -> None:
    made = collection()
    write_letor_folder(made, tmp_path, depth=7)
    source = DataSource(str(tmp_path), normalize="none")
    found = load(source)
    sizes = [split.n_queries for split in found.splits.values()]
    assert sizes == [6, 2, 2] and found.train.n_features == 16
    assert feature_names(source, 16) == FEATURE_NAMES
    indexed = IndexedDocuments.build(made.documents)
    for split in found.splits.values():
        for q, name in enumerate(split.query_ids):
            query = made.queries[int(name.removeprefix("q_"))]
            terms = query.text.split()
            best, rows = indexed.best(terms, 7), split.rows_of(q)
            assert split.document_ids is not None
            assert [split.document_ids[row] for row in range(rows.start, rows.stop)] == [indexed.ids[d] for d in best]
            expected = indexed.features(terms, best).astype(np.float32)
            assert split.features[rows].tolist() == expected.tolist()
            grades = made.judgements[query.id]
            assert split.labels[rows].tolist() == [min(grades.get(indexed.ids[d], 0), 4) for d in best]


def test_too_few_judged_queries(tmp_path: Path) -> None:
    with refused("text.too-few-queries", "made"):
        write_letor_folder(collection(4), tmp_path)
    assert not any(tmp_path.iterdir())
