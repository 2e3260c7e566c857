"""Rounds of a run that grows trees: a round adds a tree, or a batch of random ones.

The trees so far are the parameters of the state, so that checkpoints, the ranker file and the commands about finished runs
are those of every run. Scores of the documents are added up tree by tree, to the same bits as when the trees of a
checkpoint are scored again. `interactions` counts the lists whose gradients were computed, again in each round.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from quorank.data import Collection
from quorank.engines.engine import Play
from quorank.errors import require
from quorank.experiments.experiment import Experiment
from quorank.experiments.progress import LEDGER, Progress
from quorank.experiments.workload import Workload
from quorank.federation import Report, State
from quorank.federation.boosting import Boosting, TrainingLists, list_owners
from quorank.federation.rounds import private_sum
from quorank.kernels.arrays import Doubles
from quorank.learning import Simulation
from quorank.learning.client_loop import JUDGED
from quorank.learning.lambdamart import LoggedLists, log_lists, production_ranker
from quorank.learning.trees.bins import SHARES, Bins, agreed_bins, cell_counts, cell_shares, grid_bins, quantile_bins
from quorank.learning.trees.growth import columns_of
from quorank.metrics.evaluator import Evaluator
from quorank.metrics.lists import ndcg
from quorank.privacy import Mechanism, Setting
from quorank.rankers import Linear
from quorank.rankers.trees import add_tree_scores, tree_parameters


@dataclass(eq=False)
class TreeRounds:
    """Rounds of trees of an experiment on a collection; parts of it are released under noise where `noisy`."""

    experiment: Experiment
    collection: Collection
    threads: int = 1
    evaluated_together: int = field(default=1, init=False)  # scores are those of the newest trees only

    def __post_init__(self) -> None:
        learner, ranker = self.experiment.federation.learner, self.experiment.ranker
        ranker = ranker.with_trees(self.experiment.rounds * learner.trees_per_round)
        experiment = self.experiment = replace(self.experiment, ranker=ranker)
        self.workload = Workload(experiment, self.collection, self.threads)
        self.plan = learner.tree_plan(ranker.tree_leaves, experiment.evaluation.k)
        self.noisy = experiment.federation.privacy.sums_histograms == "noisy"
        raw = self.noisy and experiment.data.normalize.kind != "query"
        sentence = 'bins under noise take features from 0 to 1; set data.normalize = "query"'
        require(not raw, "trees.raw-features", sentence, "data.normalize")
        useful = int(np.count_nonzero(Evaluator(self.collection.train, Linear()).counted()))
        known = f"there are {useful} training lists with a relevant document, too few to beat a linear ranker"
        other = 'use ranker.kind = "linear" with learner.kind = "pdgd"'
        sentence = f"{known}; {other}, or set learner.least_lists = {useful} to try it all the same"
        require(useful >= self.plan.least_lists, "trees.too-few-lists", sentence, "learner.least_lists")

    @property
    def quantile_releases(self) -> int:
        """Releases before the first tree."""
        return self.plan.quantile_releases if self.noisy else 0

    @cached_property
    def setting(self) -> Setting:
        """Setting of the run's privacy."""
        experiment, n = self.experiment, self.collection.train.n_features
        leaves = self.plan.batch * 2 << self.plan.growth.depth if self.plan.random else n * self.plan.bins * 3
        numbers = max(leaves, n * SHARES if self.quantile_releases else 1)
        return experiment.federation.setting(experiment.rounds + self.quantile_releases, numbers)

    @cached_property
    def mechanism(self) -> Mechanism:
        """Mechanism that protects the run's releases."""
        return self.experiment.federation.privacy.mechanism(self.setting, self.experiment.seed)

    def initial(self) -> State:
        """Return the state before the first tree."""
        theta = self.experiment.ranker.initial(self.collection.train.n_features, self.experiment.seed)
        return State(0, theta, {}, self.mechanism.start() if self.noisy else {})

    @cached_property
    def logged(self) -> LoggedLists | None:
        """Lists shown to clients; None where clients have labels."""
        plan, experiment, train = self.plan, self.experiment, self.collection.train
        if plan.propensities is None:
            return None
        k, grades = experiment.evaluation.k, self.collection.grades
        world = Simulation(train, Linear(), experiment.users, grades, experiment.seed, k).world()
        federation, theta = experiment.federation, production_ranker(train)
        return log_lists(world, theta, plan.temperature, federation.clients, federation.interactions, plan.propensities)

    @cached_property
    def lists(self) -> TrainingLists:
        """Training lists of all clients."""
        train, logged, clients = self.collection.train, self.logged, self.experiment.federation.clients
        if logged is None:
            gains = np.exp2(train.labels.astype(np.float64)) - 1.0
            return TrainingLists(train.features, gains, train.offsets, list_owners(train.n_queries, clients))
        whole = np.ones(len(logged.owners))
        return TrainingLists(train.features[logged.rows], logged.gains, logged.offsets, logged.owners, whole)

    @cached_property
    def bins(self) -> Bins:
        """Bins that clients agree on: from exact counts, from noisy quantiles, or a grid."""
        lists, plan, n = self.lists, self.plan, self.collection.train.n_features
        if not self.noisy:
            return agreed_bins(cell_counts(lists.features), plan.bins)
        if plan.quantile_releases == 0:
            return grid_bins(n, plan.bins)
        clients, length = self.experiment.federation.clients, self.experiment.federation.privacy.longest_update or 1.0
        sent = cell_shares(lists.features, lists.offsets, lists.owners, clients, length)
        total, state = np.zeros(n * SHARES), self.initial()
        for release in range(plan.quantile_releases):
            found = private_sum(sent.copy(), self.mechanism, replace(state, round=release))
            total += found.total
            self._before.append((float(clients), found.sensitivity, found.noise))
        return quantile_bins(total, n, plan.bins)

    @cached_property
    def _before(self) -> list[tuple[float, float, float]]:
        """Participants, sensitivity and noise of the releases before the first tree."""
        return []

    @cached_property
    def releases_before(self) -> Doubles:
        """Releases before the first tree, in the columns of the ledger."""
        self.bins  # noqa: B018  agreed by now, also where a resumed run had no tree left to grow
        return np.array(self._before, dtype=np.float64).reshape(-1, len(LEDGER)).T

    def start(self, state: State, play: Play | None = None) -> None:
        """Continue from a state."""
        experiment, privacy = self.experiment, self.experiment.federation.privacy
        masked, masks = privacy.hides_single_updates and not self.noisy, privacy != privacy.without_masks()
        self._pool = ThreadPoolExecutor(self.threads)
        played = experiment.federation.clients, experiment.seed, masked, masks, self.threads, self._pool
        self._boosting = Boosting(self.plan, self.lists, self.bins, *played)
        self._test = np.ascontiguousarray(self.collection.test.features)
        self._judged = experiment.ranker.score_features(state.theta, self._test)
        self._boosting.start(experiment.ranker.score_features(state.theta, self.lists.features))

    def play(self, state: State, most: int = 1) -> tuple[State, Report]:
        """Grow the trees of the round after this state; there is never more than one at a time."""
        number, logged = state.round, self.logged
        private, sensitivity, noise = state.private, math.nan, 0.0
        if self.noisy:
            released_at = replace(state, round=number + self.quantile_releases)
            trees, found = self._boosting.grow_with_noise(number, self.mechanism, released_at)
            private, sensitivity, noise = found.private, found.sensitivity, found.noise
        else:
            trees = self._boosting.grow(number)
        theta, step = state.theta.copy(), 0.0
        if trees:
            columns = columns_of(trees)
            grown = tree_parameters(columns)
            theta[number * len(grown) : (number + 1) * len(grown)] = grown
            step = float(np.linalg.norm(np.concatenate([tree.value for tree in trees])))
            add_tree_scores(*columns, self._test, self._judged)
        clicks = math.nan if logged is None else logged.clicks / max(1, len(logged.owners))
        released = self.experiment.federation.clients, sensitivity, noise
        report = Report(number + 1, len(self.lists.owners), self._logged_ndcg, math.nan, clicks, step, *released)
        return State(number + 1, theta, {}, private), report

    def close(self) -> None:
        self._pool.shutdown()

    def means(self, states: Sequence[State], progress: Progress) -> Doubles:
        return self.workload.evaluators[0].score_means([self._judged])

    def ranker(self, state: State, progress: Progress) -> Doubles:
        return state.theta

    def summary(self, state: State, progress: Progress) -> dict[str, Any]:
        count = progress.done * self.experiment.federation.learner.trees_per_round
        return {"trees": {"trees": count, "lists": len(self.lists.owners), "documents": len(self.lists.gains)}}

    @cached_property
    def _logged_ndcg(self) -> float:
        """Mean nDCG@10 of the logged lists; NaN where clients have labels and were shown nothing to judge."""
        if self.logged is None:
            return math.nan
        train, rows, offsets = self.collection.train, self.logged.rows, self.logged.offsets
        queries = np.searchsorted(train.offsets, rows[offsets[:-1]], side="right") - 1
        shown = [train.labels[rows[a:b]] for a, b in pairwise(offsets)]
        every = [train.labels[train.rows_of(query)] for query in queries.tolist()]
        skips = self.experiment.evaluation.online_no_relevant == "skip"
        lists = [each for each in zip(shown, every, strict=True) if each[1].any() or not skips]
        return float(np.mean([ndcg(*each, JUDGED) for each in lists])) if lists else math.nan
