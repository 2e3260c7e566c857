"""When an iteration closes: after a count, after a time, or when more updates would change little.

Hartmann et al. 2019 closed every 30 minutes (§5.5) and found that too simple (§6.4): few people are awake at night, and
far from the optimum a small sample already knows the direction. They propose to look at the variance of what came in;
`Stable` does that with running sums, weight by weight.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quorank.arrays import Booleans, Doubles
from quorank.errors import require
from quorank.parts import Family


@dataclass(frozen=True)
class Estimate:
    """Running sums of an iteration: all that is kept of its updates. Slopes are counted per declared step.

    A weight that could not be decided brings sums of earlier iterations along, see `left`.
    """

    count: int  # updates of this iteration
    seen: Doubles  # updates behind the sums of each weight
    total: Doubles  # Σ u
    squares: Doubles  # Σ u²
    loss: float  # Σ of the reported losses, of this iteration

    @classmethod
    def empty(cls, weights: int) -> Estimate:
        return cls(0, np.zeros(weights), np.zeros(weights), np.zeros(weights), 0.0)

    def add(self, values: Doubles, losses: Doubles) -> Estimate:
        """With the rows of `values` counted in."""
        return Estimate(
            self.count + len(values),
            self.seen + len(values),
            self.total + values.sum(axis=0),
            self.squares + (values * values).sum(axis=0),
            self.loss + float(losses.sum()),
        )

    def mean(self) -> Doubles:
        return np.asarray(self.total / np.maximum(self.seen, 1e-300), dtype=np.float64)

    def standard_error(self) -> Doubles:
        """Of the mean of each coordinate: s/√n. Unknown, so infinite, for fewer than two updates."""
        n = np.maximum(self.seen, 1.5)
        variance = (self.squares - self.total * self.total / n) / (n - 1.0)
        return np.where(self.seen < 2.0, math.inf, np.sqrt(np.maximum(variance, 0.0) / n))

    def left(self, undecided: Booleans, keep: float) -> Estimate:
        """What the next iteration begins with: the share `keep` of the sums of weights that are undecided.

        Sums that were kept t times count keepᵗ. The error of such a mean is at most s/√(Σ of those shares), which
        `standard_error` says of it: kept sums never make a sign look more certain than it is.
        """
        share = np.where(undecided, keep, 0.0)
        return Estimate(0, share * self.seen, share * self.total, share * self.squares, 0.0)


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
    """As soon as the sign of some weight's slope is known, |mean| ≥ known · (its standard error), or `most` are in.

    Only one weight need be known: those that are not sit the iteration out and take their sums along (`keep` of the
    protocol), so each weight waits for as many updates as its own slope needs. Far from the optimum iterations are as
    short as `least`; near to it weights move seldom, each on the evidence of many iterations. The sums are looked at
    again and again, so `known` is no level of significance: a sign is wrong more often than a single look would say.
    """

    kind: ClassVar[str] = "stable"

    known: float = 1.5  # standard errors
    least: int = 50
    most: int = 400

    def __post_init__(self) -> None:
        require(0.0 < self.known < math.inf, f"known must be above 0, got {self.known}")
        require(2 <= self.least <= self.most, f"expected 2 ≤ least ≤ most, got {self.least} and {self.most}")

    def closes(self, estimate: Estimate, seconds: float) -> bool:
        if estimate.count < self.least:
            return False
        return estimate.count >= self.most or bool(self.settled(estimate).any())

    def settled(self, estimate: Estimate) -> Booleans:
        """Which weights have a slope of known sign; one that no update speaks of has none."""
        size = np.abs(estimate.mean())
        return np.asarray((size > 0.0) & (size >= self.known * estimate.standard_error()), dtype=np.bool_)


Closing = Count | Time | Stable
CLOSINGS: Family[Closing] = Family("closing", Count, Time, Stable)
