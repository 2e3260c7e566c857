"""`quorank reproduce PAPER/FIGURE`: repeat a published figure and count the findings that hold."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from quorank.cli.display import print_result, print_text, progress_lines, say, table_of
from quorank.cli.options import Json

if TYPE_CHECKING:
    from quorank.reproduce.figure import Figure, PaperFigure
    from quorank.reproduce.report import FigureReport
    from quorank.reproduce.studies import StudyFigure

MOST_JOBS = 8  # default; every job holds its own collection in memory


def reproduce(
    figures: Annotated[
        list[str] | None,
        Argument(
            metavar="PAPER/FIGURE...",
            help="fpdgd/figure3, or fpdgd for all figures of the paper.",
            show_default="list all",
        ),
    ] = None,
    all_: Annotated[bool, Option("--all", help="Reproduce all figures of all papers.")] = False,
    quick: Annotated[bool, Option("--quick", help="Run a smaller version: about a minute instead of hours.")] = False,
    data: Annotated[str | None, Option(help="Use your own collection, a folder or an imported name.")] = None,
    repetitions: Annotated[
        int | None, Option(min=1, help="Runs of each setting.", show_default="as in the paper")
    ] = None,
    jobs: Annotated[
        int | None, Option(min=1, help="Number of parallel runs.", show_default="one per core, at most 8")
    ] = None,
    out: Annotated[Path | None, Option(help="Output directory.", show_default="runs/FIGURE")] = None,
    record: Annotated[
        Path | None, Option(help="Also write findings, tables and curves as a data file into a folder.")
    ] = None,
    json: Json = False,
) -> None:
    """Reproduce a figure of a paper and count which of its findings hold.

    Repeat the command to continue after an interruption. Finished runs are
    reused, also with more --repetitions.
    """
    if not (figures or all_):
        _list(json)
        return
    from quorank.errors import require
    from quorank.files.atomic import make_folder
    from quorank.reproduce.record import write_record

    names = _select([] if all_ else figures or [])
    several = len(names) > 1
    require(
        not (several and json),
        "option.conflict",
        "is for one figure; with several, read results.json of each",
        "--json",
    )
    chosen = [_load(name, quick=quick, data=data, repetitions=repetitions) for name in names]
    for figure in chosen:
        folder = out / figure.name.replace("/", "-") if out and several else out or _default_folder(figure)
        report = _reproduce(figure, folder, jobs, json)
        if record is not None:
            make_folder(record)
            say(f"data     {write_record(report, record)}")


def _select(requested: list[str]) -> list[str]:
    """Return the names of requested figures, where a paper stands for all of its figures; all without a request."""
    from quorank.reproduce.figure import figure_names

    known = figure_names()
    groups = [[name for name in known if word in (name, name.partition("/")[0])] or [word] for word in requested]
    return list(dict.fromkeys(name for names in groups or [known] for name in names))


def _load(name: str, *, quick: bool, data: str | None, repetitions: int | None) -> Figure | StudyFigure:
    from quorank.reproduce.figure import read_figure, read_shipped
    from quorank.reproduce.studies import read_study

    document = read_shipped(name)
    if "study" in document.tables:
        return read_study(document, quick=quick, data=data, repetitions=repetitions)
    return read_figure(document, quick=quick, data=data, repetitions=repetitions)


def _reproduce(chosen: Figure | StudyFigure, folder: Path, jobs: int | None, json: bool) -> FigureReport:
    """Run a figure or a study; write, print and return its report."""
    from quorank.cli.run import run_cells
    from quorank.experiments.run_directory import is_finished
    from quorank.kernels.process import available_threads
    from quorank.reproduce.figure import Figure, figure_grid, reserve_folder
    from quorank.reproduce.figure_report import figure_report
    from quorank.reproduce.results import read_results
    from quorank.reproduce.studies import study_report
    from quorank.reproduce.studies.study import StudyRequest

    if isinstance(chosen, Figure):
        grid = figure_grid(chosen, folder)
        left = sum(not is_finished(folder / cell.name) for cell in grid.cells)
        side_by_side = min(jobs or min(available_threads(), MOST_JOBS), max(left, 1))
        run_cells(grid, folder, f"{chosen.command} --out {folder}", {"resume": True}, jobs=side_by_side)
        report = figure_report(read_results(chosen, folder))
    else:
        reserve_folder(chosen, folder)
        line, repetitions = progress_lines(f"{chosen.name}:"), chosen.header.repetitions

        def progress(done: int, total: int, what: str) -> None:
            line(done, total, lambda: f"{what}, ")

        request = StudyRequest(chosen.data, repetitions, folder, progress)
        report = study_report(chosen, chosen.part.measure(request))
    report.write(folder)
    print_result(report.results, json, lambda _: _show(report, folder))
    return report


def _show(report: FigureReport, folder: Path) -> None:
    from quorank.reproduce.report import PICTURE, REPORT

    print_text(report.terminal())
    if report.panels:
        print(f"figure   {folder / PICTURE}")
    print(f"report   {folder / REPORT}")


def _list(json: bool) -> None:
    from quorank.reproduce.figure import figure_names, read_shipped

    headers = {name: read_shipped(name).tables["figure"] for name in figure_names()}
    figures = [{"figure": name, "about": header["about"], "paper": header["paper"]} for name, header in headers.items()]
    table = table_of(("figure", "comparison"), [(each["figure"], each["about"]) for each in figures])
    table.columns[0].no_wrap = True
    print_result(figures, json, lambda _: print_text(table))


def _default_folder(figure: PaperFigure) -> Path:
    from quorank.reproduce.figure import collection_name

    collection = collection_name(figure.data) if figure.data else ""
    words = (figure.name.replace("/", "-"), "quick" if figure.quick else "", collection)
    return Path("runs") / "-".join(word for word in words if word)
