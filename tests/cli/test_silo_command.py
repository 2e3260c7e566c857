"""`quorank silo demo`: its table, its JSON, and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Quorank
from silo_groups import write_collection


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_collection(tmp_path_factory.mktemp("texts") / "rare", "own", 60, 16)


def test_the_demo_holds_the_ranker_against_the_search_that_parties_have(quorank: Quorank, collection: Path) -> None:
    outcome = quorank("silo", "demo", "--collection", collection, "--labelled", 2, "--trials", 2)
    assert outcome.code == 0, outcome.err
    for words in ("BM25 of title and body", "Learned alone, party A", "Learned alone, average", "Learned together"):
        assert words in outcome.out
    assert "under masks" in outcome.out and "trial 1 of 2" in outcome.err and "warning" not in outcome.err
    assert max(map(len, outcome.out.splitlines())) <= 80
    found = json.loads(
        quorank("silo", "demo", "--collection", collection, "--labelled", 2, "--trials", 1, "--json").out
    )
    assert list(found["table"]) == ["bm25", "w0", "alone", "ours"]
    assert found["table"]["ours"]["ndcg@10"] > 0.9


def test_several_collections_are_a_party_each(quorank: Quorank, tmp_path: Path, collection: Path) -> None:
    other = write_collection(tmp_path / "second", "other", 40, 16)
    words = ("silo", "demo", "--collection", collection, "--collection", other, "--trials", 1, "--json")
    assert list(json.loads(quorank(*words).out)["parties"]) == ["rare", "second"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--collection", "nowhere"), "nowhere: does not exist"),
        (("--seed", "99999999999999999999999"), "seed: must be"),
    ],
)
def test_refusals_are_one_sentence(quorank: Quorank, arguments: tuple[str, ...], words: str) -> None:
    assert words in quorank("silo", "demo", "--json", "--trials", 1, *arguments).err


@pytest.fixture
def lossy(tmp_path: Path) -> Path:
    """A collection with an empty document and a judgement of a document that is not there."""
    folder = write_collection(tmp_path / "lossy", "own", 60, 16)
    with (folder / "corpus.jsonl").open("a") as out:
        out.write(json.dumps({"_id": "empty", "title": "", "text": " "}) + "\n")
    with (folder / "qrels" / "test.tsv").open("a") as out:
        out.write("own-query-0\tgone\t1\nown-query-0\tempty\t1\n")
    return folder


LOST = {
    "judgements_of_unknown_documents": {"count": 1, "example": "gone"},
    "empty_documents": {"count": 1, "example": "empty"},
    "judgements_of_empty_documents": {"count": 1, "example": "empty"},
}


def test_what_was_left_out_is_told(quorank: Quorank, lossy: Path, collection: Path) -> None:
    words = ("demo", "--trials", 1, "--labelled", 2, "--json", "--collection")
    outcome = quorank("silo", *words, lossy)
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["skipped"] == {"lossy": LOST}
    assert "lossy: left out 1 × judgements of unknown documents ('gone'), 1 × empty" in outcome.err
    assert max(map(len, outcome.err.splitlines())) <= 80
    outcome = quorank("silo", *words, collection)
    assert json.loads(outcome.out)["skipped"] == {} and "left out" not in outcome.err
