"""Runs without the page about them, which takes longer than a small run."""

from __future__ import annotations

from functools import partial

from quorank.experiments.runner import run_experiment

run_quickly = partial(run_experiment, report=False)
