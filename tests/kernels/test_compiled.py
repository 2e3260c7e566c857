"""Of processes that start together, one compiles; the others wait for it, and for nothing else."""

from __future__ import annotations

import fcntl
import multiprocessing
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from numba import config

from quorank.kernels.compiled import kernel

pytestmark = pytest.mark.slow

forked = multiprocessing.get_context("fork")


def triangle(n: int) -> int:
    total = 0
    for i in range(n + 1):
        total += i
    return total


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A kernel that nobody has compiled yet."""
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    return kernel(triangle)


@pytest.fixture
def holder(tmp_path: Path, compiled: Any) -> Any:
    """A process that holds the kernel's lock without ever compiling it."""
    kernel(triangle)(1)
    (lock,) = tmp_path.rglob("*.lock")
    for file in (*tmp_path.rglob("*.nbi"), *tmp_path.rglob("*.nbc")):
        file.unlink()
    holding = forked.Event()

    def hold() -> None:
        with lock.open("r+b") as file:
            fcntl.lockf(file, fcntl.LOCK_EX)
            holding.set()
            signal.pause()

    process = forked.Process(target=hold, daemon=True)
    process.start()
    assert holding.wait(60)
    yield process
    process.kill()
    process.join()


def test_two_processes_compile_once(compiled: Any) -> None:
    together, results = forked.Barrier(2), forked.SimpleQueue()

    def work() -> None:
        together.wait()
        result = compiled(4)
        results.put((result, sum(compiled.stats.cache_misses.values()), sum(compiled.stats.cache_hits.values())))

    processes = [forked.Process(target=work) for _ in range(2)]
    for process in processes:
        process.start()
    assert sorted(results.get() for _ in processes) == [(10, 0, 1), (10, 1, 0)]
    for process in processes:
        process.join()


def test_a_process_that_is_killed_while_it_compiles_keeps_nobody_waiting(compiled: Any, holder: Any) -> None:
    results = forked.SimpleQueue()
    waiting = forked.Process(target=lambda: results.put(compiled(3)), daemon=True)
    waiting.start()
    waiting.join(0.5)
    assert waiting.is_alive()
    holder.kill()
    waiting.join(60)
    assert waiting.exitcode == 0 and results.get() == 6


def test_a_process_that_is_suspended_while_it_compiles_keeps_nobody_waiting_for_long(
    compiled: Any, holder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quorank.kernels.compiling.WAIT_SECONDS", 0.3)
    begun = time.monotonic()
    assert compiled(6) == 21 and time.monotonic() - begun >= 0.3


def test_where_nothing_can_be_locked_it_compiles_all_the_same(compiled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(37, "no locks available")

    monkeypatch.setattr("quorank.kernels.compiling.lockf", refuse)
    assert compiled(5) == 15
