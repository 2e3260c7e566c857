"""The base classes of privacy parts and of their mechanisms, and the pair that protects nothing.

A privacy part is a value; `part.mechanism(setting, seed)` is its mechanism for a given run, with calibrated noise. On
the client's side `release` turns updates into releases; on the sum of a cohort `finish` adds what the coordinator adds.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from quorank.kernels.arrays import Booleans, Doubles, Integers
from quorank.privacy.composition import Loss
from quorank.privacy.mechanisms.clipping import ReleaseBound
from quorank.privacy.setting import Setting
from quorank.privacy.streams import Seed

Memory = dict[str, Doubles]


def incomplete_noise(kind: str) -> str:
    """Return why noise in equal shares needs a cohort of the planned size."""
    return (
        f"the noise of {kind} is drawn in equal shares, and is complete only if as many clients as planned send theirs"
    )


class Sum(NamedTuple):
    """The sum of a cohort's releases after the coordinator's part of the mechanism."""

    total: Doubles  # Σ weight · release
    weight: float  # what the total is divided by
    memory: Memory  # of the mechanism, for the next round
    sensitivity: float = math.nan  # how far one client can move the total, in L2
    noise: float = 0.0  # standard deviation of the noise on each number of the total
    participants: int | None = None  # whose releases are in the total, where that is not the whole cohort
    groups: Doubles | None = None  # (groups, parameters) mean release of each group, where a cohort is summed in groups
    sizes: Doubles | None = None  # (groups,) clients of each
    dropped: tuple[str, ...] = ()  # why sums were not used: the codes, one for each
    stays: bool = False  # no sum can be used: the ranker stays as it is


class Mechanism(ABC):
    """One run's privacy on both sides of the wire."""

    sums_as_sent: ClassVar[bool] = False  # releases are the updates themselves, summed without noise
    can_release_again: ClassVar[bool] = False  # clients may release the same interactions again, for a rebuilding
    promise: str = "not protected: the coordinator can read this update"  # to a client, about one release

    @property
    def weighted(self) -> bool:
        """Whether releases count by their client's interactions; noise is calibrated for equal weights only."""
        return False

    @property
    def bound(self) -> float:
        """The L2 norm to which a client clips its parameters after each local step; infinite if it does not."""
        return math.inf

    @property
    def unit(self) -> float:
        """What a release multiplies an update by: a large scale where releases are whole numbers."""
        return 1.0

    def unit_of(self, memory: Memory) -> float:
        """Return `unit` in the round that the memory is of."""
        return self.unit

    @property
    def least_multiplier(self) -> float:
        """The least noise that any round may have, as a standard deviation over the clip; 0 where none is promised."""
        return 0.0

    def start(self) -> Memory:
        """Return what is carried from round to round, before the first one."""
        return {}

    def check_memory(self, memory: Memory) -> None:
        """Refuse what is carried from round to round where this mechanism cannot go on with it; by default nothing."""

    @abstractmethod
    def release(self, updates: Doubles, theta: Doubles, round_: int, clients: Integers, memory: Memory) -> int:
        """Turn updates (clients, parameters) into releases, in place; return how many were within the clip."""

    def resend(self, releases: Doubles, round_: int, clients: Integers) -> None:
        """Let these clients send other releases than `release` made of their updates: what a simulated liar does."""

    def companions(self, client: int, clients: Integers, round_: int) -> Booleans:
        """Return (clients,) which clients of a cohort are in one sum with a client; itself is."""
        return np.ones(len(clients), dtype=np.bool_)

    def reach(self, present: int, parameters: int) -> tuple[float, float]:
        """Return the largest number and the largest L2 norm with which a sum of so many releases is still used."""
        return math.inf, math.inf

    def check(self, releases: Doubles, clients: Integers, memory: Memory) -> None:
        """Refuse a release (clients, parameters) beyond `bound_of`, by the client's number."""
        bound = self.bound_of(memory, releases.shape[1])
        if bound is not None:
            bound.check(releases, clients)

    def bound_of(self, memory: Memory, parameters: int) -> ReleaseBound | None:
        """Return the bounds of an honest client's release in the round that the memory is of; None where there are none."""
        return None

    @abstractmethod
    def finish(self, total: Doubles, weight: float, within: int, count: int, round_: int, memory: Memory) -> Sum:
        """Add what the coordinator adds to the sum (parameters,) of `count` releases."""

    @abstractmethod
    def statement(self, rounds: int | None = None) -> dict[str, Any] | None:
        """Return what the first `rounds` rounds give, with unit, δ and horizon; None where nothing is protected."""

    def spent(self) -> list[tuple[int, float]]:
        """Return (rounds done, ε spent by then), where there is an ε that adds up over rounds."""
        return []

    def loss(self, rounds: int) -> Loss | None:
        """Return what the first `rounds` rounds give away, to be composed with other losses; None where no ε is stated.

        By default the (ε, δ) of the statement, which adds up least tightly.
        """
        stated = {} if rounds == 0 else self.statement(rounds) or {}
        epsilon, delta = stated.get("epsilon"), stated.get("delta")
        if rounds == 0 and (self.statement(1) or {}).get("epsilon") is not None:
            return Loss()
        if epsilon is None or delta is None:
            return None
        return Loss(pure=epsilon) if delta == 0.0 else Loss(stated=((epsilon, delta),))


class AddingUp(Mechanism):
    """Base of mechanisms whose ε adds up: every round that a client takes part in costs as much as the first."""

    setting: Setting

    def spent(self) -> list[tuple[int, float]]:
        each, setting = (self.statement(1) or {}).get("epsilon"), self.setting
        if each is None:
            return []
        last = setting.turns.busiest(setting.rounds)[-1] + 1  # the round after which nothing more can be spent
        return [(t, each * setting.participations(t)) for t in sorted({1, last, setting.rounds})]


@dataclass(frozen=True)
class Plain(Mechanism):
    """Mechanism that sums updates as they come."""

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
    """A privacy part; for a given run it becomes a mechanism, which knows the calibrated noise."""

    kind: ClassVar[str]
    protects: ClassVar[bool] = True  # anything at all
    protects_metric: ClassVar[bool] = False  # it randomises the metric that clients send, by `privatise`
    protects_messages: ClassVar[bool] = False  # each message is private on its own, without any sum
    needs_client_parameters: ClassVar[bool] = False  # it clips the parameters that a client learns
    needs_equal_shares: ClassVar[bool] = False  # its noise is complete if all planned clients send, and count alike

    @property
    def hides_single_updates(self) -> bool:
        """Whether the coordinator sees sums only, of whole numbers under masks."""
        return False

    @property
    def sum_groups(self) -> int:
        """In how many groups a cohort is summed, each on its own: a rule sees their means; 1 is the cohort as a whole."""
        return 1

    @property
    def noise_on_sums(self) -> bool:
        """Whether the noise is complete only on the sum of a cohort, so that a rule may see nothing else."""
        return False

    @property
    def adds_noise_to_masked_sums(self) -> bool:
        """Whether the coordinator adds the noise of secure sums."""
        return False

    @property
    def assumes_secret_cohorts(self) -> bool:
        """Whether its ε for sampled cohorts holds only while nobody knows who was in them."""
        return False

    @property
    def longest_update(self) -> float | None:
        """The largest L2 norm of an update that it lets through in the first round; None where it sets no bound."""
        return None

    @property
    def sums_histograms(self) -> Literal["", "exact", "noisy"]:
        """How it sums the histograms that trees are grown from: as whole numbers, or clipped with noise; "": not at all."""
        return ""

    def with_noise_of(self, mechanism: Mechanism) -> Privacy:
        """Return the part whose rounds have the noise of a calibrated mechanism of this one, however many they are."""
        return self

    def without_masks(self) -> Privacy:
        """Return the part whose secure sums are computed without playing their messages: the same total, faster."""
        return self

    def check_values(self, values: int) -> None:
        """Refuse a metric that may take so many values."""

    def recommended_step(self, setting: Setting) -> float | None:
        """Return the server's step that suits the noise of a run; None where there is no noise that asks for one."""
        return None

    def privatise(self, measured: Doubles, values: Doubles, seed: Seed, round_: int, clients: Integers) -> Doubles:
        """Return what clients send, (clients, 2), for (clients, 2, interactions) measurements in `values`."""
        raise NotImplementedError(f"{self.kind} protects no metric")

    @abstractmethod
    def mechanism(self, setting: Setting, seed: Seed) -> Mechanism:
        """Return the mechanism of one run, its noise drawn under `seed`."""

    def client_mechanism(self, setting: Setting, seed: Seed) -> Mechanism:
        """Return what clients do of the mechanism; it need not know how much noise others draw, which takes seconds."""
        return self.mechanism(setting, seed)


@dataclass(frozen=True)
class NoPrivacy(Privacy):
    """No privacy mechanism: data stay with the clients, and updates leave them as they are."""

    kind: ClassVar[str] = "none"
    protects: ClassVar[bool] = False

    @property
    def sums_histograms(self) -> Literal["", "exact", "noisy"]:
        return "exact"

    def mechanism(self, setting: Setting, seed: Seed) -> Plain:
        """Return the mechanism of one run: plain sums."""
        return Plain()
