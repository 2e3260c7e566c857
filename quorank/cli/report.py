"""`quorank report RUN`: one self-contained HTML file about a run, or about a grid of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option


def report(
    run: Annotated[Path, Argument(help="Run directory, or a grid directory for all of its runs.")],
    out: Annotated[Path | None, Option(help="Output file.", show_default="report.html in RUN")] = None,
    show: Annotated[bool, Option("--open", help="Open the report in the browser.")] = False,
) -> None:
    """Write a report: setting, metrics, curves, privacy, and how to repeat the run."""
    from quorank.experiments.finished_run import is_grid, load_runs
    from quorank.experiments.run_directory import REPORT
    from quorank.reports.comparison import group_runs
    from quorank.reports.report import write_comparison, write_report

    target = out if out is not None else run / REPORT
    if is_grid(run):
        written = write_comparison(group_runs(load_runs([run])), target)
    else:
        written = write_report(run, target)
    typer.echo(str(written))
    if show:
        import webbrowser

        webbrowser.open(written.resolve().as_uri())
