"""Runs without the page about them, which takes longer than a small run, and runs that were asked to stop in the middle."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest

import quorank.api.running  # noqa: F401 - it must not be imported first while `run_experiment` is replaced
from quorank.errors import Interrupted
from quorank.experiments import grid, runner
from quorank.experiments.experiment import Experiment
from quorank.experiments.runner import run_experiment
from quorank.reproduce.studies import unlearning


def run_quickly(experiment: Experiment, folder: Path, **options: Any) -> dict[str, Any]:
    """`run_experiment` without the page, also where one is asked for."""
    return run_experiment(experiment, folder, **{**options, "report": None})


def leave_pages_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on the runs of commands, grids and studies are without their pages too; comparisons keep theirs."""
    for starter in (runner, grid, unlearning):
        monkeypatch.setattr(starter, "run_experiment", run_quickly)


@pytest.fixture
def no_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs without the page about each of them, for tests of something else."""
    leave_pages_out(monkeypatch)


def stopped_run(chosen: Experiment, folder: Path, rounds: int, **options: Any) -> Interrupted:
    """Run until Ctrl-C in the `rounds`-th round from now on."""
    seen = count(1)
    with pytest.raises(Interrupted) as stopped:
        run_quickly(chosen, folder, stop=lambda: next(seen) >= rounds, **options)
    return stopped.value
