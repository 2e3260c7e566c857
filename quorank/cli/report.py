"""`quorank report RUN`: one self-contained HTML file about a run, or about a grid of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option


def report(
    run: Annotated[Path, Argument(help="A run directory, or a grid directory for all of its runs.")],
    out: Annotated[Path | None, Option(help="Where to write it; report.html in RUN unless given.")] = None,
    show: Annotated[bool, Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Write the report of a run: what was run, what came out, how private it was, how to do it again."""
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
