"""Workload of a run: its data divided among the clients, the clients' click models, and the evaluators of its rankers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from quorank.arrays import Doubles, Integers
from quorank.data import Collection, DataSource, load
from quorank.data.partition import Shares
from quorank.data.source import stamps_of
from quorank.experiments.experiment import Experiment
from quorank.federation import Federation, State
from quorank.learning import Simulation
from quorank.learning.simulation import JUDGED, ClientDifferences
from quorank.metrics.evaluator import Evaluator
from quorank.users import CLICK_MODELS, ClickModel

LEAST_GAIN = 1.0
"""A ranker is preferred to the rule's own if it gains more than so many standard errors on the validation queries: few
queries say little, and the best of several by their mean alone is often a worse one (docs/results/recommendation.md)."""


def collection_of(source: DataSource) -> Collection:
    """Load the data of a source, kept in memory for the next run on the same files."""
    return _kept(source, stamps_of(source))


@lru_cache(maxsize=2)
def _kept(source: DataSource, stamps: tuple[object, ...]) -> Collection:
    return load(source).resident()


def best_ranker(ndcg: Doubles) -> int:
    """Return the index of the best of some rankers by (rankers, queries) nDCG; of the first if none gains enough on it."""
    gain = ndcg - ndcg[0]
    error = gain.std(axis=1) / max(1, gain.shape[1] - 1) ** 0.5
    mean = gain.mean(axis=1)
    return int(np.argmax(np.where(mean > LEAST_GAIN * error, mean, 0.0)))


@dataclass(frozen=True, eq=False)
class Workload:
    """Simulated clients and evaluators of an experiment on a collection."""

    experiment: Experiment
    collection: Collection
    threads: int = 1

    @cached_property
    def shares(self) -> Shares | None:
        """The collection divided by the partition; None if all clients draw from the whole of it."""
        experiment, federation = self.experiment, self.experiment.federation
        if not experiment.partition.divides:
            return None
        return experiment.partition.split(self.collection, federation.clients, federation.interactions, experiment.seed)

    @cached_property
    def who(self) -> ClientDifferences | None:
        """Queries and click model of each client, attackers with poisoned clicks included; None if all are alike."""
        experiment, shares = self.experiment, self.shares
        attack = experiment.federation.attack
        poisoning = None if attack is None else attack.users
        poisoned = attack.clients if attack is not None and poisoning is not None else 0
        if shares is None and poisoned == 0:
            return None
        clients = experiment.federation.clients
        own: tuple[ClickModel, ...] = (experiment.users,)
        group, model = np.zeros(clients, dtype=np.int64), np.zeros(clients, dtype=np.int64)
        first, count = np.zeros(1, dtype=np.int64), np.array([self.collection.train.n_queries])
        if shares is not None:
            group, first, count, model = (shares.group, shares.first_query, shares.query_count, shares.click_model)
            specs = shares.click_models
            own = tuple(experiment.users if s is None else CLICK_MODELS.read(dict(s), "partition") for s in specs)
        drawn = len(own)
        if poisoning is not None:
            own = (*own, poisoning)
            model = np.where(np.arange(clients) < poisoned, len(own) - 1, model)
        return ClientDifferences(group, first, count, model, own, drawn)

    @cached_property
    def simulation(self) -> Simulation:
        experiment, shares = self.experiment, self.shares
        return Simulation(
            self.collection.train if shares is None else shares.data.resident(),
            experiment.ranker,
            experiment.users,
            self.collection.grades,
            experiment.seed,
            experiment.evaluation.k,
            self.who,
        )

    @cached_property
    def evaluators(self) -> list[Evaluator]:
        """An evaluator per test split: one, or one for each preference."""
        plan, ranker = self.experiment.evaluation, self.experiment.ranker
        tests = (self.collection.test,) if self.shares is None else self.shares.tests
        how = (JUDGED, plan.no_relevant, self.threads, plan.k, plan.further)
        return [Evaluator(test.resident(), ranker, *how) for test in tests]

    @cached_property
    def validation(self) -> Evaluator | None:
        """An evaluator of the validation split; None where there is none with a relevant document, or tests differ."""
        plan, split = self.experiment.evaluation, self.collection.validation
        if split is None or len(self.evaluators) > 1:
            return None
        found = Evaluator(split.resident(), self.experiment.ranker, JUDGED, plan.no_relevant, self.threads)
        return found if found.counted().any() else None

    @cached_property
    def test_of_client(self) -> Integers:
        """(clients,) the index of the test split on which a client's ranker is evaluated."""
        if self.shares is None:
            return np.zeros(self.experiment.federation.clients, dtype=np.int64)
        return self.shares.test_of_group[self.shares.group]

    def means(self, states: list[State], handed_out: list[Doubles] | None = None) -> Doubles:
        """Compute (2 + cut-offs, states) offline nDCG@10, MaxRR and nDCG at the further cut-offs of the plan.

        They are of the ranker that is handed out, or the mean over honest clients: a client's ranker is its personal one,
        evaluated on its own test split. Without `handed_out` rankers are those of the server's rule.
        """
        federation = self.experiment.federation
        rankers = [federation.ranker(state) for state in states] if handed_out is None else handed_out
        if len(self.evaluators) == 1 and all(state.personal is None for state in states):
            return self.evaluators[0].all_means(rankers)
        found = [self._client_means(federation, *each) for each in zip(states, rankers, strict=True)]
        return np.array(found).T

    def _client_means(self, federation: Federation, state: State, ranker: Doubles) -> Doubles:
        first = 0 if federation.attack is None else federation.attack.clients
        clients = np.arange(first, federation.clients)
        tests = self.test_of_client[clients]
        if state.personal is None:
            numbers = np.bincount(tests, minlength=len(self.evaluators)) / len(clients)
            each = [e.all_means([ranker])[:, 0] for e in self.evaluators]
            return np.asarray(numbers @ np.array(each), dtype=np.float64)
        total = np.zeros(2 + len(self.experiment.evaluation.further))
        for number, evaluator in enumerate(self.evaluators):
            thetas = [ranker + state.personal[c] for c in clients[tests == number]]
            if thetas:
                total += evaluator.all_means(thetas).sum(axis=1)
        return np.asarray(total / len(clients), dtype=np.float64)
