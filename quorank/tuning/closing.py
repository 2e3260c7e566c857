"""Rules that close an iteration: after a count, after a time, or when more updates would change little.

Hartmann et al. 2019 closed every 30 minutes (§5.5) and found that too simple (§6.4): few people search at night, and
far from the optimum a small sample already gives the direction. They propose to use the variance of the updates;
`Stable` does so with running sums for each weight.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from quorank.errors import require_range
from quorank.files.codec import Range
from quorank.kernels.arrays import Booleans, Doubles
from quorank.parts import Family


@dataclass(frozen=True)
class Estimate:
    """Running sums of an iteration, the only stored data of its updates. Slopes are counted per declared step.

    The sums of an undecided weight include earlier iterations, see `carry_over`.
    """

    count: int  # updates of this iteration
    seen: Doubles  # (weights,): updates behind the sums of each weight
    total: Doubles  # (weights,): Σ u
    squares: Doubles  # (weights,): Σ u²
    loss: float  # Σ of the reported losses, of this iteration

    @classmethod
    def empty(cls, weights: int) -> Estimate:
        """Return the sums of no updates."""
        return cls(0, np.zeros(weights), np.zeros(weights), np.zeros(weights), 0.0)

    def add(self, values: Doubles, losses: Doubles) -> Estimate:
        """Return the sums with the updates `values` (updates, weights) and their `losses` (updates,) added."""
        return Estimate(
            self.count + len(values),
            self.seen + len(values),
            self.total + values.sum(axis=0),
            self.squares + (values * values).sum(axis=0),
            self.loss + float(losses.sum()),
        )

    def mean(self) -> Doubles:
        """Return the mean of each coordinate (weights,)."""
        return np.asarray(self.total / np.maximum(self.seen, 1e-300), dtype=np.float64)

    def standard_error(self) -> Doubles:
        """Return s/√n, the standard error of each mean (weights,); infinite for fewer than two updates."""
        n = np.maximum(self.seen, 1.5)
        variance = (self.squares - self.total * self.total / n) / (n - 1.0)
        return np.where(self.seen < 2.0, math.inf, np.sqrt(np.maximum(variance, 0.0) / n))

    def carry_over(self, undecided: Booleans, keep: float) -> Estimate:
        """Return the sums at the start of the next iteration: the share `keep` of those of undecided weights.

        Sums kept t times have the weight keepᵗ. The error of such a mean is at most s/√(Σ of these weights), the value
        of `standard_error`: kept sums never overstate the certainty of a sign.
        """
        share = np.where(undecided, keep, 0.0)
        return Estimate(0, share * self.seen, share * self.total, share * self.squares, 0.0)


@dataclass(frozen=True)
class Count:
    """Closing after a number of updates.

    >>> Count(400).missing_updates(Estimate.empty(9))
    400
    """

    kind: ClassVar[str] = "count"

    updates: Annotated[int, Range(1)] = 400

    def closes(self, estimate: Estimate, seconds: float) -> bool:
        """Return whether an iteration that has lasted `seconds` closes."""
        return estimate.count >= self.updates

    def missing_updates(self, estimate: Estimate) -> int:
        """Return the number of updates until the iteration closes."""
        return self.updates - estimate.count


@dataclass(frozen=True)
class Time:
    """Closing after a number of seconds, as published, but not before the first update.

    >>> Time(60.0).closes(Estimate.empty(9), seconds=90.0)
    False
    """

    kind: ClassVar[str] = "time"

    seconds: Annotated[float, Range(above=0.0)] = 1800.0

    def closes(self, estimate: Estimate, seconds: float) -> bool:
        """Return whether an iteration that has lasted `seconds` closes."""
        return seconds >= self.seconds and estimate.count > 0


@dataclass(frozen=True)
class Stable:
    """Closing as soon as the sign of one weight's slope is known, |mean| ≥ known · (its standard error), or at `most`.

    One weight suffices: the others keep their sums (`keep` of the coordinator), so each weight waits for as many
    updates as its slope needs. Far from the optimum iterations are as short as `least`; near it weights move seldom,
    each on the evidence of many iterations. The sums are tested after every message, so `known` is not a significance
    level: a sign is wrong more often than in a single test.

    Args:
        known: Standard errors.
        least: Minimum number of updates.
        most: Maximum number of updates.

    >>> Stable(least=2).closes(Estimate.empty(9), seconds=0.0)
    False
    """

    kind: ClassVar[str] = "stable"

    known: Annotated[float, Range(above=0.0)] = 1.5
    least: int = 50
    most: int = 400

    def __post_init__(self) -> None:
        require_range("least", self.least, least=2, most=self.most)

    def closes(self, estimate: Estimate, seconds: float) -> bool:
        """Return whether an iteration with these sums closes."""
        if estimate.count < self.least:
            return False
        return estimate.count >= self.most or bool(self.known_signs(estimate).any())

    def known_signs(self, estimate: Estimate) -> Booleans:
        """Return which weights (weights,) have a slope of known sign; never one with a slope of 0."""
        size = np.abs(estimate.mean())
        return np.asarray((size > 0.0) & (size >= self.known * estimate.standard_error()), dtype=np.bool_)


Closing = Count | Time | Stable
CLOSINGS: Family[Closing] = Family("closing", Count, Time, Stable)
