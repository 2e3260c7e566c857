"""`quorank compare` and `quorank report` from outside."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from quorank.cli.compare import compare, report

pytestmark = pytest.mark.slow

app = typer.Typer()
app.command()(compare)
app.command()(report)


def _run(*arguments: object):
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, [str(a) for a in arguments])
    assert result.exit_code == 0
    return result


def test_report_of_several_runs_is_a_comparison(make_grid, make_run, tmp_path: Path) -> None:
    for runs in ([make_grid(seeds=1)], [make_run("a"), make_run("b", preset="navigational")]):
        _run("report", *runs, "--out", tmp_path / "page.html")
        assert "2 settings, 2 runs" in (tmp_path / "page.html").read_text()


def test_starting_costs_no_heavy_import() -> None:
    code = (
        "import sys, quorank.cli.compare;"
        "print([m for m in ('scipy', 'jinja2', 'pyarrow', 'numba') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
