"""The reader of judgements per intent: hand-written folders, broken ones by file and line, the real one's counts."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from quorank.data.intents import intent_collection, read_intents
from quorank.data.letor.reader import read_letor
from quorank.data.normalisation import normalize_queries
from quorank.errors import BadInput

HEADER = "fold\tqid\tdocid\tgraded\ti0\ti1\ti2\ti3\ti4"


def row_of(fold: int, document: int) -> tuple[int, list[int]]:
    """Graded label and intents: document d of fold f is relevant to intent d, and in fold 1 also to intent 3."""
    intents = [int(document == i or (fold == 1 and i == 3)) for i in range(5)]
    return (document + fold) % 3, intents


@pytest.fixture
def folder(tmp_path) -> Path:
    """Five folds with a query of four documents each; fold 2 has a second query with nothing for intent 3."""
    folder = tmp_path / "intents"
    folder.mkdir()
    lines = [HEADER]
    for fold in range(1, 6):
        text = []
        for query, documents in [(f"q{fold}", 4), *([("extra", 3)] if fold == 2 else [])]:
            for document in range(documents):
                graded, intents = row_of(fold, document)
                text.append(f"{graded} qid:{query} 1:{fold} 2:{document} #docid = {query}-{document}")
                lines.append("\t".join(map(str, [fold, query, f"{query}-{document}", graded, *intents])))
        (folder / f"fold{fold}.txt").write_text("\n".join(text) + "\n")
    (folder / "intent_labels.tsv").write_text("\n".join(lines) + "\n")
    return folder


def change(folder: Path, line: int, new: str | None) -> None:
    table = folder / "intent_labels.tsv"
    lines = table.read_text().splitlines()
    lines[line - 1 : line] = [] if new is None else [new]
    table.write_text("\n".join(lines) + "\n")


def test_what_is_read(folder) -> None:
    found = read_intents(folder)
    assert list(found.data.query_ids) == ["q1", "q2", "extra", "q3", "q4", "q5"]
    assert found.fold.tolist() == [1, 2, 2, 3, 4, 5]
    assert found.data.offsets.tolist() == [0, 4, 8, 11, 15, 19, 23]
    assert found.data.labels[:4].tolist() == [1, 2, 0, 1]
    assert found.data.features[4:8].tolist() == [[2, d] for d in range(4)]
    assert found.labels.shape == (4, 23) and found.labels.dtype == np.int8
    assert found.labels[:, :4].T.tolist() == [[1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 1], [0, 0, 0, 1]]
    assert found.labels[:, 8:11].T.tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]


def test_the_order_of_the_table_does_not_matter_and_it_may_be_gzipped(folder) -> None:
    expected = read_intents(folder).labels
    table = folder / "intent_labels.tsv"
    header, *lines = table.read_text().splitlines()
    table.unlink()
    with gzip.open(folder / "intent_labels.tsv.gz", "wt") as file:
        file.write("\r\n".join([header, *reversed(lines), ""]))
    found = read_intents(folder, lambda path: normalize_queries(read_letor(path)))
    assert np.array_equal(found.labels, expected)
    assert found.data.features[:4].tolist() == [[0, np.float32(d / 3)] for d in range(4)], "normalised within queries"


def test_complete_queries_have_a_relevant_document_for_every_intent(folder) -> None:
    found = read_intents(folder).complete()
    assert list(found.data.query_ids) == ["q1", "q2", "q3", "q4", "q5"]
    assert found.data.offsets.tolist() == [0, 4, 8, 12, 16, 20] and found.fold.tolist() == [1, 2, 3, 4, 5]
    assert found.data.features[:, 0].tolist() == [f for f in range(1, 6) for _ in range(4)]
    assert list(found.data.document_ids or [])[8] == "q3-0"
    assert found.labels[:, 8:12].tolist() == np.eye(4).tolist()


def test_a_collection_is_tested_on_its_training_queries_or_on_a_fold(folder) -> None:
    whole = intent_collection(folder)
    assert list(whole.train.query_ids) == list(whole.test.query_ids) == ["q1", "q2", "q3", "q4", "q5"]
    assert np.array_equal(whole.train_intents, whole.test_intents)
    fourth = intent_collection(folder, fold=4)
    assert list(fourth.train.query_ids) == ["q1", "q4", "q5"], "parts 4, 5 and 1, in the order of the files"
    assert list(fourth.test.query_ids) == ["q3"]
    assert fourth.test_intents.tolist() == np.eye(4).tolist()


@pytest.mark.parametrize(
    ("line", "new", "sentence"),
    [
        (1, HEADER.replace("docid", "doc"), "tsv:1: found the header 'fold qid doc .*', expected 'fold qid docid"),
        (3, "1\tq1\tq1-1\t2\t0\t1\t0\t1", "tsv:3: found 8 columns, expected the 9 of the header"),
        (3, "1\tq1\tq1-1\t2\t0\t2\t0\t1\t0", "tsv:3: found i1 = '2', expected 0 or 1"),
        (3, "1\tq1\tq1-1\t1\t0\t1\t0\t1\t0", "tsv:3: found graded label '1', but the document has label 2 in fold 1"),
        (3, "1\tq1\tq1-9\t2\t0\t1\t0\t1\t0", "tsv:3: found document 'q1-9' of query 'q1', which fold 1 does not have"),
        (3, "1\tq1\tq1-0\t1\t1\t0\t0\t1\t0", "tsv:3: document 'q1-0' of query 'q1' is judged twice"),
        (4, None, "no judgement for 1 of 23 rows; the first is document 'q1-2' of query 'q1' in fold 1"),
    ],
)
def test_a_broken_table_is_refused_by_line(folder, line, new, sentence) -> None:
    change(folder, line, new)
    with pytest.raises(BadInput, match=sentence):
        read_intents(folder)


def test_other_broken_folders(folder, tmp_path) -> None:
    with pytest.raises(BadInput, match=r"nowhere: is no folder; expected one with fold1.txt to fold5.txt"):
        read_intents(tmp_path / "nowhere")
    with pytest.raises(BadInput, match="fold: must be at least 1 and at most 5, got 6"):
        intent_collection(folder, fold=6)
    bad = folder / "fold4.txt"
    text = bad.read_text()
    bad.write_text(text + text.splitlines()[0].replace("2:0", "2:x") + "\n")
    with pytest.raises(BadInput, match=r"fold4.txt:5: found '2:x'"):
        read_intents(folder)
    bad.write_text(text + text.splitlines()[0] + "\n")
    with pytest.raises(BadInput, match="fold 4 holds document 'q4-0' twice for query 'q4'"):
        read_intents(folder)
    bad.write_text(text)
    (folder / "intent_labels.tsv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match="is not UTF-8 text"):
        read_intents(folder)
    (folder / "intent_labels.tsv").unlink()
    with pytest.raises(BadInput, match=r"has no intent_labels.tsv or intent_labels.tsv.gz"):
        read_intents(folder)
    (folder / "fold5.txt").unlink()
    with pytest.raises(BadInput, match=r"has no fold5.txt or fold5.txt.gz"):
        read_intents(folder)
