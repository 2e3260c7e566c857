"""`quorank compare RUN...`: settings side by side, with the significance of their differences."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from quorank.errors import require

_COST = (
    "quorank: looking at {0} private runs of the same clients costs what they compose to, up to {0} times one's ε: "
    "quorank privacy ledger RUN RUN... says how much"
)


def compare(
    runs: Annotated[
        list[Path], Argument(help="Run directories, or grid directories for all of their runs.", metavar="RUN")
    ],
    plot: Annotated[
        Path | None, Option(help="Also draw the learning curves into this file (.svg, .png, .pdf).")
    ] = None,
    html: Annotated[Path | None, Option(help="Also write a self-contained HTML page.")] = None,
    as_json: Annotated[bool, Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Put runs side by side: means over runs, differences from the first setting, their significance.

    Runs that differ only in their seed or fold are repetitions of one setting; the first setting is the
    baseline.
    """
    from rich.console import Console

    from quorank.experiments.finished_run import load_runs
    from quorank.reports.comparison import compare_table, group_runs
    from quorank.reports.panel_files import checked_format

    if plot is not None:
        checked_format(plot)  # before minutes of reading, not after
        missing = f"the directory {plot.parent} does not exist"
        require(plot.parent.is_dir(), "folder.missing", missing, str(plot))
    found = load_runs(runs)
    groups = group_runs(found)
    table = compare_table(groups)
    messages = Console(stderr=True, soft_wrap=True, highlight=False)
    if as_json:
        import json

        typer.echo(json.dumps(table.as_dict(), indent=2, allow_nan=False, default=str))
    else:
        Console().print(table)
    private = [run for run in found if (run.summary.get("privacy") or {}).get("epsilon") is not None]
    if len(private) > 1:
        messages.print(_COST.format(len(private)), markup=False)
    if plot is not None:
        from quorank.reports.panel_files import learning_curves
        from quorank.reports.panels import panels_of

        names = [group.label for group in groups]
        learning_curves(panels_of(groups, names), plot)
        messages.print(f"Learning curves: {plot}", markup=False)
    if html is not None:
        from quorank.reports.report import write_comparison

        messages.print(f"Report: {write_comparison(groups, html)}", markup=False)
