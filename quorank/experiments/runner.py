"""Run of an experiment: rounds, evaluations, checkpoints, and the files of its directory.

There is one loop, `Runner.run`. Its rounds are of updates (`workload`) or of trees (`tree_rounds`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from quorank import __version__
from quorank.data import Collection
from quorank.data.source import collection_feature_names
from quorank.engines.engine import Engine, Play
from quorank.engines.process import Simulator
from quorank.errors import BadInput, Interrupted, require
from quorank.experiments import run_directory as storage
from quorank.experiments.experiment import Experiment
from quorank.experiments.kept_updates import KeptUpdates
from quorank.experiments.network import check_network, network_rounds
from quorank.experiments.progress import (
    LEDGER,
    Progress,
    load_checkpoint,
    save_checkpoint,
    saved_ranker,
    with_ranges_entry,
)
from quorank.experiments.run_directory import ReportPage, Run, spent_of
from quorank.experiments.tree_rounds import TreeRounds
from quorank.experiments.workload import UpdateRounds, experiment_collection, with_learned_ranges
from quorank.federation import State
from quorank.files.arrow import parquet_bytes
from quorank.files.atomic import ProcessLock, make_folder, sha256, write_whole
from quorank.files.documents import MANIFEST, json_bytes, write_manifest
from quorank.kernels.arrays import Doubles
from quorank.kernels.process import available_threads, interruptible
from quorank.kernels.steady import DIFFERENT, is_steady
from quorank.learning.lambdamart import not_by_updates
from quorank.privacy import Mechanism
from quorank.privacy.ledger import ledger
from quorank.rankers.ranker_file import SavedRanker, ranker_bytes

CHECKPOINT_SECONDS = 20.0

Watch = Callable[[Progress], None]
SaveCheckpoint = Callable[[State, Progress], None]


@dataclass(eq=False)
class Runner:
    """Run in memory; `run()` plays the rounds that are left."""

    experiment: Experiment
    threads: int = field(default_factory=available_threads)
    chunk: int | None = None
    state: State | None = None
    progress: Progress | None = None
    given: Collection | None = None  # raw data that no file holds

    def __post_init__(self) -> None:
        experiment = with_learned_ranges(self.experiment, self.given)
        self.collection = experiment_collection(experiment, self.given)
        self.rounds: UpdateRounds | TreeRounds
        if experiment.federation.learner.grows_trees:
            self.rounds = TreeRounds(experiment, self.collection, self.threads)
        else:
            self.rounds = UpdateRounds(experiment, self.collection, self.threads, self.chunk)
        self.experiment, self.workload = self.rounds.experiment, self.rounds.workload
        self.evaluator = self.workload.evaluators[0]
        nothing = "no test query has a relevant document; there is nothing to judge a ranker by"
        require(self.evaluator.counted().any(), "data.without-relevant", nothing, experiment.data.source)
        self.mechanism  # noqa: B018  an impossible budget is refused before anything is written

    @property
    def updates(self) -> UpdateRounds:
        """Rounds in which clients send updates; refused for a run that grows trees."""
        if not isinstance(self.rounds, UpdateRounds):
            raise not_by_updates()
        return self.rounds

    @property
    def simulator(self) -> Simulator:
        return self.updates.simulator

    @property
    def mechanism(self) -> Mechanism:
        """Mechanism that protects the run's releases."""
        return self.rounds.mechanism

    def run(
        self,
        watch: Watch | None = None,
        checkpoint: SaveCheckpoint | None = None,
        stop: Callable[[], bool] | None = None,
        play: Play | None = None,
    ) -> Progress:
        """Play the rounds that are left.

        `watch` is called and `stop` asked after every round, or after rounds that are played in one call: milliseconds, and
        never beyond an evaluation. `play` plays a round elsewhere than in this process. A run that is stopped saves its
        checkpoint and raises Interrupted.
        """
        experiment, rounds = self.experiment, self.rounds
        state = self.state = self.state or rounds.initial()
        progress = self.progress = self.progress or Progress.empty(experiment.rounds, experiment.evaluation.further)
        every, pending = experiment.evaluation.every, list[State]()
        saved = time.monotonic()
        self.evaluator.warm()
        rounds.start(state, play)
        try:
            while state.round < experiment.rounds:
                started = time.perf_counter()
                most = min(every - state.round % every, experiment.rounds - state.round)
                state, report = rounds.play(state, most)
                self.state = state
                progress.record(report)
                progress.train_seconds += time.perf_counter() - started
                last = state.round == experiment.rounds
                if last or state.round % every == 0:
                    pending.append(state)
                if last or len(pending) >= rounds.evaluated_together:
                    self._evaluate(pending)
                if watch is not None:
                    watch(progress)
                if stop is not None and stop() and not last:
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
            rounds.close()
        return progress

    def _evaluate(self, pending: list[State]) -> None:
        if not pending or self.progress is None:
            return
        started = time.perf_counter()
        self.progress.record_offline([state.round for state in pending], self.rounds.means(pending, self.progress))
        self.progress.evaluate_seconds += time.perf_counter() - started
        pending.clear()

    @property
    def ranker(self) -> Doubles:
        """Published parameters, once the last round is evaluated."""
        assert self.progress is not None and self.state is not None
        return self.rounds.ranker(self.state, self.progress)

    def saved_ranker(self) -> SavedRanker:
        """Return the published ranker as its file holds it."""
        experiment, names = self.experiment, collection_feature_names(self.experiment.data, self.collection)
        return saved_ranker(experiment, self.ranker, self.collection.train.n_features, self.statement(), names=names)

    def statement(self) -> Mapping[str, Any] | None:
        """Return the privacy statement of the rounds so far and of learned normalisation constants."""
        book = self.ledger(curve=False)
        stated: Mapping[str, Any] | None = book["altogether"] if "altogether" in book else book["privacy"]
        return stated

    def summary(self) -> dict[str, Any]:
        """Return the content of `summary.json`."""
        assert self.progress is not None and self.state is not None
        progress, plan = self.progress, self.experiment.evaluation
        return {
            "offline": progress.offline(),
            "online": progress.online(),
            "rounds": progress.done,
            "interactions": progress.interactions,
            "seconds": {"train": progress.train_seconds, "evaluate": progress.evaluate_seconds},
            "interactions_per_second": progress.interactions / max(progress.train_seconds, 1e-9),
            "privacy": self.statement(),
            **self.rounds.summary(self.state, progress),
            "seed": self.experiment.seed,
            "version": __version__,
            **({} if is_steady() else {"processor_dependent": True}),
            "evaluation": {
                "k": plan.k,
                "cutoffs": sorted({10, *plan.cutoffs}),
                "no_relevant": plan.no_relevant,
                "test_queries": self.collection.test.n_queries,
                "counted_queries": int(np.count_nonzero(self.evaluator.counted())),
            },
        }

    def ledger(self, *, curve: bool = True) -> dict[str, Any]:
        """Return the content of `ledger.json`; without `curve` there is no ε by rounds."""
        assert self.progress is not None
        rounds, done, values = self.rounds, self.progress.done, self.progress.values
        before = zip(LEDGER, rounds.releases_before, strict=True)
        columns = [np.concatenate([first, values[name][:done]]) for name, first in before]
        privacy = self.experiment.tables()["privacy"]
        book = ledger(privacy, rounds.mechanism, rounds.setting, *columns, curve=curve)
        return with_ranges_entry(book, self.experiment, self.collection.train.n_features)


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
    opened: Callable[[Runner], None] = lambda _: None,
    report: ReportPage | None = None,
    given: Collection | None = None,
) -> dict[str, Any]:
    """Run an experiment into a directory, or resume the run that is there.

    Args:
        experiment: The experiment; on resume that of the run.
        folder: Directory of the run.
        watch: Called with the progress after every round, or after rounds that are played in one call.
        threads: Threads; by default all cores. The result is the same.
        resume: Continue from the checkpoint in the directory.
        overwrite: Replace a run in the directory.
        stop: Asked at the same times whether to stop.
        engine: Plays the rounds; by default this process.
        opened: Called with the run once all is read and nothing refused, before the first round.
        report: Makes the page `report.html`; by default no page is made.
        given: Raw data that no file holds.

    Returns:
        The content of `summary.json`.

    Raises:
        BadInput: The experiment, its data or the directory cannot be used; `folder.busy` while another process plays it.
        Interrupted: The run was stopped; its checkpoint is saved.
    """
    if engine is not None:
        check_network(experiment)
    if not resume:
        storage.check_new(folder, overwrite=overwrite)
    # reads the data before anything is written
    runner = Runner(experiment, threads or available_threads(), given=given)
    experiment, kept = runner.experiment, None
    if engine is not None:
        runner.updates  # noqa: B018  a run of trees is refused before anything is written
    elif experiment.keep_every:
        kept = runner.updates.kept = KeptUpdates(experiment.keep_every, folder)
    if not is_steady():
        logging.getLogger("quorank").warning("quorank: %s", DIFFERENT)
    make_folder(folder)
    with ProcessLock(folder / storage.LOCK).hold("another process plays this run; wait until it has ended, or stop it"):
        try:
            if resume:
                _restore(runner, folder, kept)
            else:
                storage.clear(folder)
                write_whole(folder / storage.CONFIG, storage.config_bytes(experiment))
            opened(runner)
            _play_rounds(runner, folder, kept, watch, stop, engine, resume=resume)
            return _write_results(runner, folder, kept, report)
        finally:
            (folder / storage.LOCK).unlink(missing_ok=True)


def _play_rounds(
    runner: Runner,
    folder: Path,
    kept: KeptUpdates | None,
    watch: Watch | None,
    stop: Callable[[], bool] | None,
    engine: Engine | None,
    *,
    resume: bool,
) -> None:
    """Play the rounds that are left, with checkpoints; a new run that is refused leaves nothing."""
    experiment = runner.experiment
    try:
        with interruptible() as asked:

            def stopping() -> bool:
                return asked() or (stop is not None and stop())

            state = runner.state or runner.rounds.initial()
            network = nullcontext() if engine is None else network_rounds(engine, experiment, folder, state, stopping)
            with network as play:

                def checkpoint(state: State, progress: Progress) -> None:
                    save_checkpoint(folder, experiment, state, progress, kept)

                runner.run(watch, checkpoint, stopping, play)
    except BadInput:
        if not resume:
            storage.remove(folder)  # the corrected command may use the directory
        raise


def _restore(runner: Runner, folder: Path, kept: KeptUpdates | None) -> None:
    """Continue from the checkpoint, if one was saved."""
    experiment = runner.experiment
    storage.tidy(folder)
    saved = load_checkpoint(folder, experiment, runner.rounds.initial())
    if saved is not None:
        runner.state, runner.progress = saved.state, saved.progress
        if kept is not None:
            federation = experiment.federation
            everyone = federation.clients if federation.participation.everyone else None
            kept.restore(saved.state.round, everyone, len(saved.state.theta), experiment.rounds, saved.kept)
    (folder / MANIFEST).unlink(missing_ok=True)  # of a run that was killed before its last file


def _write_results(runner: Runner, folder: Path, kept: KeptUpdates | None, report: ReportPage | None) -> dict[str, Any]:
    """Write the run's files and then their manifest; `summary.json` comes last, then the checkpoint goes."""
    assert runner.progress is not None
    experiment, columns = runner.experiment, runner.progress.columns()
    summary, book = runner.summary(), runner.ledger()
    digests = {} if kept is None else kept.write()
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
