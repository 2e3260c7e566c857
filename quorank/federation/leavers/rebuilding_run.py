"""The coordinator's side of a rebuilding: a run of its own from the first ranker, without those who have left.

Its rounds stand for several of the run each, so its steps are as many times longer, and as long steps are noisy, it hands
out a mean of its rankers (`unlearning`, method `fresh`). Its rounds have the noise of the run's, drawn from a
seed of its own: they cost what so many more rounds of the run would. Each of its sums is counted before it is used
(`rebuilding_ledger`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from typing import ClassVar, cast

import numpy as np

from quorank.federation.coordinator import Coordinator
from quorank.federation.kept.keeping import Keeping
from quorank.federation.leavers.unlearning import fresh_seed, stretched
from quorank.federation.participation import Participation, TurnsTaken
from quorank.federation.rounds import CohortSum, Federation, Report
from quorank.federation.server_optimisers import Add
from quorank.kernels.arrays import Doubles, Integers
from quorank.privacy import Setting
from quorank.privacy.setting import Turns
from quorank.privacy.streams import Seed

GAMMA = 3.0
"""γ of the mean of rankers that is handed out, as in `quorank unlearn`."""


@dataclass(frozen=True)
class Without:
    """A participation without those who have left; the others keep their numbers and their draws."""

    kind: ClassVar[str] = "without"

    inner: Participation
    absent: tuple[int, ...]
    rebuilds: bool = False

    @property
    def fixed_size(self) -> bool:
        """As planned: nobody is kept from leaving by what the noise of those who stay is worth."""
        return self.inner.fixed_size

    def size(self, clients: int) -> int:
        return self.inner.size(clients)

    def fewest(self, clients: int) -> int:
        """Where a round takes whoever comes, one is enough: few may still hold anything, and the noise is that of K."""
        return 1 if self.takes_whoever_comes and self.rebuilds else self.inner.fewest(clients)

    @property
    def takes_whoever_comes(self) -> bool:
        return self.inner.takes_whoever_comes

    @property
    def turns(self) -> Turns:
        return self.inner.turns

    @property
    def seconds(self) -> float:
        return self.inner.seconds

    def members(self, clients: int, round_: int, seed: int, taken: TurnsTaken | None = None) -> Integers:
        found = self.inner.members(clients, round_, seed, taken)
        everyone = np.arange(clients) if found is None else found
        return everyone[~np.isin(everyone, self.absent)]


@dataclass(frozen=True)
class Remaining:
    """Who may answer a rebuilding: the enrolled but those who have left."""

    inner: Container[int]
    absent: tuple[int, ...]

    def __contains__(self, client: object) -> bool:
        return client in self.inner and client not in self.absent


def without(federation: Federation, absent: tuple[int, ...], rebuilds: bool = False) -> Federation:
    """The same federation with these clients in no cohort."""
    participation = cast("Participation", Without(federation.participation, absent, rebuilds))
    return replace(federation, participation=participation)


@dataclass(eq=False)
class Rebuilding(Coordinator):
    """A coordinator whose rounds count `stretch` times; `counted` is told of each sum and its round before it is used."""

    stretch: float = 1.0
    counted: Callable[[int, CohortSum], None] = lambda round_, gathered: None

    def gathered(self) -> CohortSum:
        return stretched(super().gathered(), self.stretch)

    def close(self, gathered: CohortSum) -> Report:
        self.counted(self.state.round, gathered)
        return super().close(gathered)


def _fresh(coordinator: Coordinator, seed: int) -> Seed:
    """What the rebuilding's noise is drawn from: never what the run's was, and a secret where that was one."""
    own: Seed = getattr(coordinator.mechanism, "seed", seed)
    if isinstance(own, int):
        return seed
    return hashlib.blake2b(b"quorank rebuilding" + seed.to_bytes(8, "little"), key=own, digest_size=32).digest()


def rebuilding_setting(federation: Federation, rounds: int, parameters: int, gone: int) -> Setting:
    """What the privacy of a rebuilding is planned for: the run's federation without so many clients."""
    setting, remaining = federation.setting(rounds, parameters), federation.clients - gone
    if setting.takes_whoever_comes:
        return setting  # its noise is planned for K, however many are enrolled
    return replace(setting, clients=remaining, cohort=min(setting.cohort, remaining))


def rebuilding_of(
    coordinator: Coordinator,
    federation: Federation,
    start: Doubles,
    rounds: int,
    name: str,
    gone: tuple[int, ...],
    stretch: float,
    keeping: Keeping | None,
) -> Rebuilding:
    """Of a coordinator's run, whose `federation` still has all clients; it goes on where its checkpoint stands."""
    server = federation.server
    if getattr(server, "average", GAMMA) is None:
        server = replace(cast("Add", server), average=GAMMA)
    setting = rebuilding_setting(federation, rounds, len(start), len(gone))
    seed = fresh_seed(coordinator.seed, name, gone)
    privacy = federation.privacy.with_noise_of(coordinator.mechanism)
    mechanism = privacy.mechanism(setting, _fresh(coordinator, seed))
    remains = without(replace(federation, server=server), gone, rebuilds=True)
    return Rebuilding(
        remains,
        mechanism,
        replace(remains.start(start), private=mechanism.start()),
        rounds,
        name,
        seed,
        replace(coordinator.rules, asynchronous=None),
        keeping,
        coordinator.clock,
        enrolled=None if coordinator.enrolled is None else Remaining(coordinator.enrolled, gone),
        stretch=stretch,
    )
