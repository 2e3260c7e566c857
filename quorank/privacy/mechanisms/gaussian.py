"""Clipped updates and Gaussian noise on their sum, calibrated to (ε, δ) for a client and the whole run.

Each client's update (the change of the parameters, not the parameters) is clipped to L2 norm C and rounded towards zero
to integers of 1/unit, a power of two (`clipping`). The sum of a cohort gets a discrete Gaussian integer of
standard deviation z·C·unit on each number (`discrete_gaussian`), with z from `accounting` for the actual participation, and
is divided by the unit and the planned size of a cohort, which no client can change. Sums and noise are integers, so
low-order bits leak nothing, unlike noise in floating point. Accountants count it as Gaussian noise, plus the effect of
discreteness on ε.

In open participation the planned size K is the maximum of a round. Dividing by the actual number of replies would be as
private, but would increase the noise on the ranker in small rounds; instead they move the ranker less.

With `quantile` each client also reports whether its update was within the clip. That count gets noise of standard
deviation σ_b, and both together are one Gaussian release with multiplier z if the sum's own multiplier is
(z⁻² − (2σ_b)⁻²)^(−1/2) (Andrew et al. 2021, theorem 1). The unit follows the clip, so the noise is as fine in every round.

With `sum = "secure"` the updates are integers under masks (`integer_sums`) and the noise is Skellam, drawn by the clients
in shares. The accounting is the Rényi bound of Agarwal, Kairouz and Liu 2021 (`skellam`), with the sensitivity of the
rounded update. Neighbouring federations differ in whether one client's updates count as zero; its share of the noise stays.
Subsampling is not accounted for. The guarantee holds against a server that follows the protocol, as the masks do.

In a simulation the noise is addressed by the seed, from which it can be subtracted. A deployed coordinator uses a secret
and the sum instead (`streams`), so that the noise of two sums never is the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np

from quorank.errors import BadInput, require, require_range
from quorank.kernels.arrays import Doubles, Integers
from quorank.kernels.draws import Purpose
from quorank.privacy import accounting
from quorank.privacy.accounting import Accountant, Setting
from quorank.privacy.composition import Loss, gaussian_loss
from quorank.privacy.mechanisms.clipping import ReleaseBound, clip_to_grid, grid_unit
from quorank.privacy.mechanisms.discrete_gaussian import LARGEST as WIDEST
from quorank.privacy.mechanisms.discrete_gaussian import (
    SET_ASIDE,
    IntegerNoise,
    discrete_gaussian,
    epsilon_slack,
    gaussian_delta,
)
from quorank.privacy.mechanisms.integer_sums import MOST_DROPOUTS, IntegerSums, check_secure
from quorank.privacy.mechanisms.mechanism import Mechanism, Memory, Privacy, Sum
from quorank.privacy.mechanisms.skellam import (
    l1_bound,
    quantised_norm_bound,
    scale_for,
    skellam_divergences,
    skellam_epsilon,
    skellam_variance,
)
from quorank.privacy.streams import Key, Seed, key_for, seed_for_sum

HOPELESS, COSTLY = 1.0, 10.0
"""Limits on `signal_to_noise` of the whole run: below the first it is refused, below the second it lost more than 1 %."""

CARRIED = 80  # number of searches in a client's momentum
FARTHEST = 1e3  # bound on the factor between a clip that follows a quantile and its start
UNIT = "unit"  # key of the unit of a round in the memory, and so in each task
COUNT_UNIT = 2.0**22  # units per half client of the noise on the count of updates within the clip
SUM_STREAM, COUNT_STREAM = 0, 1  # streams of a round's draws: for its sum, and for its count of updates within the clip
FINE = 2.0**22  # standard deviation of Skellam noise, in integer units, above which rounding is negligible


@dataclass(frozen=True)
class ClippedGaussian(Privacy):
    """Clipped updates and Gaussian noise on their sum: (Σ_c u_c·min(1, C/‖u_c‖) + N(0, (z·C)²·I)) / K.

    u_c are the updates of a cohort of K planned clients. The multiplier z is the smallest for which all rankers of the
    run, and every noisy sum, are (ε, δ)-differentially private for one client. With `quantile` the clip of the next round
    is C·exp(−η_C·(b̃ − γ)) for the noisy share b̃ of updates within the clip (Andrew et al. 2021, "Differentially private
    learning with adaptive clipping").

    Args:
        epsilon: ε of the whole run, above 0 and at most 1e6.
        delta: δ of the whole run, at least 1e-12 and below 1.
        clip: C, bound on the L2 norm of an update, 1e-9 to 1e9; with `quantile`, in the first round.
        noise_multiplier: z, 0.1 to 1e9; if given, ε follows from it instead.
        quantile: γ in (0, 1), target share of updates within the clip; None keeps the clip.
        clip_rate: η_C, rate at which the clip follows its quantile, above 0 and at most 2.
        accountant: Accounting by privacy loss distributions, "pld", or Rényi differential privacy, "rdp".
        sum: "plain", noise added by the coordinator; "secure", noise in shares, and the coordinator sees masked sums only.
        masks: Whether every message of the secure sums is played, or their sums only.
        dropouts: Share of a cohort that leaves during a round of secure sums, 0 to 0.3.
        groups: Groups of a cohort of secure sums, whose means a rule combines; one by default.

    Raises:
        BadInput: `value.out-of-range` if a field is outside its range; `option.conflict` for `dropouts` or `groups` without
            secure sums, or `quantile` with them; from `mechanism`, `privacy.too-much-noise`, `privacy.too-little-noise` or
            `privacy.off-the-grid` if the budget fits no noise.

    >>> part = ClippedGaussian(epsilon=2.0, clip=0.05)
    >>> round(part.multiplier(Setting(clients=1000, cohort=1000, rounds=300)), 2)
    34.53
    """

    kind: ClassVar[str] = "gaussian"

    epsilon: float = 8.0
    delta: float = 1e-5
    clip: float = 0.05
    noise_multiplier: float | None = None
    quantile: float | None = None
    clip_rate: float = 0.2
    accountant: Accountant = "pld"
    sum: Literal["plain", "secure"] = "plain"
    masks: bool = True
    dropouts: float = 0.0
    groups: int | None = None

    def __post_init__(self) -> None:
        require_range("epsilon", self.epsilon, above=0.0, most=1e6)
        accounting.check_delta(self.delta)
        require_range("clip", self.clip, least=1e-9, most=1e9)
        if self.noise_multiplier is not None:
            require_range("noise_multiplier", self.noise_multiplier, least=0.1, most=1e9)
        if self.quantile is not None:
            require_range("quantile", self.quantile, above=0.0, below=1.0)
        require_range("clip_rate", self.clip_rate, above=0.0, most=2.0)
        require_range("dropouts", self.dropouts, least=0.0, most=MOST_DROPOUTS)
        secure = self.sum == "secure"
        sentence = 'are of secure sums: set sum = "secure", or choose a sampled or poisson participation'
        require(secure or self.dropouts == 0.0, "option.conflict", sentence, "dropouts")
        require_range("groups", self.sum_groups, least=1)
        sentence = 'are of secure sums: set sum = "secure"'
        require(secure or self.sum_groups == 1, "option.conflict", sentence, "groups")
        sentence = "cannot be followed with secure sums: leave quantile out"
        require(self.quantile is None or not secure, "option.conflict", sentence, "quantile")

    @property
    def hides_single_updates(self) -> bool:  # type: ignore[override]
        return self.sum == "secure"

    @property
    def sum_groups(self) -> int:  # type: ignore[override]
        return 1 if self.groups is None else self.groups

    @property
    def noise_on_sums(self) -> bool:  # type: ignore[override]
        return self.sum == "plain"

    @property
    def assumes_secret_cohorts(self) -> bool:  # type: ignore[override]
        return self.sum == "plain"

    @property
    def longest_update(self) -> float:  # type: ignore[override]
        return self.clip

    @property
    def sums_histograms(self) -> Literal["", "exact", "noisy"]:  # type: ignore[override]
        return "noisy" if self.sum_groups == 1 else ""

    def guarantee(self, setting: Setting) -> tuple[float | None, float]:
        return (self.epsilon, self.delta) if self.noise_multiplier is None else super().guarantee(setting)

    def with_noise_of(self, mechanism: Mechanism) -> ClippedGaussian:
        if not isinstance(mechanism, GaussianMechanism):
            return self
        return replace(self, noise_multiplier=mechanism.noise_multiplier)

    def without_masks(self) -> ClippedGaussian:
        return replace(self, masks=False)

    def recommended_step(self, setting: Setting) -> float:
        return recommended_step(setting, self.multiplier(setting) * math.sqrt(self.sum_groups), self.clip)

    def multiplier(self, setting: Setting) -> float:
        """Return z: `noise_multiplier`, or the smallest within (ε, δ) for the whole run."""
        if self.noise_multiplier is not None:
            return self.noise_multiplier

        # ε over the setting, discreteness included, is within ε
        delta, budget = gaussian_delta(self.delta), self.epsilon * (1.0 - SET_ASIDE)
        z = accounting.noise_multiplier(setting, budget, delta, self.accountant)
        more = GaussianMechanism(self, setting, 0, z).slack(setting.rounds, self.epsilon)
        if more <= self.epsilon - budget:
            return z
        sentence = "epsilon is too small for this number of parameters: raise it, or send fewer"
        require(more < self.epsilon / 4.0, "privacy.too-much-noise", sentence, "privacy")
        return accounting.noise_multiplier(setting, self.epsilon - 2.0 * more, delta, self.accountant)

    def mechanism(self, setting: Setting, seed: Seed) -> Mechanism:
        mechanism: GaussianMechanism | SkellamSums
        if self.sum == "secure":
            mechanism = _skellam_sums(self, setting, seed)
        else:
            mechanism = GaussianMechanism(self, setting, seed, self.multiplier(setting))
            mechanism.check_noise()
        ratio = signal_to_noise(setting, mechanism.sum_multiplier)["run"]
        sentence = (
            f"nothing can be learned within this budget: even if all {setting.cohort} clients sent the same longest "
            f"update in each of {setting.rounds} rounds, the noise would be {1.0 / ratio:.3g} times as long as their "
            "sum; raise epsilon or delta, or find more clients"
        )
        require(ratio >= HOPELESS, "privacy.too-much-noise", sentence, "privacy")
        return mechanism

    def client_mechanism(self, setting: Setting, seed: Seed) -> Mechanism:
        """Return clipping alone, where the coordinator adds the noise."""
        if self.sum == "plain":
            return GaussianMechanism(self, setting, seed, self.noise_multiplier or 1.0)
        return self.mechanism(setting, seed)

    def stated(self, setting: Setting, rounds: int, epsilon: float, multiplier: float) -> dict[str, Any]:
        """Return the common statement of all mechanisms of this part."""
        who = {"participation": setting.participation, "cohort": setting.cohort}
        stated = setting.stated(self.kind, "central", rounds, epsilon, self.delta, pairs=setting.neighbouring)
        return stated | {"noise_multiplier": multiplier, "clip": self.clip} | who


def signal_to_noise(setting: Setting, multiplier: float) -> dict[str, float]:
    """Return the largest norm of a sum of updates over the expected norm of its noise, for a round and the run.

    A unanimous cohort moves the sum by cohort·C; the noise has the norm z·C·√parameters. Over T rounds the first grows with
    T, the second with √T.
    """
    one = setting.cohort / (multiplier * math.sqrt(setting.parameters))
    return {"round": one, "run": one * math.sqrt(setting.rounds)}


def recommended_step(setting: Setting, multiplier: float, clip: float) -> float:
    """Return the server's step with the least measured cost of this noise (docs/results/privacy.md).

    Updates have about the norm of a small clip, so a round moves by step·clip: at most 2, and with noise of the whole run,
    step·clip·z·√T/cohort on each parameter, of at most 0.4.
    """
    noise = multiplier * math.sqrt(setting.rounds) / setting.cohort
    return min(2.0, 0.4 / noise) / clip


def recommended_momentum(interactions: int) -> float:
    """Return the client momentum at which a release averages about CARRIED searches, for this number per round.

    An update of few searches is noisy, and the clip gives it the norm of one of many; momentum reduces that noise at the
    same sensitivity. Beyond CARRIED searches of older rankers mislead (docs/results/privacy.md).
    """
    return max(0.0, 1.0 - interactions / CARRIED)


@dataclass(frozen=True, eq=False)
class GaussianMechanism(Mechanism):
    """Clipping on the client, independent discrete Gaussian noise on each round's sum of integers."""

    can_release_again: ClassVar[bool] = True
    promise = (
        "clipped here; the coordinator can read this update and adds noise to the sum: ε holds against readers of the "
        "rankers, not against the coordinator"
    )

    part: ClippedGaussian
    setting: Setting
    seed: Seed
    noise_multiplier: float  # z, of all that a round releases

    @property
    def count_noise(self) -> float:
        """σ_b, the standard deviation of the noise on the count of updates within the clip."""
        return max(self.setting.cohort / 20.0, 2.0 * self.noise_multiplier)

    @property
    def sum_multiplier(self) -> float:
        """Multiplier of the sum alone, larger than z if the count within the clip is released too."""
        if self.part.quantile is None:
            return self.noise_multiplier
        return float((self.noise_multiplier**-2 - (2.0 * self.count_noise) ** -2) ** -0.5)

    @property
    def least_multiplier(self) -> float:
        return self.sum_multiplier

    def planned_noise(self, epsilon: float, clips: Doubles, clients: Doubles) -> Doubles:
        part, delta = self.part, gaussian_delta(self.part.delta)
        z = accounting.noise_multiplier(self.setting, epsilon, delta, part.accountant)
        if part.quantile is not None:
            z = float((z**-2 - (2.0 * max(self.setting.cohort / 20.0, 2.0 * z)) ** -2) ** -0.5)
        return z * clips

    def start(self) -> Memory:
        return self._memory(self.part.clip)

    def _memory(self, clip: float) -> Memory:
        """Return the memory of a round with this clip."""
        unit = {UNIT: np.array([grid_unit(clip, self.setting.cohort)])}
        return unit if self.part.quantile is None else unit | {"clip": np.array([clip])}

    def clip(self, memory: Memory) -> float:
        """Return C of the round with this memory."""
        return self.part.clip if self.part.quantile is None else float(memory["clip"][0])

    def unit_of(self, memory: Memory) -> float:
        self.check_memory(memory)
        return float(memory[UNIT][0])

    def check_memory(self, memory: Memory) -> None:
        known = set(memory) == {UNIT} if self.part.quantile is None else set(memory) == {UNIT, "clip"}
        if not known or memory[UNIT].tolist() != [grid_unit(self.clip(memory), self.setting.cohort)]:
            sentence = (
                "this run was begun by another version of Quorank, or with other privacy; install the same version on "
                "both sides and start the run again"
            )
            raise BadInput("privacy.other-noise", sentence, "privacy")

    def release(self, updates: Doubles, theta: Doubles, round_: int, clients: Integers, memory: Memory) -> int:
        return clip_to_grid(updates, self.clip(memory), self.unit_of(memory), clients)

    def bound_of(self, memory: Memory, parameters: int) -> ReleaseBound:
        return ReleaseBound(self.clip(memory), self.unit_of(memory), integers=True)

    def finish(self, total: Doubles, weight: float, within: int, count: int, round_: int, memory: Memory) -> Sum:
        clip, unit = self.clip(memory), self.unit_of(memory)
        noise, std = np.empty(len(total), dtype=np.int64), self.sum_multiplier * clip
        key = key_for(seed_for_sum(self.seed, total, std, unit, within, count), Purpose.NOISE)
        discrete_gaussian(key, round_, SUM_STREAM, std * unit, noise)
        after = self._follow(within, count, round_, memory, key)
        noisy = np.asarray((total.astype(np.int64) + noise) / unit, dtype=np.float64)
        return Sum(noisy, float(self.setting.cohort), after, clip, std)

    def _follow(self, within: int, count: int, round_: int, memory: Memory, key: Key) -> Memory:
        """Return the memory with C·exp(−η_C·(b̃ − γ)), b̃ the noisy share of updates within the clip."""
        if self.part.quantile is None:
            return memory
        noise = np.empty(1, dtype=np.int64)  # on twice the count less the half: one client moves that by 1
        discrete_gaussian(key, round_, COUNT_STREAM, self._count_sigma, noise)
        noisy = ((2 * within - count) * int(COUNT_UNIT) + int(noise[0])) / COUNT_UNIT
        share = 0.5 * noisy / self.setting.cohort + 0.5
        factor = math.exp(-self.part.clip_rate * (share - self.part.quantile))
        low, high = self.part.clip / FARTHEST, self.part.clip * FARTHEST
        return self._memory(min(max(float(memory["clip"][0]) * factor, low), high))

    def check_noise(self) -> None:
        """Refuse noise that is too wide for integers below 2^53, or too narrow for accounting."""
        self.slack(self.setting.rounds, self.part.epsilon)
        sentence = "this much noise does not fit integers below 2^53: lower the noise multiplier, or raise epsilon"
        count = 0.0 if self.part.quantile is None else self._count_sigma
        fits = max(self.sum_multiplier * self._longest_clip, count) <= WIDEST
        require(fits, "privacy.too-much-noise", sentence, "privacy")

    @property
    def _count_sigma(self) -> float:
        """Standard deviation of the noise on the count, in its units."""
        return 2.0 * self.count_noise * COUNT_UNIT

    def slack(self, rounds: int, epsilon: float) -> float:
        """Return the contribution of discreteness to ε of the first rounds."""
        return epsilon_slack(self.drawn(rounds), epsilon, self.part.delta)

    def drawn(self, rounds: int) -> tuple[IntegerNoise, ...]:
        """Return the noise of one client's participations in the first rounds: of sums, and of counts that steer clips."""
        counts = self.setting.participations(rounds)
        sums = IntegerNoise(0.5 * self.sum_multiplier * self._longest_clip, counts * self.setting.parameters)
        return (sums,) if self.part.quantile is None else (sums, IntegerNoise(self._count_sigma, counts))

    @property
    def _longest_clip(self) -> float:
        """Next power of two above any clip, in units."""
        return self.part.clip * grid_unit(self.part.clip, self.setting.cohort) / math.frexp(self.part.clip)[0]

    def epsilon(self, rounds: int) -> float:
        """Return ε of the first rounds, discreteness included."""
        part, delta = self.part, gaussian_delta(self.part.delta)
        spent = accounting.epsilon(self.setting, self.noise_multiplier, delta, part.accountant, rounds)
        return spent + self.slack(rounds, spent) if rounds > 0 else 0.0

    def statement(self, rounds: int | None = None) -> dict[str, Any]:
        done, part = self.setting.rounds if rounds is None else rounds, self.part
        stated = part.stated(self.setting, done, self.epsilon(done), self.noise_multiplier)
        accountant = f"dp-accounting, {part.accountant.upper()}"
        return stated | {"noise": "discrete Gaussian, in integers", "accountant": accountant}

    def spent(self) -> list[tuple[int, float]]:
        part, delta = self.part, gaussian_delta(self.part.delta)
        found = accounting.spent(self.setting, self.noise_multiplier, delta, part.accountant)
        return [(t, epsilon + self.slack(t, epsilon)) for t, epsilon in found]

    def loss(self, rounds: int) -> Loss:
        if rounds == 0:
            return Loss()
        return replace(gaussian_loss(self.setting, self.noise_multiplier, rounds), whole=self.drawn(rounds))


def _skellam_sums(part: ClippedGaussian, setting: Setting, seed: Seed) -> SkellamSums:
    """Return the mechanism with a scale that cannot wrap, and the variance for the budget."""
    check_secure(setting, part.masks, part.dropouts, part.sum_groups)
    everyone, d = Setting(setting.clients, setting.clients, setting.rounds), setting.parameters
    rough = part.noise_multiplier or accounting.noise_multiplier(everyone, part.epsilon, part.delta, "rdp")
    noise, largest = 2.0 * rough * part.clip / math.sqrt(1.0 - part.dropouts), -(-setting.cohort // part.sum_groups)
    scale = min(scale_for(part.clip, largest, noise), 2.0 ** math.floor(math.log2(FINE / noise)))
    longest = quantised_norm_bound(part.clip, scale, d)
    if part.noise_multiplier is not None:
        variance = (part.noise_multiplier * part.clip * scale) ** 2
    else:
        variance = skellam_variance(part.epsilon, part.delta, setting.rounds, longest, l1_bound(longest, d))
    sentence = "the noise does not fit integers modulo 2^32: raise epsilon or the clip"
    require(math.sqrt(variance) <= 2.0 * rough * part.clip * scale, "privacy.too-much-noise", sentence, "privacy")
    drawn = variance, part.masks, part.dropouts, part.sum_groups
    return SkellamSums(setting, seed, part.clip, scale, *drawn, part, longest)


@dataclass(frozen=True, eq=False)
class SkellamSums(IntegerSums):
    """Secure sums of integers with Skellam noise of an accounted variance."""

    part: ClippedGaussian = field(default_factory=ClippedGaussian)
    longest: float = 0.0  # L2 norm of a rounded update, in integer units

    @property
    def sum_multiplier(self) -> float:
        """Standard deviation of the noise on the sum of a cohort over the clip, of all groups together."""
        return self.least_multiplier * math.sqrt(self.groups)

    @property
    def least_multiplier(self) -> float:
        return math.sqrt(self.variance) / (self.scale * self.clip)

    def planned_noise(self, epsilon: float, clips: Doubles, clients: Doubles) -> Doubles:
        variance = skellam_variance(epsilon, self.part.delta, self.setting.rounds, self.longest, self._l1)
        return np.asarray(np.sqrt(variance * clients / self.least) / self.scale)

    @property
    def _l1(self) -> float:
        return l1_bound(self.longest, self.setting.parameters)

    def epsilon(self, rounds: int, colluders: int = 0) -> float:
        """Return ε of the first rounds against colluding clients of a sum, whose shares of the noise do not count."""
        left = self.variance * (self.least - colluders) / self.least
        return skellam_epsilon(left, self.longest, self._l1, rounds, self.part.delta) if left > 0.0 else math.inf

    def loss(self, rounds: int) -> Loss:
        return Loss(renyi=skellam_divergences(self.variance, self.longest, self._l1, rounds)) if rounds else Loss()

    def statement(self, rounds: int | None = None) -> dict[str, Any]:
        done = self.setting.rounds if rounds is None else rounds
        most = self.collusion["with_server"]
        some = {1, most // 10, most // 4, most // 2, most} & set(range(1, min(most, self.least - 1) + 1))
        told = [{"colluders": c, "epsilon": self.epsilon(done, c)} for c in sorted(some) if done]
        return self.part.stated(self.setting, done, self.epsilon(done), self.least_multiplier) | {
            "model": "secure sums",
            "neighbouring": "one client's updates count as zero (its share of the noise stays)",
            "noise": f"Skellam, drawn by the clients, complete if {self.least} of {self.size} send their share",
            "scale": self.scale,
            "accountant": "Rényi divergence of Skellam noise, converted by dp-accounting",
            "collusion": self.collusion | {"epsilon_if": told},
            **({"groups": self.groups} if self.groups > 1 else {}),
        }

    def spent(self) -> list[tuple[int, float]]:
        rounds = self.setting.rounds
        return [(t, self.epsilon(t)) for t in sorted({max(1, round(rounds * i / 30)) for i in range(1, 31)})]
