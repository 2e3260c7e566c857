"""Workload of a run, and its rounds of updates.

`Workload` holds the data divided among the clients, their click models and the evaluators. `UpdateRounds` plays rounds in
which clients send updates, in this process or through an engine and a coordinator.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from quorank.data import Collection, DataSource, load
from quorank.data.logs.records import UserSelection
from quorank.data.partition import Shares
from quorank.data.partition.shares import LogReplay
from quorank.data.source import collection_feature_names, file_stamps, normalised_arrays
from quorank.engines.engine import Play
from quorank.engines.process import Simulator
from quorank.errors import BadInput, require, under
from quorank.experiments.experiment import Experiment
from quorank.experiments.kept_updates import KeptUpdates
from quorank.experiments.progress import LEDGER, Progress
from quorank.federation import Report, State
from quorank.federation.coordinator import Coordinator, RoundLimits
from quorank.federation.feature_ranges import learned_ranges, noise_part, range_cells, range_mechanism
from quorank.federation.rounds import Reports
from quorank.kernels.arrays import Doubles
from quorank.kernels.process import memory_bytes
from quorank.learning import Simulation
from quorank.learning.client_loop import JUDGED, ClientDifferences
from quorank.learning.lambdamart import not_by_updates
from quorank.metrics.counterfactual import LoggedClickEvaluator
from quorank.metrics.evaluator import Evaluator
from quorank.privacy import Mechanism, Setting
from quorank.rankers import scores
from quorank.rankers.starting import with_start
from quorank.users import CLICK_MODELS
from quorank.users.harvesting import deepest_rank

# standard errors on the validation queries that a ranker must gain over the rule's own: few queries say little, and the
# best of several by their mean alone is often a worse one (docs/results/recommendation.md)
LEAST_GAIN = 1.0


def collection_of(
    source: DataSource, given: Collection | None = None, selection: UserSelection | None = None
) -> Collection:
    """Load the data of a source, or of some users of a log, kept in memory for the next run on the same files.

    Data that were `given` are prepared instead.
    """
    return _kept(source, selection, file_stamps(source)) if given is None else normalised_arrays(given, source)


@lru_cache(maxsize=2)
def _kept(source: DataSource, selection: UserSelection | None, stamps: tuple[object, ...]) -> Collection:
    return load(source, selection)


def experiment_collection(experiment: Experiment, given: Collection | None = None) -> Collection:
    """Load the data of an experiment: of a log, the searches of the users that its partition takes."""
    selection = experiment.partition.selection(experiment.federation.clients)
    try:
        return collection_of(experiment.data, given, selection)
    except BadInput as error:
        if error.code != "log.too-few-users" or selection is None or not experiment.partition.replays:
            raise
        also = _limit_of_rounds(experiment, replace(selection, most=None))
        raise BadInput(error.code, "; ".join(filter(None, (error.sentence, also))), error.where) from None


def _limit_of_rounds(experiment: Experiment, everyone: UserSelection) -> str:
    """Return what else a replay by all users of the log refuses, so that one correction is enough; "" for nothing."""
    try:
        collection = load(experiment.data, everyone)
        assert collection.log is not None
        clients = len(collection.log.train.users)
        federation = replace(experiment.federation, clients=clients)
        _ = Workload(replace(experiment, federation=federation), collection).replay
    except BadInput as error:
        return error.sentence if error.code == "log.too-short" else ""
    return ""


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
    def shares(self) -> Shares:
        """Collection divided by the partition."""
        experiment, federation = self.experiment, self.experiment.federation
        return experiment.partition.split(self.collection, federation.clients, federation.interactions, experiment.seed)

    @cached_property
    def who(self) -> ClientDifferences | None:
        """Queries and click model of each client, attackers with poisoned clicks included; None if all are alike."""
        experiment, shares, attack = self.experiment, self.shares, self.experiment.federation.attack
        poisoning = None if attack is None else attack.users
        poisoned = attack.clients if attack is not None and poisoning is not None else 0
        if not experiment.partition.divides and poisoned == 0:
            return None
        specs, model = shares.click_models, shares.click_model
        own = tuple(experiment.users if s is None else CLICK_MODELS.read(dict(s), "partition") for s in specs)
        drawn = len(own)
        if poisoning is not None:
            own = (*own, poisoning)
            model = np.where(np.arange(len(model)) < poisoned, drawn, model)
        return ClientDifferences(shares.group, shares.first_query, shares.query_count, model, own, drawn)

    @cached_property
    def simulation(self) -> Simulation:
        experiment = self.experiment
        return Simulation(
            self.shares.data,
            experiment.ranker,
            experiment.users,
            self.collection.grades,
            experiment.seed,
            experiment.evaluation.k,
            self.who,
            self.logged_ranks,
        )

    @cached_property
    def logged_ranks(self) -> npt.NDArray[np.int16] | None:
        """(rows,) rank at which each document was shown, if lists and clicks are replayed."""
        if not self.experiment.users.replays_lists:
            return None
        ranks = self.shares.ranks
        known = ranks is not None and len(ranks) > 0 and int(ranks[0]) > 0
        sentence = 'the log has no ranks to correct clicks by; set users.kind = "cascade" to simulate them'
        require(known, "log.no-ranks", sentence, "users")
        return ranks

    @cached_property
    def replay(self) -> LogReplay | None:
        """Order of the searches of a log; None where clients sample their queries."""
        replay = self.shares.replay
        if replay is None:
            return None
        who, rounds = f"the searches of {len(self.shares.group)} clients are enough for", replay.rounds
        sentence = f"{who} {rounds:,} rounds; take federation.rounds = {rounds} or fewer, got {self.experiment.rounds}"
        require(replay.rounds >= self.experiment.rounds, "log.too-short", sentence, "federation.rounds")
        self.experiment.federation.aggregation.check(replay.smallest)
        return replay

    @cached_property
    def evaluators(self) -> list[Evaluator]:
        """An evaluator per test split: one, or one for each preference."""
        plan, ranker = self.experiment.evaluation, self.experiment.ranker
        how = (JUDGED, plan.offline_no_relevant, self.threads, plan.k, plan.further)
        return [Evaluator(test, ranker, *how) for test in self.shares.tests]

    @cached_property
    def validation(self) -> Evaluator | None:
        """An evaluator of the validation split; None without a relevant document in it, or if tests differ."""
        plan, split = self.experiment.evaluation, self.collection.validation
        if split is None or len(self.evaluators) > 1:
            return None
        found = Evaluator(split, self.experiment.ranker, JUDGED, plan.offline_no_relevant, self.threads)
        return found if found.counted().any() else None

    def means(self, rankers: list[Doubles], personal: list[Doubles | None]) -> Doubles:
        """Compute (2 + cut-offs, rankers) offline nDCG@10, MaxRR and nDCG at the further cut-offs of the plan.

        With several test splits or personal parameters (clients, parameters) they are means over honest clients: a client's
        ranker is the shared one plus its own parameters, evaluated on its own test split.
        """
        if len(self.evaluators) == 1 and all(own is None for own in personal):
            return self.evaluators[0].all_means(rankers)
        return np.array([self._client_means(*each) for each in zip(rankers, personal, strict=True)]).T

    def _client_means(self, ranker: Doubles, personal: Doubles | None) -> Doubles:
        federation = self.experiment.federation
        first = 0 if federation.attack is None else federation.attack.clients
        clients = np.arange(first, federation.clients)
        tests = self.shares.test_of_group[self.shares.group[clients]]
        if personal is None:
            numbers = np.bincount(tests, minlength=len(self.evaluators)) / len(clients)
            each = [e.all_means([ranker])[:, 0] for e in self.evaluators]
            return np.asarray(numbers @ np.array(each), dtype=np.float64)
        total = np.zeros(2 + len(self.experiment.evaluation.further))
        for number, evaluator in enumerate(self.evaluators):
            thetas = [ranker + personal[c] for c in clients[tests == number]]
            if thetas:
                total += evaluator.all_means(thetas).sum(axis=1)
        return np.asarray(total / len(clients), dtype=np.float64)


def started_experiment(experiment: Experiment, n_features: int, collection: Collection | None = None) -> Experiment:
    """Return the experiment with its prior as numbers, so that it needs no other file; unchanged without a prior.

    The collection names the features; the scale is measured on the lists of its validation split, else of the training
    split.
    """
    ranker = experiment.ranker
    if experiment.federation.learner.grows_trees:
        raise not_by_updates()
    if ranker.prior is None:
        return experiment
    names = () if collection is None else collection_feature_names(experiment.data, collection)
    sample = None
    if collection is not None:
        sample = collection.train if collection.validation is None else collection.validation
    temperature = experiment.federation.learner.list_temperature
    with under("ranker"):
        ranker = with_start(ranker, n_features, experiment.data.normalize, names, sample, temperature)
    privacy, longest = experiment.federation.privacy, experiment.federation.privacy.longest_update
    if privacy.needs_client_parameters and longest is not None:
        length = float(np.linalg.norm(ranker.initial(n_features, experiment.seed)))
        allowed = f"{privacy.kind} allows parameters of length {longest:g}, and the start has {length:.3g}"
        sentence = f"{allowed}; scale it down, raise privacy.sensitivity, or choose another privacy"
        require(length <= longest, "ranker.start-too-long", sentence, "ranker.start")
    return experiment if ranker == experiment.ranker else replace(experiment, ranker=ranker)


def with_learned_ranges(experiment: Experiment, given: Collection | None = None) -> Experiment:
    """Return the experiment with normalisation constants that its clients agree on; unchanged where it needs none.

    `given` are raw data that no file holds. A client's lists are those of its share; where all draw from the whole
    collection, queries are dealt one by one.
    """
    normalize = experiment.data.normalize
    if not normalize.learns:
        return experiment
    collection, clients = experiment_collection(experiment, given), experiment.federation.clients
    shares = Workload(experiment, collection).shares
    data = shares.data
    if experiment.partition.divides:
        spans = [np.arange(count) + first for first, count in zip(shares.first_query, shares.query_count, strict=True)]
        lists = [spans[group].astype(np.int64) for group in shares.group.tolist()]
    else:
        lists = [np.arange(client, data.n_queries, clients, dtype=np.int64) for client in range(clients)]
    mechanism = None
    if normalize.epsilon is not None:
        part = noise_part(normalize.epsilon, normalize.delta)
        mechanism = range_mechanism(part, clients, data.n_features, experiment.seed)
    found = learned_ranges(range_cells(data.features, data.offsets), lists, mechanism)
    known = normalize.with_constants(np.zeros(len(found)), found)
    return replace(experiment, data=replace(experiment.data, normalize=known))


# ---------------------------------------------------------------- rounds of updates


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
        interactions = self.workload.shares.interactions if experiment.partition.divides else None
        plan = self.threads, self.chunk, experiment.rounds, interactions
        self.simulator = Simulator(experiment.federation, self.workload.simulation, *plan, self.workload.replay)
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

    def play(self, state: State, most: int = 1) -> tuple[State, Report | Reports]:
        """Play the round after this state, or up to `most` rounds that are closed together."""
        after, report = self._play(state, most)
        if self.experiment.evaluation.online_no_relevant == "skip":
            report = self._of_judged(state, report)
        return after, report

    def _of_judged(self, state: State, report: Report | Reports) -> Report | Reports:
        """Return the report with nDCG as the mean over queries with a relevant document; NaN for a round without one."""
        shares = self.simulator.judged_shares(state, report.round - state.round)
        if shares is None:
            return report
        shares[shares == 0.0] = math.nan
        if isinstance(report, Reports):
            return report._replace(online_ndcg=report.online_ndcg / shares)
        return report._replace(online_ndcg=report.online_ndcg / float(shares[0]))

    def _play(self, state: State, most: int) -> tuple[State, Report | Reports]:
        if self._network is not None:
            play, coordinator = self._network
            report = play(coordinator)
            return coordinator.state, report
        keep = None
        if self.kept is not None:
            most = 1
            if self.kept.due(state.round):
                keep = partial(self.kept.keep, state.round + 1)
        return self.simulator.play(state, most, keep)

    def close(self) -> None:
        self.simulator.close()

    def means(self, states: Sequence[State], progress: Progress) -> Doubles:
        rankers = [self._chosen(state, progress) for state in states]
        return self.workload.means(rankers, [state.personal for state in states])

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
        """Return which of the server's rankers is published and why; nothing where it has only one.

        "by" is "validation" if the validation split prefers another ranker than the server's rule does, else "rule".
        """
        rankers, chosen = self.experiment.federation.choices(state), progress.choice()
        if not rankers:
            return {}
        default = next(iter(rankers))
        if chosen is None or self.workload.validation is None:
            return {"handed_out": {"by": "rule", "average": default}}
        return {
            "handed_out": {
                "by": "validation" if chosen[1] != default else "rule",
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
