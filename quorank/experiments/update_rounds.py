"""Rounds of a run whose clients send updates: the simulator plays a cohort, the coordinator closes the round."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np

from quorank.data import Collection
from quorank.engines.engine import Play
from quorank.engines.process import Simulator
from quorank.experiments.experiment import Experiment
from quorank.experiments.kept_updates import KeptUpdates
from quorank.experiments.progress import LEDGER, Progress
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

    def __post_init__(self) -> None:
        collection = self.collection
        experiment = started_experiment(self.experiment, collection.train.n_features, collection)
        self.experiment, self.workload = experiment, Workload(experiment, collection, self.threads)
        shares = self.workload.shares
        interactions = None if shares is None else shares.interactions
        clients = interactions, self.workload.replay
        simulation = self.workload.simulation
        self.simulator = Simulator(
            experiment.federation, simulation, self.threads, self.chunk, experiment.rounds, *clients
        )
        self.simulator.world  # noqa: B018  built now, not in the first round's time

    @classmethod
    def of(cls, experiment: Experiment) -> UpdateRounds:
        """Return the rounds of an experiment on its own data, on one thread."""
        experiment = with_learned_ranges(experiment)
        return cls(experiment, experiment_collection(experiment))

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
        experiment, simulator = self.experiment, self.simulator
        limits = RoundLimits(max_interactions=simulator.setting.interactions)
        self._coordinator = Coordinator(
            experiment.federation, simulator.mechanism, state, experiment.rounds, seed=experiment.seed, limits=limits
        )
        self._play = play or self._simulate
        simulator.warm(state)

    def play(self) -> tuple[State, Report]:
        report = self._play(self._coordinator)
        return self._coordinator.state, report

    def _simulate(self, coordinator: Coordinator) -> Report:
        state, keep = coordinator.state, None
        if self.kept is not None and self.kept.due(state.round):
            keep = partial(self.kept.keep, state.round + 1)
        return coordinator.close(self.simulator.gather(state, sent=keep))

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

    def online(self, progress: Progress) -> dict[str, float | None]:
        return {"ndcg@10": progress.online_mean(), "discounted": progress.online_discounted()}

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

    @cached_property
    def releases_before(self) -> Doubles:
        """Releases before the first round, in the columns of the ledger: none."""
        return np.empty((len(LEDGER), 0))
