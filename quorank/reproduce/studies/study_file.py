"""Study files: a paper's figure that a study measures.

[figure]   title, paper, claim, repetitions: see `FigureHeader`
[study]    kind, and the study's settings
[[published]]  the paper's own numbers: see `Published`
[quick]    repetitions, and a table `study` of settings for the short version
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from quorank.errors import BadInput, require, suggest
from quorank.experiments.experiment_file import ExperimentFile
from quorank.files.codec import decode
from quorank.parts import Family
from quorank.reproduce.figure import FigureHeader, PaperFigure, Published, read_shipped
from quorank.reproduce.studies.study import StudyPart

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
        published = tuple(Published.read(table) for table in document.tables.get("published", ()))
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
