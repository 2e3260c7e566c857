"""Report of a figure that a study measured: its drawing, its tables for a terminal, and a page that loads nothing."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from quorank import __version__
from quorank.reports.panel_files import draw
from quorank.reports.panels import Panel
from quorank.reproduce.markdown_page import FigureContent, PageTable
from quorank.reproduce.report import QUICK_NOTE, PageSection, html_page, terminal_report, terminal_table, write_files
from quorank.reproduce.studies.study import Sheet, StudyResults
from quorank.reproduce.studies.study_file import StudyFigure

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing
    from rich.console import Group as Renderable

MOST_COLUMNS = 3
FINDINGS = ("the paper's findings", "here", "what was seen")


def write_report(study: StudyFigure, results: StudyResults, folder: Path) -> None:
    """Write drawing (if there are charts), results and page into the figure's directory."""
    write_files(folder, as_dict(study, results), html_report(study, results), _drawing(study, results))


def _drawing(study: StudyFigure, results: StudyResults) -> Drawing | None:
    """The charts in one figure; None if there are none."""
    charts = results.charts
    return draw(charts, 2 if len(charts) == 4 else min(MOST_COLUMNS, len(charts)), study.title) if charts else None


def as_dict(study: StudyFigure, results: StudyResults) -> dict[str, Any]:
    """Return the content of `results.json`."""
    return {
        "figure": study.name,
        "quick": study.quick,
        "data": study.data,
        "repetitions": study.header.repetitions,
        "findings": [dataclasses.asdict(f) for f in results.findings],
        "sheets": [dataclasses.asdict(s) for s in results.sheets],
        "charts": [_chart_dict(c) for c in results.charts],
        "numbers": dict(results.numbers),
        "notes": list(results.notes),
        "version": __version__,
    }


def _chart_dict(panel: Panel) -> dict[str, Any]:
    lines = [
        {"label": curve.label, "x": _numbers(curve.x), "y": _numbers(curve.mean)}
        | ({} if curve.spread is None else {"spread": _numbers(curve.spread)})
        for curve in panel.curves
    ]
    return {"title": panel.title, "x": panel.x_label, "y": panel.y_label, "lines": lines}


def _numbers(values: Any) -> list[float | None]:
    return [float(v) if np.isfinite(v) else None for v in values]


def _notes(study: StudyFigure, results: StudyResults) -> list[str]:
    return [*results.notes, QUICK_NOTE] if study.quick else list(results.notes)


def render_results(study: StudyFigure, results: StudyResults) -> Renderable:
    """Return the tables and notes for a terminal of 80 columns."""
    tables = [
        terminal_table(sheet.columns, sheet.rows, title=sheet.title)
        for sheet in [*published_sheets(study), *results.sheets]
    ]
    if results.findings:
        rows = [(finding.claim, finding.verdict, finding.seen) for finding in results.findings]
        tables.append(terminal_table(FINDINGS, rows, left=(0, 1, 2)))
    return terminal_report(study, tables, _notes(study, results))


def published_sheets(study: StudyFigure) -> list[Sheet]:
    """Return the paper's own numbers as tables."""
    return [
        Sheet(
            f"The paper's own numbers: {table.where}",
            ("", *table.columns),
            tuple((label, *map(table.text, values)) for label, values in table.rows.items()),
        )
        for table in study.published
    ]


def html_report(study: StudyFigure, results: StudyResults) -> str:
    """Return the page: paper, claim, what was measured and the settings."""
    sections = []
    if results.findings:
        rows = [(finding.claim, finding.verdict, finding.seen) for finding in results.findings]
        sections.append(PageSection("Findings", FINDINGS, rows))
    sections += [PageSection(s.title, s.columns, s.rows) for s in [*published_sheets(study), *results.sheets]]
    alt = f"{study.title}: {', '.join(chart.title for chart in results.charts)}"
    settings = [("repetitions", str(study.header.repetitions)), ("study", str(study.part))]
    charts = [("", results.charts)] if results.charts else []
    return html_page(study, charts, alt, sections, _notes(study, results), settings)


def page_content(study: StudyFigure, results: StudyResults) -> FigureContent:
    """Return what a Markdown page shows of these results."""
    tables = [PageTable(s.title, s.columns, s.rows) for s in [*published_sheets(study), *results.sheets]]
    findings = [(finding.claim, finding.verdict, finding.seen) for finding in results.findings]
    return FigureContent(study, _drawing(study, results), findings, tables, _notes(study, results))
