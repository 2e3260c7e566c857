"""`quorank silo search` and `audit`: figures on stdout, sentences for what cannot be searched."""

from __future__ import annotations

import json

import numpy as np
import pytest
import typer
from refusals import refused
from typer.testing import CliRunner

from quorank.cli.silo_search import audit, search
from quorank.member.private_store import PrivateStore

APP = typer.Typer()
APP.command()(search)
APP.command()(audit)
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """120 documents on six subjects, in the layout of BEIR."""
    random = np.random.default_rng(1)
    home = tmp_path_factory.mktemp("texts")
    lines = []
    for number in range(120):
        words = [f"subject{number % 6}word{each}" for each in random.integers(0, 15, 25)]
        lines.append(json.dumps({"_id": f"d{number}", "title": f"Report {number}", "text": " ".join(words)}))
    (home / "corpus.jsonl").write_text("\n".join(lines))
    return home


def run(*words: str):
    result = CliRunner().invoke(APP, [str(word) for word in words], catch_exceptions=False, env={"COLUMNS": "80"})
    assert result.exit_code == 0
    return result


def test_json_has_documents_costs_and_privacy(folder) -> None:
    found = json.loads(run("search", folder, "subject1word3 subject1word4", "--json", "--as", "B").stdout)
    assert found["asker"] == "B" and set(found["parties"]) == {"A", "C", "D"}
    assert {each["party"] for each in found["found"]} - {"B"}
    own = [each for each in found["found"] if each["party"] == "B"]
    assert all(each["id"] for each in own) and all(found["titles"][each["id"]] for each in own)
    told = found["parties"]["A"]
    assert told["privacy"]["epsilon"] == 8.0 and told["entries"] <= told["most_entries"]


def test_the_table_fits_eighty_columns_and_says_what_was_told(folder) -> None:
    shown = run("search", folder, "subject1word3 subject1word4").stdout
    assert max(len(line.rstrip()) for line in shown.splitlines()) <= 80
    assert "ε = 8" in shown and "entries" in shown


def test_what_cannot_be_searched_is_said(folder, tmp_path) -> None:
    for code, words in (
        ("silo-group.unknown-party", (folder, "subject1word3", "--as", "Z")),
        ("silo-search.no-term", (folder, "the of and")),
        ("file.missing", (tmp_path / "nowhere", "word")),
        ("text.unknown-format", (tmp_path, "word")),
    ):
        with refused(code):
            run("search", *words)
    PrivateStore(tmp_path).close()
    with refused("invitation.missing"):  # a party's folder, and not a whole one
        run("search", tmp_path, "word")


def test_subfolders_are_parties(folder, tmp_path) -> None:
    for name in ("north", "south pole"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "corpus.jsonl").write_text((folder / "corpus.jsonl").read_text())
    found = json.loads(run("search", tmp_path, "subject1word3", "--json").stdout)
    assert found["asker"] == "north" and set(found["parties"]) == {"south-pole"}


def test_an_audit_names_what_attacks_rebuild(folder) -> None:
    found = json.loads(run("audit", "--collection", folder, "--words", "100", "--json").stdout)
    attacks = found["attacks"]
    assert attacks["frequent words first"]["recovered"] < 0.05
    assert attacks["published form"]["recovered"] > 0.9
    assert "published form" in run("audit", "--collection", folder, "--words", "100").stdout
