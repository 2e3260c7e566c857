"""Of processes that start together, one compiles; the others wait for it, and for nothing else."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
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


def test_two_processes_compile_once(compiled: Any) -> None:
    together, told = forked.Barrier(2), forked.SimpleQueue()

    def work() -> None:
        together.wait()
        result = compiled(4)
        told.put((result, sum(compiled.stats.cache_misses.values()), sum(compiled.stats.cache_hits.values())))

    processes = [forked.Process(target=work) for _ in range(2)]
    for process in processes:
        process.start()
    assert sorted(told.get() for _ in processes) == [(10, 0, 1), (10, 1, 0)]
    for process in processes:
        process.join()


def start_holding(compiled: Any) -> Any:
    """A process that has the lock, and stays."""
    holding = forked.Event()

    def hold() -> None:
        assert compiled._cache._take()
        holding.set()
        signal.pause()

    process = forked.Process(target=hold, daemon=True)
    process.start()
    assert holding.wait(60)
    return process


def test_a_process_that_is_killed_while_it_compiles_keeps_nobody_waiting(compiled: Any) -> None:
    process = start_holding(compiled)
    read, write = os.pipe()
    waiting = forked.Process(target=lambda: os.write(write, str(compiled(3)).encode()), daemon=True)
    waiting.start()
    waiting.join(1)
    assert waiting.is_alive()
    process.kill()
    waiting.join(60)
    assert waiting.exitcode == 0 and os.read(read, 9) == b"6"
    os.close(read)
    os.close(write)
    process.join()


def test_a_process_that_is_suspended_while_it_compiles_keeps_nobody_waiting_for_long(
    compiled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = start_holding(compiled)
    monkeypatch.setattr("quorank.kernels.compiling.WAIT_SECONDS", 0.3)
    begun = time.monotonic()
    assert compiled(6) == 21 and time.monotonic() - begun >= 0.3
    process.kill()
    process.join()


def test_kernels_of_others_still_multiply_matrices() -> None:
    program = """
import sys
import numpy as np
from quorank.kernels.compiled import kernel
from quorank.kernels.draws import Purpose, uniforms
uniforms(1, Purpose.QUERY, 3)
assert "scipy.linalg" not in sys.modules
from numba import njit
assert njit(lambda a: np.dot(a, a))(np.ones(3)) == 3.0
import scipy.linalg
assert scipy.linalg.det(np.eye(2)) == 1.0
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_where_nothing_can_be_locked_it_compiles_all_the_same(compiled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(37, "no locks available")

    monkeypatch.setattr("quorank.kernels.compiling.lockf", refuse)
    assert compiled(5) == 15
    assert compiled._cache._lock is None
