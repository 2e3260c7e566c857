"""What the reports of all reproduced figures share: the files, the frame of the page, tables for a terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from quorank import __version__
from quorank.files.atomic import write_whole
from quorank.files.documents import json_bytes
from quorank.reports import page
from quorank.reports.panel_files import save
from quorank.reports.panel_svg import panel_svg
from quorank.reports.panels import DASHES, Panel
from quorank.reproduce.figure import PaperFigure

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing
    from rich.console import Group as Renderable
    from rich.table import Table

RESULTS, REPORT = "results.json", "report.html"
DRAWINGS = ("figure.png", "figure.svg")
QUICK_NOTE = "Quick version: smaller than the paper's experiment; trends, not results."


def write_files(folder: Path, results: Mapping[str, Any], html: str, drawing: Drawing | None) -> None:
    """Write the drawing, results.json and report.html into the figure's directory."""
    if drawing is not None:
        for name in DRAWINGS:
            save(drawing, folder / name)
    write_whole(folder / RESULTS, json_bytes(results))
    write_whole(folder / REPORT, html.encode())


MARKS = dict(zip(DASHES, "●■◆▲▼", strict=True))
LINES = {"solid": "solid", "dashed": "dashed", "dotted": "dotted", "dash-dotted": "double", "long": "dashed"}
"""Marks and lines in the legend of a page."""


class PageSection(NamedTuple):
    """Titled table of a page."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


PanelRows = Sequence[tuple[str, Sequence[Panel]]]
"""Titles, each with a row of panels."""


def html_page(
    figure: PaperFigure,
    rows: PanelRows,
    description: str,
    sections: Iterable[PageSection],
    notes: Iterable[str],
    settings: Iterable[tuple[str, str]],
) -> str:
    """Return the report as a page that loads nothing: paper, panels with descriptions, tables, notes, settings.

    Each panel is a drawing of its own, so that it keeps its size on a phone. One legend above stands for all panels; where
    their curves differ, names stand in the drawings.
    """
    panels = [panel for _, row in rows for panel in row]
    labels = [curve.label for curve in panels[0].curves] if panels else []
    shared = len(labels) > 1 and all([curve.label for curve in panel.curves] == labels for panel in panels)
    legend = []
    if shared:
        signs = MARKS if panels[0].form in ("points", "marks") else LINES
        for number, curve in enumerate(panels[0].curves):
            legend.append((curve.label, f"var(--curve-{curve.colour_as(number) + 1})", signs[curve.line_as(number)]))
    drawn = [
        (title, [panel_svg(panel, f"{description}: {title} {panel.title}", named=not shared) for panel in row])
        for title, row in rows
    ]
    heading = f"{figure.name}: {figure.title}"
    size = "quick: smaller than published" if figure.quick else "as published"
    return page.render(
        "figure.html",
        "quorank.reproduce",
        title=f"{heading} · Quorank",
        eyebrow="Quorank reproduces",
        heading=heading,
        lead=figure.header.claim,
        header=figure.header,
        rows=drawn,
        legend=legend,
        sections=sections,
        notes=notes,
        settings=[("size", size), *settings],
        command=figure.command,
        version=__version__,
    )


def terminal_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, left: Collection[int] = (0,), title: str | None = None
) -> Table:
    """Return a table for a terminal; the columns with an index in `left` are left-justified, the others right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, title=title, title_justify="left")
    for index, name in enumerate(columns):
        table.add_column(Text(name), justify="left" if index in left else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def terminal_report(figure: PaperFigure, tables: Iterable[Table], notes: Iterable[str]) -> Renderable:
    """Return the whole report for a terminal of 80 columns."""
    from rich.console import Group as Renderable
    from rich.padding import Padding
    from rich.text import Text

    title = Text(f"{figure.name}: {figure.title}", style="bold")
    return Renderable(title, *tables, *(Padding(Text(note, style="dim"), (0, 1)) for note in notes))
