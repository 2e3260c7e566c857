"""Runs that were asked to stop in the middle."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest
from quick_runs import run_quickly

from quorank.errors import Interrupted
from quorank.experiments.experiment import Experiment


def stopped_run(chosen: Experiment, folder: Path, rounds: int, **options: Any) -> Interrupted:
    """Run until Ctrl-C in the `rounds`-th round from now on."""
    seen = count(1)
    with pytest.raises(Interrupted) as stopped:
        run_quickly(chosen, folder, stop=lambda: next(seen) >= rounds, **options)
    return stopped.value
