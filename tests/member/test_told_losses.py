"""`quorank silo join`: what the reader of a party's collection left out is said, and kept for its status."""

from __future__ import annotations

import json
from typing import Any

from silo_groups import call, made, workplace, write_collection
from typer.testing import CliRunner

from quorank.cli.silo import app


def test_a_party_is_told_what_its_collection_lost(tmp_path, monkeypatch) -> None:
    """On stderr before anything is sent, and in its state for `--status --json`."""
    here = workplace(tmp_path, monkeypatch)
    made(here / "home")
    call("invite", "home", "north")
    texts = write_collection(here / "texts", "north")
    with (texts / "qrels" / "test.tsv").open("a") as out:
        out.write("north-query-0\tgone\t1\n")

    def ended(*_: Any, **__: Any) -> bool:
        return True

    monkeypatch.setattr("quorank.member.party_session.take_part", ended)
    words = ("join", "--data", "data", "--bundle", here / "north.json", "--collection", texts, "--json")
    result = CliRunner().invoke(app, [*map(str, words)])
    assert result.exit_code == 0, result.output
    assert "texts: left out 1 judgement of unknown documents ('gone')" in result.stderr
    lost = {"texts": {"judgements_of_unknown_documents": {"count": 1, "example": "gone"}}}
    assert json.loads(result.stdout)["skipped"] == lost
    assert json.loads(call("join", "--data", "data", "--status", "--json"))["skipped"] == lost
