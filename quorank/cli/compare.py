"""`quorank compare RUN...`: settings side by side, with the significance of their differences."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from quorank.cli.display import print_result
from quorank.cli.options import Json
from quorank.errors import require

_COST = (
    "quorank: the privacy loss of {0} runs of the same clients composes, up to {0} times the ε of one run; "
    "see quorank privacy ledger RUN RUN..."
)


def compare(
    runs: Annotated[
        list[Path], Argument(help="Run directories; a grid directory stands for all of its runs.", metavar="RUN")
    ],
    plot: Annotated[Path | None, Option(help="Also draw learning curves into a file (.svg, .png, .pdf).")] = None,
    html: Annotated[Path | None, Option(help="Also write a self-contained HTML page.")] = None,
    as_json: Json = False,
) -> None:
    """Compare settings: means over runs, and significance of differences.

    Runs that differ only in their seed or fold are repetitions of one setting.
    Differences are from the first setting.
    """
    from rich.console import Console

    from quorank.experiments.finished_run import load_runs
    from quorank.reports.comparison import compare_table, group_runs
    from quorank.reports.panel_files import checked_format, learning_curves

    if plot is not None:
        checked_format(plot)  # before minutes of reading
        missing = f"the directory {plot.parent} does not exist"
        require(plot.parent.is_dir(), "folder.missing", missing, str(plot))
    loaded = load_runs(runs)
    groups = group_runs(loaded)
    table = compare_table(groups)
    messages = Console(stderr=True, soft_wrap=True, highlight=False)
    content = table.as_dict() if as_json else None
    print_result(content, as_json, lambda _: Console().print(table), indent=2, allow_nan=False, default=str)
    private = [run for run in loaded if (run.summary.get("privacy") or {}).get("epsilon") is not None]
    if len(private) > 1:
        messages.print(_COST.format(len(private)), markup=False)
    if plot is not None:
        from quorank.reports.panels import panels_of

        names = [group.label for group in groups]
        learning_curves(panels_of(groups, names), plot)
        messages.print(f"Learning curves: {plot}", markup=False)
    if html is not None:
        from quorank.reports.report import write_comparison

        messages.print(f"Report: {write_comparison(groups, html)}", markup=False)
