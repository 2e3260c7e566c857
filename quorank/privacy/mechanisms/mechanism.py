"""Base classes of privacy parts and their mechanisms, and the part without protection.

A privacy part is a value; `part.mechanism(setting, seed)` is its mechanism for a run, with calibrated noise. On the client
`release` turns updates into releases; on the server `finish` adds the coordinator's noise to the sum of a cohort.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from quorank.kernels.arrays import Booleans, Doubles, Integers
from quorank.privacy.accounting import Setting
from quorank.privacy.composition import Loss
from quorank.privacy.mechanisms.clipping import ReleaseBound
from quorank.privacy.streams import Seed

Memory = dict[str, Doubles]


def incomplete_noise(kind: str) -> str:
    """Return why noise in equal shares needs a cohort of the planned size."""
    shares = f"the noise of {kind} is drawn in equal shares"
    return f"{shares}, and is complete only if as many clients as planned send theirs"


class Sum(NamedTuple):
    """Sum of a cohort's releases after the coordinator's part of the mechanism."""

    total: Doubles  # Σ weight · release
    weight: float  # divisor of the total
    memory: Memory  # of the mechanism, for the next round
    sensitivity: float = math.nan  # of the total to one client, L2
    noise: float = 0.0  # standard deviation of the noise on each number of the total
    participants: int | None = None  # clients in the total, if not the whole cohort
    groups: Doubles | None = None  # (groups, parameters) mean release of each group of a cohort
    sizes: Doubles | None = None  # (groups,) clients of each
    dropped: tuple[str, ...] = ()  # code of each unused sum
    stays: bool = False  # no sum can be used, so the ranker stays as it is


class Mechanism(ABC):
    """Privacy of one run, on clients and coordinator. `Privacy.mechanism` makes it for a setting.

    >>> import numpy as np
    >>> from quorank.privacy import ClippedGaussian, Setting
    >>> setting = Setting(clients=100, cohort=100, rounds=20, participation="full", parameters=46)
    >>> mechanism = ClippedGaussian(epsilon=2.0, delta=1e-5, clip=0.05).mechanism(setting, seed=1)
    >>> round(mechanism.statement()["epsilon"], 4)
    2.0
    """

    sums_as_sent: ClassVar[bool] = False  # releases are the unchanged updates
    can_release_again: ClassVar[bool] = False  # clients may release the same interactions again, for a rebuilding
    promise: str = "not protected: the coordinator can read this update"  # to a client, about one release
    weighted: ClassVar[bool] = False  # releases are weighted by interactions, which calibrated noise does not allow

    @property
    def bound(self) -> float:
        """L2 norm to which a client clips its parameters after each local step; infinite without clipping."""
        return math.inf

    def unit_of(self, memory: Memory) -> float:
        """Return the factor between an update and its release: a large scale where releases are integers."""
        return 1.0

    @property
    def least_multiplier(self) -> float:
        """Smallest noise of any round, as a standard deviation over the clip; 0 without noise."""
        return 0.0

    def planned_noise(self, epsilon: float, clips: Doubles, clients: Doubles) -> Doubles | None:
        """Compute the standard deviations (rounds,) of the noise on sums that an ε of the whole run asks for.

        They follow from ε and the setting, and not from the mechanism's own noise, which an audit compares with them. None
        where no ε follows from noise on sums.

        Args:
            epsilon: ε of the whole run, at its δ.
            clips: Clip of each round, (rounds,).
            clients: Clients of each round, (rounds,); they matter where clients draw the noise in shares.
        """
        return None

    def start(self) -> Memory:
        """Return the memory before the first round."""
        return {}

    def check_memory(self, memory: Memory) -> None:
        """Refuse a memory with which this mechanism cannot continue."""

    @abstractmethod
    def release(self, updates: Doubles, theta: Doubles, round_: int, clients: Integers, memory: Memory) -> int:
        """Turn updates (clients, parameters) into releases, in place; return how many were within the clip."""

    def resend(self, releases: Doubles, round_: int, clients: Integers) -> None:
        """Replace the releases of these clients, for simulated liars."""

    def companions(self, client: int, clients: Integers, round_: int) -> Booleans:
        """Return the mask (clients,) of the clients that are summed together with a client, itself included."""
        return np.ones(len(clients), dtype=np.bool_)

    def reach(self, present: int, parameters: int) -> tuple[float, float]:
        """Return the bounds on number and L2 norm within which a sum of `present` releases is used."""
        return math.inf, math.inf

    def check(self, releases: Doubles, clients: Integers, memory: Memory) -> None:
        """Refuse a release (clients, parameters) beyond `bound_of`, by the client's number."""
        bound = self.bound_of(memory, releases.shape[1])
        if bound is not None:
            bound.check(releases, clients)

    def bound_of(self, memory: Memory, parameters: int) -> ReleaseBound | None:
        """Return the bounds of an honest release in the round with this memory; None without bounds."""
        return None

    @abstractmethod
    def finish(self, total: Doubles, weight: float, within: int, count: int, round_: int, memory: Memory) -> Sum:
        """Add the coordinator's noise to the sum (parameters,) of `count` releases."""

    @abstractmethod
    def statement(self, rounds: int | None = None) -> dict[str, Any] | None:
        """Return the guarantee of the first `rounds` rounds with unit, δ and horizon; None without protection."""

    def spent(self) -> list[tuple[int, float]]:
        """Return (rounds done, ε spent), where ε adds up over rounds."""
        return []

    def loss(self, rounds: int) -> Loss | None:
        """Return the privacy loss of the first `rounds` rounds for composition; None where no pure ε is stated."""
        stated = self.statement(max(rounds, 1)) or {}
        if stated.get("epsilon") is None or stated["delta"] != 0.0:
            return None
        return Loss(pure=stated["epsilon"] if rounds else 0.0)


class AddingUp(Mechanism):
    """Base class of mechanisms whose ε is the same for each participation of a client."""

    setting: Setting

    def spent(self) -> list[tuple[int, float]]:
        each, setting = (self.statement(1) or {}).get("epsilon"), self.setting
        if each is None:
            return []
        last = setting.turns.busiest(setting.rounds)[-1] + 1  # the last round in which a client can participate
        return [(t, each * setting.participations(t)) for t in sorted({1, last, setting.rounds})]


@dataclass(frozen=True)
class Plain(Mechanism):
    """Mechanism that sums unchanged updates.

    >>> Plain().statement() is None, Plain().sums_as_sent
    (True, True)
    """

    weighted: ClassVar[bool] = True
    sums_as_sent: ClassVar[bool] = True
    can_release_again: ClassVar[bool] = True

    def release(self, updates: Doubles, theta: Doubles, round_: int, clients: Integers, memory: Memory) -> int:
        return 0

    def finish(self, total: Doubles, weight: float, within: int, count: int, round_: int, memory: Memory) -> Sum:
        return Sum(total, weight, memory)

    def statement(self, rounds: int | None = None) -> dict[str, Any] | None:
        return None


@dataclass(frozen=True)
class Privacy(ABC):
    """Base class of privacy parts, which make the calibrated mechanism of a run.

    >>> from quorank.privacy import ClippedGaussian
    >>> part = ClippedGaussian(epsilon=2.0, clip=0.05)
    >>> isinstance(part, Privacy), part.noise_on_sums, part.hides_single_updates
    (True, True, False)
    """

    kind: ClassVar[str]
    protects: ClassVar[bool] = True  # any protection
    protects_metric: ClassVar[bool] = False  # `privatise` randomises the metric that clients send
    protects_messages: ClassVar[bool] = False  # each message is private without any sum
    needs_client_parameters: ClassVar[bool] = False  # clips the parameters that a client learns
    needs_equal_shares: ClassVar[bool] = False  # its noise needs all planned clients, with equal weights
    hides_single_updates: ClassVar[bool] = False  # the coordinator sees masked sums only
    sum_groups: ClassVar[int] = 1  # groups of a cohort that are summed separately; a rule gets their means
    noise_on_sums: ClassVar[bool] = False  # the noise is complete on the sum of a cohort only
    assumes_secret_cohorts: ClassVar[bool] = False  # its ε for sampled cohorts relies on their secrecy
    longest_update: ClassVar[float | None] = None  # largest L2 norm of an update in the first round
    # sums of the histograms of trees: exact integers, or clipped with noise; "" if impossible
    sums_histograms: ClassVar[Literal["", "exact", "noisy"]] = ""

    def with_noise_of(self, mechanism: Mechanism) -> Privacy:
        """Return the part with the noise per round of this calibrated mechanism, for any number of rounds."""
        return self

    def without_masks(self) -> Privacy:
        """Return the part whose secure sums are computed without their messages, with the same total."""
        return self

    def check_values(self, values: int) -> None:
        """Refuse a metric with this number of values."""

    def recommended_step(self, setting: Setting) -> float | None:
        """Return the recommended server step for the noise of a run; None without noise."""
        return None

    def privatise(self, measured: Doubles, values: Doubles, seed: Seed, round_: int, clients: Integers) -> Doubles:
        """Return the sent values (clients, 2) for (clients, 2, interactions) measurements in `values`."""
        raise NotImplementedError(f"{self.kind} protects no metric")

    @abstractmethod
    def mechanism(self, setting: Setting, seed: Seed) -> Mechanism:
        """Return the mechanism of a run, with noise drawn under a seed or secret."""

    def guarantee(self, setting: Setting) -> tuple[float | None, float]:
        """Return (ε, δ) of a whole run, ε None where none is stated; slow only where ε follows from the noise."""
        stated = self.mechanism(setting, 0).statement() or {}
        return stated.get("epsilon"), stated.get("delta", 0.0)

    def client_mechanism(self, setting: Setting, seed: Seed) -> Mechanism:
        """Return the client's part of the mechanism, without the slow calibration of other noise."""
        return self.mechanism(setting, seed)


@dataclass(frozen=True)
class NoPrivacy(Privacy):
    """No privacy mechanism: updates leave the clients unchanged, and the coordinator sees Σ_c n_c·u_c and each u_c.

    >>> NoPrivacy().protects
    False
    """

    kind: ClassVar[str] = "none"
    protects: ClassVar[bool] = False
    sums_histograms: ClassVar[Literal["", "exact", "noisy"]] = "exact"

    def mechanism(self, setting: Setting, seed: Seed) -> Plain:
        """Return the mechanism of plain sums."""
        return Plain()
