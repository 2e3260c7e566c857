"""`quorank reproduce PAPER/FIGURE`: a published figure again, with the paper's findings counted."""

from __future__ import annotations

import json as json_
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from quorank.experiments.grid import Cell
    from quorank.reproduce.figures import Figure
    from quorank.reproduce.studies import Study

MOST_JOBS = 8  # by default: every job holds a collection of its own in memory


def reproduce(
    figure: Annotated[
        str | None,
        typer.Argument(metavar="PAPER/FIGURE", help="Such as fpdgd/figure3; without it, a list of all."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A smaller version: about a minute instead of hours.")
    ] = False,
    data: Annotated[
        str | None,
        typer.Option(help="A collection of your own instead of the generated ones: a folder or a name."),
    ] = None,
    repetitions: Annotated[
        int | None, typer.Option(min=1, help="Runs of each setting; by default as many as the paper's.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Runs side by side; by default one a core, 8 at most.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Directory; by default one below runs/ named after the figure.")
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the results as JSON, alone, on stdout.")
    ] = False,
    list_: Annotated[bool, typer.Option("--list", help="List all figures.")] = False,
) -> None:
    """Reproduce a figure of a paper: run its experiment, draw it, and say which of its findings hold.

    The same command again goes on where it was stopped; finished runs are kept, also for more --repetitions.
    """
    if figure is None or list_:
        _list(json)
        return
    from quorank.reproduce import figure_parts

    if figure in figure_parts.names(studies=True):
        _study(figure, quick, data, repetitions, out, json)
        return
    from quorank.reproduce.figure_report import REPORT, renderable, write_all
    from quorank.reproduce.figure_results import as_dict, collect
    from quorank.reproduce.figures import load_figure

    chosen = load_figure(figure, quick=quick, data=data, repetitions=repetitions)
    folder = out or _default_folder(chosen, chosen.collections[0].label if data else "")
    _run(chosen, folder, jobs)
    results = collect(chosen, folder)
    write_all(results, folder, _command(chosen))
    if json:
        print(json_.dumps(as_dict(results), allow_nan=False))
        return
    from rich.console import Console

    Console().print(renderable(results))
    print(f"figure   {folder / 'figure.png'}\nreport   {folder / REPORT}")


def _study(
    name: str, quick: bool, data: str | None, repetitions: int | None, out: Path | None, json: bool
) -> None:
    """A figure that is no grid of runs."""
    from quorank.reproduce.figure_report import REPORT
    from quorank.reproduce.figure_runs import claim_folder
    from quorank.reproduce.studies import load_study
    from quorank.reproduce.studies.report import as_dict, renderable, write_all
    from quorank.reproduce.studies.study import Asked

    chosen = load_study(name, quick=quick, data=data, repetitions=repetitions)
    folder = out or _default_folder(chosen, Path(data).resolve().name if data else "")
    claim_folder(chosen, folder)
    with _steps(name) as progress:
        measured = chosen.part.measure(Asked(data, chosen.header.repetitions, folder, progress))
    write_all(chosen, measured, folder, _command(chosen))
    if json:
        print(json_.dumps(as_dict(chosen, measured), allow_nan=False))
        return
    from rich.console import Console

    Console().print(renderable(chosen, measured))
    if measured.charts:
        print(f"figure   {folder / 'figure.png'}")
    print(f"report   {folder / REPORT}")


@contextmanager
def _steps(name: str) -> Iterator[Callable[[int, int, str], None]]:
    """Progress through a study: a bar with the time left on a terminal, a line every few seconds elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from quorank.cli.display import LINE_SECONDS

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    terminal, shown = sys.stderr.isatty(), time.monotonic()
    with Progress(*columns, console=Console(stderr=True), expand=True, disable=not terminal) as bar:
        task = bar.add_task(name, total=None)

        def progress(done: int, total: int, what: str) -> None:
            nonlocal shown
            bar.update(task, completed=done, total=total, description=f"{name}: {what}")
            if not terminal and time.monotonic() - shown > LINE_SECONDS:
                shown = time.monotonic()
                print(f"{name}: {done}/{total}, {what}", file=sys.stderr)

        yield progress


def _list(json: bool) -> None:
    from quorank.reproduce import figure_parts

    shipped = sorted(figure_parts.names(studies=False) + figure_parts.names(studies=True))
    found = {name: figure_parts.header_of(name) for name in shipped}
    if json:
        print(
            json_.dumps([{"figure": name, "about": h.about, "paper": h.paper} for name, h in found.items()])
        )
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("figure", style="bold", no_wrap=True)
    table.add_column("what it compares")
    for name, header in found.items():
        table.add_row(name, header.about)
    Console().print(table)


def _run(figure: Figure, folder: Path, jobs: int | None) -> None:
    """All cells that are not finished yet."""
    from quorank.errors import Interrupted
    from quorank.experiments.grid import run_grid
    from quorank.experiments.run_directory import is_finished
    from quorank.process import available_threads
    from quorank.reports.report import report_page
    from quorank.reproduce.figure_runs import claim

    grid = claim(figure, folder, _command(figure))
    waiting = [cell for cell in figure.cells if not is_finished(folder / cell.name)]
    side_by_side = min(jobs or min(available_threads(), MOST_JOBS), max(len(waiting), 1))
    try:
        with _progress(figure, waiting, side_by_side) as finished:
            run_grid(grid, folder, jobs=side_by_side, resume=True, finished=finished, report=report_page)
    except (Interrupted, KeyboardInterrupt):
        print("quorank: stopped; the same command goes on where it is", file=sys.stderr)
        raise typer.Exit(130) from None


@contextmanager
def _progress(
    figure: Figure, waiting: list[Cell], jobs: int
) -> Iterator[Callable[[Cell, dict[str, Any]], None]]:
    """A bar on a terminal, a line every few seconds elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from quorank.cli.display import LINE_SECONDS
    from quorank.reports.statement import seconds

    total, done = len(figure.cells), len(figure.cells) - len(waiting)
    left = dict.fromkeys(cell.name for cell in waiting)
    took: dict[str, list[float]] = {}
    shown = time.monotonic()
    if done:
        print(f"{figure.name}: {done} of {total} runs are finished already", file=sys.stderr)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]}"),
    )
    terminal = sys.stderr.isatty()
    with Progress(*columns, console=Console(stderr=True), expand=True, disable=not terminal) as bar:
        task = bar.add_task(f"{figure.name}: runs", total=total, completed=done, left="")

        def finished(cell: Cell, summary: dict[str, Any]) -> None:
            nonlocal done, shown
            done += 1
            left.pop(cell.name)
            took.setdefault(_alike(cell), []).append(sum(summary["seconds"].values()) + 0.3)  # and its files
            remaining = _estimate([c for c in waiting if c.name in left], took) / jobs
            text = f"{seconds(remaining)} left" if left else "done"
            bar.update(task, completed=done, left=text)
            if not terminal and (time.monotonic() - shown > LINE_SECONDS or not left):
                shown = time.monotonic()
                print(f"{figure.name}: run {done}/{total}, {text}", file=sys.stderr)

        yield finished


def _alike(cell: Cell) -> str:
    """Cells that take about the same time."""
    return f"{cell.values['collection']}, {cell.values['variant']}"


def _estimate(cells: list[Cell], took: dict[str, list[float]]) -> float:
    """Seconds of these cells, from those that are finished: of their own kind, or of any."""
    all_of_them = [second for found in took.values() for second in found]
    times = (took.get(_alike(cell), all_of_them) for cell in cells)
    return sum(sum(found) / len(found) for found in times)


def _default_folder(figure: Figure | Study, collection: str) -> Path:
    words = (figure.name.replace("/", "-"), "quick" if figure.quick else "", collection)
    return Path("runs") / "-".join(word for word in words if word)


def _command(figure: Figure | Study) -> str:
    from shlex import quote

    words = ["quorank reproduce", figure.name]
    words += ["--quick"] if figure.quick else []
    words += ["--data", quote(figure.data)] if figure.data else []
    words += ["--repetitions", str(figure.asked)] if figure.asked else []
    return " ".join(words)
