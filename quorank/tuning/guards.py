"""Guards: whether new weights are given to all clients at once, or judged first.

Hartmann et al. 2019 give every version to all clients, and their safeguards (§5.6) bound how far a weight moves, not
what people lose by it. A score that is a product falls off a cliff at the bound of a factor: where a weight has 0.15
left above 0 and its step is 0.2, all visits of that kind lose their points together. The slopes say nothing of it,
since the order of these pages is the same for every weight above 0.

`JudgedGuard` gives no version to anybody before it was judged. Clients go on with the published weights and compute
beside them, for the searches that they make anyway, whether the chosen item would have stood first: under the
reference (the weights that the tuning began with), under the published weights, and under the trial. The differences
are paired, so few searches tell small losses from none. A trial is published once it is at most `bound` below the
reference and at most `bound` below the published weights, standard errors included. While that is open the trial goes
on through the next iterations; if it does not pass, the step is halved. Published weights are watched on: should they
turn out to be below the bound, clients get the reference back.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from quorank.errors import require_range
from quorank.kernels.arrays import Doubles
from quorank.parts import Family


@dataclass(frozen=True)
class Evidence:
    """Running sums over searches: what candidate weights gain in first places over others, the base."""

    count: int = 0
    gain: float = 0.0  # Σ d, d the first place under the candidate minus that under the base
    squares: float = 0.0  # Σ d²
    base: float = 0.0  # Σ of first places under the base

    @property
    def sums(self) -> tuple[float, float, float, float]:
        """The numbers that it is read back from (`of`)."""
        return float(self.count), self.gain, self.squares, self.base

    @classmethod
    def of(cls, sums: Sequence[float]) -> Evidence:
        """Return the evidence with these sums."""
        count, gain, squares, base = sums
        return cls(int(count), gain, squares, base)

    def add(self, base: Doubles, candidate: Doubles) -> Evidence:
        """Return the sums with these searches (searches,) added; shares of a first place lie between 0 and 1."""
        gain = candidate - base
        return Evidence(
            self.count + len(gain),
            self.gain + float(gain.sum()),
            self.squares + float((gain * gain).sum()),
            self.base + float(base.sum()),
        )

    def mean_and_error(self) -> tuple[float, float]:
        """Return the mean gain and its standard error, with one search of |d| = 1 more than came.

        That search stands for what has not been seen yet: without it, a few searches that all agree would be certain.
        """
        n = max(1, self.count)
        return self.gain / n, math.sqrt(max(0.0, self.squares - self.gain * self.gain / n) + 1.0) / n


@dataclass(frozen=True)
class Guard(ABC):
    """Rule by which weights are published."""

    kind: ClassVar[str]
    judges: ClassVar[bool]  # whether weights are tried before they are published

    @abstractmethod
    def passes(self, evidence: Evidence) -> bool:
        """Return whether a trial with this evidence is published."""

    @abstractmethod
    def withdraws(self, evidence: Evidence) -> bool:
        """Return whether published weights with this evidence are withdrawn."""

    @abstractmethod
    def decides(self, trials: Sequence[Evidence]) -> bool:
        """Return whether the evidence against each of the compared weights is enough to end a trial."""

    @abstractmethod
    def shortens(self, before: int) -> bool:
        """Return whether a step that did not pass is halved once more; `before`: how often it was."""


@dataclass(frozen=True)
class ImmediateGuard(Guard):
    """Every version is given to all clients at once, as published."""

    kind: ClassVar[str] = "immediate"
    judges: ClassVar[bool] = False

    def passes(self, evidence: Evidence) -> bool:
        return True

    def withdraws(self, evidence: Evidence) -> bool:
        return False

    def decides(self, trials: Sequence[Evidence]) -> bool:
        return True

    def shortens(self, before: int) -> bool:
        return False


@dataclass(frozen=True)
class JudgedGuard(Guard):
    """Versions are published that keep 1 − `bound` of the reference's rank accuracy, and withdrawn when they do not."""

    kind: ClassVar[str] = "judged"
    judges: ClassVar[bool] = True

    bound: float = 0.01  # share of the rank accuracy that a published version may lose
    sure: float = 1.0  # standard errors by which a trial must be above the bound to pass, or below it to fail
    surely: float = 2.0  # standard errors by which published weights must be below the bound to be withdrawn
    most: int = 4000  # searches after which a trial that is still undecided is shortened
    halvings: int = 3  # of one step, before the next is taken from the published weights

    def __post_init__(self) -> None:
        require_range("bound", self.bound, above=0.0, below=1.0)
        require_range("sure", self.sure, least=0.0)
        require_range("surely", self.surely, least=0.0)
        require_range("most", self.most, least=2)
        require_range("halvings", self.halvings, least=0, most=50)

    def passes(self, evidence: Evidence) -> bool:
        mean, error = evidence.mean_and_error()
        return evidence.count > 0 and mean - self.sure * error >= -self._allowed(evidence)

    def withdraws(self, evidence: Evidence) -> bool:
        return self._below(evidence, self.surely)

    def decides(self, trials: Sequence[Evidence]) -> bool:
        enough = any(evidence.count >= self.most for evidence in trials)
        return enough or all(map(self.passes, trials)) or any(self._below(evidence, self.sure) for evidence in trials)

    def shortens(self, before: int) -> bool:
        return before < self.halvings

    def _below(self, evidence: Evidence, errors: float) -> bool:
        mean, error = evidence.mean_and_error()
        return evidence.count > 0 and mean + errors * error < -self._allowed(evidence)

    def _allowed(self, evidence: Evidence) -> float:
        return self.bound * evidence.base / max(1, evidence.count)


GUARDS: Family[Guard] = Family("guard", JudgedGuard, ImmediateGuard, base=Guard)
