"""Results of reproduced figures as Markdown pages with pictures, for the documentation; one more page lists them all.

Pages are written from what was measured and nothing else, so that the command on each makes it again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from quorank import __version__
from quorank.files.atomic import write_whole
from quorank.reports.panel_files import save_small
from quorank.reproduce.figure import PaperFigure

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

INDEX = "README.md"


class PageTable(NamedTuple):
    """Title, head and rows of a table on a page; lines of a cell are separated by a line break."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


class FigureContent(NamedTuple):
    """What a page shows of a figure: its drawing if there is one, verdicts by claim, tables and notes."""

    figure: PaperFigure
    drawing: Drawing | None
    findings: Sequence[tuple[str, str, str]]  # claim, verdict, what was seen
    tables: Sequence[PageTable]
    notes: Sequence[str]


def page_name(figure: PaperFigure) -> str:
    """Return the name of a figure's page without its ending: fpdgd/figure3 is fpdgd-figure3."""
    return figure.name.replace("/", "-")


def write_page(content: FigureContent, folder: Path) -> Path:
    """Write a figure's page and its picture; return the page's path."""
    name = page_name(content.figure)
    if content.drawing is not None:
        save_small(content.drawing, folder / f"{name}.png")
    return write_whole(folder / f"{name}.md", figure_page(content).encode())


def figure_page(content: FigureContent) -> str:
    """Return the page of a figure."""
    figure = content.figure
    lines = [f"# {figure.name}: {_text(figure.title)}", "", f"*What the paper found:* {_text(figure.header.claim)}", ""]
    lines += [f"{_text(figure.header.paper)}.", ""]
    lines += [f"*Where this differs:* {_text(figure.header.differs)}", ""] if figure.header.differs else []
    lines += ["<!-- not run: minutes to hours -->", "```bash", figure.command, "```", ""]
    if content.drawing is not None:
        picture = f"{page_name(figure)}.png"
        lines += [f"[![{_text(figure.title)}]({picture})]({picture})", ""]
    if content.findings:
        lines += ["## Findings", "", *_table(("finding", "here", "seen"), content.findings), ""]
    for table in content.tables:
        lines += [f"## {_text(table.title)}", "", *_table(table.head, table.rows), ""]
    lines += [f"- {_text(note)}" for note in content.notes]
    lines += ["", f"Run with Quorank {__version__}."]
    return "\n".join(lines) + "\n"


def write_index(contents: Iterable[FigureContent], folder: Path) -> Path:
    """Write the page that lists all figures with their findings."""
    lines = [
        "# The papers' figures, run again by one command",
        "",
        "Figures that `quorank reproduce` has run, with the papers' findings counted: a finding *holds* where every "
        "comparison is significant as the paper says, *in part* where some are and none the other way, and is *undecided* "
        "where none is. Quick versions are smaller than the papers' experiments: they show trends.",
        "",
    ]
    rows = []
    for content in contents:
        name = page_name(content.figure)
        shown = "" if content.drawing is None else f"[![{_text(content.figure.title)}]({name}.png)]({name}.md)"
        verdicts = [verdict for _, verdict, _ in content.findings]
        counted = [f"{verdicts.count(v)} {v}" for v in dict.fromkeys(verdicts)]
        title = f"[{content.figure.name}]({name}.md)\n{_text(content.figure.header.title)}"
        rows.append((title, shown, "\n".join(counted) or "–", f"`{content.figure.command}`"))
    lines += _table(("figure", "", "findings", "again"), rows, plain=False)
    return write_whole(folder / INDEX, ("\n".join(lines) + "\n").encode())


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], *, plain: bool = True) -> list[str]:
    cell = _text if plain else str
    cells = (["<br>".join(map(cell, text.split("\n"))) for text in row] for row in (head, *rows))
    written = [f"| {' | '.join(row)} |" for row in cells]
    return [written[0], f"|{'---|' * len(head)}", *written[1:]]


def _text(text: str) -> str:
    """Text that is no markup."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", text)
