"""Text collections as LETOR files: candidates by BM25, the sixteen features under their names, three splits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from generated_text import make_documents
from refusals import refused

from quorank.data.source import DataSource, feature_names, load
from quorank.text import FEATURE_NAMES, IndexedDocuments, Query, TextCollection
from quorank.text.ranking_rows import write_letor_folder


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
