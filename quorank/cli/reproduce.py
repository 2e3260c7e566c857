"""`quorank reproduce PAPER/FIGURE`: run a published figure again and count which of the paper's findings hold."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from quorank.cli.display import LINE_SECONDS, print_figures, print_text, say, table_of

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

    from quorank.experiments.grid import Cell
    from quorank.reproduce.figure import Figure, PaperFigure

MOST_JOBS = 8  # by default: every job holds a collection of its own in memory


def reproduce(
    figure: Annotated[
        str | None, Argument(metavar="PAPER/FIGURE", help="Such as fpdgd/figure3; without it, a list of all.")
    ] = None,
    quick: Annotated[bool, Option("--quick", help="A smaller version: about a minute instead of hours.")] = False,
    data: Annotated[
        str | None, Option(help="A collection of your own instead of the generated ones: a folder or a name.")
    ] = None,
    repetitions: Annotated[
        int | None, Option(min=1, help="Runs of each setting; by default as many as the paper's.")
    ] = None,
    jobs: Annotated[int | None, Option(min=1, help="Runs side by side; by default one a core, 8 at most.")] = None,
    out: Annotated[Path | None, Option(help="Directory; by default one below runs/ named after the figure.")] = None,
    json: Annotated[bool, Option("--json", help="Print the results as JSON, alone, on stdout.")] = False,
    list_: Annotated[bool, Option("--list", help="List all figures.")] = False,
) -> None:
    """Reproduce a figure of a paper: run its experiment, draw it, and say which of its findings hold.

    The same command again goes on where it was stopped; finished runs are kept, also for more --repetitions.
    """
    if figure is None or list_:
        _list(json)
        return
    from quorank.reproduce.figure import study_names

    if figure in study_names():
        _reproduce_study(figure, quick, data, repetitions, out, json)
        return
    from quorank.reproduce.figure import load_figure
    from quorank.reproduce.figure_report import render_results, write_report
    from quorank.reproduce.results import as_dict, read_results

    chosen = load_figure(figure, quick=quick, data=data, repetitions=repetitions)
    folder = out or _default_folder(chosen)
    _run(chosen, folder, jobs)
    results = read_results(chosen, folder)
    write_report(results, folder)
    told = as_dict(results)
    print_figures(told, json, lambda _: _show(render_results(results), folder, drawn=True), allow_nan=False)


def _reproduce_study(
    name: str, quick: bool, data: str | None, repetitions: int | None, out: Path | None, json: bool
) -> None:
    """Reproduce a figure that is not a grid of runs."""
    from rich.progress import TimeRemainingColumn

    from quorank.reproduce.figure_runs import reserve_folder
    from quorank.reproduce.studies.report import as_dict, render_results, write_report
    from quorank.reproduce.studies.study import StudyRequest
    from quorank.reproduce.studies.study_file import load_study

    chosen = load_study(name, quick=quick, data=data, repetitions=repetitions)
    folder = out or _default_folder(chosen)
    reserve_folder(chosen, folder)
    with _progress(name, TimeRemainingColumn()) as show:

        def progress(done: int, total: int, what: str) -> None:
            show(done, total, what, f"{done}/{total}, {what}")

        results = chosen.part.measure(StudyRequest(data, chosen.header.repetitions, folder, progress))
    write_report(chosen, results, folder)
    told, drawn = as_dict(chosen, results), bool(results.charts)
    print_figures(told, json, lambda _: _show(render_results(chosen, results), folder, drawn=drawn), allow_nan=False)


def _show(report: Any, folder: Path, *, drawn: bool) -> None:
    from rich.console import Console

    from quorank.reproduce.report import DRAWINGS, REPORT

    Console().print(report)
    if drawn:
        print(f"figure   {folder / DRAWINGS[0]}")
    print(f"report   {folder / REPORT}")


@contextmanager
def _progress(name: str, left: ProgressColumn) -> Iterator[Callable[..., None]]:
    """Show `show(done, total, what, line, **fields)`: a bar on a terminal, a line every few seconds elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=None), MofNCompleteColumn(), left)
    terminal, shown = sys.stderr.isatty(), time.monotonic()
    with Progress(*columns, console=Console(stderr=True), expand=True, disable=not terminal) as bar:
        task = bar.add_task(name, total=None, left="")

        def show(done: int, total: int, what: str, line: str, *, last: bool = False, left: str = "") -> None:
            nonlocal shown
            bar.update(task, completed=done, total=total, description=f"{name}: {what}", left=left)
            if not terminal and (time.monotonic() - shown > LINE_SECONDS or last):
                shown = time.monotonic()
                say(f"{name}: {line}")

        yield show


def _list(json: bool) -> None:
    from quorank.reproduce.figure import figure_names, read_header, study_names

    found = {name: read_header(name) for name in sorted(figure_names() + study_names())}
    table = [{"figure": name, "about": header.about, "paper": header.paper} for name, header in found.items()]
    print_figures(table, json, _show_list)


def _show_list(figures: list[dict[str, str]]) -> None:
    rows = [(figure["figure"], figure["about"]) for figure in figures]
    table = table_of(("figure", "what it compares"), rows, padding=(0, 2, 0, 0))
    table.columns[0].style, table.columns[0].no_wrap = "bold", True
    print_text(table)


def _run(figure: Figure, folder: Path, jobs: int | None) -> None:
    """Run all cells that are not finished yet."""
    from quorank.errors import Interrupted
    from quorank.experiments.grid import run_grid
    from quorank.experiments.run_directory import is_finished
    from quorank.process import available_threads
    from quorank.reports.report import report_page
    from quorank.reproduce.figure_runs import figure_grid

    grid = figure_grid(figure, folder)
    waiting = [cell for cell in figure.cells if not is_finished(folder / cell.name)]
    side_by_side = min(jobs or min(available_threads(), MOST_JOBS), max(len(waiting), 1))
    try:
        with _run_progress(figure, waiting, side_by_side) as finished:
            run_grid(grid, folder, jobs=side_by_side, resume=True, finished=finished, report=report_page)
    except (Interrupted, KeyboardInterrupt):
        say("quorank: stopped; the same command goes on where it is")
        raise typer.Exit(130) from None


@contextmanager
def _run_progress(figure: Figure, waiting: list[Cell], jobs: int) -> Iterator[Callable[[Cell, dict[str, Any]], None]]:
    """Show the progress of runs with an estimate of the time left, from the runs that are finished."""
    from rich.progress import TextColumn

    from quorank.reports.statement import seconds

    total, done = len(figure.cells), len(figure.cells) - len(waiting)
    left = dict.fromkeys(cell.name for cell in waiting)
    took: dict[str, list[float]] = {}
    if done:
        say(f"{figure.name}: {done} of {total} runs are finished already")
    with _progress(figure.name, TextColumn("{task.fields[left]}")) as show:

        def finished(cell: Cell, summary: dict[str, Any]) -> None:
            nonlocal done
            done += 1
            left.pop(cell.name)
            took.setdefault(_alike(cell), []).append(sum(summary["seconds"].values()) + 0.3)  # and its files
            remaining = _estimate([c for c in waiting if c.name in left], took) / jobs
            text = f"{seconds(remaining)} left" if left else "done"
            show(done, total, "runs", f"run {done}/{total}, {text}", last=not left, left=text)

        show(done, total, "runs", "")
        yield finished


def _alike(cell: Cell) -> str:
    """What cells that take about the same time have in common."""
    return f"{cell.values['collection']}, {cell.values['variant']}"


def _estimate(cells: list[Cell], took: dict[str, list[float]]) -> float:
    """Seconds of these cells, from those that are finished: of their own kind, or of any."""
    all_of_them = [second for found in took.values() for second in found]
    times = (took.get(_alike(cell), all_of_them) for cell in cells)
    return sum(sum(found) / len(found) for found in times)


def _default_folder(figure: PaperFigure) -> Path:
    from quorank.reproduce.figure import collection_name

    collection = collection_name(figure.data) if figure.data else ""
    words = (figure.name.replace("/", "-"), "quick" if figure.quick else "", collection)
    return Path("runs") / "-".join(word for word in words if word)
