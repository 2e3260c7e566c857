"""Accounted noise under secure sums: Skellam noise on whole numbers, by the clients in shares or drawn once.

The accounting is the Rényi bound of Agarwal, Kairouz and Liu 2021 (`discrete_noise`), with the sensitivity of the
rounded update. Neighbouring are two federations in which one client's updates count, or count as zero: the client
stays, and so does its share of the noise. It does not know subsampling: sampled cohorts are accounted as if everyone
were in every round. It holds against a server that follows the protocol, as the masks do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from quorank.errors import require
from quorank.privacy import accounting
from quorank.privacy.mechanisms.discrete_noise import l1_bound, skellam_epsilon, skellam_variance
from quorank.privacy.mechanisms.gaussian import ClippedGaussian, stated
from quorank.privacy.mechanisms.integer_sums import IntegerSums, check_secure
from quorank.privacy.mechanisms.quantise import quantised_norm_bound, scale_for
from quorank.privacy.mechanisms.setting import Setting
from quorank.privacy.streams import Seed

FINE = 2.0**22
"""Noise is not drawn finer than with this standard deviation, in integer units: rounding is nothing next to it."""


def accounted_sums(part: ClippedGaussian, setting: Setting, seed: Seed) -> AccountedSums:
    """The mechanism of one run: a scale at which nothing wraps, and the variance that keeps the budget."""
    check_secure(setting, part.masks, part.dropouts)
    everyone = Setting(setting.clients, setting.clients, setting.rounds)
    rough = part.noise_multiplier or accounting.noise_multiplier(everyone, part.epsilon, part.delta, "rdp")
    over = 1.0 / (1.0 - part.dropouts) if part.noise_by == "clients" else 1.0
    noise = 2.0 * rough * part.clip * math.sqrt(over)
    scale = min(scale_for(part.clip, setting.cohort, noise), 2.0 ** math.floor(math.log2(FINE / noise)))
    longest = quantised_norm_bound(part.clip, scale, setting.parameters)
    if part.noise_multiplier is not None:
        variance = (part.noise_multiplier * part.clip * scale) ** 2
    else:
        variance = _variance(part.epsilon, part.delta, setting.rounds, longest, setting.parameters)
    require(
        math.sqrt(variance) <= 2.0 * rough * part.clip * scale,
        "privacy: the noise does not fit whole numbers modulo 2^32: raise epsilon or the clip",
    )
    return AccountedSums(
        setting,
        seed,
        part.clip,
        scale,
        variance,
        part.noise_by,
        part.masks,
        part.dropouts,
        part=part,
        longest=longest,
    )


@lru_cache(maxsize=64)
def _variance(epsilon: float, delta: float, rounds: int, longest: float, parameters: int) -> float:
    return skellam_variance(epsilon, delta, rounds, longest, l1_bound(longest, parameters))


@dataclass(frozen=True, eq=False)
class AccountedSums(IntegerSums):
    part: ClippedGaussian = field(default_factory=ClippedGaussian)
    longest: float = 0.0  # L2 norm of a rounded update, in integer units

    @property
    def sum_multiplier(self) -> float:
        """Standard deviation of the noise on the sum over the clip."""
        return math.sqrt(self.variance) / (self.scale * self.clip)

    @property
    def least_multiplier(self) -> float:
        return self.sum_multiplier

    def epsilon(self, rounds: int) -> float:
        numbers = l1_bound(self.longest, self.setting.parameters)
        return skellam_epsilon(self.variance, self.longest, numbers, rounds, self.part.delta)

    def statement(self, rounds: int | None = None) -> dict[str, Any]:
        done = self.setting.rounds if rounds is None else rounds
        noise = f"Skellam, drawn by the {self.noise_by}"
        if self.noise_by == "clients":
            noise += f", complete if {self.least} of {self.setting.cohort} send their share"
        return stated(self.part, self.setting, done, self.epsilon(done), self.sum_multiplier) | {
            "model": "secure sums",
            "neighbouring": "one client's updates count as zero (its share of the noise stays)",
            "noise": noise,
            "scale": self.scale,
            "accountant": "Rényi divergence of Skellam noise, converted by dp-accounting",
        }

    def spent(self) -> list[tuple[int, float]]:
        rounds = self.setting.rounds
        marks = sorted({max(1, round(rounds * i / 30)) for i in range(1, 31)})
        return [(t, self.epsilon(t)) for t in marks]
