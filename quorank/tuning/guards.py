"""Guards: rules by which new weights are published, at once or after a trial.

Hartmann et al. 2019 publish every version to all clients. Their safeguards (§5.6) bound the change of a weight, not
the loss of rank accuracy. A score that is a product changes abruptly at the bound of a factor: a weight of 0.15 with a
step of 0.2 can reach 0, and all visits of that kind lose their points together. Slopes do not show it, since the order
of these pages is the same for every weight above 0.

`JudgedGuard` publishes a version only after a trial. Clients keep the published weights, and compute for their own
searches whether the chosen item would have stood first: under the reference (the weights at the start of the tuning),
the published weights, and the trial. The differences are paired, so few searches suffice to detect a small loss. A
trial is published once it is at most `bound` below the reference and at most `bound` below the published weights,
standard errors included. An undecided trial continues through the next iterations; after a failed one the step is
halved. Published weights are still monitored: if they fall below the bound, clients get the reference back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

from quorank.files.codec import Range
from quorank.kernels.arrays import Doubles
from quorank.parts import Family


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
        sure: Standard errors above the bound at which a trial passes, and below it at which it fails.
        surely: Standard errors below the bound at which published weights are withdrawn.
        most: Number of searches after which an undecided trial is shortened.
        halvings: Maximum number of halvings of one step.

    >>> JudgedGuard(bound=0.02).decides([Evidence(searches=4000), Evidence()])
    True
    """

    kind: ClassVar[str] = "judged"

    bound: Annotated[float, Range(above=0.0, below=1.0)] = 0.01
    sure: Annotated[float, Range(0.0)] = 1.0
    surely: Annotated[float, Range(0.0)] = 2.0
    most: Annotated[int, Range(2)] = 4000
    halvings: Annotated[int, Range(0, 50)] = 3

    def passes(self, evidence: Evidence) -> bool:
        """Return whether a trial with this evidence is published."""
        return evidence.searches > 0 and self._margin(evidence, -self.sure) >= 0.0

    def withdraws(self, evidence: Evidence) -> bool:
        """Return whether published weights with this evidence are withdrawn."""
        return self._margin(evidence, self.surely) < 0.0

    def decides(self, trials: Sequence[Evidence]) -> bool:
        """Return whether the evidence against both compared weights suffices to end a trial."""
        enough = any(evidence.searches >= self.most for evidence in trials)
        failed = any(self._margin(evidence, self.sure) < 0.0 for evidence in trials)
        return enough or failed or all(map(self.passes, trials))

    def _margin(self, evidence: Evidence, errors: float) -> float:
        """Return how far the mean gain and so many standard errors lie above the allowed loss."""
        mean, error = evidence.mean_and_error()
        return mean + errors * error + self.bound * evidence.base / max(1, evidence.searches)


Guard = JudgedGuard | ImmediateGuard
GUARDS: Family[Guard] = Family("guard", JudgedGuard, ImmediateGuard)
