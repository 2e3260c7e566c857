"""Figures that are no grids of runs, as files.

[figure]   title, paper, claim, repetitions: see `Header`
[study]    kind, and the study's settings
[quick]    repetitions, and a table `study` of settings for the short version
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from quorank.errors import BadInput, require
from quorank.experiments.experiment_file import ExperimentFile, read_experiment_file
from quorank.parts import Family, read_fields, suggest
from quorank.reproduce import figure_parts
from quorank.reproduce.figure_parts import Header, names
from quorank.reproduce.studies.study import StudyPart

TABLES = ("figure", "study", "quick")


def family() -> Family[StudyPart]:
    """All studies. They are imported when a figure is asked for, not before."""
    from quorank.reproduce.studies.embedding import SketchedFeatures
    from quorank.reproduce.studies.firefox import FirefoxStudy
    from quorank.reproduce.studies.silo_sweep import SiloSweep
    from quorank.reproduce.studies.silos import SiloTable
    from quorank.reproduce.studies.sketches import SketchCurves
    from quorank.reproduce.studies.unlearning import UnlearningStudy

    return Family(
        "study", UnlearningStudy, SiloTable, SiloSweep, SketchCurves, SketchedFeatures, FirefoxStudy
    )


@dataclass(frozen=True)
class Study:
    """A study's file, read for the full or the quick version."""

    name: str
    header: Header
    quick: bool
    data: str | None  # the user's own collection instead of the file's
    asked: int | None  # repetitions, where they are not the file's
    part: StudyPart

    @property
    def title(self) -> str:
        return self.header.title + (" (quick version)" if self.quick else "")


def load_study(
    name: str, *, quick: bool = False, data: str | None = None, repetitions: int | None = None
) -> Study:
    """The shipped study of this name."""
    require(name in names(studies=True), f"there is no study {name!r}{suggest(name, names(studies=True))}")
    document = replace(read_experiment_file(figure_parts.PAPERS / f"{name}.toml"), name=f"{name}.toml")
    return read_study(document, name, quick=quick, data=data, repetitions=repetitions)


def read_study(
    document: ExperimentFile,
    name: str,
    *,
    quick: bool = False,
    data: str | None = None,
    repetitions: int | None = None,
) -> Study:
    """A study from its file; mistakes are sentences that name the file and the line."""
    try:
        return _read(document, name, quick, data, repetitions)
    except BadInput as error:
        raise BadInput(document.locate(str(error))) from None


def _read(
    document: ExperimentFile, name: str, quick: bool, data: str | None, repetitions: int | None
) -> Study:
    tables = document.tables
    for key in tables:
        require(key in TABLES, f"unknown section {key!r}{suggest(key, TABLES)}; known: {', '.join(TABLES)}")
    shorter = dict(tables.get("quick", {}))
    for key in shorter:
        require(key in ("repetitions", "study"), f"quick: unknown key {key!r}; expected repetitions or study")
    header = read_fields(Header, tables.get("figure", {}), "figure")
    settings: dict[str, Any] = dict(tables.get("study", {}))
    if quick:
        require(isinstance(shorter.get("study", {}), Mapping), "quick.study: expected a table")
        settings |= shorter.get("study", {})
        header = replace(header, repetitions=shorter.get("repetitions", header.repetitions))
    header = replace(header, repetitions=repetitions or header.repetitions)
    return Study(name, header, quick, data, repetitions, family().read(settings, "study"))
