"""Request to a study, and its results.

A study is an experiment of a paper that is not a grid of runs: a part with settings and a method `measure`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from quorank.reports.panels import Panel
from quorank.reproduce.report import ReportTable

StudyProgress = Callable[[int, int, str], None]  # (done, total, what)


@dataclass(frozen=True)
class StudyRequest:
    """Requested data and repetitions, and the directory of the figure."""

    data: str | None  # a collection of their own
    repetitions: int
    folder: Path  # the figure's directory: a study may keep there what it need not do twice
    progress: StudyProgress


@dataclass(frozen=True)
class StudyFinding:
    """Finding of the paper, whether it holds here (None: that cannot be said), and what was measured."""

    claim: str
    holds: bool | None
    seen: str

    @property
    def verdict(self) -> str:
        return {True: "holds", False: "does not hold", None: "open"}[self.holds]


@dataclass(frozen=True)
class StudyResults:
    """Charts, tables, findings and notes of a study, and its numbers for results.json."""

    charts: tuple[Panel, ...]
    tables: tuple[ReportTable, ...]
    findings: tuple[StudyFinding, ...]
    notes: tuple[str, ...] = ()
    numbers: Mapping[str, Any] = field(default_factory=dict)


class StudyPart(Protocol):
    """Study of a paper: a part with settings that measures."""

    kind: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def measure(self, request: StudyRequest) -> StudyResults:
        """Do the experiment."""
        ...
