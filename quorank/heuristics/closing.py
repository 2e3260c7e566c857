"""When an iteration closes: after a count, after a time, or when more updates would change little.

Hartmann et al. 2019 closed every 30 minutes (§5.5) and found that too simple (§6.4): few people are awake at night, and
far from the optimum a small sample already knows the direction. They propose to look at the variance of what came in;
`Stable` does that with running sums.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from quorank.errors import require
from quorank.heuristics.weights import Doubles
from quorank.parts import Family


@dataclass(frozen=True)
class Estimate:
    """Running sums of an iteration: all that is kept of its updates. Slopes are counted per declared step."""

    count: int
    total: Doubles  # Σ u
    squares: Doubles  # Σ u²
    loss: float  # Σ of the reported losses

    @classmethod
    def empty(cls, weights: int) -> Estimate:
        return cls(0, np.zeros(weights), np.zeros(weights), 0.0)

    def add(self, values: Doubles, losses: Doubles) -> Estimate:
        """With the rows of `values` counted in."""
        return Estimate(
            self.count + len(values),
            self.total + values.sum(axis=0),
            self.squares + (values * values).sum(axis=0),
            self.loss + float(losses.sum()),
        )

    def mean(self) -> Doubles:
        return self.total / max(self.count, 1)

    def standard_error(self) -> Doubles:
        """Of the mean of each coordinate: s/√n. Unknown, so infinite, for fewer than two updates."""
        if self.count < 2:
            return np.full(len(self.total), math.inf)
        variance = (self.squares - self.total * self.total / self.count) / (self.count - 1)
        return np.sqrt(np.maximum(variance, 0.0) / self.count)


@dataclass(frozen=True)
class Count:
    """After so many updates."""

    kind: ClassVar[str] = "count"

    updates: int = 400

    def __post_init__(self) -> None:
        require(self.updates >= 1, f"updates must be at least 1, got {self.updates}")

    def closes(self, estimate: Estimate, seconds: float) -> bool:
        return estimate.count >= self.updates


@dataclass(frozen=True)
class Time:
    """After so many seconds, as published; not before the first update, since nothing could be learned."""

    kind: ClassVar[str] = "time"

    seconds: float = 1800.0
    least: int = 1

    def __post_init__(self) -> None:
        require(0.0 < self.seconds < math.inf, f"seconds must be above 0, got {self.seconds}")
        require(self.least >= 1, f"least must be at least 1, got {self.least}")

    def closes(self, estimate: Estimate, seconds: float) -> bool:
        return seconds >= self.seconds and estimate.count >= self.least


@dataclass(frozen=True)
class Stable:
    """As soon as every coordinate of the running mean u is settled, or `most` updates are in.

    A coordinate is settled when its sign is known, |u_k| ≥ known · (its standard error), or when it hardly matters:
    its standard error is at most `error` times the largest |u_j|. The sums are looked at again and again, so `known` is
    no level of significance: a sign is wrong more often than a single look would say.
    """

    kind: ClassVar[str] = "stable"

    known: float = 2.0  # standard errors
    error: float = 0.5  # of the largest coordinate
    least: int = 50
    most: int = 400

    def __post_init__(self) -> None:
        require(0.0 < self.known < math.inf, f"known must be above 0, got {self.known}")
        require(0.0 <= self.error < math.inf, f"error must be at least 0, got {self.error}")
        require(2 <= self.least <= self.most, f"expected 2 ≤ least ≤ most, got {self.least} and {self.most}")

    def closes(self, estimate: Estimate, seconds: float) -> bool:
        if estimate.count < self.least:
            return False
        return estimate.count >= self.most or bool(self.settled(estimate).all())

    def settled(self, estimate: Estimate) -> npt.NDArray[np.bool_]:
        """Which coordinates are settled."""
        size, error = np.abs(estimate.mean()), estimate.standard_error()
        return np.asarray((size >= self.known * error) | (error <= self.error * size.max()), dtype=np.bool_)


Closing = Count | Time | Stable
CLOSINGS: Family[Closing] = Family("closing", Count, Time, Stable)
