"""Coordinator of a rebuilding: a separate run from the first ranker, without the clients that have left.

Each of its rounds stands for several rounds of the run, so its steps are as many times longer, and the published ranker is
a mean (`methods`, fresh). Its noise is that of the run's rounds, drawn from another seed. Every sum is counted in the
ledger before it is used (`rebuilding_ledger`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from typing import ClassVar, cast

import numpy as np

from quorank.federation.coordinator import Coordinator
from quorank.federation.journal import RoundStorage
from quorank.federation.participation import Participation, TurnsTaken
from quorank.federation.rounds import CohortSum, Federation, Report
from quorank.federation.server_optimisers import Add
from quorank.federation.unlearning.methods import fresh_seed, scale_sum
from quorank.kernels.arrays import Doubles, Integers
from quorank.privacy import Setting
from quorank.privacy.setting import Turns
from quorank.privacy.streams import Seed

GAMMA = 3.0
"""γ of the published mean of rankers."""


@dataclass(frozen=True)
class Without:
    """A participation without some clients; the others keep their numbers and draws."""

    kind: ClassVar[str] = "without"

    inner: Participation
    absent: tuple[int, ...]
    rebuilds: bool = False

    @property
    def fixed_size(self) -> bool:
        """As planned: noise that counts on all clients keeps nobody from leaving."""
        return self.inner.fixed_size

    def size(self, clients: int) -> int:
        """Return the planned size of a cohort."""
        return self.inner.size(clients)

    def fewest(self, clients: int) -> int:
        """Return the smallest cohort; 1 for a rebuilding of open participation, whose noise is that of K clients."""
        return 1 if self.open_arrivals and self.rebuilds else self.inner.fewest(clients)

    @property
    def open_arrivals(self) -> bool:
        """As of the inner participation."""
        return self.inner.open_arrivals

    @property
    def turns(self) -> Turns:
        """As of the inner participation."""
        return self.inner.turns

    @property
    def seconds(self) -> float:
        """As of the inner participation."""
        return self.inner.seconds

    def members(self, clients: int, round_: int, seed: int, turns: TurnsTaken | None = None) -> Integers:
        """Return the inner cohort without the absent clients."""
        found = self.inner.members(clients, round_, seed, turns)
        everyone = np.arange(clients) if found is None else found
        return everyone[~np.isin(everyone, self.absent)]


@dataclass(frozen=True)
class Remaining:
    """The enrolled clients except those that have left."""

    inner: Container[int]
    absent: tuple[int, ...]

    def __contains__(self, client: object) -> bool:
        return client in self.inner and client not in self.absent


def without_clients(federation: Federation, absent: tuple[int, ...], rebuilds: bool = False) -> Federation:
    """Return the federation with these clients in no cohort."""
    participation = cast("Participation", Without(federation.participation, absent, rebuilds))
    return replace(federation, participation=participation)


@dataclass(eq=False)
class Rebuilding(Coordinator):
    """Coordinator whose steps are `step_factor` times longer; `before_use` gets each round's sum before it is used."""

    step_factor: float = 1.0
    before_use: Callable[[int, CohortSum], None] = lambda round_, cohort_sum: None

    def cohort_sum(self) -> CohortSum:
        """Return the scaled sum of the accepted replies."""
        return scale_sum(super().cohort_sum(), self.step_factor)

    def close(self, cohort_sum: CohortSum) -> Report:
        """Close the round after its sum is in the ledger."""
        self.before_use(self.state.round, cohort_sum)
        return super().close(cohort_sum)


def rebuilding_setting(federation: Federation, rounds: int, parameters: int, left: int) -> Setting:
    """Return the privacy setting of a rebuilding without `left` clients."""
    setting, remaining = federation.setting(rounds, parameters), federation.clients - left
    if setting.open_arrivals:
        return setting  # noise is planned for K, however many are enrolled
    return replace(setting, clients=remaining, cohort=min(setting.cohort, remaining))


def rebuilding_of(
    coordinator: Coordinator,
    federation: Federation,
    start: Doubles,
    rounds: int,
    name: str,
    left: tuple[int, ...],
    step_factor: float,
    storage: RoundStorage | None,
) -> Rebuilding:
    """Return the rebuilding of a coordinator's run, continued from the checkpoint in `storage`.

    Args:
        coordinator: The run's.
        federation: The run's federation with all clients.
        start: Ranker before the first round of the run, (parameters,).
        rounds: Rounds of the rebuilding.
        name: `rebuilding_name`.
        left: Clients that have left.
        step_factor: Factor of each step.
        storage: Where the rebuilding keeps its checkpoint.
    """
    server = federation.server
    if getattr(server, "average", GAMMA) is None:
        server = replace(cast("Add", server), average=GAMMA)
    setting = rebuilding_setting(federation, rounds, len(start), len(left))
    seed = fresh_seed(coordinator.seed, name, left)
    privacy = federation.privacy.with_noise_of(coordinator.mechanism)
    mechanism = privacy.mechanism(setting, _noise_seed(coordinator, seed))
    remains = without_clients(replace(federation, server=server), left, rebuilds=True)
    return Rebuilding(
        remains,
        mechanism,
        replace(remains.start(start), private=mechanism.start()),
        rounds,
        name,
        seed,
        coordinator.limits,
        storage,
        coordinator.clock,
        enrolled=None if coordinator.enrolled is None else Remaining(coordinator.enrolled, left),
        step_factor=step_factor,
    )


def _noise_seed(coordinator: Coordinator, seed: int) -> Seed:
    """Seed of the rebuilding's noise: never the run's, and secret if the run's is."""
    own: Seed = getattr(coordinator.mechanism, "seed", seed)
    if isinstance(own, int):
        return seed
    return hashlib.blake2b(b"quorank rebuilding" + seed.to_bytes(8, "little"), key=own, digest_size=32).digest()
