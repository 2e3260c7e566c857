"""The run of an experiment that grows trees: a round adds a tree, or a batch of random ones.

The trees so far are the parameters of the state, so that checkpoints, the ranker file and the commands about finished runs
are those of every run. What a client's documents score is added up tree by tree, and comes to the same bits when the trees
of a checkpoint are scored again. `interactions` counts the lists that gradients were computed of, anew for each round.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from quorank.data import Collection
from quorank.data.feature_names import names_of
from quorank.errors import Interrupted, require
from quorank.experiments.experiment import Experiment
from quorank.experiments.kept_updates import KeptUpdates
from quorank.experiments.learned_ranges import stated_altogether, with_learned_ranges, with_ranges_entry
from quorank.experiments.progress import LEDGER, Progress, summary_of
from quorank.experiments.ranker_of_run import saved_ranker
from quorank.experiments.workload import collection_of
from quorank.federation import Report, State
from quorank.federation.trees.boosting import Boosting, TrainingLists, dealt, released
from quorank.kernels.arrays import Doubles
from quorank.kernels.process import available_threads
from quorank.learning import Simulation
from quorank.learning.simulation import JUDGED
from quorank.learning.trees.bins import Bins, agreed_bins, cell_counts
from quorank.learning.trees.growth import GrownTree, columns_of
from quorank.learning.trees.logged_lists import LoggedLists, log_lists, production_ranker
from quorank.learning.trees.private_bins import CELLS, cell_shares, grid_bins, quantile_bins
from quorank.metrics.evaluator import Evaluator
from quorank.metrics.lists import ndcg
from quorank.privacy import Mechanism, Setting
from quorank.privacy.ledger import ledger
from quorank.rankers import Linear
from quorank.rankers.ranker_file import SavedRanker
from quorank.rankers.trees import add_tree_scores, tree_parameters

CHECKPOINT_SECONDS = 20.0
PLENTY = 400
ADVICE = f"of fewer than {PLENTY} training lists a linear ranker may be better: compare"
"""Said of runs of so few lists: on MQ2008 trees were below a linear ranker up to 200 lists, and level at 400."""


@dataclass(eq=False)
class TreeRunner:
    """One run of trees in memory; `run()` grows the trees that are left."""

    experiment: Experiment
    threads: int = field(default_factory=available_threads)
    state: State | None = None
    progress: Progress | None = None
    kept: KeptUpdates | None = None  # nothing is kept of trees
    given: Collection | None = None  # raw data that no file holds

    def __post_init__(self) -> None:
        self.experiment = with_learned_ranges(self.experiment, self.given)
        learner, ranker = self.experiment.federation.learner, self.experiment.ranker
        ranker = ranker.with_trees(self.experiment.rounds * learner.trees_per_round)
        experiment = self.experiment = replace(self.experiment, ranker=ranker)
        self.collection = collection_of(experiment.data, self.given)
        self.plan = learner.tree_plan(ranker.tree_leaves, experiment.evaluation.k)
        self.noisy = experiment.federation.privacy.sums_histograms == "noisy"
        raw = self.noisy and experiment.data.normalize.kind != "query"
        sentence = 'bins under noise take features from 0 to 1; set data.normalize = "query"'
        require(not raw, "trees.raw-features", sentence, "data.normalize")
        self._check_lists()
        plan = experiment.evaluation
        self.evaluator = Evaluator(
            self.collection.test, ranker, JUDGED, plan.no_relevant, self.threads, plan.k, plan.further
        )
        nothing = "no test query has a relevant document; there is nothing to judge a ranker by"
        require(self.evaluator.counted().any(), "data.without-relevant", nothing, experiment.data.source)
        self.mechanism  # noqa: B018  an impossible budget is refused before anything is written

    def _check_lists(self) -> None:
        """Refuse so few training lists that other rankers do better."""
        useful = self.useful_lists
        sentence = (
            f"there are {useful} training lists with a relevant document, and trees of fewer than {self.plan.least_lists} "
            'lose to BM25 and to a linear ranker; use ranker.kind = "linear" with learner.kind = "pdgd", or set '
            f"learner.least_lists = {useful} to try it all the same"
        )
        require(useful >= self.plan.least_lists, "trees.too-few-lists", sentence, "learner.least_lists")

    @cached_property
    def useful_lists(self) -> int:
        """Training lists with a relevant document."""
        return int(np.count_nonzero(Evaluator(self.collection.train, Linear()).counted()))

    @property
    def quantile_releases(self) -> int:
        """Releases before the first tree."""
        return self.plan.quantile_releases if self.noisy else 0

    @cached_property
    def setting(self) -> Setting:
        """The run's releases as its privacy sees them."""
        experiment, n = self.experiment, self.collection.train.n_features
        leaves = self.plan.batch * 2 << self.plan.growth.depth if self.plan.random else n * self.plan.bins * 3
        numbers = max(leaves, n * CELLS if self.quantile_releases else 1)
        return experiment.federation.setting(experiment.rounds + self.quantile_releases, numbers)

    @cached_property
    def mechanism(self) -> Mechanism:
        """What protects the run's releases."""
        return self.experiment.federation.privacy.mechanism(self.setting, self.experiment.seed)

    def initial(self) -> State:
        """Return the state before the first tree."""
        theta = self.experiment.ranker.initial(self.collection.train.n_features, self.experiment.seed)
        return State(0, theta, {}, self.mechanism.start() if self.noisy else {})

    # ------------------------------------------------------------ what clients hold

    @cached_property
    def logged(self) -> LoggedLists | None:
        """The lists that clients were shown; None where they have labels."""
        plan, experiment, train = self.plan, self.experiment, self.collection.train
        if plan.propensities is None:
            return None
        k, grades = experiment.evaluation.k, self.collection.grades
        world = Simulation(train, Linear(), experiment.users, grades, experiment.seed, k).world()
        federation, theta = experiment.federation, production_ranker(train)
        return log_lists(world, theta, plan.temperature, federation.clients, federation.interactions, plan.propensities)

    @cached_property
    def lists(self) -> TrainingLists:
        """The lists that all clients learn from."""
        train, logged, clients = self.collection.train, self.logged, self.experiment.federation.clients
        if logged is None:
            gains = np.exp2(train.labels.astype(np.float64)) - 1.0
            return TrainingLists(train.features, gains, train.offsets, dealt(train.n_queries, clients))
        whole = np.ones(len(logged.owners))
        return TrainingLists(train.features[logged.rows], logged.gains, logged.offsets, logged.owners, whole)

    @cached_property
    def bins(self) -> Bins:
        """The bins that clients agree on: from exact counts, from noisy quantiles, or a grid."""
        lists, plan, n = self.lists, self.plan, self.collection.train.n_features
        if not self.noisy:
            return agreed_bins(cell_counts(lists.features), plan.bins)
        if plan.quantile_releases == 0:
            return grid_bins(n, plan.bins)
        clients, length = self.experiment.federation.clients, self.experiment.federation.privacy.longest_update or 1.0
        sent = cell_shares(lists.features, lists.offsets, lists.owners, clients, length)
        total, state = np.zeros(n * CELLS), self.initial()
        for release in range(plan.quantile_releases):
            found = released(sent.copy(), self.mechanism, replace(state, round=release))
            total += found.total
            self._before.append((float(clients), found.sensitivity, found.noise))
        return quantile_bins(total, n, plan.bins)

    @cached_property
    def _before(self) -> list[tuple[float, float, float]]:
        """Participants, sensitivity and noise of the releases before the first tree."""
        return []

    # ------------------------------------------------------------ the run

    def run(
        self,
        watch: Callable[[Progress], None] | None = None,
        checkpoint: Callable[[State, Progress], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> Progress:
        """Grow the trees that are left; when `stop` says so, save the checkpoint after the tree and raise Interrupted."""
        experiment, plan = self.experiment, self.experiment.evaluation
        state = self.state = self.state or self.initial()
        progress = self.progress = self.progress or Progress.empty(experiment.rounds, plan.further)
        saved, began = time.monotonic(), time.perf_counter()
        test = np.ascontiguousarray(self.collection.test.features)
        with ThreadPoolExecutor(self.threads) as pool:
            boosting = self._boosting(pool)
            judged = experiment.ranker.score_features(state.theta, test)
            boosting.start(experiment.ranker.score_features(state.theta, self.lists.features))
            progress.train_seconds += time.perf_counter() - began
            while state.round < experiment.rounds:
                started = time.perf_counter()
                state, report, trees = self._round(boosting, state)
                self.state = state
                progress.record(report)
                progress.train_seconds += time.perf_counter() - started
                started = time.perf_counter()
                if trees:
                    add_tree_scores(*columns_of(trees), test, judged)
                if state.round % plan.every == 0 or state.round == experiment.rounds:
                    progress.record_offline([state.round], self.evaluator.score_means([judged]))
                progress.evaluate_seconds += time.perf_counter() - started
                if watch is not None:
                    watch(progress)
                stopping = stop is not None and stop() and state.round < experiment.rounds
                if checkpoint is not None and (stopping or time.monotonic() - saved > CHECKPOINT_SECONDS):
                    checkpoint(state, progress)
                    saved = time.monotonic()
                if stopping:
                    raise Interrupted(state.round, experiment.rounds)
        return progress

    def _boosting(self, pool: ThreadPoolExecutor) -> Boosting:
        experiment, privacy = self.experiment, self.experiment.federation.privacy
        masked = privacy.hides_single_updates and not self.noisy
        played = privacy != privacy.without_masks()
        return Boosting(
            self.plan, self.lists, self.bins, experiment.federation.clients, experiment.seed, masked, played,
            self.threads, pool,
        )  # fmt: skip

    def _round(self, boosting: Boosting, state: State) -> tuple[State, Report, list[GrownTree]]:
        clients, number = self.experiment.federation.clients, state.round
        private, sensitivity, noise = state.private, math.nan, 0.0
        if self.noisy:
            released_at = replace(state, round=number + self.quantile_releases)
            trees, found = boosting.grow_with_noise(number, self.mechanism, released_at)
            private, sensitivity, noise = found.private, found.sensitivity, found.noise
        else:
            trees = boosting.grow(number)
        theta, step = state.theta.copy(), 0.0
        if trees:
            grown = tree_parameters(columns_of(trees))
            size = len(grown)
            theta[number * size : (number + 1) * size] = grown
            step = float(np.linalg.norm(np.concatenate([tree.value for tree in trees])))
        shown = (self._logged_ndcg, math.nan, self._clicks())
        report = Report(number + 1, len(self.lists.owners), *shown, step, clients, sensitivity, noise)
        return State(number + 1, theta, {}, private), report, trees

    def _clicks(self) -> float:
        logged = self.logged
        return math.nan if logged is None else logged.clicks / max(1, len(logged.owners))

    @cached_property
    def _logged_ndcg(self) -> float:
        """Mean nDCG@10 of the logged lists; NaN where clients have labels and were shown nothing."""
        if self.logged is None:
            return math.nan
        train, rows, offsets = self.collection.train, self.logged.rows, self.logged.offsets
        queries = np.searchsorted(train.offsets, rows[offsets[:-1]], side="right") - 1
        shown = [train.labels[rows[a:b]] for a, b in pairwise(offsets)]
        every = [train.labels[train.rows_of(query)] for query in queries.tolist()]
        return float(np.mean([ndcg(*each, JUDGED) for each in zip(shown, every, strict=True)]))

    @property
    def ranker(self) -> Doubles:
        """The parameters that the run hands out."""
        assert self.state is not None
        return self.state.theta

    def saved_ranker(self) -> SavedRanker:
        """Return the ranker that the run hands out, as its file holds it."""
        experiment, n = self.experiment, self.collection.train.n_features
        statement = stated_altogether(self.ledger(curve=False))
        return saved_ranker(experiment, self.ranker, n, statement, names=names_of(experiment.data, self.collection))

    def summary(self) -> dict[str, Any]:
        """Return the figures of the run, as `summary.json` holds them."""
        assert self.progress is not None and self.state is not None
        progress = self.progress
        online: dict[str, float | None] = {"ndcg@10": None, "discounted": None}
        if self.logged is not None:
            online = {"ndcg@10": progress.online_mean(), "discounted": progress.online_discounted()}
        trees = {
            "trees": progress.done * self.experiment.federation.learner.trees_per_round,
            "lists": len(self.lists.owners),
            "documents": len(self.lists.gains),
            **({"advice": ADVICE} if self.useful_lists < PLENTY else {}),
        }
        return summary_of(
            self.experiment,
            progress,
            self.evaluator,
            self.collection.test.n_queries,
            online,
            stated_altogether(self.ledger(curve=False)),
            {"trees": trees},
        )

    def ledger(self, *, curve: bool = True) -> dict[str, Any]:
        """Return what left the clients, as `ledger.json` holds it: the releases for bins, then those of the trees."""
        assert self.progress is not None
        self.bins  # noqa: B018  agreed by now, also where a resumed run had no tree left to grow
        before = np.array(self._before, dtype=np.float64).reshape(-1, len(LEDGER)).T
        figures = [
            np.concatenate([first, self.progress.values[name][: self.progress.done]])
            for first, name in zip(before, LEDGER, strict=True)
        ]
        book = ledger(self.experiment.tables()["privacy"], self.mechanism, self.setting, *figures, curve=curve)
        return with_ranges_entry(book, self.experiment, self.collection.train.n_features)
