"""Runs of an instant, and what of them must be the same to the last bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import ExperimentFile, parse_experiment_file, set_values
from quorank.experiments.runner import Runner
from quorank.files.arrow import parquet_bytes
from quorank.rankers.ranker_file import ranker_bytes

SMALL = """\
[data]
source = "synthetic:mq2007"
queries = 60

[federation]
clients = 20
rounds = 12
"""

RESULTS = ("run.toml", "ranker.json", "history.parquet", "ledger.json")
"""The files of a run that hold no time."""


def document(*assignments: str) -> ExperimentFile:
    return set_values(parse_experiment_file(SMALL, "small.toml"), assignments)


def experiment(*assignments: str) -> Experiment:
    return Experiment.read(document(*assignments))


def bytes_of(runner: Runner) -> tuple[bytes, bytes]:
    """ranker.json and history.parquet of a runner that has run."""
    assert runner.state is not None and runner.progress is not None
    return ranker_bytes(runner.saved_ranker()), parquet_bytes(runner.progress.columns())


def played(chosen: Experiment, **how: Any) -> tuple[bytes, bytes]:
    runner = Runner(chosen, **how)
    runner.run()
    return bytes_of(runner)


def files_of(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in RESULTS}


def all_files_of(folder: Path) -> dict[str, bytes]:
    """The same with what clients keep."""
    return files_of(folder) | {path.name: path.read_bytes() for path in (folder / "clients").glob("*.npz")}
