"""The run of an experiment: rounds, evaluations, checkpoints, and the files that it leaves."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from quorank.data import Collection
from quorank.data.feature_names import names_of
from quorank.engines.process import Simulator
from quorank.errors import BadInput, Interrupted, require
from quorank.experiments import run_directory as storage
from quorank.experiments.carried_updates import CarriedUpdates
from quorank.experiments.experiment import Experiment
from quorank.experiments.finished_run import ReportPage, Run, spent_of
from quorank.experiments.kept_updates import KeptUpdates
from quorank.experiments.learned_ranges import stated_altogether, with_learned_ranges, with_ranges_entry
from quorank.experiments.progress import LEDGER, Progress, load_checkpoint, save_checkpoint, summary_of
from quorank.experiments.ranker_of_run import saved_ranker
from quorank.experiments.starting_ranker import started_experiment
from quorank.experiments.trees.runner import TreeRunner
from quorank.experiments.workload import Workload, best_ranker, experiment_collection
from quorank.federation import Report, State
from quorank.federation.coordinator import Coordinator, RoundLimits
from quorank.files.arrow import parquet_bytes
from quorank.files.atomic import sha256, write_whole
from quorank.files.documents import json_bytes
from quorank.files.manifest import MANIFEST, write_manifest
from quorank.kernels.arrays import Doubles
from quorank.kernels.process import available_threads, interruptible
from quorank.learning.lambdamart import not_by_updates
from quorank.metrics.counterfactual import LoggedClickEvaluator
from quorank.privacy import Mechanism
from quorank.privacy.ledger import ledger
from quorank.rankers import scores
from quorank.rankers.ranker_file import SavedRanker, ranker_bytes
from quorank.users.harvesting import deepest_rank

EVALUATE_TOGETHER = 16
"""Rankers of this many rounds are evaluated in one pass: the test split is read from memory once for all of them."""

CHECKPOINT_SECONDS = 20.0

Watch = Callable[[Progress], None]
Play = Callable[[Coordinator], Report]
"""Plays a coordinator's next round to its end: in process, or on a network."""


@dataclass(eq=False)
class Runner:
    """One run in memory; `run()` plays the rounds that are left."""

    experiment: Experiment
    threads: int = field(default_factory=available_threads)
    chunk: int | None = None
    state: State | None = None
    progress: Progress | None = None
    kept: KeptUpdates | None = None  # what clients keep for unlearning
    given: Collection | None = None  # raw data that no file holds

    def __post_init__(self) -> None:
        self.experiment = with_learned_ranges(self.experiment, self.given)
        self.collection = experiment_collection(self.experiment, self.given)
        n_features = self.collection.train.n_features
        experiment = self.experiment = started_experiment(self.experiment, n_features, self.collection)
        self.workload = Workload(experiment, self.collection, self.threads)
        shares = self.workload.shares
        interactions = None if shares is None else shares.interactions
        simulation, rounds = self.workload.simulation, experiment.rounds
        clients = interactions, self.workload.replay
        self.simulator = Simulator(experiment.federation, simulation, self.threads, self.chunk, rounds, *clients)
        self.evaluator = self.workload.evaluators[0]
        nothing = "no test query has a relevant document; there is nothing to judge a ranker by"
        require(self.evaluator.counted().any(), "data.without-relevant", nothing, experiment.data.source)
        self.simulator.world  # noqa: B018  built now, not in the first round's time
        self.simulator.mechanism  # noqa: B018  an impossible budget is refused before anything is written

    @property
    def parameters(self) -> int:
        return self.simulator.simulation.parameters

    @property
    def mechanism(self) -> Mechanism:
        """What protects the run's releases."""
        return self.simulator.mechanism

    def initial(self) -> State:
        """Return the state before the first round."""
        return self.simulator.initial()

    def run(
        self,
        watch: Watch | None = None,
        checkpoint: Callable[[State, Progress], None] | None = None,
        stop: Callable[[], bool] | None = None,
        play: Play | None = None,
    ) -> Progress:
        """Play the rounds that are left; when `stop` says so, save the checkpoint after the round and raise Interrupted.

        `play` plays a round, in process where there is none; it may raise Interrupted in the middle of one.
        """
        experiment, simulator = self.experiment, self.simulator
        state = self.state or simulator.initial()
        progress = self.progress or Progress.empty(experiment.rounds, experiment.evaluation.further)
        self.state, self.progress = state, progress
        coordinator = Coordinator(
            experiment.federation,
            simulator.mechanism,
            state,
            experiment.rounds,
            seed=experiment.seed,
            limits=RoundLimits(max_interactions=simulator.setting.interactions),
        )
        pending: list[State] = []
        saved = time.monotonic()
        simulator.warm(state)
        self.evaluator.warm()
        try:
            while state.round < experiment.rounds:
                started = time.perf_counter()
                progress.record((play or self._play)(coordinator))
                state = self.state = coordinator.state
                progress.train_seconds += time.perf_counter() - started
                if state.round % experiment.evaluation.every == 0 or state.round == experiment.rounds:
                    pending.append(state)
                if len(pending) >= EVALUATE_TOGETHER or (pending and state.round == experiment.rounds):
                    self._evaluate(pending)
                if watch is not None:
                    watch(progress)
                if stop is not None and stop() and state.round < experiment.rounds:
                    raise Interrupted(state.round, experiment.rounds)
                if checkpoint is not None and time.monotonic() - saved > CHECKPOINT_SECONDS:
                    self._evaluate(pending)
                    checkpoint(state, progress)
                    saved = time.monotonic()
        except Interrupted:
            if checkpoint is not None and state.round > 0:
                self._evaluate(pending)
                checkpoint(state, progress)
            raise
        finally:
            simulator.close()
        return progress

    def _play(self, coordinator: Coordinator) -> Report:
        """A round in process."""
        state, keep = coordinator.state, None
        if self.kept is not None and self.kept.due(state.round):
            keep = partial(self.kept.keep, state.round + 1)
        return coordinator.close(self.simulator.gather(state, sent=keep))

    def _evaluate(self, pending: list[State]) -> None:
        if not pending or self.progress is None:
            return
        started = time.perf_counter()
        means = self.workload.means(pending, [self._chosen(state) for state in pending])
        self.progress.record_offline([s.round for s in pending], means)
        self.progress.evaluate_seconds += time.perf_counter() - started
        pending.clear()

    def _chosen(self, state: State) -> Doubles:
        """The ranker that is handed out after a round; the validation split chooses it anew when rounds have doubled."""
        assert self.progress is not None
        federation, validation = self.experiment.federation, self.workload.validation
        rankers = federation.choices(state)
        if not rankers or validation is None:
            return federation.ranker(state)
        last, chosen = self.progress.choice() or (0, next(iter(rankers)))
        if state.round >= 2 * last or state.round == self.experiment.rounds:
            ndcg = validation.per_query([*rankers.values()])[0][:, validation.counted()]
            best = best_ranker(ndcg)
            chosen = [*rankers][best]
            self.progress.record_choice(state.round, float(ndcg[best].mean()), chosen)
        return rankers[chosen]

    @property
    def ranker(self) -> Doubles:
        """The parameters that the run hands out, once its last round is evaluated."""
        assert self.progress is not None and self.state is not None
        federation, chosen = self.experiment.federation, self.progress.choice()
        return federation.ranker(self.state) if chosen is None else federation.choices(self.state)[chosen[1]]

    def saved_ranker(self) -> SavedRanker:
        """Return the ranker that the run hands out, as its file holds it."""
        experiment, n = self.experiment, self.collection.train.n_features
        return saved_ranker(
            experiment, self.ranker, n, self.statement(), names=names_of(experiment.data, self.collection)
        )

    def statement(self) -> Mapping[str, Any] | None:
        """Return what the rounds so far, and the constants of features, give away."""
        return stated_altogether(self.ledger(curve=False))

    def _handed_out(self) -> dict[str, Any]:
        """Return which of the server's rankers is handed out and why; nothing where it has only one."""
        assert self.progress is not None and self.state is not None
        rankers, chosen = self.experiment.federation.choices(self.state), self.progress.choice()
        if not rankers:
            return {}
        if chosen is None or self.workload.validation is None:
            return {"handed_out": {"by": "rule", "average": next(iter(rankers))}}
        return {
            "handed_out": {
                "by": "validation",
                "average": "last" if math.isinf(chosen[1]) else chosen[1],
                "validation_ndcg@10": self.progress.last("validation_ndcg@10"),
                "validation_queries": int(np.count_nonzero(self.workload.validation.counted())),
            }
        }

    def summary(self) -> dict[str, Any]:
        """Return the figures of the run, as `summary.json` holds them."""
        assert self.progress is not None and self.state is not None
        progress = self.progress
        dropped = {"dropped_rounds": progress.dropped} if progress.dropped else {}
        return summary_of(
            self.experiment,
            progress,
            self.evaluator,
            self.collection.test.n_queries,
            {"ndcg@10": progress.online_mean(), "discounted": progress.online_discounted()},
            self.statement(),
            dropped | self._handed_out() | self._counterfactual(),
        )

    def _counterfactual(self) -> dict[str, Any]:
        """Return what the ranker would be worth by the clicks of the test split, where lists of a log are replayed."""
        experiment, log = self.experiment, self.collection.log
        if not experiment.users.replays_lists or log is None:
            return {}
        propensities = experiment.federation.learner.propensities_of(deepest_rank(log.test, experiment.evaluation.k))
        if propensities is None:
            return {}
        test = self.collection.test
        judge = LoggedClickEvaluator(test, log.test, propensities, experiment.evaluation.k)
        return {"counterfactual": judge.figures(scores(experiment.ranker, self.ranker, test))}

    def ledger(self, *, curve: bool = True) -> dict[str, Any]:
        """Return what left the clients, as `ledger.json` holds it; without `curve` there is no ε by rounds."""
        assert self.progress is not None
        book = ledger(
            self.experiment.tables()["privacy"],
            self.simulator.mechanism,
            self.simulator.setting,
            *(self.progress.values[name][: self.progress.done] for name in LEDGER),
            curve=curve,
        )
        return with_ranges_entry(book, self.experiment, self.collection.train.n_features)


Engine = Callable[[Runner, Path, Callable[[], bool]], AbstractContextManager[Play]]
"""Brings up what plays the rounds of a run, given its folder and whether it was asked to stop; takes it down again."""


def _carrying(engine: Engine) -> Engine:
    """An engine whose clients carry on what they sent before, where the experiment says so.

    They keep it in a file of the run. After each round it becomes part of the state, as in process, and so of checkpoints.
    """

    @contextmanager
    def bring_up(runner: Runner, folder: Path, stop: Callable[[], bool]) -> Iterator[Play]:
        first = runner.state or runner.simulator.initial()
        if first.carried is None:
            with engine(runner, folder, stop) as play:
                yield play
            return
        file = CarriedUpdates.begin(folder, first.round, first.carried)
        try:
            with engine(runner, folder, stop) as play:

                def carry(coordinator: Coordinator) -> Report:
                    report = play(coordinator)
                    state = coordinator.state
                    coordinator.state = replace(state, carried=file.after(state.round - 1))
                    return report

                yield carry
        finally:
            (folder / storage.CARRIED).unlink(missing_ok=True)

    return bring_up


def _planned(
    experiment: Experiment, threads: int, engine: Engine | None, given: Collection | None
) -> Runner | TreeRunner:
    """The run of an experiment, by what its learner sends: updates, or histograms of which trees are grown."""
    if not experiment.federation.learner.grows_trees:
        return Runner(experiment, threads, given=given)
    if engine is not None:
        raise not_by_updates()
    return TreeRunner(experiment, threads, given=given)


def run_experiment(
    experiment: Experiment,
    folder: Path,
    *,
    watch: Watch | None = None,
    threads: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    stop: Callable[[], bool] | None = None,
    engine: Engine | None = None,
    accepted: Callable[[], None] = lambda: None,  # called once all is read and nothing refused
    opened: Callable[[Runner | TreeRunner], None] = lambda _: None,  # called with the run before its first round
    report: ReportPage | None = None,
    given: Collection | None = None,
) -> dict[str, Any]:
    """Run into a directory, or go on with the run that is there; return the summary.

    `report` writes the page about the run, `report.html`; there is none without it. `given` are raw data without a file.
    """
    if not resume:
        storage.check_new(folder, overwrite=overwrite)
    # this reads the data: nothing is on disk if they are bad
    runner = _planned(experiment, threads or available_threads(), engine, given)
    experiment = runner.experiment
    kept = KeptUpdates(experiment.keep_every) if experiment.keep_every and engine is None else None
    runner.kept = kept
    if not resume:
        storage.open_new(folder, experiment)
    else:
        storage.tidy(folder)
        saved = load_checkpoint(folder, experiment, runner.initial())
        if saved is not None:
            runner.state, runner.progress = saved.state, saved.progress
            federation = experiment.federation
            everyone = federation.clients if federation.participation.everyone else None
            if kept is not None:
                kept.restore(folder, saved.state.round, everyone, len(saved.state.theta), saved.kept, experiment.rounds)
        (folder / MANIFEST).unlink(missing_ok=True)  # of a run that was killed before its last file
    accepted()
    opened(runner)

    def checkpoint(state: State, progress: Progress) -> None:
        save_checkpoint(folder, experiment, state, progress, kept)

    try:
        with interruptible() as asked:

            def stopping() -> bool:
                return asked() or (stop is not None and stop())

            if not isinstance(runner, Runner):
                runner.run(watch, checkpoint, stopping)
            else:
                with nullcontext() if engine is None else _carrying(engine)(runner, folder, stopping) as play:
                    runner.run(watch, checkpoint, stopping, play)
    except BadInput:
        if not resume:
            storage.remove(folder)  # the corrected command may use the directory
        raise
    return _write_results(runner, folder, report)


def _write_results(runner: Runner | TreeRunner, folder: Path, report: ReportPage | None) -> dict[str, Any]:
    """Write the run's files and then their manifest; `summary.json` comes last, then the checkpoint goes."""
    assert runner.state is not None and runner.progress is not None
    experiment, columns = runner.experiment, runner.progress.columns()
    summary, book = runner.summary(), runner.ledger()
    digests = {} if runner.kept is None else runner.kept.write(folder)
    contents = {
        storage.CONFIG: storage.config_bytes(experiment),
        storage.RANKER: ranker_bytes(runner.saved_ranker()),
        storage.HISTORY: parquet_bytes(columns),
        storage.LEDGER: json_bytes(book),
        storage.SUMMARY: json_bytes(summary),
    }
    rounds = runner.progress.online_columns()
    if len(rounds["round"]) > len(columns["round"]):
        contents[storage.ROUNDS] = parquet_bytes(rounds)
    digests |= {name: sha256(content) for name, content in contents.items()}
    last = contents.pop(storage.SUMMARY)
    for name, content in contents.items():
        write_whole(folder / name, content)
    if report is not None:
        history = {name: np.asarray(values, dtype=np.float64) for name, values in columns.items()}
        run = Run(folder, experiment.tables(), summary, history, spent_of(book))
        write_whole(folder / storage.REPORT, report(run))
    write_manifest(folder, digests)
    write_whole(folder / storage.SUMMARY, last)
    (folder / storage.CHECKPOINT).unlink(missing_ok=True)
    return summary
