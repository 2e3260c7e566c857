"""Clipped updates and Gaussian noise on their sum, calibrated to (ε, δ) for a client and the whole run.

Each client's update (the change of the parameters, not the parameters) is clipped to L2 norm C. The sum of a cohort
gets N(0, (z·C)²) on each number, with z from `accounting` for the participation that really happens, and is divided by
the planned size of a cohort, which no client can change.

With `quantile` the clip follows that quantile of the updates' norms (Andrew et al. 2021): each client also tells
whether its update was within the clip, that count gets noise of standard deviation σ_b, and both together are one
Gaussian release with multiplier z if the sum's own multiplier is (z⁻² − (2σ_b)⁻²)^(−1/2) (their theorem 1).

With `sum = "secure"` the updates are whole numbers under masks and the noise is Skellam (see `integer_sums` and
`gaussian_secure`); `over_rounds` spreads or correlates the noise over the rounds (see `correlated`).

In a simulation the noise is addressed by the seed like every other draw, so that runs can be repeated: whoever knows
the seed can take it off again. A coordinator in earnest has a secret in the seed's place (`streams`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from quorank.arrays import Doubles, Integers
from quorank.draws import Purpose
from quorank.errors import require
from quorank.privacy import accounting
from quorank.privacy.accounting import Accountant
from quorank.privacy.mechanisms.clipping import check_releases, clip_updates
from quorank.privacy.mechanisms.integer_sums import check_dropouts
from quorank.privacy.mechanisms.mechanism import Mechanism, Memory, Sum
from quorank.privacy.mechanisms.privacy import Privacy
from quorank.privacy.mechanisms.setting import Setting
from quorank.privacy.streams import Seed, fill_normal, key_for

HOPELESS = 1.0
"""Below this `signal_to_noise` of the whole run nothing can be learned, and the run is refused."""


FARTHEST = 1e3
"""A clip that follows a quantile stays within this factor of where it started."""


@dataclass(frozen=True)
class ClippedGaussian(Privacy):
    """Whole-run, client-level (ε, δ) differential privacy of all rankers and of every noisy sum."""

    kind: ClassVar[str] = "gaussian"

    epsilon: float = 8.0  # ε of the whole run
    delta: float = 1e-5  # δ
    clip: float = 0.05  # C, on the L2 norm of an update; with `quantile`, of the first round
    noise_multiplier: float | None = None  # z; if given, ε follows from it instead
    quantile: float | None = None  # γ: the share of updates that should be within the clip
    clip_rate: float = 0.2  # η_C, how fast the clip follows its quantile
    accountant: Accountant = "pld"
    over_rounds: Literal["independent", "tree", "square-root", "optimal"] = "independent"
    sum: Literal["plain", "secure"] = "plain"
    noise_by: Literal["clients", "coordinator"] = "clients"  # who draws the noise of a secure sum
    masks: bool = True  # play every message of the secure sums; without, only their sums
    dropouts: float = 0.0  # the share of a cohort that leaves during a round of secure sums

    def __post_init__(self) -> None:
        require(0.0 < self.epsilon < math.inf, f"epsilon must be above 0, got {self.epsilon}")
        accounting.check_delta(self.delta)
        require(1e-9 <= self.clip <= 1e9, f"clip must be above 0, from 1e-9 to 1e9, got {self.clip}")
        z = self.noise_multiplier
        require(z is None or 0.1 <= z <= 1e9, f"noise_multiplier must lie between 0.1 and 1e9, got {z}")
        q = self.quantile
        require(q is None or 0.0 < q < 1.0, f"quantile must lie between 0 and 1, got {q}")
        require(0.0 < self.clip_rate <= 2.0, f"clip_rate must be above 0 and at most 2, got {self.clip_rate}")
        check_dropouts(self.dropouts)
        require(
            self.sum == "secure" or self.dropouts == 0.0,
            'dropouts are of secure sums: set sum = "secure", or choose a sampled or poisson participation',
        )
        for name, special in (
            ("secure sums", self.sum == "secure"),
            ("over_rounds", self.over_rounds != "independent"),
        ):
            require(
                not special or self.quantile is None,
                f"a clip that follows a quantile is not planned for with {name}: leave quantile out",
            )
        require(
            self.sum == "plain" or self.over_rounds == "independent",
            "secure sums take independent noise in every round: leave over_rounds out",
        )

    @property
    def hides_single_updates(self) -> bool:
        return self.sum == "secure"

    @property
    def noise_on_sums(self) -> bool:
        return self.sum == "plain"

    @property
    def relies_on_secret_cohorts(self) -> bool:
        return self.sum == "plain"

    @property
    def longest_update(self) -> float:
        return self.clip

    def without_masks(self) -> ClippedGaussian:
        return replace(self, masks=False)

    def recommended_step(self, setting: Setting) -> float:
        return recommended_step(setting, self.multiplier(setting), self.clip)

    def multiplier(self, setting: Setting) -> float:
        """z: as given, or the smallest that keeps the whole run within (ε, δ)."""
        if self.noise_multiplier is not None:
            return self.noise_multiplier
        return accounting.noise_multiplier(setting, self.epsilon, self.delta, self.accountant)

    def mechanism(self, setting: Setting, seed: Seed) -> Mechanism:
        if self.sum == "secure":
            from quorank.privacy.mechanisms.gaussian_secure import accounted_sums

            mechanism: Any = accounted_sums(self, setting, seed)
        elif self.over_rounds != "independent":
            from quorank.privacy.mechanisms.gaussian_correlated import correlated_mechanism

            mechanism = correlated_mechanism(self, setting, seed)
        else:
            mechanism = GaussianMechanism(self, setting, seed, self.multiplier(setting))
        refuse_hopeless(setting, mechanism.sum_multiplier)
        return mechanism  # type: ignore[no-any-return]


def refuse_hopeless(setting: Setting, multiplier: float) -> None:
    """An impossible budget is said before anything is learned."""
    ratio = signal_to_noise(setting, multiplier)
    require(
        ratio["run"] >= HOPELESS,
        f"privacy: nothing can be learned within this budget: even if all {setting.cohort} clients sent the same "
        f"longest update in each of {setting.rounds} rounds, the noise would be {1.0 / ratio['run']:.3g} times as long "
        "as their sum; raise epsilon or delta, or find more clients",
    )


def signal_to_noise(setting: Setting, multiplier: float) -> dict[str, float]:
    """The longest possible sum of updates over the expected length of the noise on it, of a round and of the run.

    A cohort that agrees completely moves the sum by cohort·C; the noise has the length z·C·√parameters, and over
    T rounds the one grows with T, the other with √T.
    """
    one = setting.cohort / (multiplier * math.sqrt(setting.parameters))
    return {"round": one, "run": one * math.sqrt(setting.rounds)}


def recommended_step(setting: Setting, multiplier: float, clip: float) -> float:
    """The server's step for which noise of this multiplier and clip was measured to cost least (docs/results/privacy.md).

    With a small clip all updates are about as long as it, so step·clip is how far a round goes: at most 2, and so short
    that the noise of the whole run, step·clip·z·√T/cohort on each parameter, stays below 0.8.
    """
    noise = multiplier * math.sqrt(setting.rounds) / setting.cohort
    return min(2.0, 0.8 / noise) / clip


@dataclass(frozen=True, eq=False)
class GaussianMechanism:
    """The calibrated mechanism of one run."""

    part: ClippedGaussian
    setting: Setting
    seed: Seed
    noise_multiplier: float  # z, of all that a round releases

    weighted: ClassVar[bool] = False
    unit: ClassVar[float] = 1.0
    bound: ClassVar[float] = math.inf

    @property
    def count_noise(self) -> float:
        """σ_b, the standard deviation of the noise on the count of updates within the clip."""
        return max(self.setting.cohort / 20.0, 2.0 * self.noise_multiplier)

    @property
    def sum_multiplier(self) -> float:
        """The multiplier of the sum alone: larger than z where the count of updates within the clip has its part."""
        if self.part.quantile is None:
            return self.noise_multiplier
        return float((self.noise_multiplier**-2 - (2.0 * self.count_noise) ** -2) ** -0.5)

    @property
    def least_multiplier(self) -> float:
        """The least noise that any round may have."""
        return self.sum_multiplier

    @cached_property
    def _key(self) -> Any:
        return key_for(self.seed, Purpose.NOISE)

    def start(self) -> Memory:
        return {} if self.part.quantile is None else {"clip": np.array([self.part.clip])}

    def clip(self, memory: Memory) -> float:
        return float(memory["clip"][0]) if "clip" in memory else self.part.clip

    def release(
        self, updates: Doubles, theta: Doubles, round_: int, clients: Integers, memory: Memory
    ) -> int:
        return clip_updates(updates, self.clip(memory), clients)

    def check(self, releases: Doubles, clients: Integers, memory: Memory) -> None:
        check_releases(releases, self.clip(memory), clients)

    def finish(
        self, total: Doubles, weight: float, within: int, count: int, round_: int, memory: Memory
    ) -> Sum:
        clip = self.clip(memory)
        noise = np.empty(len(total))
        fill_normal(self._key, 0, 0, round_, noise)
        std = self.sum_multiplier * clip
        noisy = np.asarray(total + std * noise, dtype=np.float64)
        return Sum(noisy, float(self.setting.cohort), self._follow(within, count, round_, memory), clip, std)

    def _follow(self, within: int, count: int, round_: int, memory: Memory) -> Memory:
        """C ← C·exp(−η_C·(b̃ − γ)), with b̃ the noisy share of updates within the clip."""
        if self.part.quantile is None:
            return memory
        noise = np.empty(1)
        fill_normal(self._key, 1, 0, round_, noise)
        share = (within - 0.5 * count + self.count_noise * noise[0]) / self.setting.cohort + 0.5
        factor = math.exp(-self.part.clip_rate * (share - self.part.quantile))
        low, high = self.part.clip / FARTHEST, self.part.clip * FARTHEST
        return {"clip": np.clip(memory["clip"] * factor, low, high)}

    def statement(self, rounds: int | None = None) -> dict[str, Any]:
        done = self.setting.rounds if rounds is None else rounds
        part = self.part
        spent = accounting.epsilon(self.setting, self.noise_multiplier, part.delta, part.accountant, done)
        return stated(part, self.setting, done, spent, self.noise_multiplier) | {
            "accountant": f"dp-accounting, {part.accountant.upper()}"
        }

    def spent(self) -> list[tuple[int, float]]:
        part = self.part
        return accounting.spent(self.setting, self.noise_multiplier, part.delta, part.accountant)


def stated(
    part: ClippedGaussian, setting: Setting, rounds: int, epsilon: float, multiplier: float
) -> dict[str, Any]:
    """What every mechanism of this part states."""
    return {
        "kind": part.kind,
        "model": "central",
        "unit": "client",
        "neighbouring": setting.neighbouring,
        "epsilon": epsilon,
        "delta": part.delta,
        "horizon": setting.horizon(rounds),
        "rounds": rounds,
        "noise_multiplier": multiplier,
        "clip": part.clip,
        "participation": setting.participation,
        "cohort": setting.cohort,
    }
