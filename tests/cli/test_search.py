"""`quorank search` in the terminal: outputs that others rely on, and a sentence for every bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import invoke
from refusals import refused

from quorank.cli.search import app


def quorank(home: Path, *words: str) -> str:
    return invoke(app, "--home", home, *words).stdout


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "ferry.txt").write_text("timetable of the ferry\n")
    (folder / "notes.md").write_text("# Summer notes\n\nThe ferry leaves at nine \x1b[31mred.\n")
    (folder / "secret.pdf").write_bytes(b"%PDF-1.4 broken")
    quorank(tmp_path / "home", "add", str(folder), "-q")
    return tmp_path / "home"


def test_results_as_json_have_the_agreed_shape(home: Path) -> None:
    found = json.loads(quorank(home, "find", "ferry", "--json"))
    assert list(found) == ["results"]
    assert [list(result) for result in found["results"]] == [["path", "title", "source", "band", "score"]] * 2
    first, second = found["results"]
    assert first["band"] == "exact name" and first["path"].endswith("ferry.txt") and first["source"] == "folder"
    assert second["band"] == "all words" and second["title"] == "Summer notes"
    assert json.loads(quorank(home, "find", "nothinglikeit", "--json")) == {"results": []}


def test_text_for_people_obeys_no_control_characters(home: Path) -> None:
    shown = quorank(home, "find", "leaves", "nine")
    assert "Summer notes" in shown and "\x1b" not in shown
    why = quorank(home, "why", "ferry")
    assert "exact name" in why and "BM25 of body" in why


def test_what_was_passed_over_is_told(home: Path) -> None:
    assert "pdf" in quorank(home, "status", "--log")
    (source,) = json.loads(quorank(home, "status", "--log", "--json"))["sources"]
    assert source["documents"] == 3 and source["skipped"] == 1 and source["log"][0]["key"] == "secret.pdf"
    again = json.loads(quorank(home, "add", "--json"))["sources"][0]
    assert (again["added"], again["unchanged"]) == (0, 3)


def test_documents_queries_and_everything_are_forgotten(home: Path, tmp_path: Path) -> None:
    done = json.loads(quorank(home, "forget", str(tmp_path / "files" / "ferry.txt"), "--json"))
    assert done == {"documents": 1, "choices": 0}
    assert len(json.loads(quorank(home, "find", "ferry", "--json"))["results"]) == 1
    assert json.loads(quorank(home, "forget", "--all", "--yes", "--json"))["documents"] == 2
    assert json.loads(quorank(home, "status", "--json"))["sources"] == []


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("add",), "source.missing"),
        (("add", "nowhere"), "file.missing"),
        (("add", "--mbox", "nowhere"), "file.missing"),
        (("add", __file__), "source.single-file"),
        (("forget",), "option.missing"),
        (("forget", "--all"), "option.missing"),
        (("forget", "/nowhere"), "document.missing"),
        (("join", "nowhere.json"), "file.unreadable"),
        (("add", "--language", "klingon", "."), "value.not-a-choice"),
    ],
)
def test_bad_input_is_refused(tmp_path: Path, words: tuple[str, ...], code: str) -> None:
    with refused(code):
        quorank(tmp_path / "home", *words)
