"""Small collections, order and markers of tests, and Hypothesis with the same examples in every run."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from quorank.data.ranking import Collection, RankingData

settings.register_profile("quorank", derandomize=True, deadline=None)
settings.load_profile("quorank")

if (
    signal.getsignal(signal.SIGINT) == signal.SIG_IGN
):  # in a shell's background job, whose children would ignore Ctrl-C too
    signal.signal(signal.SIGINT, signal.default_int_handler)


SLOW = (
    "engines/", "service/", "member/", "cli/", "reproduce/", "fuzz/",
    # the first start processes and open connections, the others compute for seconds
    "experiments/test_determinism.py", "protocol/test_http_client.py", "federation/test_simulator.py",
    "privacy/test_accounting.py",
    "privacy/test_canaries.py", "privacy/test_discrete_noise.py", "privacy/test_integer_sums.py",
    "privacy/test_reconstruction.py", "privacy/test_subtraction.py", "reports/test_panels.py",
    "silos/test_comparison.py", "text/test_real_text.py", "tuning/test_power.py", "tuning/test_tuning.py",
)  # fmt: skip
"""Folders and files whose tests are slow; elsewhere single ones are marked so."""

WAITING = (
    "test_joining.py", "test_flower_run.py", "test_https_engine.py", "test_sockets.py",
    "test_nothing_private_is_kept.py", "test_coordinator_command.py", "test_resume_command.py", "test_cluster.py",
)  # fmt: skip
"""Files whose tests mostly wait for engines and processes, the longest first."""

BETWEEN = 12


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--nightly", action="store_true", help="also run long series and full products")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark every test as fast or slow, and start those that mostly wait early, between others that compute."""
    here = Path(__file__).parent
    unstable = [item.nodeid for item in items if " object at 0x" in item.nodeid]
    if unstable:
        raise pytest.UsageError(f"ids of tests must be the same in every worker: {unstable[0]}")
    if not config.getoption("--nightly"):
        items[:] = [item for item in items if item.get_closest_marker("nightly") is None]
    for item in items:
        folder = item.path.relative_to(here).as_posix().startswith(SLOW)
        slow = folder or item.get_closest_marker("slow") is not None
        item.add_marker(pytest.mark.slow if slow else pytest.mark.fast)
    others = list(dict.fromkeys(item.path for item in items if item.path.name not in WAITING))
    waiting = sorted({item.path for item in items} - set(others), key=lambda path: WAITING.index(path.name))
    order = waiting[:2] + others[:2]
    for at, path in enumerate(waiting[2:]):
        order += [*others[2 + at * BETWEEN : 2 + (at + 1) * BETWEEN], path]
    rank = {path: at for at, path in enumerate(dict.fromkeys([*order, *others]))}
    items.sort(key=lambda item: rank[item.path])


@pytest.fixture(autouse=True)
def no_process_and_no_connection(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail a fast test that starts a process or opens a connection: it must be marked `slow`."""
    if request.node.get_closest_marker("slow") is not None:
        return

    def refuse(*_: object, **__: object) -> None:
        pytest.fail("a fast test starts no process and opens no connection; mark it slow")

    monkeypatch.setattr("subprocess.Popen.__init__", refuse)
    monkeypatch.setattr("multiprocessing.process.BaseProcess.start", refuse)
    monkeypatch.setattr("socket.socket.connect", refuse)


def pytest_collection_finish() -> None:
    """Keep collected tests out of later garbage collections."""
    gc.collect()
    gc.freeze()


def make_split(seed: int, queries: int, features: int, grades: int) -> RankingData:
    """Lists of 1..25 documents; labels grow along a hidden direction; two queries have nothing relevant."""
    random = np.random.default_rng([seed, queries, features, grades])
    lengths = random.integers(1, 26, queries)
    lengths[:3] = 1, 25, 10
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    rows = int(offsets[-1])
    x = random.random((rows, features))
    direction = np.random.default_rng([grades, features]).normal(size=features)
    hidden = x @ direction + 0.2 * random.normal(size=rows)
    labels = np.searchsorted(np.quantile(hidden, np.linspace(0.5, 0.95, grades - 1)), hidden)
    for q in (4, 9):
        labels[offsets[q] : offsets[q + 1]] = 0
    return RankingData.from_arrays(x, labels, offsets)


@pytest.fixture(scope="session")
def tiny_collection() -> Collection:
    """30 queries, 11 features, labels 0..2."""
    return Collection("tiny", make_split(1, 30, 11, 3), make_split(2, 20, 11, 3))


@pytest.fixture(scope="session")
def tiny_graded() -> Collection:
    """30 queries, 13 features, labels 0..4."""
    return Collection("tiny graded", make_split(3, 30, 13, 5), make_split(4, 20, 13, 5))


@pytest.fixture(scope="session")
def real_data() -> Callable[[str], Path]:
    """Folders of real collections by their names, or a skip."""
    folder = Path(os.environ.get("QUORANK_DATA") or Path(__file__).parents[2] / "shared" / "data")

    def find(name: str) -> Path:
        if not (folder / name).is_dir():
            pytest.skip(f"no real data: {folder} has no {name} (set QUORANK_DATA to a folder that has)")
        return folder / name

    return find
