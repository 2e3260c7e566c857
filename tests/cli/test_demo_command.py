"""`quorank demo`: the first thing that anybody types."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Quorank

SMALL = ("--clients", 20, "--rounds", 10)


def test_a_table_a_plot_and_a_page(process: Quorank, own_folder: Path) -> None:
    outcome = process("demo", *SMALL, "--out", "shown")
    assert outcome.code == 0 and "Traceback" not in outcome.err
    assert "20 clients" in outcome.err.replace("\n", " ")
    assert "FPDGD as published" in outcome.out and "recommended" in outcome.out
    assert "offline nDCG@10" in outcome.out and "B − A" in outcome.out
    assert max(map(len, outcome.out.splitlines())) <= 80
    shown = own_folder / "shown"
    assert outcome.out.splitlines()[-2:] == ["plot     shown/learning-curves.svg", "report   shown/report.html"]
    assert (shown / "learning-curves.svg").read_text().startswith("<svg xmlns=")
    page = (shown / "report.html").read_text()
    assert page.startswith("<!doctype html>") and "FPDGD as published" in page
    for name in ("fpdgd", "recommended"):
        assert json.loads((shown / name / "summary.json").read_text())["rounds"] == 10
    assert {path.name for path in shown.iterdir()} == {"fpdgd", "recommended", "learning-curves.svg", "report.html"}


@pytest.mark.usefixtures("no_pages")
def test_again_in_the_same_place_with_own_files(quorank: Quorank) -> None:
    made = quorank("data", "synthesize", "mq2007", "--queries", 30, "--seed", 5, "--out", "my data")
    assert made.code == 0 and made.out == "my data\n"
    for clients in (20, 10):
        outcome = quorank("demo", "--data", "my data", "--clients", clients, "--rounds", 4)
        assert outcome.code == 0, outcome.err
        assert f"{clients} clients search my data" in outcome.err
        summary = json.loads(Path("runs/demo/recommended/summary.json").read_text())
        assert summary["interactions"] == clients * 4 * 4
        assert summary["evaluation"]["test_queries"] == 10
