"""A figure of a paper that is no grid of runs: what a study is asked, and what it hands back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

from quorank.errors import require

Progress = Callable[[int, int, str], None]  # (done, total, what)


@dataclass(frozen=True)
class Line:
    """One line or set of marks of a chart."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[float] | None = None  # ± one standard deviation over repetitions

    def __post_init__(self) -> None:
        lengths = {len(self.x), len(self.y), len(self.x if self.spread is None else self.spread)}
        require(len(lengths) == 1, f"line {self.label!r}: x, y and spread have different lengths")


@dataclass(frozen=True)
class Chart:
    """One pair of axes."""

    title: str
    x: str
    y: str
    lines: tuple[Line, ...]
    form: Literal["lines", "points"] = "lines"
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class Sheet:
    """A table; its cells are texts already."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            require(len(row) == len(self.columns), f"sheet {self.title!r}: {row} does not fit {self.columns}")


@dataclass(frozen=True)
class Verdict:
    """A finding of the paper, whether it holds here (None: that cannot be said), and what was seen."""

    claim: str
    holds: bool | None
    seen: str

    @property
    def word(self) -> str:
        return {True: "holds", False: "does not hold", None: "open"}[self.holds]


@dataclass(frozen=True)
class Measured:
    """What a study found."""

    charts: tuple[Chart, ...]
    sheets: tuple[Sheet, ...]
    verdicts: tuple[Verdict, ...]
    notes: tuple[str, ...] = ()
    numbers: Mapping[str, Any] = field(default_factory=dict)  # for results.json


@dataclass(frozen=True)
class Asked:
    """What the person who reproduces a figure asked for."""

    data: str | None  # a collection of their own
    repetitions: int
    folder: Path  # the figure's directory: a study may keep there what it need not do twice
    progress: Progress


class StudyPart(Protocol):
    """A study: a part with settings that measures."""

    kind: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def measure(self, asked: Asked) -> Measured:
        """Do the experiment."""
        ...
