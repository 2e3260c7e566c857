"""Watching of real folders: what changes is told of, what is ignored is not, and folders may come and go."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from threading import Event, Thread

import pytest

from quorank.search.sources import FilesSource, FirefoxSource, Source, watching

pytestmark = pytest.mark.slow
PATIENCE = 20.0


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "SETTLED", 30)
    monkeypatch.setattr(watching, "LOOK", 100)


@contextmanager
def watched(sources: list[Source]) -> Iterator[Queue[list[int]]]:
    told: Queue[list[int]] = Queue()
    stop = Event()
    thread = Thread(target=lambda: [told.put(found) for found in watching.watch_sources(sources, stop)], daemon=True)
    thread.start()
    time.sleep(0.5)  # until the system watches
    try:
        yield told
    finally:
        stop.set()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def wait_for(told: Queue[list[int]], number: int) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if number in told.get(timeout=PATIENCE):
            return
    pytest.fail(f"source {number} was not told of")


def quiet(told: Queue[list[int]], seconds: float = 0.4) -> None:
    """Forget what is still told of, until nothing is."""
    while True:
        try:
            told.get(timeout=seconds)
        except Empty:
            return


def test_changes_are_told_of_by_source_and_survive_folders_that_come_and_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FilesSource, "rest", 0.0)
    one, two, later = (tmp_path / name for name in ("one", "two", "later"))
    one.mkdir()
    two.mkdir()
    with watched([FilesSource(str(path)) for path in (one, two, later)]) as told:
        (one / "a.txt").write_text("a")
        assert told.get(timeout=PATIENCE) == [0]
        quiet(told)
        (one / ".git").mkdir()
        (one / ".git" / "index").write_text("ignored")
        with pytest.raises(Empty):
            told.get(timeout=0.5)
        shutil.rmtree(two)
        wait_for(told, 1)
        quiet(told)
        two.mkdir()
        wait_for(told, 1)
        quiet(told)
        (two / "deep").mkdir()
        (two / "deep" / "b.txt").write_text("b")
        wait_for(told, 1)
        later.mkdir()
        (later / "c.txt").write_text("c")
        wait_for(told, 2)
        quiet(told)
        (later / "d.txt").write_text("d")
        wait_for(told, 2)


def test_a_source_that_rests_is_told_of_later_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FirefoxSource, "rest", 1.0)
    (tmp_path / "places.sqlite").write_bytes(b"1")
    with watched([FirefoxSource(str(tmp_path))]) as told:
        for number in range(4):
            (tmp_path / "places.sqlite").write_bytes(b"%d" % number)
            time.sleep(0.15)
        times = []
        for _ in range(2):
            assert told.get(timeout=PATIENCE) == [0]
            times.append(time.monotonic())
        assert times[1] - times[0] > 0.3
        with pytest.raises(Empty):
            told.get(timeout=0.5)
