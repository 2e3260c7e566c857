"""Request to a study, and its results: a study is an experiment of a paper that is no grid of runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from quorank.metrics.significance import Difference
from quorank.reports.panels import Panel
from quorank.reproduce.report import ReportTable

Step = TypeVar("Step")


@dataclass(frozen=True)
class StudyRequest:
    """Requested data and repetitions, and the directory of the figure."""

    data: str | None  # a collection of their own
    repetitions: int
    folder: Path  # the figure's directory: a study may keep there what it need not do twice
    progress: Callable[[int, int, str], None]  # (done, total, what)

    def steps(self, what: Iterable[Step], total: int, describe: Callable[[Step], str]) -> Iterator[Step]:
        """Yield the steps of a study, each reported before it is done."""
        for done, step in enumerate(what):
            self.progress(done, total, describe(step))
            yield step
        self.progress(total, total, "done")


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
    findings: Sequence[StudyFinding]
    notes: tuple[str, ...] = ()
    numbers: Mapping[str, Any] = field(default_factory=dict)


def significant_sign(test: Difference) -> bool | None:
    """Return whether the first side is above the second; None if the difference is not significant (corrected p < .05)."""
    return None if test.corrected_p is None or test.corrected_p >= 0.05 else test.difference > 0
