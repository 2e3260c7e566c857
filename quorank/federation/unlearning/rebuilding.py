"""Coordinator of a rebuilding: a separate run from the first ranker, without the clients that have left.

Each of its rounds stands for several rounds of the run, so its steps are as many times longer, and the published ranker is
a mean (`methods`, fresh). Its noise is that of the run's rounds, drawn from another seed. Every sum is counted in the
ledger before it is used (`rebuilding_ledger`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

from quorank.federation.coordinator import Coordinator
from quorank.federation.journal import RoundStorage
from quorank.federation.rounds import CohortSum, Federation, Report
from quorank.federation.server_optimisers import Add
from quorank.federation.unlearning.methods import fresh_seed, scale_sum
from quorank.kernels.arrays import Doubles
from quorank.privacy import Setting
from quorank.privacy.streams import Seed

GAMMA = 3.0
"""γ of the published mean of rankers."""


@dataclass(eq=False)
class Rebuilding(Coordinator):
    """Coordinator whose steps are `step_factor` times longer; `before_use` gets each round's sum before it is used.

    Any number of arrivals closes a round: the noise is that of K clients.
    """

    step_factor: float = 1.0
    before_use: Callable[[int, CohortSum], None] = lambda round_, cohort_sum: None

    @property
    def fewest_arrivals(self) -> int:
        return 1

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
        start: Ranker before the first round of the run, (parameters,).
        rounds: Rounds of the rebuilding.
        name: `rebuilding_name`.
        left: Clients that have left.
        step_factor: Factor of each step.
        storage: Where the rebuilding keeps its checkpoint.
    """
    federation, server = coordinator.federation, coordinator.federation.server
    if getattr(server, "average", GAMMA) is None:
        server = replace(cast("Add", server), average=GAMMA)
    setting = rebuilding_setting(federation, rounds, len(start), len(left))
    seed = fresh_seed(coordinator.seed, name, left)
    privacy = federation.privacy.with_noise_of(coordinator.mechanism)
    mechanism = privacy.mechanism(setting, _noise_seed(coordinator, seed))
    federation = replace(federation, server=server)
    return Rebuilding(
        federation,
        mechanism,
        replace(federation.start(start), private=mechanism.start()),
        rounds,
        name,
        seed,
        coordinator.limits,
        storage,
        coordinator.clock,
        enrolled=coordinator.enrolled,
        absent=frozenset(left),
        step_factor=step_factor,
    )


def _noise_seed(coordinator: Coordinator, seed: int) -> Seed:
    """Seed of the rebuilding's noise: never the run's, and secret if the run's is."""
    own: Seed = getattr(coordinator.mechanism, "seed", seed)
    if isinstance(own, int):
        return seed
    return hashlib.blake2b(b"quorank rebuilding" + seed.to_bytes(8, "little"), key=own, digest_size=32).digest()
