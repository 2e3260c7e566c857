"""Measured figures and tables as data files, from which the documentation draws its pages.

The file of a figure holds findings, tables and thinned curves. It is named after its figure: fpdgd-figure3.json for
fpdgd/figure3. Title, claim and paper are those of the shipped figure file; curves keep at most POINTS points, and their
numbers DIGITS significant digits.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from quorank.files.atomic import write_whole
from quorank.files.codec import decode, encode
from quorank.files.documents import read_json
from quorank.kernels.arrays import Doubles
from quorank.reports.panels import Curve, Panel, thin
from quorank.reports.report import ReportTable
from quorank.reproduce.figure import FigureHeader, PaperFigure, read_shipped
from quorank.reproduce.report import FigureReport, markdown_table

POINTS = 40
DIGITS = 5
CURVE_DEPTH = 6  # nesting of a curve in a file


@dataclass(frozen=True)
class RecordedTable:
    """Table of a report, or of a benchmark: then with the command that measured it."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    about: str = ""
    command: str = ""

    def markdown(self) -> list[str]:
        """Return the lines of a section of a Markdown page."""
        about = [self.about, ""] if self.about else []
        code = ["<!-- not run: minutes to hours -->", "```bash", self.command, "```", ""] if self.command else []
        return [f"## {self.title}", "", *about, *code, *markdown_table(self.head, self.rows), ""]


@dataclass(frozen=True)
class RecordedCurve:
    """Curve of a panel; `x` is None where it is that of the panel."""

    label: str
    mean: list[float]
    spread: list[float] | None = None
    x: list[float] | None = None
    colour: int | None = None
    dashes: str | None = None
    level: bool = False


@dataclass(frozen=True)
class RecordedPanel:
    """Panel of curves; `x` is that of its first curve."""

    title: str
    x_label: str
    y_label: str
    form: Literal["curves", "lines", "points", "marks"]
    log: str
    y_range: tuple[float, float] | None
    x: list[float]
    curves: tuple[RecordedCurve, ...]


@dataclass(frozen=True)
class RecordedRow:
    """Titled row of panels."""

    title: str
    panels: tuple[RecordedPanel, ...]


@dataclass(frozen=True)
class RecordedFigure:
    """Content of a data file."""

    figure: str
    quick: bool
    data: str | None
    repetitions: int | None  # as asked for; None: as many as the figure's file says
    version: str
    findings: tuple[tuple[str, str, str], ...]
    tables: tuple[RecordedTable, ...]
    notes: tuple[str, ...]
    panels: tuple[RecordedRow, ...]


def read_tables(path: Path) -> list[RecordedTable]:
    """Read a file of tables."""
    found: list[RecordedTable] = read_json(path, list[RecordedTable])
    return found


def write_tables(tables: Iterable[RecordedTable], path: Path) -> None:
    """Write tables into a file, in place of those with the same titles, and after the others."""
    kept = {table.title: table for table in (read_tables(path) if path.is_file() else [])}
    kept |= {table.title: table for table in tables}
    write_whole(path, f"{_json_lines(encode([*kept.values()], defaults=False))}\n".encode())


def write_record(report: FigureReport, folder: Path) -> Path:
    """Write the data file of a report; return its path."""
    figure = report.figure
    content = RecordedFigure(
        figure.name,
        figure.quick,
        figure.data,
        figure.asked_repetitions,
        report.version,
        tuple(report.findings),
        tuple(RecordedTable(table.title, tuple(table.head), tuple(map(tuple, table.rows))) for table in report.tables),
        tuple(report.notes),
        tuple(RecordedRow(title, tuple(map(_recorded_panel, row))) for title, row in report.panels),
    )
    return write_whole(
        folder / f"{report.page_name}.json", f"{_json_lines(encode(content, defaults=False))}\n".encode()
    )


def read_record(path: Path) -> FigureReport:
    """Return the report that a data file holds, without the settings and results of its runs."""
    found: RecordedFigure = read_json(path, RecordedFigure)
    header = decode(FigureHeader, read_shipped(found.figure).tables["figure"], "figure")
    return FigureReport(
        PaperFigure(found.figure, header, found.quick, found.data, found.repetitions, ()),
        {},
        found.findings,
        [ReportTable(table.title, table.head, table.rows) for table in found.tables],
        found.notes,
        [],
        [(row.title, [_panel(panel) for panel in row.panels]) for row in found.panels],
        "",
        found.version,
    )


def _recorded_panel(panel: Panel) -> RecordedPanel:
    curves = [thin(curve.at(np.asarray(np.isfinite(curve.runs).all(axis=0))), _points(panel)) for curve in panel.curves]
    shared = _rounded(curves[0].x) if curves else []
    recorded = []
    for curve in curves:
        x, spread = _rounded(curve.x), None if curve.spread is None else _rounded(curve.spread, DIGITS - 2)
        style = (curve.colour, curve.dashes, curve.level)
        recorded.append(RecordedCurve(curve.label, _rounded(curve.mean), spread, None if x == shared else x, *style))
    y_range = None if panel.y_range is None else (_round(panel.y_range[0]), _round(panel.y_range[1]))
    return RecordedPanel(
        panel.title, panel.x_label, panel.y_label, panel.form, panel.log, y_range, shared, tuple(recorded)
    )


def _points(panel: Panel) -> int:
    """Return how many points of a curve are kept: all of scattered ones, which show a density."""
    return max([1, *(len(curve.x) for curve in panel.curves)]) if panel.form == "points" else POINTS


def _panel(panel: RecordedPanel) -> Panel:
    curves = (
        Curve.of_means(
            curve.label,
            panel.x if curve.x is None else curve.x,
            curve.mean,
            curve.spread,
            colour=curve.colour,
            dashes=curve.dashes,
            level=curve.level,
        )
        for curve in panel.curves
    )
    return Panel(panel.title, panel.x_label, panel.y_label, tuple(curves), panel.form, panel.log, panel.y_range)


def _rounded(values: Doubles, digits: int = DIGITS) -> list[float]:
    return [_round(value, digits) for value in values.tolist()]


def _round(value: float, digits: int = DIGITS) -> float:
    short = float(f"{value:.{digits}g}")
    return int(value) if value == int(value) else short  # counts are exact


def _json_lines(value: Any, depth: int = 0) -> str:
    """Encode a plain value as JSON: each item of a table or list that holds others has a line, but a curve is one line."""
    if not isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    keys = [f"{json.dumps(key)}:" for key in value] if isinstance(value, dict) else [""] * len(value)
    items = [*value.values()] if isinstance(value, dict) else value
    texts = [f"{key}{_json_lines(item, depth + 1)}" for key, item in zip(keys, items, strict=True)]
    first, last = "{}" if isinstance(value, dict) else "[]"
    if depth >= CURVE_DEPTH or not any(isinstance(item, dict | list) for item in items):
        return f"{first}{','.join(texts)}{last}"
    return "\n".join([first, ",\n".join(f"{' ' * (depth + 1)}{text}" for text in texts), f"{' ' * depth}{last}"])
