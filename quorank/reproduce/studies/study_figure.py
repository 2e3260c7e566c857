"""Figures that a study measures: their files and their reports.

[figure]   title, paper, claim, repetitions: see `FigureHeader`
[study]    kind, and the study's settings
[[published]]  the paper's own numbers: see `Published`
[quick]    repetitions, and a table `study` of settings for the short version
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from quorank import __version__
from quorank.errors import BadInput, require, suggest
from quorank.experiments.experiment_file import ExperimentFile
from quorank.files.codec import decode
from quorank.parts import Family
from quorank.reports.panels import Panel
from quorank.reproduce.figure import FigureHeader, PaperFigure, Published, read_shipped
from quorank.reproduce.report import FigureReport, ReportFinding, ReportTable
from quorank.reproduce.studies.study import StudyPart, StudyResults

MOST_COLUMNS = 3
TABLES = ("figure", "study", "published", "quick")


def study_family() -> Family[StudyPart]:
    """Return all studies; they are imported when a figure is asked for, not before."""
    from quorank.reproduce.studies.embedding import SketchedFeatures
    from quorank.reproduce.studies.firefox import FirefoxStudy
    from quorank.reproduce.studies.silos import SiloSweep, SiloTable
    from quorank.reproduce.studies.sketches import SketchCurves
    from quorank.reproduce.studies.unlearning import UnlearningStudy

    return Family("study", UnlearningStudy, SiloTable, SiloSweep, SketchCurves, SketchedFeatures, FirefoxStudy)


@dataclass(frozen=True)
class StudyFigure(PaperFigure):
    """Figure that a study measures, read for the full or the quick version."""

    part: StudyPart


def load_study(
    name: str, *, quick: bool = False, data: str | None = None, repetitions: int | None = None
) -> StudyFigure:
    """Read the shipped study of this name."""
    return read_study(read_shipped(name), name, quick=quick, data=data, repetitions=repetitions)


def read_study(
    document: ExperimentFile, name: str, *, quick: bool = False, data: str | None = None, repetitions: int | None = None
) -> StudyFigure:
    """Read a study from its file; errors name the file and the line."""
    try:
        header, part = _read(document.tables, quick)
        header = replace(header, repetitions=repetitions or header.repetitions)
        published = decode(tuple[Published, ...], document.tables.get("published", []), "published")
    except BadInput as error:
        raise document.located(error) from None
    return StudyFigure(name, header, quick, data, repetitions, published, part)


def _read(tables: Mapping[str, Any], quick: bool) -> tuple[FigureHeader, StudyPart]:
    for key in tables:
        hint = f"{suggest(key, TABLES)}; known: {', '.join(TABLES)}"
        require(key in TABLES, "key.unknown", f"unknown section {key!r}{hint}")
    shorter = dict(tables.get("quick", {}))
    for key in shorter:
        known = key in ("repetitions", "study")
        require(known, "key.unknown", f"unknown key {key!r}; expected repetitions or study", "quick")
    header = decode(FigureHeader, tables.get("figure", {}), "figure")
    settings: dict[str, Any] = dict(tables.get("study", {}))
    if quick:
        own = shorter.get("study", {})
        require(isinstance(own, Mapping), "value.wrong-type", "expected a table", "quick.study")
        settings |= own
        header = replace(header, repetitions=shorter.get("repetitions", header.repetitions))
    return header, study_family().read(settings, "study")


def study_report(study: StudyFigure, results: StudyResults) -> FigureReport:
    """Return the report of a study's results."""
    charts = results.charts
    columns = 2 if len(charts) == 4 else MOST_COLUMNS
    published = (
        ReportTable(
            f"The paper's own numbers: {table.where}",
            ("", *table.columns),
            [(label, *map(table.text, values)) for label, values in table.rows.items()],
        )
        for table in study.published
    )
    return FigureReport(
        study,
        _as_dict(study, results),
        [ReportFinding(finding.claim, finding.verdict, finding.seen) for finding in results.findings],
        [*published, *results.tables],
        results.notes,
        [("repetitions", str(study.header.repetitions)), ("study", str(study.part))],
        [("", charts[at : at + columns]) for at in range(0, len(charts), columns)],
        f"{study.title}: {', '.join(chart.title for chart in charts)}",
    )


def _as_dict(study: StudyFigure, results: StudyResults) -> dict[str, Any]:
    """Return the content of `results.json`."""
    return {
        "figure": study.name,
        "quick": study.quick,
        "data": study.data,
        "repetitions": study.header.repetitions,
        "findings": [asdict(finding) for finding in results.findings],
        "tables": [table._asdict() for table in results.tables],
        "charts": [_chart_dict(chart) for chart in results.charts],
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
