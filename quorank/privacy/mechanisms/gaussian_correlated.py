"""Gaussian noise that is spread or correlated over the rounds, for federations in which everyone is in every round.

The whole run is one Gaussian mechanism on C·x, the cohort sums x weighted by the factor C of `correlated`: with noise
of standard deviation σ·sens(C)·clip its ε is that of one release with multiplier σ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from quorank.arrays import Doubles
from quorank.errors import require
from quorank.privacy import accounting
from quorank.privacy.mechanisms.correlated import Factor, factor
from quorank.privacy.mechanisms.gaussian import ClippedGaussian, GaussianMechanism, stated
from quorank.privacy.mechanisms.mechanism import Memory, Sum
from quorank.privacy.mechanisms.setting import Setting
from quorank.privacy.streams import Seed

ONCE = Setting(1, 1, 1)
"""One release: what a whole run with correlated noise is to the accountant."""


def correlated_mechanism(part: ClippedGaussian, setting: Setting, seed: Seed) -> CorrelatedMechanism:
    require(
        setting.participation == "full",
        f"privacy: over_rounds = {part.over_rounds!r} is planned for everyone in every round; with sampled cohorts "
        'leave it at "independent"',
    )
    shape = factor(part.over_rounds, setting.rounds)
    deviations = np.array([shape.noise_std(t) for t in range(setting.rounds)])
    typical = float(np.sqrt(np.mean(deviations**2)))
    if part.noise_multiplier is not None:
        once = part.noise_multiplier / (shape.sensitivity * typical)
    else:
        once = accounting.noise_multiplier(ONCE, part.epsilon, part.delta, part.accountant)
    return CorrelatedMechanism(part, setting, seed, once * shape.sensitivity * typical, shape, once)


@dataclass(frozen=True, eq=False)
class CorrelatedMechanism(GaussianMechanism):
    """`noise_multiplier` is the root mean square over the rounds."""

    factor: Factor = Factor("independent", 1)  # noqa: RUF009  a frozen value
    once: float = 1.0  # σ, the multiplier of the whole run as one release

    @property
    def least_multiplier(self) -> float:
        deviations = (self.factor.noise_std(t) for t in range(self.setting.rounds))
        return self.once * self.factor.sensitivity * min(deviations)

    @cached_property
    def sum_multiplier(self) -> float:
        """The multiplier of independent noise that would leave as much on the sum of all rounds."""
        last = np.zeros(self.setting.rounds)  # the last row of B = A C⁻¹
        for t in range(self.setting.rounds):
            last[: t + 1] += self.factor.inverse_row(t)
        whole = self.once * self.factor.sensitivity * float(np.linalg.norm(last))
        return whole / math.sqrt(self.setting.rounds)

    def finish(
        self, total: Doubles, weight: float, within: int, count: int, round_: int, memory: Memory
    ) -> Sum:
        std = self.once * self.factor.sensitivity * self.part.clip
        noisy = np.asarray(total + self.factor.noise(round_, len(total), self._key, std), dtype=np.float64)
        of_round = std * self.factor.noise_std(round_)
        return Sum(noisy, float(self.setting.cohort), memory, self.part.clip, of_round)

    @cached_property
    def _row_sums(self) -> Doubles:
        """(rounds,) the squared sum of each row of C: how much each round adds to the squared sensitivity."""
        return np.array([self.factor.row(t).sum() ** 2 for t in range(self.setting.rounds)])

    def epsilon(self, rounds: int) -> float:
        """ε of the first rounds: their part of the sensitivity, under the same noise."""
        if rounds == 0:
            return 0.0
        share = math.sqrt(float(self._row_sums[:rounds].sum())) / self.factor.sensitivity
        return accounting.epsilon(ONCE, self.once / share, self.part.delta, self.part.accountant)

    def statement(self, rounds: int | None = None) -> dict[str, Any]:
        done = self.setting.rounds if rounds is None else rounds
        return stated(self.part, self.setting, done, self.epsilon(done), self.noise_multiplier) | {
            "over_rounds": self.part.over_rounds,
            "whole_run_multiplier": self.once,
            "sensitivity_over_rounds": self.factor.sensitivity,
            "accountant": f"one release for the whole run, dp-accounting, {self.part.accountant.upper()}",
        }

    def spent(self) -> list[tuple[int, float]]:
        rounds = self.setting.rounds
        marks = sorted({max(1, round(rounds * i / 30)) for i in range(1, 31)})
        return [(t, self.epsilon(t)) for t in marks]
