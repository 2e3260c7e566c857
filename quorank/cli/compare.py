"""`quorank compare RUN...` and `quorank report RUN...`: settings side by side, in the terminal and as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from quorank.cli.display import print_result, print_text, say
from quorank.cli.options import Json

Runs = Annotated[
    list[Path], Argument(help="Run directories; a grid directory stands for all of its runs.", metavar="RUN")
]


def compare(runs: Runs, as_json: Json = False) -> None:
    """Compare settings: means over runs, and significance of differences.

    Runs that differ only in their seed or fold are repetitions of one setting.
    Differences are from the first setting.
    """
    from quorank.experiments.run_directory import load_runs
    from quorank.reports.comparison import compare_table, group_runs

    loaded = load_runs(runs)
    table = compare_table(group_runs(loaded))
    print_result(table.as_dict() if as_json else table, as_json, print_text)
    private = sum((run.summary.get("privacy") or {}).get("epsilon") is not None for run in loaded)
    if private > 1:
        say(
            f"quorank: the privacy loss of {private} runs of the same clients composes, up to {private} times the ε of "
            "one run; see quorank privacy ledger RUN RUN..."
        )


def report(
    runs: Runs,
    out: Annotated[Path | None, Option(help="Output file.", show_default="report.html in the first RUN")] = None,
) -> None:
    """Write an HTML report of a run, or of several side by side.

    It has settings, metrics, curves, privacy, and the command that repeats the run.
    """
    from quorank.experiments.run_directory import REPORT, is_grid, load_runs
    from quorank.reports.comparison import group_runs, write_comparison
    from quorank.reports.report import write_report

    target = out if out is not None else runs[0] / REPORT
    several = len(runs) > 1 or is_grid(runs[0])
    print(write_comparison(group_runs(load_runs(runs)), target) if several else write_report(runs[0], target))
