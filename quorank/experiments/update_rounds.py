"""Rounds of a run whose clients send updates, played by the simulator or by an engine with its coordinator.

An engine plays the rounds over a network: `check_network` names the experiments that can be, `clients_of` makes the
simulated clients behind it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from quorank.data import Collection
from quorank.engines.engine import Engine, EngineRun, Play
from quorank.engines.process import Simulator
from quorank.engines.simulated_clients import CarriedUpdates, SimulatedClients
from quorank.errors import require
from quorank.experiments.experiment import Experiment
from quorank.experiments.kept_updates import KeptUpdates
from quorank.experiments.progress import LEDGER, Progress
from quorank.experiments.run_directory import CARRIED, read_experiment
from quorank.experiments.workload import (
    Workload,
    best_ranker,
    experiment_collection,
    started_experiment,
    with_learned_ranges,
)
from quorank.federation import Report, State
from quorank.federation.coordinator import Coordinator, RoundLimits
from quorank.kernels.arrays import Doubles
from quorank.kernels.process import memory_bytes
from quorank.metrics.counterfactual import LoggedClickEvaluator
from quorank.privacy import Mechanism, Setting
from quorank.rankers import scores
from quorank.users.harvesting import deepest_rank


@dataclass(eq=False)
class UpdateRounds:
    """Rounds of updates of an experiment on a collection."""

    experiment: Experiment
    collection: Collection
    threads: int = 1
    chunk: int | None = None
    kept: KeptUpdates | None = None  # updates that clients keep for unlearning
    evaluated_together: int = field(default=16, init=False)  # rankers per pass over the test split
    _network: tuple[Play, Coordinator] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        collection = self.collection
        experiment = started_experiment(self.experiment, collection.train.n_features, collection)
        self.experiment, self.workload = experiment, Workload(experiment, collection, self.threads)
        shares, plan = self.workload.shares, (self.threads, self.chunk, experiment.rounds)
        interactions = None if shares is None else shares.interactions
        self.simulator = Simulator(
            experiment.federation, self.workload.simulation, *plan, interactions, self.workload.replay
        )
        self.simulator.world  # noqa: B018  built now, not in the first round's time

    @property
    def mechanism(self) -> Mechanism:
        return self.simulator.mechanism

    @property
    def setting(self) -> Setting:
        return self.simulator.setting

    def initial(self) -> State:
        return self.simulator.initial()

    def start(self, state: State, play: Play | None = None) -> None:
        """Continue from a state; `play` plays a round elsewhere than in this process."""
        experiment, simulator, self._network = self.experiment, self.simulator, None
        experiment.federation.check_pair_memory(memory_bytes())
        if play is not None:
            limits = RoundLimits(max_interactions=simulator.setting.interactions)
            planned = experiment.federation, simulator.mechanism, state, experiment.rounds
            self._network = play, Coordinator(*planned, seed=experiment.seed, limits=limits)
        simulator.warm(state)

    def play(self, state: State) -> tuple[State, Report]:
        """Play the round after this state."""
        if self._network is not None:
            play, coordinator = self._network
            report = play(coordinator)
            return coordinator.state, report
        keep = None
        if self.kept is not None and self.kept.due(state.round):
            keep = partial(self.kept.keep, state.round + 1)
        return self.experiment.federation.round(state, self.simulator.gather(state, sent=keep))

    def close(self) -> None:
        self.simulator.close()

    def means(self, states: Sequence[State], progress: Progress) -> Doubles:
        return self.workload.means([*states], [self._chosen(state, progress) for state in states])

    def _chosen(self, state: State, progress: Progress) -> Doubles:
        """Return the published ranker of a round; the validation split chooses again when rounds have doubled."""
        federation, validation = self.experiment.federation, self.workload.validation
        rankers = federation.choices(state)
        if not rankers or validation is None:
            return federation.ranker(state)
        last, chosen = progress.choice() or (0, next(iter(rankers)))
        if state.round >= 2 * last or state.round == self.experiment.rounds:
            ndcg = validation.per_query([*rankers.values()])[0][:, validation.counted()]
            best = best_ranker(ndcg)
            chosen = [*rankers][best]
            progress.record_choice(state.round, float(ndcg[best].mean()), chosen)
        return rankers[chosen]

    def ranker(self, state: State, progress: Progress) -> Doubles:
        federation, chosen = self.experiment.federation, progress.choice()
        return federation.ranker(state) if chosen is None else federation.choices(state)[chosen[1]]

    def summary(self, state: State, progress: Progress) -> dict[str, Any]:
        dropped = {"dropped_rounds": progress.dropped} if progress.dropped else {}
        return dropped | self._published(state, progress) | self._counterfactual(state, progress)

    def _published(self, state: State, progress: Progress) -> dict[str, Any]:
        """Return which of the server's rankers is published and why; nothing where it has only one."""
        rankers, chosen = self.experiment.federation.choices(state), progress.choice()
        if not rankers:
            return {}
        if chosen is None or self.workload.validation is None:
            return {"handed_out": {"by": "rule", "average": next(iter(rankers))}}
        return {
            "handed_out": {
                "by": "validation",
                "average": "last" if math.isinf(chosen[1]) else chosen[1],
                "validation_ndcg@10": progress.last("validation_ndcg@10"),
                "validation_queries": int(np.count_nonzero(self.workload.validation.counted())),
            }
        }

    def _counterfactual(self, state: State, progress: Progress) -> dict[str, Any]:
        """Return estimates of the ranker by the clicks of the test split, where lists of a log are replayed."""
        experiment, log = self.experiment, self.collection.log
        if not experiment.users.replays_lists or log is None:
            return {}
        propensities = experiment.federation.learner.propensities_of(deepest_rank(log.test, experiment.evaluation.k))
        if propensities is None:
            return {}
        test = self.collection.test
        judge = LoggedClickEvaluator(test, log.test, propensities, experiment.evaluation.k)
        return {"counterfactual": judge.figures(scores(experiment.ranker, self.ranker(state, progress), test))}

    @property
    def releases_before(self) -> Doubles:
        """Releases before the first round, in the columns of the ledger: none."""
        return np.empty((len(LEDGER), 0))


# ---------------------------------------------------------------- over a network

CLIENTS = f"{__name__}:simulated_clients"
"""Factory of a run's clients, for processes that an engine starts."""


def check_network(experiment: Experiment) -> None:
    """Refuse an experiment that does not go over a network."""
    federation = experiment.federation
    privacy: Any = federation.privacy
    secure = privacy.hides_single_updates
    for where, wrong, what, instead in (
        ("attack", federation.attack is not None, "attackers collude, so they are simulated", "without [attack]"),
        (
            "federation.personal", federation.personal.keeps_parameters, "personal parameters are kept",
            'with personal = "shared"',
        ),
        ("partition.order", experiment.partition.replays, "a log is replayed", 'with partition.order = "random"'),
        (
            "privacy.dropouts", secure and privacy.dropouts > 0.0, "drop-outs of a secure sum are sampled",
            "with dropouts = 0",
        ),
    ):  # fmt: skip
        sentence = f"{what} in process only; run without --engine, or {instead}"
        require(not wrong, "option.conflict", sentence, where)


def simulated_clients(folder: Path) -> SimulatedClients:
    """Return the clients of the run in this directory, for another process."""
    return clients_of(read_experiment(folder), folder)


def clients_of(experiment: Experiment, folder: Path) -> SimulatedClients:
    """Return the clients of an experiment whose run is in this directory."""
    check_network(experiment)
    experiment = with_learned_ranges(experiment)
    simulator = UpdateRounds(experiment, experiment_collection(experiment)).simulator
    federation, size = simulator.federation, simulator.simulation.parameters
    keeper = KeptUpdates(experiment.keep_every, folder) if experiment.keep_every else None
    if keeper is not None:
        keeper.load(size)
    carried = CarriedUpdates(folder / CARRIED, federation.clients, size) if federation.client_momentum > 0.0 else None
    return SimulatedClients(simulator, keeper, carried)


@contextmanager
def network_rounds(
    engine: Engine, experiment: Experiment, folder: Path, state: State, stop: Callable[[], bool]
) -> Iterator[Play]:
    """Start the engine of a run that stands at `state`; yield what plays its rounds.

    Clients that carry updates into the next round keep them in a file of the run. After each round they become part of
    the state, as in process, and so of checkpoints.
    """
    file = None if state.carried is None else CarriedUpdates.begin(folder / CARRIED, state.round, state.carried)
    counts = experiment.federation.clients, file is not None, state.round, experiment.rounds
    run = EngineRun(folder, lambda: clients_of(experiment, folder), CLIENTS, *counts, stop)
    try:
        with engine(run) as play:

            def play_carrying(coordinator: Coordinator) -> Report:
                report = play(coordinator)
                if file is not None:
                    after = coordinator.state
                    coordinator.state = replace(after, carried=file.after(after.round - 1))
                return report

            yield play_carrying
    finally:
        (folder / CARRIED).unlink(missing_ok=True)
