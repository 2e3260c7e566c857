"""What the reports of all reproduced figures share: the files, the frame of the page, tables for a terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quorank import __version__
from quorank.files.atomic import write_whole
from quorank.files.documents import json_bytes
from quorank.reports import page
from quorank.reports.curves import draw, save, svg
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
"""How the legend of a page shows the marks and lines of `curves`."""


def page_panels(rows: Sequence[tuple[str, Sequence[Panel]]], description: str) -> page.Markup:
    """Write rows of panels below their titles, each panel a drawing of its own, so that it keeps its size on a phone.

    One legend above stands for all panels; where their curves differ, names stand in the drawings.
    """
    panels = [panel for _, row in rows for panel in row]
    labels = [curve.label for curve in panels[0].curves]
    shared = len(labels) > 1 and all([curve.label for curve in panel.curves] == labels for panel in panels)
    written, number = [], 0
    if shared:
        marks = panels[0].form in ("points", "marks")
        entries = [
            (curve.label, f"var(--curve-{curve.colour_as(n) + 1})", (MARKS if marks else LINES)[curve.line_as(n)])
            for n, curve in enumerate(panels[0].curves)
        ]
        written.append(page.legend(entries))
    for title, row in rows:
        drawings = []
        for panel in row:
            drawing = svg(draw([panel], 1, named=not shared), f"panel-{number}")
            drawings.append((f"{description}: {title} {panel.title}", drawing))
            number += 1
        written += [page.subtitle(title)] if title else []
        written.append(page.plots(drawings, small=shared))
    return page.Markup("\n".join(written))


def html_page(
    figure: PaperFigure,
    drawing: page.Markup | None,
    sections: Iterable[page.Markup],
    settings: Iterable[tuple[str, str]],
) -> str:
    """Return the report as a page that loads nothing: paper, drawings with texts for the blind, sections, settings."""
    header, title = figure.header, f"{figure.name}: {figure.title}"
    size = "quick: smaller than published" if figure.quick else "as published"
    body = [
        page.header("Quorank reproduces", title, header.claim),
        page.section(
            "The paper",
            page.paragraph(f"{header.paper}. The sentence above is what it found."),
            page.paragraph(header.differs, "note"),
        ),
    ]
    if drawing is not None:
        body.append(page.section("What we measured", drawing))
    body += [
        *sections,
        page.section("Settings", page.facts([("size", size), *settings])),
        page.section("Do it again", page.code(figure.command)),
        page.footer(f"Run with Quorank {__version__}. This file loads nothing and runs no script."),
    ]
    return page.page(f"{title} · Quorank", body)


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
