"""A store whose processes are killed, whose disk is full, which is locked, damaged, or restarted."""

from __future__ import annotations

import errno
import os
import resource
import secrets
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from postgresql_server import administer, cutting_line, empty_database, start_server, stop_server
from refusals import refused
from store_worker import StoreWorker, add_members, content_of, lock, reply

from quorank.errors import BadInput
from quorank.protocol.messages import Publication
from quorank.service.store import postgresql
from quorank.service.store.group_commit import Call
from quorank.service.store.sql_store import Finished, SqlStore, open_store
from quorank.service.store.sqlite import SQLite

ROUND = Publication("round", "run", 1, b"task", b"signature", 5.0, limits=b"limits")
pytestmark = pytest.mark.slow


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    return tmp_path, "" if request.param == "sqlite" else empty_database()


def enrol(store: SqlStore, count: int) -> int:
    """Open round 1 for so many members; the epoch of its holder."""
    add_members(store, count)
    epoch = store.hold()
    assert epoch is not None
    store.publish(ROUND)
    return epoch


def replies(first: int, count: int, length: int = 200, round_: int = 1) -> list[Call]:
    members = range(first, first + count)
    return [Call(m, secrets.token_bytes(16), "reply", 1, content_of(round_, m, length)) for m in members]


def test_a_worker_that_is_killed_has_committed_whole_groups(place: tuple[Path, str]) -> None:
    store = open_store(*place)
    enrol(store, 2000)
    for number in range(2):
        store.publish(replace(ROUND, round=number + 1), None, Finished("run", number))
        worker = StoreWorker(reply, *place, 0, 2000, 50, 9)
        lines = [worker.next() for _ in range(6 + 7 * number)]
        time.sleep(0.003 * number)
        worker.process.kill()
        lines += worker.rest()
        found = [one.member for one in store.replies("run", number + 1)]
        assert len(found) == len(set(found)) and len(found) % 50 == 0
        assert {one[1] for what, ones in lines if what == "accepted" for one in ones} <= set(found)
        again = [call._replace(number=number + 2) for call in replies(0, 2000, round_=number + 1)]
        assert {outcome.code for outcome in store.take(again)} == {""}, "what is there is confirmed again"
    store.close()


# ------------------------------------------------------------ full disks


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    folder.mkdir()
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no disk can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
        folder.rmdir()


def fill(store: SqlStore, length: int) -> int:
    """Take groups of ten replies until the disk is full; how many were accepted."""
    for first in range(0, 1000, 10):
        try:
            outcomes = store.take(replies(first, 10, length))
        except OSError:
            return first
        assert {outcome.code for outcome in outcomes} == {""}
    raise AssertionError("the disk never was full")


def check_goes_on(store: SqlStore, kept: int, length: int) -> None:
    """All that was accepted is there, and the refused group is accepted once there is room."""
    assert [one.member for one in store.replies("run", 1, most=5000)] == list(range(kept))
    assert {outcome.code for outcome in store.take(replies(kept, 10, length))} == {""}
    assert len(store.replies("run", 1, most=5000)) == kept + 10


def test_a_file_that_may_not_grow_under_sqlite(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    enrol(store, 1000)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, before[1]))
    try:
        kept = fill(store, 4000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    check_goes_on(store, kept, 4000)
    store.close()


def test_a_full_disk_under_postgresql(tmp_path: Path) -> None:
    url = empty_database()
    (home,) = (Path(row[0]) for row in administer("SELECT setting FROM pg_settings WHERE name = 'data_directory'"))
    name = f"t{secrets.token_hex(4)}"
    with small_disk(home.with_name(f"{home.name}-disk"), "4m") as disk:
        ballast, space = disk / "ballast", disk / "space"
        ballast.write_bytes(bytes(1_000_000))
        space.mkdir()
        for folder in (disk, space):
            os.chown(folder, home.stat().st_uid, -1)
        administer(f"CREATE TABLESPACE {name} LOCATION '{space}'")
        try:
            store = open_store(tmp_path, f"{url}%20-cdefault_tablespace%3D{name}")
            enrol(store, 1000)
            kept = fill(store, 4000)
            with pytest.raises(OSError) as caught:
                store.take(replies(kept, 10, 4000))
            assert caught.value.errno == errno.ENOSPC
            ballast.unlink()
            check_goes_on(store, kept, 4000)
        finally:
            store.close()
            administer(f"DROP SCHEMA {url.rpartition('%3D')[2]} CASCADE")
            administer(f"DROP TABLESPACE {name}")


# ------------------------------------------------------------ locked


def test_a_store_that_another_process_writes_to_is_waited_for_and_then_refused(
    place: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql, "PATIENCE", 1)
    store = open_store(*place) if place[1] else SqlStore(SQLite(place[0] / "service.sqlite", patience=1.0))
    enrol(store, 10)
    worker = StoreWorker(lock, *place)
    assert worker.next()
    began = time.monotonic()
    with pytest.raises(OSError):
        store.take(replies(0, 10))
    assert 0.9 < time.monotonic() - began < 5.0
    assert store.publication() is not None and store.replies("run", 1) == [], "who only reads does not wait"
    worker.kill()
    until = time.monotonic() + 10.0
    while time.monotonic() < until:
        with suppress(OSError):
            assert {outcome.code for outcome in store.take(replies(0, 10))} == {""}
            break
    assert len(store.replies("run", 1)) == 10
    store.close()


# ------------------------------------------------------------ damaged


@pytest.mark.parametrize("damage", ["head", "middle", "short", "other"])
def test_a_damaged_file_is_refused_with_a_sentence(tmp_path: Path, damage: str) -> None:
    store = open_store(tmp_path)
    enrol(store, 300)
    store.take(replies(0, 300))
    store.close()
    path = tmp_path / "service.sqlite"
    content = bytearray(path.read_bytes())
    if damage == "head":
        content[:200] = bytes(200)
    elif damage == "middle":
        for start in range(4096, len(content), 4096):
            content[start : start + 200] = secrets.token_bytes(200)
    elif damage == "short":
        del content[len(content) // 2 :]
    path.write_bytes(content)
    if damage == "other":
        path.unlink()
        with closing(sqlite3.connect(path)) as made:
            made.execute("CREATE TABLE t (x)")
    with refused("file.other-kind" if damage == "other" else "file.damaged", str(path)):
        opened = open_store(tmp_path)
        opened.take(replies(0, 300))
        opened.replies("run", 1)


# ------------------------------------------------------------ a restart of PostgreSQL


@pytest.mark.nightly
def test_postgresql_is_restarted_in_the_middle(tmp_path: Path) -> None:
    """Two workers answer rounds of all members while the server is stopped at once and started again."""
    place = tmp_path, empty_database()
    store = open_store(*place)
    epoch = enrol(store, 60)
    workers = [StoreWorker(reply, *place, 30 * number, 30, 4, 6) for number in range(2)]
    counted: list[tuple[int, int]] = []
    for round_ in range(1, 8):
        until = time.monotonic() + 60.0
        while True:  # what was cut off is tried again: it was committed, or it was not
            try:
                store.publish(replace(ROUND, round=round_), {"round": b"%d" % round_}, Finished("run", round_ - 1))
                break
            except OSError:
                assert time.monotonic() < until
                time.sleep(0.05)
        last = count = 0
        while round_ < 7 and count < 60 and time.monotonic() < until:
            with suppress(OSError):
                for one in store.replies("run", round_, last):
                    counted.append((round_, one.member))
                    count, last = count + 1, one.id
            if round_ == 3 and count > 10 and not any(path.name == "restarted" for path in tmp_path.iterdir()):
                stop_server()
                (tmp_path / "restarted").touch()
                with pytest.raises(OSError):
                    store.take(replies(0, 1))
                start_server()
    told = [line for worker in workers for line in worker.rest()]
    assert [worker.process.exitcode for worker in workers] == [0, 0]
    accepted = {one for what, ones in told if what == "accepted" for one in ones}
    assert (tmp_path / "restarted").exists()
    assert sorted(counted) == [(round_, member) for round_ in range(1, 7) for member in range(60)]
    assert sorted(accepted) == sorted(counted)
    other = open_store(*place)
    assert other.hold() == epoch + 1, "the server that gave the lock is gone"
    other.close()
    store.close()


def test_a_confirmation_that_is_lost_after_the_commit_counts_nothing_twice(tmp_path: Path) -> None:
    """The line to PostgreSQL is cut between its COMMIT and the word of it, for a worker and for the holder."""
    url = empty_database()
    with cutting_line(url) as (there, line):
        store = open_store(tmp_path, there)
        enrol(store, 3)
        calls = replies(0, 3)
        line.armed = True
        with pytest.raises(OSError):
            store.take(calls)
        assert line.cut == 1 and len(store.replies("run", 1)) == 3, "it is committed, and nobody was told"
        outcomes = store.take([*calls, *replies(0, 3)])  # the same request again, and what a member does: a new one
        assert [one.code for one in outcomes[:3]] == ["request.replayed"] * 3
        assert [(one.code, one.again) for one in outcomes[3:]] == [("", True)] * 3
        last = store.replies("run", 1)[-1].id
        line.armed = True
        with pytest.raises(OSError):
            store.publish(replace(ROUND, round=2), {"checkpoint": b"2"}, Finished("run", 1, last))
        store.publish(replace(ROUND, round=2), {"checkpoint": b"2"}, Finished("run", 1, last))
        assert line.cut == 2 and store.replies("run", 1) == [] and store.document("checkpoint") == b"2"
        assert store.member(0) is not None
        store.close()


def test_a_transaction_does_not_begin_inside_another(place: tuple[Path, str]) -> None:
    store = open_store(*place)
    with pytest.raises(Exception, match="transaction"), store.database.transaction():
        store.note("x")
    assert store.events() == []
    store.note("y")
    store.close()


def test_a_server_that_is_not_there_is_told_without_the_password(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        open_store(tmp_path, f"postgresql://me:verysecret@/name?host={tmp_path}")
    assert caught.value.code == "database.unreachable"
    assert "verysecret" not in f"{caught.value!r} {caught.value.__context__!r}"


def test_the_clock_is_the_databases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(tmp_path, empty_database())
    ((there,),) = store.database.execute("SELECT extract(epoch FROM clock_timestamp())::double precision")
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert abs(store.now() - there) < 5.0
    ((idle,),) = store.database.execute("SELECT current_setting('idle_in_transaction_session_timeout')")
    assert idle == "30s", "a worker that stands still in a transaction does not stop all others"
    store.close()
