"""`quorank compare` and `quorank report` from outside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from quorank.cli.compare import compare
from quorank.cli.report import report
from quorank.errors import BadInput

pytestmark = pytest.mark.slow

app = typer.Typer()
app.command()(compare)
app.command()(report)


def _run(*arguments: object):
    return CliRunner(env={"COLUMNS": "80"}).invoke(app, [str(a) for a in arguments])


def test_compare_prints_a_table(make_grid) -> None:
    result = _run("compare", make_grid(seeds=2))
    assert result.exit_code == 0
    assert "offline nDCG@10" in result.stdout and "B − A" in result.stdout
    assert "…" not in result.stdout
    assert max(len(line) for line in result.stdout.splitlines()) <= 80


def test_compare_json_is_alone_on_stdout(make_grid, tmp_path: Path) -> None:
    plot, html = tmp_path / "curves.svg", tmp_path / "compare.html"
    result = _run("compare", make_grid(seeds=2), "--json", "--plot", plot, "--html", html)
    assert result.exit_code == 0
    assert [s["n"] for s in json.loads(result.stdout)["settings"]] == [2, 2]
    assert "curves.svg" in result.stderr and "compare.html" in result.stderr
    assert plot.read_bytes().startswith(b"<?xml") and html.read_text().startswith("<!doctype html>")


def test_compare_refuses_a_plot_format_before_it_reads_anything(tmp_path: Path) -> None:
    result = _run("compare", tmp_path / "nowhere", "--plot", tmp_path / "x.gif")
    assert isinstance(result.exception, BadInput)
    assert ".gif" in str(result.exception)


def test_report_is_written_into_the_run(make_run) -> None:
    folder = make_run()
    result = _run("report", folder)
    assert result.exit_code == 0
    assert result.stdout == f"{folder / 'report.html'}\n"
    assert "Quorank run" in (folder / "report.html").read_text()


def test_report_of_a_grid_is_a_comparison(make_grid, tmp_path: Path) -> None:
    result = _run("report", make_grid(seeds=1), "--out", tmp_path / "grid.html")
    assert result.exit_code == 0
    assert "2 settings, 2 runs" in (tmp_path / "grid.html").read_text()


def test_report_opens_the_browser_when_asked(make_run, monkeypatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    folder = make_run()
    assert _run("report", folder, "--open").exit_code == 0
    assert opened == [(folder / "report.html").resolve().as_uri()]


def test_starting_costs_no_heavy_import() -> None:
    import subprocess
    import sys

    code = (
        "import sys, quorank.cli.compare, quorank.cli.report;"
        "print([m for m in ('scipy', 'matplotlib', 'pyarrow', 'numba') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
