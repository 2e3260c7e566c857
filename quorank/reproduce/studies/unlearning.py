"""The experiments of thesis chapter 6: what a malicious leaver does, and whether rebuilding without it is retraining.

`shows` chooses between figure 6.2 (the three configurations that are compared), figure 6.3 (the rebuilding on its way to
retraining) and table 6.2 (how much it depends on n′ and Δt). Rebuilding is shown as published and in the two
ways of our own that `quorank unlearn` has.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from quorank.errors import require
from quorank.reproduce.figures import folds_of
from quorank.reproduce.studies.study import Asked, Measured
from quorank.reproduce.studies.unlearning_cells import Comparison, Setting
from quorank.reproduce.studies.unlearning_findings import Cell, Effort, configurations, efforts, rebuilding

PRESETS = ("perfect", "navigational", "informational")


@dataclass(frozen=True)
class UnlearningStudy:
    """Ten clients of which one sends −z·θ; every comparison is made for each collection and click model."""

    kind: ClassVar[str] = "unlearning-curves"

    shows: Literal["configurations", "rebuilding", "effort"] = "rebuilding"
    sources: tuple[str, ...] = ("synthetic:mq2007", "synthetic:mslr")
    queries: int = 1000  # training queries of generated collections
    presets: tuple[str, ...] = PRESETS
    clients: int = 10
    interactions: int = 5  # n, local steps of a round
    rounds: int = 10_000  # T
    z: float = 2.0  # eq. 6.3
    intervals: tuple[int, ...] = (10,)  # Δt
    local_steps: tuple[int, ...] = (3,)  # n′
    points: int = 50  # of a curve

    def __post_init__(self) -> None:
        require(self.sources, "sources is empty; expected at least one collection")
        require(
            self.presets and set(self.presets) <= set(PRESETS),
            f"presets must be some of {', '.join(PRESETS)}, got {list(self.presets)}",
        )
        require(self.clients >= 2, f"clients must be at least 2, one of which leaves, got {self.clients}")
        require(self.rounds >= 1, f"rounds must be at least 1, got {self.rounds}")
        require(self.points >= 1, f"points must be at least 1, got {self.points}")
        require(
            self.intervals and min(self.intervals) >= 1,
            f"intervals must list rounds, each at least 1, got {list(self.intervals)}",
        )
        require(
            self.local_steps and min(self.local_steps) >= 1 and max(self.local_steps) <= self.interactions,
            f"local_steps must lie between 1 and interactions ({self.interactions}), got {list(self.local_steps)}",
        )

    def measure(self, asked: Asked) -> Measured:
        cells = self._cells(asked)
        show = {"configurations": configurations, "rebuilding": rebuilding, "effort": efforts}[self.shows]
        return show(Effort(self.interactions, self.rounds, self.intervals, self.local_steps), cells)

    def _cells(self, asked: Asked) -> list[Cell]:
        """All comparisons, each repeated."""
        sources = self.sources if asked.data is None else (asked.data,)
        total, done, found = len(sources) * len(self.presets) * asked.repetitions, 0, []
        for source in sources:
            folds = folds_of(source)
            for preset in self.presets:
                figures = []
                for repetition in range(1, asked.repetitions + 1):
                    label = f"{_short(source)}, {preset}"
                    asked.progress(done, total, label)
                    fold = (repetition - 1) % folds + 1 if folds else 0
                    setting = Setting(
                        source, self.queries, fold, repetition, preset, self.clients, self.interactions, self.rounds,
                        self.z, self.points, self.intervals, self.local_steps, self.shows == "configurations",
                    )  # fmt: skip
                    name = f"{_short(source).replace(':', '-')},{preset},{repetition}"
                    figures.append(Comparison(setting, asked.folder / name).figures())
                    done += 1
                found.append(Cell(_short(source), preset, tuple(figures)))
        asked.progress(done, total, "all comparisons")
        return found


def _short(source: str) -> str:
    """A name for a collection: where it lies on somebody's machine is nobody else's business."""
    return (
        source.removeprefix("synthetic:") + "-like"
        if source.startswith("synthetic:")
        else Path(source).resolve().name
    )
