"""Request to a study, and its results: a study is an experiment of a paper that is no grid of runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from quorank.metrics.significance import Difference
from quorank.reports.panels import Panel
from quorank.reports.report import ReportTable

Choice = TypeVar("Choice")


@dataclass(frozen=True)
class StudyRequest:
    """Requested data and repetitions, and the directory of the figure."""

    data: str | None  # a collection of their own
    repetitions: int
    folder: Path  # the figure's directory: a study may keep there what it need not do twice
    progress: Callable[[int, int, str], None]  # (done, total, what)

    def trials(self, choices: Sequence[Choice], describe: Callable[[Choice], str]) -> Iterator[tuple[int, Choice]]:
        """Yield every repetition, from 1, with each of the choices; each trial is reported before it is done."""
        trials = [*itertools.product(range(1, self.repetitions + 1), choices)]
        for done, (repetition, choice) in enumerate(trials):
            self.progress(done, len(trials), f"repetition {repetition}, {describe(choice)}")
            yield repetition, choice
        self.progress(len(trials), len(trials), "done")


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
