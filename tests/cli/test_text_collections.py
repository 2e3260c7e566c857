"""`quorank data stats` and `import` on text collections: what they are, what was left out, and what to use them with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Quorank

ENGLISH = "the heat of a wing that was measured at high speed, and what it has to do with the shape which it had"


def write_smart(folder: Path, queries: int = 8) -> Path:
    """Eight documents, one of them empty; queries with leading zeros, one of which nobody judged."""
    folder.mkdir()
    bodies = [*(f"{ENGLISH} word{d % 4}" for d in range(1, 8)), ""]
    (folder / "x.all").write_text("".join(f".I {d}\n.T\n.W\n{body}\n" for d, body in enumerate(bodies, 1)))
    (folder / "x.qry").write_text("".join(f".I {q}\n.W\nword{q % 4} heat\n" for q in range(1, queries + 1)))
    rows = [f"{q:02} 0 {d:03} 1\n" for q in range(1, queries) for d in range(1, 8) if d % 4 == q % 4]
    (folder / "x.rel").write_text("".join([*rows, "01 0 008 1\n", "01 0 099 1\n", "77 0 001 1\n"]))
    return folder


def test_stats_say_what_a_text_collection_is_and_what_to_do_with_it(quorank: Quorank) -> None:
    outcome = quorank("data", "stats", write_smart(Path("my texts")))
    assert outcome.code == 0, outcome.err
    for words in ("SMART, a text collection", "7  0.0 words in a title, 24.0 in a body", "8  2.0 words each; 7 are judged",
                  "grades 1: 13 (100.0 %)", "english (", "quorank silo demo --collection 'my texts'",
                  "quorank data import 'my texts'", "quorank silo search"):  # fmt: skip
        assert words in outcome.out, outcome.out
    assert outcome.err.startswith("my texts: left out 1 × judgements of unknown queries ('77'), 1 × judgements of")
    assert max(map(len, (outcome.out + outcome.err).splitlines())) <= 80


def test_stats_of_a_text_collection_as_json(quorank: Quorank) -> None:
    found = json.loads(quorank("data", "stats", write_smart(Path("texts")), "--json").out)
    assert (found["kind"], found["format"], found["documents"], found["queries"]) == ("text", "SMART", 7, 8)
    assert (found["judged_queries"], found["judgements"], found["grades"]) == (7, 4 + 4 + 4 + 1, {"1": 13})
    assert found["language"]["language"] == "english" and found["mean_words"]["query"] == 2.0
    assert found["skipped"] == {
        "judgements_of_unknown_queries": {"count": 1, "example": "77"},
        "judgements_of_unknown_documents": {"count": 1, "example": "099"},
        "empty_documents": {"count": 1, "example": "8"},
        "judgements_of_empty_documents": {"count": 1, "example": "8"},
    }
    assert "quorank data import texts" in found["use"]


def test_import_tells_texts_by_themselves_and_what_was_left_out(quorank: Quorank) -> None:
    outcome = quorank("data", "import", write_smart(Path("texts")), "--depth", 5, "--json")
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    assert (found["name"], found["queries"], found["features"]) == ("texts", 7, 16)
    assert found["skipped"]["queries_without_judgements"] == {"count": 1, "example": "8"}
    assert found["skipped"]["empty_documents"]["count"] == 1
    assert "texts: left out 1 × judgements of unknown queries ('77')" in outcome.err
    assert json.loads(quorank("data", "stats", "texts", "--json").out)["kind"] == "text"  # the folder comes first


@pytest.mark.parametrize("name", ["test.txt", "part.txt.gz"])
def test_letor_rows_without_their_layout_are_no_texts(quorank: Quorank, name: str) -> None:
    Path("letor").mkdir()
    (Path("letor") / name).write_text("2 qid:1 1:0.5 2:0.1\n0 qid:1 1:0.2 2:0.3\n")
    for verb in ("stats", "import"):
        assert "train.txt" in quorank("data", verb, "letor").refused()


def test_texts_named_like_the_splits_of_letor_are_texts(quorank: Quorank) -> None:
    Path("texts").mkdir()
    for name in ("train.txt", "vali.txt", "test.txt"):
        (Path("texts") / name).write_text(f"Title\n\n{ENGLISH}\n")
    found = json.loads(quorank("data", "stats", "texts", "--json").out)
    assert (found["kind"], found["format"], found["documents"]) == ("text", "folder of text files", 3)
