"""The tables of a figure file as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from quorank.errors import require
from quorank.experiments.experiment_file import read_experiment_file
from quorank.experiments.finished_run import CURVES
from quorank.parts import read_fields, suggest

PAPERS = Path(__file__).parent / "papers"
LINES = ("solid", "dashed", "dotted", "dash-dotted", "long")


def names(*, studies: bool) -> list[str]:
    """The shipped figures that are studies, such as "thesis/figure6.2", or those that are grids of runs."""
    found = sorted(PAPERS.rglob("*.toml"))
    chosen = (p for p in found if ("\n[study]" in p.read_text(encoding="utf-8")) == studies)
    return [p.relative_to(PAPERS).with_suffix("").as_posix() for p in chosen]


@dataclass(frozen=True)
class Header:
    """[figure]: what is shown and what the paper says about it."""

    kind: ClassVar[str] = "figure"

    title: str = ""
    about: str = ""  # one line for the list of figures
    paper: str = ""
    claim: str = ""  # what the paper found, in a sentence
    differs: str = ""  # where this experiment is not the paper's
    measures: tuple[str, ...] = ("offline_ndcg@10",)  # columns of the history
    x: Literal["interactions", "rounds"] = "interactions"
    repetitions: int = (
        5  # runs of every cell: each has its own seed, and its own fold where there are several
    )

    def __post_init__(self) -> None:
        for name in ("title", "about", "paper", "claim"):
            require(getattr(self, name), f"{name} is missing")
        for measure in self.measures:
            require(measure in CURVES, f"unknown measure {measure!r}{suggest(measure, CURVES)}")
        require(self.measures, "measures is empty; expected at least one column of the history")
        require(1 <= self.repetitions <= 1000, f"repetitions must be from 1 to 1000, got {self.repetitions}")


def header_of(name: str) -> Header:
    """[figure] of the shipped figure or study of this name, without the runs that it stands for."""
    return read_fields(
        Header, read_experiment_file(PAPERS / f"{name}.toml").tables.get("figure", {}), "figure"
    )


@dataclass(frozen=True)
class Check:
    """[[check]]: each variant of `above` is above each of `below`; or all `similar` ones are alike; or each
    one that `falls` ends below where it was before."""

    kind: ClassVar[str] = "check"

    claim: str = ""
    above: tuple[str, ...] = ()
    below: tuple[str, ...] = ()
    similar: tuple[str, ...] = ()
    falls: tuple[str, ...] = ()
    at: float = 1.0  # share of the run at which variants are compared; for `falls`, the earlier point
    within: float = 0.01  # a difference that still counts as similar
    to_first: bool = False  # similar ones are compared with the first of them only
    relative: bool = False  # `within` is a share of the second one's mean, for sums that grow with the run
    matched: bool = False  # the first of `above` against the first of `below`, and so on
    measure: str = ""  # the figure's first one unless given
    only: tuple[str, ...] = ()  # panels: a collection's label and values of the grid

    def __post_init__(self) -> None:
        require(self.claim, "claim is missing")
        forms = (bool(self.above) and bool(self.below), len(self.similar) > 1, bool(self.falls))
        require(sum(forms) == 1, f"{self.claim!r} needs one of above and below, similar, or falls")
        require(self.similar or not self.to_first, f"{self.claim!r}: to_first is for similar variants")
        require(0.0 < self.at <= 1.0, f"at must be above 0 and at most 1, got {self.at}")
        require(not self.falls or self.at < 1.0, "falls needs an earlier point: at below 1")
        require(
            not self.matched or len(self.above) == len(self.below),
            f"{self.claim!r} is matched, so above and below must have as many variants",
        )

    @property
    def variants(self) -> tuple[str, ...]:
        return (*self.above, *self.below, *self.similar, *self.falls)


@dataclass(frozen=True)
class Choice:
    """A [[collection]] or a [[variant]]: settings under a name."""

    label: str
    settings: Mapping[str, Any]
    colour: int = 1  # of the palette, from 1
    line: str = "solid"
    centralised: bool = False  # one client makes all interactions of a round
