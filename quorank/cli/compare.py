"""`quorank compare RUN...` and `quorank report RUN...`: settings side by side, in the terminal and as a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from quorank.cli.display import print_result, print_text, say
from quorank.cli.options import Json
from quorank.errors import require

if TYPE_CHECKING:
    from quorank.experiments.run_directory import Run
    from quorank.reports.comparison import RunGroup

Runs = Annotated[
    list[Path], Argument(help="Run directories; a grid directory stands for all of its runs.", metavar="RUN")
]


Baseline = Annotated[
    str | None,
    Option(
        metavar="NAME",
        help="Setting that the others are compared with: its letter, values such as preset=perfect, or a run's directory.",
        show_default="the first",
    ),
]
By = Annotated[
    list[str] | None,
    Option(
        metavar="KEY",
        help="Group runs by a key of run.toml such as users.preset, and average over all others. Repeatable.",
        show_default="all keys but seed and fold",
    ),
]


def compare(runs: Runs, baseline: Baseline = None, by: By = None, as_json: Json = False) -> None:
    """Compare settings: means over runs, and significance of differences.

    Runs that differ only in their seed or fold are repetitions of one setting.
    Differences are from the first setting, or from --baseline.
    """
    from quorank.experiments.run_directory import load_runs
    from quorank.reports.comparison import compare_table

    loaded = load_runs(runs)
    table = compare_table(_groups(loaded, baseline, by))
    print_result(table.as_dict() | {"by": by} if as_json else table, as_json, print_text)
    private = sum((run.summary.get("privacy") or {}).get("epsilon") is not None for run in loaded)
    if private > 1:
        say(
            f"quorank: the privacy loss of {private} runs of the same clients composes, up to {private} times the ε of "
            "one run; see quorank privacy ledger RUN RUN..."
        )


def _groups(runs: list[Run], baseline: str | None, by: list[str] | None) -> list[RunGroup]:
    from quorank.reports.comparison import baseline_first, group_runs

    groups = group_runs(runs, by or ())
    return groups if baseline is None else baseline_first(groups, baseline)


def report(
    runs: Runs,
    baseline: Baseline = None,
    by: By = None,
    out: Annotated[Path | None, Option(help="Output file.", show_default="report.html in the first RUN")] = None,
) -> None:
    """Write an HTML report of a run, or of several side by side.

    It has settings, metrics, curves, privacy, and the command that repeats the run.
    """
    from quorank.experiments.run_directory import REPORT, is_grid, load_runs
    from quorank.reports.comparison import write_comparison
    from quorank.reports.report import write_report

    target = out if out is not None else runs[0] / REPORT
    several = len(runs) > 1 or is_grid(runs[0])
    alone = several or (baseline is None and not by)
    require(alone, "option.conflict", "--baseline and --by are for several runs, and this is one", f"{runs[0]}")
    groups = _groups(load_runs(runs), baseline, by) if several else []
    print(write_comparison(groups, target) if several else write_report(runs[0], target))
