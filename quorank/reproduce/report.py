"""Report of a reproduced figure: files, page, tables for a terminal, Markdown page of the documentation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quorank import __version__
from quorank.files.atomic import write_whole
from quorank.files.documents import json_bytes
from quorank.reports.page import panel_svg, render, write_picture
from quorank.reports.panels import DASHES, Panel
from quorank.reports.report import ReportTable, terminal_report
from quorank.reproduce.figure import PaperFigure

if TYPE_CHECKING:
    from rich.console import Group as Renderable

RESULTS, REPORT, PICTURE = "results.json", "report.html", "figure.svg"
QUICK_NOTE = "Quick version: smaller than the paper's experiment; trends, not results."
MARKS = dict(zip(DASHES, "●■◆▲▼", strict=True))
LINES = {"solid": "solid", "dashed": "dashed", "dotted": "dotted", "dash-dotted": "double", "long": "dashed"}
"""Marks and lines in the legend of a page."""
PanelRows = Sequence[tuple[str, Sequence[Panel]]]
"""Titles, each with a row of panels."""


@dataclass(frozen=True, eq=False)
class FigureReport:
    """Content of the report of a figure, for page, terminal and Markdown."""

    figure: PaperFigure
    results: Mapping[str, Any]  # of results.json
    findings: Sequence[tuple[str, str, str]]  # the paper's claim, the verdict here, and the measurement
    tables: Sequence[ReportTable]
    notes: Sequence[str]
    settings: Sequence[tuple[str, str]]
    panels: PanelRows
    description: str  # of the panels
    version: str = __version__  # of Quorank that measured

    @property
    def all_tables(self) -> list[ReportTable]:
        """Findings as a table, then the other tables."""
        head = ("finding of the paper", "result here", "measured")
        return [*([ReportTable("Findings", head, self.findings)] if self.findings else []), *self.tables]

    @property
    def all_notes(self) -> list[str]:
        return [*self.notes, *([QUICK_NOTE] if self.figure.quick else [])]

    def write(self, folder: Path) -> None:
        """Write figure.svg, results.json and report.html into the figure's directory."""
        if self.panels:
            write_picture(folder / PICTURE, self.panels, self.figure.title)
        write_whole(folder / RESULTS, json_bytes(self.results))
        write_whole(folder / REPORT, self.html().encode())

    def html(self) -> str:
        """Return the report as a page that loads nothing.

        Each panel is a separate drawing, which keeps its size on a phone. One legend stands for all panels; where
        their curves differ, names stand in the drawings.
        """
        figure = self.figure
        panels = [panel for _, row in self.panels for panel in row]
        labels = [[curve.label for curve in panel.curves] for panel in panels]
        shared = bool(labels) and len(labels[0]) > 1 and all(own == labels[0] for own in labels)
        signs = MARKS if panels and panels[0].form in ("points", "marks") else LINES
        legend = [
            (curve.label, f"var(--curve-{curve.colour_as(number) + 1})", signs[curve.line_as(number)])
            for number, curve in enumerate(panels[0].curves if shared else ())
        ]
        drawn = [
            (title, [panel_svg(panel, f"{self.description}: {title} {panel.title}", named=not shared) for panel in row])
            for title, row in self.panels
        ]
        heading = f"{figure.name}: {figure.title}"
        size = "quick: smaller than published" if figure.quick else "as published"
        return render(
            "figure.html",
            "quorank.reproduce",
            title=f"{heading} · Quorank",
            eyebrow="Quorank reproduces",
            heading=heading,
            lead=figure.header.claim,
            header=figure.header,
            rows=drawn,
            legend=legend,
            sections=self.all_tables,
            notes=self.all_notes,
            settings=[("size", size), *self.settings],
            command=figure.command,
            version=self.version,
        )

    def terminal(self) -> Renderable:
        """Return tables and notes for a terminal."""
        from rich.text import Text

        title = Text(f"{self.figure.name}: {self.figure.title}", style="bold")
        return terminal_report(title, self.all_tables, self.all_notes)

    @property
    def page_name(self) -> str:
        """Name of the Markdown page without its ending: fpdgd/figure3 is fpdgd-figure3."""
        return self.figure.name.replace("/", "-")

    def markdown(self) -> str:
        """Return the Markdown page."""
        figure = self.figure
        lines = [f"# {figure.name}: {_text(figure.title)}", ""]
        lines += [f"*What the paper found:* {_text(figure.header.claim)}", "", f"{_text(figure.header.paper)}.", ""]
        lines += [f"*Where this differs:* {_text(figure.header.differs)}", ""] if figure.header.differs else []
        lines += ["<!-- not run: minutes to hours -->", "```bash", figure.command, "```", ""]
        if self.panels:
            picture = f"{self.page_name}.svg"
            lines += [f"[![{_text(figure.title)}]({picture})]({picture})", ""]
        for table in self.all_tables:
            lines += [f"## {_text(table.title)}", "", *markdown_table(table.head, table.rows), ""]
        lines += [f"- {_text(note)}" for note in self.all_notes]
        return "\n".join([*lines, "", f"Run with Quorank {self.version}; [data]({self.page_name}.json)."]) + "\n"

    def write_panels(self, folder: Path) -> None:
        """Write the picture of the Markdown page, if the figure has panels."""
        if self.panels:
            write_picture(folder / f"{self.page_name}.svg", self.panels, self.figure.title)


def index_markdown(reports: Iterable[FigureReport]) -> str:
    """Return the Markdown page that lists all figures with their findings."""
    lines = [
        "# The papers' figures, reproduced by one command each",
        "",
        "Figures of the papers as `quorank reproduce` runs them, with the papers' findings counted. A finding *holds* if "
        "every comparison is significant as the paper says. It holds *in part* if only some are and none contradicts the "
        "paper, and it is *undecided* if none is. Quick versions are smaller than the papers': they show trends.",
        "",
    ]
    rows = []
    for report in reports:
        verdicts = [verdict for _, verdict, _ in report.findings]
        counted = [f"{v}: {verdicts.count(v)}" for v in dict.fromkeys(verdicts)]
        title = f"[{report.figure.name}]({report.page_name}.md)"
        rows.append((title, _text(report.figure.header.title), ", ".join(counted) or "–", f"`{report.figure.command}`"))
    lines += markdown_table(("figure", "comparison", "findings", "command"), rows, plain=False)
    return "\n".join(lines) + "\n"


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]], *, plain: bool = True) -> list[str]:
    """Return the lines of a Markdown table; cells that are not `plain` may hold markup."""
    cell = _text if plain else str
    cells = (["<br>".join(map(cell, text.split("\n"))) for text in row] for row in (head, *rows))
    written = [f"| {' | '.join(row)} |" for row in cells]
    return [written[0], f"|{'---|' * len(head)}", *written[1:]]


def _text(text: str) -> str:
    """Text that is no markup."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", text)
