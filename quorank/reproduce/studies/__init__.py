"""Figures that a study measures: their files and their reports.

[figure]   title, paper, claim, repetitions: see `FigureHeader`
[study]    kind, and the study's settings
[[published]]  the paper's own numbers: see `Published`
[quick]    repetitions, and a table `study` of settings for the short version
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Protocol

import numpy as np

from quorank.errors import BadInput
from quorank.experiments.experiment_file import ExperimentFile
from quorank.files.codec import decode
from quorank.kernels.arrays import Doubles
from quorank.parts import Family
from quorank.reports.panels import Panel
from quorank.reports.report import ReportTable
from quorank.reproduce.figure import FigureHeader, PaperFigure, Published, name_of
from quorank.reproduce.report import FigureReport
from quorank.reproduce.studies.study import StudyRequest, StudyResults

MOST_COLUMNS = 3


class StudyPart(Protocol):
    """Study of a paper: a part with settings that measures."""

    kind: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def measure(self, request: StudyRequest) -> StudyResults:
        """Do the experiment."""
        ...


@dataclass(frozen=True)
class StudyFigure(PaperFigure):
    """Figure that a study measures, read for the full or the quick version."""

    part: StudyPart


@dataclass(frozen=True)
class _Quick:
    """[quick] of a study's file."""

    repetitions: int | None = None
    study: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _StudyFile:
    """Sections of a study's file."""

    figure: FigureHeader
    study: Mapping[str, Any]
    published: tuple[Published, ...] = ()
    quick: _Quick = field(default_factory=_Quick)


def study_family() -> Family[StudyPart]:
    """Return all studies; they are imported when a figure is asked for, not before."""
    from quorank.reproduce.studies.embedding import SketchedFeatures
    from quorank.reproduce.studies.firefox import FirefoxStudy
    from quorank.reproduce.studies.silos import SiloSweep, SiloTable
    from quorank.reproduce.studies.sketches import SketchCurves
    from quorank.reproduce.studies.unlearning import UnlearningStudy

    return Family("study", UnlearningStudy, SiloTable, SiloSweep, SketchCurves, SketchedFeatures, FirefoxStudy)


def read_study(
    document: ExperimentFile, *, quick: bool = False, data: str | None = None, repetitions: int | None = None
) -> StudyFigure:
    """Read a study from its file; errors name the file and the line."""
    try:
        file: _StudyFile = decode(_StudyFile, document.tables)
        shorter = file.quick if quick else _Quick()
        part = study_family().read({**file.study, **shorter.study}, "study")
    except BadInput as error:
        raise document.located(error) from None
    header = replace(file.figure, repetitions=repetitions or shorter.repetitions or file.figure.repetitions)
    return StudyFigure(name_of(document), header, quick, data, repetitions, file.published, part)


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
    content = study.identity() | {
        "repetitions": study.header.repetitions,
        "findings": [asdict(finding) for finding in results.findings],
        "tables": [table._asdict() for table in results.tables],
        "charts": [_chart_dict(chart) for chart in charts],
        "numbers": dict(results.numbers),
        "notes": list(results.notes),
    }
    return FigureReport(
        study,
        content,
        [(finding.claim, finding.verdict, finding.seen) for finding in results.findings],
        [*published, *results.tables],
        results.notes,
        [("repetitions", str(study.header.repetitions)), ("study", str(study.part))],
        [("", charts[at : at + columns]) for at in range(0, len(charts), columns)],
        f"{study.title}: {', '.join(chart.title for chart in charts)}",
    )


def _chart_dict(panel: Panel) -> dict[str, Any]:
    lines = [
        {"label": curve.label, "x": _numbers(curve.x), "y": _numbers(curve.mean)}
        | ({} if curve.spread is None else {"spread": _numbers(curve.spread)})
        for curve in panel.curves
    ]
    return {"title": panel.title, "x": panel.x_label, "y": panel.y_label, "lines": lines}


def _numbers(values: Doubles) -> list[float | None]:
    return [float(v) if np.isfinite(v) else None for v in values]
