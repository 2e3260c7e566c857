"""Processes that work on a service's store, for tests that kill them.

What one is about to commit, and what was accepted, it tells before it goes on. They are forked from a process that has
everything imported and has never opened a database.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from quorank.protocol.messages import Publication
from quorank.service.store.group_commit import Call
from quorank.service.store.sql_store import SqlStore, open_store

Tell = Callable[[Any], None]


@cache
def _context() -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["store_worker", "psycopg", "pytest"])
    return context


class StoreWorker:
    """One process, and what it tells."""

    def __init__(self, work: Callable[..., None], folder: Path, url: str, *words: Any) -> None:
        self._told, there = _context().Pipe(duplex=False)
        self.process = _context().Process(target=_work, args=(work, there, folder, url, *words), daemon=True)
        self.process.start()
        there.close()

    def next(self) -> Any:
        """The next that it tells."""
        return self._told.recv()

    def rest(self) -> list[Any]:
        """All that it still tells until its end."""
        found = []
        with suppress(EOFError):
            while True:
                found.append(self._told.recv())
        self.process.join()
        return found

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self.process.kill()
        self.process.join()


def _work(work: Callable[..., None], there: Connection, folder: Path, url: str, *words: Any) -> None:
    work(open_store(folder, url), there.send, *words)


def content_of(round_: int, member: int, length: int = 200) -> bytes:
    """The reply of a member to a round."""
    return hashlib.shake_128(f"{round_}/{member}".encode()).digest(length)  # which no database can compress


def enrolled(store: SqlStore, count: int) -> list[int]:
    """So many new members, by a token."""
    token = secrets.token_hex(8)
    store.open_enrolment(token, count, store.now() + 60.0)
    return [store.enrol(secrets.token_bytes(32), token=token).number for _ in range(count)]


def add_members(store: SqlStore, count: int) -> None:
    """Members 0, 1, … with keys, in one transaction: as if they had enrolled."""
    columns = {"number": "bigint", "name": "text", "key": "bytea", "at": "double precision"}
    rows = [(m, f"device-{m}", hashlib.sha256(b"%d" % m).digest(), store.now()) for m in range(count)]
    new = (
        "INSERT INTO members (number, name, kind, key, invited, enrolled)"
        " SELECT number, name, 'device', key, at, at FROM {given}"
    )
    with store.database.transaction():
        store.database.each(new, columns, rows)


def hold(store: SqlStore, tell: Tell) -> None:
    """Become the holder, and sleep."""
    tell(store.hold())
    time.sleep(600.0)


def lock(store: SqlStore, tell: Tell) -> None:
    """Begin a transaction, and sleep."""
    with store.database.transaction():
        tell(True)
        time.sleep(600.0)


def reply(store: SqlStore, tell: Tell, first: int, count: int, group: int, rounds: int) -> None:
    """Answer every round for some members, in groups, until the run is over; go on where the store cannot be used."""
    done: set[tuple[int, int]] = set()
    while True:
        try:
            found = store.publication()
        except OSError:
            time.sleep(0.05)
            continue
        if found is not None and found.round > rounds:
            return
        left = [] if found is None else [m for m in range(first, first + count) if (found.round, m) not in done][:group]
        if found is None or not left:
            time.sleep(0.005)
            continue
        _commit(store, tell, found, left, done)


def _commit(store: SqlStore, tell: Tell, found: Publication, members: list[int], done: set[tuple[int, int]]) -> None:
    calls = [Call(m, secrets.token_bytes(16), "reply", found.number, content_of(found.round, m)) for m in members]
    sent = [(found.round, m) for m in members]
    tell(("sent", sent))
    try:
        outcomes = store.take(calls)
    except OSError:
        time.sleep(0.05)
        return
    tell(("accepted", [one for one, outcome in zip(sent, outcomes, strict=True) if not outcome.code]))
    done.update(one for one, outcome in zip(sent, outcomes, strict=True) if outcome.code != "reply.other-round")
