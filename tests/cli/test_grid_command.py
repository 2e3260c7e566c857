"""`quorank run` with a [grid], and what `compare` and `report` make of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import SMALL, Quorank

GRID = (
    SMALL.replace("rounds = 12", "rounds = 3")
    + '\n[grid]\nseed = [1, 2]\n"users.preset" = ["perfect", "informational"]\n'
)


@pytest.fixture
def file(own_folder: Path) -> Path:
    (own_folder / "grid.toml").write_text(GRID)
    return Path("grid.toml")


@pytest.mark.usefixtures("no_pages")
def test_a_line_per_run_then_a_table_then_a_page(quorank: Quorank, file: Path) -> None:
    outcome = quorank("run", file)
    assert outcome.code == 0
    first, *lines = outcome.err.splitlines()
    assert first.startswith("4 runs")
    assert [line.split()[0] for line in lines] == ["1/4", "2/4", "3/4", "4/4"]
    assert all("nDCG@10" in line for line in lines)
    assert "users.preset=informational" in outcome.out and max(map(len, outcome.out.splitlines())) <= 80
    assert outcome.out.splitlines()[-1] == "report   runs/grid/report.html"
    table = quorank("compare", "runs/grid")
    assert table.code == 0 and table.out.splitlines() == outcome.out.splitlines()[:-1]
    compared = json.loads(quorank("compare", "runs/grid", "--json").out)
    assert [setting["n"] for setting in compared["settings"]] == [2, 2]
    assert [Path(run).name for run in compared["settings"][0]["runs"]] == [
        "seed=1,preset=perfect",
        "seed=2,preset=perfect",
    ]
    assert quorank("report", "runs/grid", "--out", "page.html").out == "page.html\n"
    assert "users.preset" in Path("page.html").read_text()
    one = quorank("report", "runs/grid/seed=1,preset=perfect")
    assert one.code == 0 and Path(one.out.strip()).name == "report.html"


@pytest.mark.usefixtures("no_pages")
def test_json_is_a_list_of_named_summaries(quorank: Quorank, file: Path) -> None:
    outcome = quorank("run", file, "--json", "-q", "--out", "made")
    assert outcome.err == ""
    found = json.loads(outcome.out)
    assert [run["run"] for run in found] == json.loads(Path("made/grid.json").read_text())["runs"]
    for run in found:
        summary = json.loads(Path("made", run.pop("run"), "summary.json").read_text())
        assert run == summary


@pytest.mark.usefixtures("no_pages")
def test_the_seed_of_the_command_line_replaces_the_seeds_of_the_grid(quorank: Quorank, file: Path) -> None:
    found = json.loads(quorank("run", file, "--seed", 7, "--json", "-q").out)
    assert [(run["run"], run["seed"]) for run in found] == [("preset=perfect", 7), ("preset=informational", 7)]
