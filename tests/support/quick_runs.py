"""Runs without the page about them, which takes longer than a small run."""

from __future__ import annotations

from functools import partial

import pytest

from quorank.experiments import grid, runner
from quorank.experiments.runner import run_experiment
from quorank.reproduce.studies import unlearning

run_quickly = partial(run_experiment, report=False)


def leave_pages_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on the runs of commands, grids and studies are without their pages too; comparisons keep theirs."""
    for starter in (runner, grid, unlearning):
        monkeypatch.setattr(starter, "run_experiment", run_quickly)
