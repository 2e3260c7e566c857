"""What a party or its coordinator keeps of a silo run: facts, and both streams with each peer.

`SiloStreams` says it in SQL that SQLite and PostgreSQL speak: a service keeps it in its own store, a party in one SQLite
file (`SiloStore`). What is committed there is on disk, what is not committed never was (write-ahead log, synchronous =
FULL); the file belongs to its owner alone (mode 0600), and one process at a time works with it. Pieces that were sent are
deleted when the peer says that it has them, pieces that came when their record has been dealt with.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from quorank.errors import require
from quorank.files.documents import ANYTHING, parse_json
from quorank.files.private_database import FileKind, PrivateDatabase
from quorank.silos.protocol.records import MOST_RECORD, ROOM, SiloMessage, cut, tag_of

BUSY = "another process works in this folder; stop it first"
_DAMAGED = "the file is damaged; restore the folder from a copy, or begin the run anew"
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
_KIND = FileKind(0x51524E53, 1, _SCHEMA, "this is no file of a silo run; choose another folder", _DAMAGED)


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
        require(sound, "file.damaged", _DAMAGED, f"{self.path}")

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


class SiloStore(PrivateDatabase, SiloStreams):
    """An open file; without a folder, the same in memory."""

    def __init__(self, folder: Path | None, name: str) -> None:
        path, held = (None, None) if folder is None else (folder / f"{name}.sqlite", folder / f"{name}.lock")
        super().__init__(path, _KIND, held, BUSY)

    def compact(self) -> None:
        """Give back the room of what was deleted; where there is none to do it in, the file stays as large as it was."""
        with self._mutex, suppress(sqlite3.Error):
            self.database.execute("VACUUM")
            self.database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
