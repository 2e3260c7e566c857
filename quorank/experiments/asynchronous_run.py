"""A run whose rounds are asynchronous: an engine around another, and a note in the run's folder that says so."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from quorank.errors import BadInput
from quorank.experiments.experiment import Experiment
from quorank.experiments.runner import Engine, Play, Runner
from quorank.federation.asynchronous import Asynchronous, check_asynchronous
from quorank.federation.coordinator import Coordinator
from quorank.federation.rounds import Report
from quorank.files.atomic import write_whole
from quorank.files.documents import Number, Table, read_json

FILE = "asynchronous.json"


def asynchronously(engine: Engine, experiment: Experiment, share: float) -> Engine:
    """The same engine with rounds that end after this share of a cohort's replies, however old those are."""
    rules = Asynchronous.of(share, experiment.federation)

    @contextmanager
    def bring_up(runner: Runner, folder: Path, stop: Callable[[], bool]) -> Iterator[Play]:
        check_asynchronous(experiment.federation, runner.simulator.mechanism)
        fresh = not (folder / FILE).exists()
        write_whole(folder / FILE, json.dumps({"share": share, "replies": rules.replies}))
        try:
            with engine(runner, folder, stop) as play:

                def late(coordinator: Coordinator) -> Report:
                    coordinator.rules = replace(coordinator.rules, asynchronous=rules)
                    return play(coordinator)

                yield late
        except BadInput:
            if fresh:
                (folder / FILE).unlink(missing_ok=True)  # the run came to nothing
            raise

    return bring_up


def without_keeping(experiment: Experiment) -> Experiment:
    """Nothing is kept for unlearning, which counts in rounds that all clients were in."""
    return replace(experiment, keep_every=0)


def share_of(folder: Path) -> float | None:
    """The share that the run in this folder was started with; None where its rounds are synchronous."""
    path = folder / FILE
    if not path.exists():
        return None
    shape = Table({"share": Number(0.0, 1.0)})
    return float(read_json(path, shape, advice="; start the run again with --overwrite")["share"])
