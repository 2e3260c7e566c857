"""What a party or its coordinator keeps of a silo run: facts, and both streams with each peer.

`SiloStreams` says it in SQL that SQLite and PostgreSQL speak: a service keeps it in its own store, a party in one SQLite
file (`SiloStore`). What is committed there is on disk, what is not committed never was (write-ahead log, synchronous =
FULL); the file belongs to its owner alone (mode 0600), and one process at a time works with it. Pieces that were sent are
deleted when the peer says that it has them, pieces that came when their record has been dealt with.
"""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from threading import RLock
from typing import Any

from quorank.documents import ANYTHING, parse_json
from quorank.errors import BadInput, require
from quorank.private_file import lock, make_folder
from quorank.silos.protocol.records import MOST_RECORD, ROOM, SiloMessage, cut, tag_of

VERSION = 1
APPLICATION = 0x51524E53
"""Marks the file as a silo run's in its header."""
BUSY = "another process works in this folder; stop it first"
SYNCHRONOUS = "FULL"
"""What is committed survives a power cut; tests, which end processes only, take OFF."""

_SCHEMA = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE places (peer TEXT PRIMARY KEY, came INTEGER NOT NULL, done INTEGER NOT NULL, sent INTEGER NOT NULL,
    heard INTEGER NOT NULL);
CREATE TABLE sending (peer TEXT NOT NULL, place INTEGER NOT NULL, ends INTEGER NOT NULL, tag TEXT NOT NULL,
    content BLOB NOT NULL, PRIMARY KEY (peer, place));
CREATE TABLE coming (peer TEXT NOT NULL, place INTEGER NOT NULL, ends INTEGER NOT NULL, content BLOB NOT NULL,
    PRIMARY KEY (peer, place));
CREATE TABLE log (id INTEGER PRIMARY KEY, at REAL NOT NULL, kind TEXT NOT NULL, receiver TEXT NOT NULL,
    bytes INTEGER NOT NULL);
"""


class SiloStreams:
    """Facts and streams in a database; who knows how to speak to it says how to query and to commit."""

    path: Path | None = None

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """What a query finds."""
        raise NotImplementedError

    def transaction(self) -> AbstractContextManager[None]:
        """All of what is done inside is on disk afterwards, or none of it where anything is raised."""
        raise NotImplementedError

    # facts

    def fact(self, name: str) -> bytes | None:
        """Something that is kept under a name."""
        found = self.rows("SELECT value FROM facts WHERE name = ?", name)
        value = found[0][0] if found else None
        self._check(value is None or isinstance(value, bytes))
        return value

    def _check(self, sound: bool) -> None:
        """Refuse a file that holds something else than what was put into it."""
        sentence = "the file is damaged; restore the folder from a copy, or begin the run anew"
        require(sound, "file.damaged", sentence, f"{self.path}")

    def set_fact(self, name: str, value: bytes) -> None:
        self.rows(
            "INSERT INTO facts VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value", name, value
        )

    def drop_fact(self, name: str) -> None:
        self.rows("DELETE FROM facts WHERE name = ?", name)

    def note(self, name: str, default: Any = None) -> Any:
        """A fact that is a plain value."""
        found = self.fact(name)
        return default if found is None else parse_json(found, ANYTHING, f"{self.path}: {name}")

    def set_note(self, name: str, value: Any) -> None:
        self.set_fact(name, json.dumps(value).encode())

    # streams

    def places(self, peer: str) -> tuple[int, int, int, int]:
        """(came, dealt with, sent, heard by the peer), in pieces."""
        found = self.rows("SELECT came, done, sent, heard FROM places WHERE peer = ?", peer)
        came, done, sent, heard = found[0] if found else (0, 0, 0, 0)
        self._check(all(type(place) is int and 0 <= place < 2**62 for place in (came, done, sent, heard)))
        return came, done, sent, heard

    def _set_places(self, peer: str, came: int, done: int, sent: int, heard: int) -> None:
        self.rows(
            "INSERT INTO places VALUES (?, ?, ?, ?, ?) ON CONFLICT (peer) DO UPDATE SET came = excluded.came,"
            " done = excluded.done, sent = excluded.sent, heard = excluded.heard",
            peer,
            came,
            done,
            sent,
            heard,
        )

    def put(self, peer: str, record: bytes) -> None:
        """Add a record to what is sent to a peer."""
        came, done, sent, heard = self.places(peer)
        tag = tag_of(record)
        for ends, content in cut(record):
            self.rows("INSERT INTO sending VALUES (?, ?, ?, ?, ?)", peer, sent, int(ends), tag, content)
            sent += 1
        self._set_places(peer, came, done, sent, heard)

    def message(self, peer: str, number: int, digest: bytes) -> SiloMessage:
        """What is to be told a peer now: as much as fits, from the first piece on that it has not said it has."""
        came, _, _, first = self.places(peer)
        room, last = ROOM, first - 1
        for place, size in self.rows(
            "SELECT place, length(content) FROM sending WHERE peer = ? AND place >= ? ORDER BY place LIMIT 1000",
            peer,
            first,
        ):
            self._check(type(place) is int and type(size) is int)
            room -= size + 8
            if place > first and room < 0:
                break
            last = place
        found = self.rows(
            "SELECT ends, content FROM sending WHERE peer = ? AND place BETWEEN ? AND ? ORDER BY place",
            peer,
            first,
            last,
        )
        self._check(all(isinstance(part, bytes) for _, part in found))
        return SiloMessage(number, digest, came, first, tuple((bool(ends), part) for ends, part in found))

    def waiting(self, peer: str) -> int:
        """Pieces that the peer has not said it has."""
        _, _, sent, heard = self.places(peer)
        return sent - heard

    def take(self, peer: str, message: SiloMessage) -> list[str]:
        """Take a message in; returns the tags of the records that the peer is now known to have.

        `BadInput` where it does not fit what both have said before: then one of them has lost its folder.
        """
        came, done, sent, heard = self.places(peer)
        sentence = (
            f"{peer} speaks of what was never said; its folder, or this one, is not the one that the run began with"
        )
        require(message.have <= sent and message.start <= came, "silo-message.out-of-step", sentence)
        delivered: list[str] = []
        if message.have > heard:
            delivered = [
                tag
                for (tag,) in self.rows(
                    "SELECT tag FROM sending WHERE peer = ? AND place < ? AND ends = 1 ORDER BY place",
                    peer,
                    message.have,
                )
            ]
            self.rows("DELETE FROM sending WHERE peer = ? AND place < ?", peer, message.have)
            heard = message.have
        for place, (ends, content) in enumerate(message.pieces, message.start):
            if place == came:
                self.rows("INSERT INTO coming VALUES (?, ?, ?, ?)", peer, place, int(ends), content)
                came += 1
        self._set_places(peer, came, done, sent, heard)
        (kept,) = self.rows("SELECT coalesce(sum(length(content)), 0) FROM coming WHERE peer = ?", peer)[0]
        sentence = f"{peer} sends a record that is too large"
        require(kept <= MOST_RECORD + ROOM or self.next(peer), "silo-message.too-large", sentence)
        return delivered

    def place(self, peer: str) -> int:
        """Where the next record of a peer begins."""
        return self.places(peer)[1]

    def next(self, peer: str) -> bytes | None:
        """The oldest record of a peer that was not dealt with, if all of it is there."""
        end = self.rows("SELECT min(place) FROM coming WHERE peer = ? AND ends = 1", peer)[0][0]
        if end is None:
            return None
        found = self.rows("SELECT content FROM coming WHERE peer = ? AND place <= ? ORDER BY place", peer, end)
        return b"".join(bytes(content) for (content,) in found)

    def finish(self, peer: str) -> None:
        """The oldest record of a peer is dealt with."""
        end = self.rows("SELECT min(place) FROM coming WHERE peer = ? AND ends = 1", peer)[0][0]
        self.rows("DELETE FROM coming WHERE peer = ? AND place <= ?", peer, end)
        came, _, sent, heard = self.places(peer)
        self._set_places(peer, came, end + 1, sent, heard)


class SiloStore(SiloStreams):
    """An open file; without a folder, the same in memory."""

    def __init__(self, folder: Path | None, name: str) -> None:
        self._mutex = RLock()
        self._let_go: Callable[[], object] = lambda: None  # lets go of the folder
        self.path = None if folder is None else folder / f"{name}.sqlite"
        if folder is not None:
            make_folder(folder)
            self._let_go = weakref.finalize(self, os.close, lock(folder / f"{name}.lock", BUSY))
        try:
            self.database = self._open()
        except BaseException:
            self._unlock()
            raise

    def _open(self) -> sqlite3.Connection:
        if self.path is not None and not self.path.exists():
            os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        with self._faults():
            database = sqlite3.connect(self.path or ":memory:", isolation_level=None, check_same_thread=False)
            try:
                marks = [
                    database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
                ]
                empty = database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
                sentence = "this is no file of a silo run, or one of another version; choose another folder"
                require(
                    (empty and marks == [0, 0]) or marks == [APPLICATION, VERSION],
                    "file.other-kind",
                    sentence,
                    f"{self.path}",
                )
                database.execute("PRAGMA journal_mode = WAL")
                database.execute(f"PRAGMA synchronous = {SYNCHRONOUS}")
                database.execute("PRAGMA secure_delete = ON")
                if empty:
                    database.executescript(
                        f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA application_id = {APPLICATION};"
                        f"PRAGMA user_version = {VERSION}; COMMIT;"
                    )
            except BaseException:
                database.close()
                raise
        return database

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """SQLite's faults as sentences for the owner."""
        try:
            yield
        except sqlite3.ProgrammingError:
            raise
        except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter: a table's text, or a message that quotes one
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
            if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):
                raise BadInput(
                    "file.damaged",
                    "the file is damaged; restore the folder from a copy, or begin the run anew",
                    f"{self.path}",
                ) from None
            number = errno.ENOSPC if code == sqlite3.SQLITE_FULL else errno.EIO
            raise OSError(number, os.strerror(number), str(self.path)) from None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of what is done inside is on disk afterwards, or none of it where anything is raised."""
        with self._mutex, self._faults():
            self.database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._commit()
            except BaseException:
                if self.database.in_transaction:
                    self.database.execute("ROLLBACK")
                raise

    def _commit(self) -> None:
        self.database.execute("COMMIT")

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """What a query finds."""
        with self._mutex, self._faults():
            return self.database.execute(query, values).fetchall()

    def compact(self) -> None:
        """Give back the room of what was deleted; where there is none to do it in, the file stays as large as it was."""
        with self._mutex, suppress(sqlite3.Error):
            self.database.execute("VACUUM")
            self.database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        with self._mutex:
            self.database.close()
            self._unlock()

    def _unlock(self) -> None:
        self._let_go()
