"""What a study found, for people: the tables of a terminal, a drawing, and a page that loads nothing."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from quorank import __version__
from quorank.experiments import run_directory as storage
from quorank.files import write_whole
from quorank.reports import page
from quorank.reports.curves import FAINT, GRID, INK, save, svg
from quorank.reports.panels import PALETTE, compact
from quorank.reproduce.figure_report import DRAWINGS, REPORT, RESULTS
from quorank.reproduce.studies import Study
from quorank.reproduce.studies.study import Chart, Line, Measured

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing
    from rich.console import Group as Renderable

PANEL = (3.4, 2.7)  # inches
MOST_COLUMNS = 3
FINDINGS = ("the paper's findings", "here", "what was seen")
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.6)), (0, (1.2, 1.2)))


def write_all(study: Study, measured: Measured, folder: Path, command: str) -> None:
    """Drawing, results and report into the figure's directory."""
    drawing = None
    if measured.charts:
        drawing = draw(study.title, measured.charts)
        for name in DRAWINGS:
            save(drawing, folder / name)
    write_whole(folder / RESULTS, storage.json_bytes(as_dict(study, measured)))
    text = html(study, measured, "" if drawing is None else svg(drawing, "figure"), command)
    write_whole(folder / REPORT, text.encode())


def as_dict(study: Study, measured: Measured) -> dict[str, Any]:
    """All of it as plain values."""
    return {
        "figure": study.name,
        "quick": study.quick,
        "data": study.data,
        "repetitions": study.header.repetitions,
        "findings": [dataclasses.asdict(v) for v in measured.verdicts],
        "sheets": [dataclasses.asdict(s) for s in measured.sheets],
        "charts": [_chart(c) for c in measured.charts],
        "numbers": dict(measured.numbers),
        "notes": list(measured.notes),
        "version": __version__,
    }


def _chart(chart: Chart) -> dict[str, Any]:
    lines = [
        {"label": line.label, "x": _numbers(line.x), "y": _numbers(line.y)}
        | ({} if line.spread is None else {"spread": _numbers(line.spread)})
        for line in chart.lines
    ]
    return {"title": chart.title, "x": chart.x, "y": chart.y, "lines": lines}


def _numbers(values: Any) -> list[float | None]:
    return [float(v) if np.isfinite(v) else None for v in values]


def draw(title: str, charts: tuple[Chart, ...]) -> Drawing:
    """The charts, up to three in a row, each with its own legend below."""
    from matplotlib.figure import Figure as Drawing
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    columns = min(MOST_COLUMNS, len(charts)) if len(charts) != 4 else 2
    rows = -(-len(charts) // columns)
    labels = {tuple(line.label for line in chart.lines) for chart in charts}
    shared = len(labels) == 1 and len(charts) > 1  # one legend for all of them
    below = 0 if shared else max(len(chart.lines) if len(chart.lines) > 1 else 0 for chart in charts)
    layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08, wspace=0.02, hspace=0.03)
    size = (max(PANEL[0] * columns, 5.6), (PANEL[1] + 0.19 * below) * rows + 0.5)
    drawing = Drawing(figsize=size, layout=layout)
    grid = drawing.subplots(rows, columns, squeeze=False)
    for index, axes in enumerate(grid.flat):
        if index < len(charts):
            _panel(axes, charts[index], legend=not shared and len(charts[index].lines) > 1)
        else:
            axes.set_visible(False)
    if shared and len(charts[0].lines) > 1:
        legend = drawing.legend(
            handles=grid.flat[0].get_legend_handles_labels()[0],
            loc="outside lower center",
            ncols=min(len(charts[0].lines), 2 * columns),
            frameon=False,
            fontsize=9,
            labelcolor=INK,
        )
        for entry in legend.get_texts():
            entry.set_parse_math(False)
    drawing.suptitle(title, fontsize=12, color=INK, fontweight="bold", parse_math=False)
    return drawing


def _panel(axes: Axes, chart: Chart, legend: bool) -> None:
    for number, line in enumerate(chart.lines):
        _line(axes, line, number, chart.form)
    axes.set_title(chart.title, loc="left", fontsize=10, color=INK, pad=6, parse_math=False)
    axes.set_xlabel(chart.x, fontsize=9, color=FAINT)
    axes.set_ylabel(chart.y, fontsize=9, color=FAINT)
    axes.patch.set_alpha(0)
    _scales(axes, chart)
    axes.tick_params(length=0, labelsize=8.5, labelcolor=FAINT, pad=4)
    axes.grid(True, color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(FAINT)
    if legend:
        names = axes.legend(
            loc="upper left",
            bbox_to_anchor=(0, -0.24),
            frameon=False,
            fontsize=8.5,
            labelcolor=INK,
            borderaxespad=0,
            labelspacing=0.25,
        )
        for entry in names.get_texts():
            entry.set_parse_math(False)


def _line(axes: Axes, line: Line, number: int, form: str) -> None:
    x, y = np.asarray(line.x, dtype=float), np.asarray(line.y, dtype=float)
    colour = PALETTE[number % len(PALETTE)]
    dash = DASHES[number // len(PALETTE) % len(DASHES)]
    spread = None if line.spread is None else np.asarray(line.spread, dtype=float)
    if form == "points":
        axes.plot(x, y, "o", color=colour, markersize=3, alpha=0.7, label=line.label, zorder=3)
        if spread is not None:
            axes.errorbar(x, y, spread, fmt="none", ecolor=colour, linewidth=1.0, zorder=2)
        return
    mark: dict[str, Any] = {"marker": "o", "markersize": 3.2} if len(x) <= 15 else {}
    axes.plot(x, y, color=colour, linestyle=dash, linewidth=1.6, label=line.label, zorder=3, **mark)
    if spread is not None:
        axes.fill_between(x, y - spread, y + spread, color=colour, alpha=0.14, linewidth=0, zorder=2)


def _scales(axes: Axes, chart: Chart) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    for axis, logarithmic in ((axes.xaxis, chart.log_x), (axes.yaxis, chart.log_y)):
        if logarithmic:
            (axes.set_xscale if axis is axes.xaxis else axes.set_yscale)("log")
            axis.set_major_locator(LogLocator(10, numticks=6))
            axis.set_minor_formatter(NullFormatter())
        else:
            axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
        axis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))


def renderable(study: Study, measured: Measured) -> Renderable:
    """All of it for a terminal of 80 columns."""
    from rich import box
    from rich.console import Group as Renderable
    from rich.console import RenderableType
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    parts: list[RenderableType] = [Text(f"{study.name}: {study.title}", style="bold")]
    for sheet in measured.sheets:
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, title_justify="left")
        table.title = sheet.title
        table.add_column(Text(sheet.columns[0]), overflow="fold")
        for name in sheet.columns[1:]:
            table.add_column(Text(name), justify="right", overflow="fold")
        for row in sheet.rows:
            table.add_row(*map(Text, row))
        parts.append(table)
    if measured.verdicts:
        found = Table(*FINDINGS, box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
        for verdict in measured.verdicts:
            found.add_row(Text(verdict.claim), verdict.word, Text(verdict.seen))
        parts.append(found)
    return Renderable(*parts, *[Padding(Text(note, style="dim"), (0, 1)) for note in notes(study, measured)])


def notes(study: Study, measured: Measured) -> list[str]:
    """What a reader must know to read the figures."""
    lines = list(measured.notes)
    if study.quick:
        lines.append("Quick version: smaller than the paper's experiment; trends, not results.")
    return lines


def html(study: Study, measured: Measured, drawing: str, command: str) -> str:
    """The report: paper, claim, what was measured and the settings."""
    header, title = study.header, f"{study.name}: {study.title}"
    body = [
        page.header("Quorank reproduces", title, header.claim),
        page.section(
            "The paper",
            page.paragraph(f"{header.paper}. The sentence above is what it found."),
            page.paragraph(header.differs, "note"),
        ),
    ]
    if drawing:
        alt = f"{study.title}: {', '.join(chart.title for chart in measured.charts)}"
        body.append(page.section("What we measured", page.plots([(alt, drawing)])))
    if measured.verdicts:
        rows = [(verdict.claim, f"{verdict.word}: {verdict.seen}") for verdict in measured.verdicts]
        body.append(page.section("Findings", page.facts(rows)))
    for sheet in measured.sheets:
        body.append(page.section(sheet.title, page.table(sheet.columns, sheet.rows)))
    body += [page.paragraph(note, "note") for note in notes(study, measured)]
    size = "quick: smaller than published" if study.quick else "as published"
    settings = [
        ("size", size),
        ("repetitions", str(study.header.repetitions)),
        ("study", str(study.part)),
    ]
    body.append(page.section("Settings", page.facts(settings)))
    body.append(page.section("Do it again", page.code(command)))
    body.append(page.footer(f"Run with Quorank {__version__}. This file loads nothing and runs no script."))
    return page.page(f"{title} · Quorank", body)
