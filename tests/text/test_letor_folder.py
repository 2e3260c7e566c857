"""Text collections as LETOR files: candidates by BM25, the sixteen features under their names, three splits."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from generated_text import make_documents
from refusals import refused
from typer.testing import CliRunner

from quorank.cli.data import app
from quorank.data.source import DataSource, feature_names, load, typed_name
from quorank.text import FEATURE_NAMES, IndexedDocuments, Query, TextCollection
from quorank.text.ranking_rows import write_letor_folder


def collection(queries: int = 10) -> TextCollection:
    """Queries of two words; each judges a document, and the last finds nothing."""
    asked = [Query(f"q {n}", f"word{n} word{n + 7}") for n in range(queries)] + [Query("nothing", "absent")]
    judged = {query.id: {f"d{n}": 1 + n % 6, "gone": 2} for n, query in enumerate(asked)}
    return TextCollection("made", tuple(make_documents()), tuple(asked), judged)


def one_word(id_: str) -> str:
    return id_.replace(" ", "-")


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


def test_an_imported_text_collection_shows_the_names_to_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUORANK_HOME", str(tmp_path / "home"))
    folder, made = tmp_path / "set", collection()
    (folder / "qrels").mkdir(parents=True)
    documents = [{"_id": d.id, "title": d.title, "text": d.body} for d in made.documents]
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, documents)))
    (folder / "queries.jsonl").write_text(
        "\n".join(json.dumps({"_id": one_word(q.id), "text": q.text}) for q in made.queries)
    )
    rows = [
        f"{one_word(q)}\t{d}\t{grade}"
        for q, grades in made.judgements.items()
        for d, grade in grades.items()
        if d != "gone"
    ]
    (folder / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows, ""]))

    def said(*words: object) -> str:
        result = CliRunner().invoke(app, [*map(str, words)])
        assert result.exit_code == 0, result.output
        return result.stdout

    assert 'source = "mine"' in said("import", folder, "--text", "--name", "mine", "--depth", 7)
    shown = said("stats", "mine")
    assert all(typed_name(name) in shown for name in FEATURE_NAMES)
    assert json.loads(said("stats", "mine", "--json"))["feature_names"] == [*FEATURE_NAMES]
    assert "start names" not in said("stats", "synthetic:mq2007", "--queries", 9)
