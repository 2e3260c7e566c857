"""Runs that were asked to stop in the middle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from quick_runs import run_quickly
from small_runs import experiment

from quorank.errors import Interrupted
from quorank.experiments import runner


def stop_after(monkeypatch: pytest.MonkeyPatch, rounds: int) -> None:
    """As if Ctrl-C came in the `rounds`-th round from now on."""

    @contextmanager
    def interrupted() -> Iterator[Callable[[], bool]]:
        seen = iter(range(1, 1_000_000))
        yield lambda: next(seen) >= rounds

    monkeypatch.setattr(runner, "interruptible", interrupted)


def interrupted_run(folder: Path, monkeypatch: pytest.MonkeyPatch, *parts: str) -> Path:
    with monkeypatch.context() as patched:
        stop_after(patched, 4)
        with pytest.raises(Interrupted):
            run_quickly(experiment(*parts), folder)
    return folder / "checkpoint.npz"
