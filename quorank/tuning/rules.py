"""Rules of a tuning: what leaves a client, when an iteration closes, and which weights are published.

Releases (Hartmann et al. 2019, §5.3). Rprop uses signs alone, so a client may release a sign for each weight, and the
server takes the most common one. Two bits distinguish +, − and 0; one bit cannot represent 0, and a coin decides
there. Zeros abstain from the majority: a search in which a weight plays no role says nothing about it, and most
searches would outvote a rare kind of visit.

Closings. Hartmann et al. 2019 closed every 30 minutes (§5.5) and found that too simple (§6.4): few people search at
night, and far from the optimum a small sample already gives the direction. They propose to use the variance of the
updates; `Stable` does so with running sums for each weight.

Guards. Hartmann et al. 2019 publish every version to all clients. Their safeguards (§5.6) bound the change of a
weight, not the loss of rank accuracy. A score that is a product changes abruptly at the bound of a factor: a weight
of 0.15 with a step of 0.2 can reach 0, and all visits of that kind lose their points together. Slopes do not show it,
since the order of these pages is the same for every weight above 0.

`JudgedGuard` publishes a version only after a trial. Clients keep the published weights, and compute for their own
searches whether the chosen item would have stood first: under the reference (the weights at the start of the tuning),
the published weights, and the trial. Paired differences detect a small loss with a small number of searches. A
trial is published once it is at most `bound` below the reference and at most `bound` below the published weights,
standard errors included. An undecided trial continues through the next iterations; after a failed one the step is
halved. Published weights are still monitored: if they fall below the bound, clients get the reference back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np

from quorank.errors import require, require_range
from quorank.files.codec import Range
from quorank.kernels.arrays import Booleans, Doubles
from quorank.parts import Family


@dataclass(frozen=True)
class GradientRelease:
    """Release of the whole gradient, rounded to 32-bit floats.

    >>> GradientRelease().apply(np.array([[1.5, -0.25]])).tolist()
    [[1.5, -0.25]]
    """

    kind: ClassVar[str] = "gradient"
    needs_coins: ClassVar[bool] = False
    sure: ClassVar[float] = 1.0  # standard errors above the bound at which a trial of such steps passes

    def apply(self, slopes: Doubles, coins: Booleans | None = None) -> Doubles:
        """Return the released values (updates, weights) of gradients (updates, weights)."""
        with np.errstate(over="ignore"):
            return slopes.astype(np.float32).astype(np.float64)

    def accepts(self, values: Doubles) -> Booleans:
        """Return which rows (updates,) `apply` can have made: finite 32-bit floats."""
        return np.asarray((np.isfinite(values) & (self.apply(values) == values)).all(axis=1), dtype=np.bool_)

    def per_step(self, values: Doubles, steps: Doubles) -> Doubles:
        """Return the change of the loss over a declared step of each weight: comparable between weights of any unit."""
        return values * steps

    def direction(self, mean: Doubles) -> Doubles:
        """Return the direction (weights,) for the optimiser: the mean gradient."""
        return mean


@dataclass(frozen=True)
class SignRelease:
    """Release of the sign of each coordinate; the server takes the majority.

    Args:
        bits: 2 for −1, 0 and 1; 1 for −1 and 1, where coins decide for zeros.

    >>> SignRelease().apply(np.array([[1.5, -0.25, 0.0]])).tolist()
    [[1.0, -1.0, 0.0]]
    """

    kind: ClassVar[str] = "signs"
    sure: ClassVar[float] = 3.0  # signs near the optimum wander, and every version is one more chance to pass

    bits: Literal[1, 2] = 2

    @property
    def needs_coins(self) -> bool:
        """Return whether `apply` needs a random bit for every slope of 0."""
        return self.bits == 1

    def apply(self, slopes: Doubles, coins: Booleans | None = None) -> Doubles:
        """Return the released signs (updates, weights) of gradients (updates, weights); `coins` have the same shape."""
        if self.bits == 2:
            return np.sign(slopes)
        zero = slopes == 0.0
        decided = coins is not None or not zero.any()
        require(decided, "release.coins-missing", "one bit cannot represent 0: a coin must decide there")
        positive = slopes > 0.0 if coins is None else (slopes > 0.0) | (zero & coins)
        return np.where(positive, 1.0, -1.0)

    def accepts(self, values: Doubles) -> Booleans:
        """Return which rows (updates,) `apply` can have made."""
        signs = (-1.0, 1.0) if self.bits == 1 else (-1.0, 0.0, 1.0)
        return np.asarray(np.isin(values, signs).all(axis=1), dtype=np.bool_)

    def per_step(self, values: Doubles, steps: Doubles) -> Doubles:
        """Return the signs unchanged: they have no unit."""
        return values

    def direction(self, mean: Doubles) -> Doubles:
        """Return the most common sign of each coordinate."""
        return np.sign(mean)


Release = GradientRelease | SignRelease
RELEASES: Family[Release] = Family("release", GradientRelease, SignRelease)


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

    @property
    def fewest(self) -> int:
        """Minimum number of updates of an iteration."""
        return self.updates

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
    fewest: ClassVar[int] = 1

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

    @property
    def fewest(self) -> int:
        """Minimum number of updates of an iteration."""
        return self.least

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


class Evidence(NamedTuple):
    """Running sums over searches of the gain in first places of candidate weights over base weights."""

    searches: float = 0.0
    gain: float = 0.0  # Σ d, d the first place under the candidate minus that under the base
    squares: float = 0.0  # Σ d²
    base: float = 0.0  # Σ of first places under the base

    def add(self, base: Doubles, candidate: Doubles) -> Evidence:
        """Return the sums with these searches (searches,) added; shares of a first place lie between 0 and 1."""
        gain = candidate - base
        return Evidence(
            self.searches + len(gain),
            self.gain + float(gain.sum()),
            self.squares + float((gain * gain).sum()),
            self.base + float(base.sum()),
        )

    def mean_and_error(self) -> tuple[float, float]:
        """Return the mean gain and its standard error, with one additional search of |d| = 1.

        Without that search, a few searches that all agree would give an error of 0.
        """
        n = max(1, self.searches)
        return self.gain / n, math.sqrt(max(0.0, self.squares - self.gain * self.gain / n) + 1.0) / n


@dataclass(frozen=True)
class ImmediateGuard:
    """Publication of every version at once, as in the paper: no trial, and nothing is withdrawn."""

    kind: ClassVar[str] = "immediate"


@dataclass(frozen=True)
class JudgedGuard:
    """Publication of versions that keep 1 − `bound` of the reference's rank accuracy, and withdrawal of those that do not.

    Args:
        bound: Share of the rank accuracy that a published version may lose.
        sure: Standard errors above the bound at which a trial passes, and below it at which it fails; by default 1 for
            gradients and 3 for signs.
        surely: Standard errors below the bound at which published weights are withdrawn.
        most: Number of searches after which an undecided trial is shortened.
        halvings: Maximum number of halvings of one step.

    >>> JudgedGuard(bound=0.02).decides([Evidence(searches=4000), Evidence()])
    True
    """

    kind: ClassVar[str] = "judged"

    bound: Annotated[float, Range(above=0.0, below=1.0)] = 0.01
    sure: Annotated[float, Range(0.0)] | None = None
    surely: Annotated[float, Range(0.0)] = 2.0
    most: Annotated[int, Range(2)] = 4000
    halvings: Annotated[int, Range(0, 50)] = 3

    def of(self, release: Release) -> JudgedGuard:
        """Return the guard with the standard errors that steps by this release need, unless it states its own."""
        return replace(self, sure=release.sure) if self.sure is None else self

    def passes(self, evidence: Evidence) -> bool:
        """Return whether a trial with this evidence is published."""
        return evidence.searches > 0 and self._margin(evidence, -self._sure) >= 0.0

    def withdraws(self, evidence: Evidence) -> bool:
        """Return whether published weights with this evidence are withdrawn."""
        return self._margin(evidence, self.surely) < 0.0

    def decides(self, trials: Sequence[Evidence]) -> bool:
        """Return whether the evidence against both compared weights suffices to end a trial."""
        enough = any(evidence.searches >= self.most for evidence in trials)
        failed = any(self._margin(evidence, self._sure) < 0.0 for evidence in trials)
        return enough or failed or all(map(self.passes, trials))

    @property
    def _sure(self) -> float:
        return GradientRelease.sure if self.sure is None else self.sure

    def _margin(self, evidence: Evidence, errors: float) -> float:
        """Return the distance of the mean gain, plus some standard errors, from the allowed loss."""
        mean, error = evidence.mean_and_error()
        return mean + errors * error + self.bound * evidence.base / max(1, evidence.searches)


Guard = JudgedGuard | ImmediateGuard
GUARDS: Family[Guard] = Family("guard", JudgedGuard, ImmediateGuard)
