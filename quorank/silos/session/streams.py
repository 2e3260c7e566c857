"""Persistent state of a silo session: facts, and the two record streams with each peer.

`SiloStreams` uses the SQL common to SQLite and PostgreSQL: a service keeps it in its own store, a party in one SQLite
file (`SiloStore`). Pieces that were sent are deleted when the peer acknowledges them, received pieces when their record
has been handled.
"""

from __future__ import annotations

import sqlite3
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from quorank.errors import require
from quorank.files.private_database import Facts, FileKind, PrivateDatabase
from quorank.silos.session.records import MOST_RECORD, ROOM, SiloMessage, cut, tag_of

BUSY = "another process works in this folder; stop it first"
_DAMAGED = "the file is damaged; begin a new session in another folder"
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
_KIND = FileKind(0x51524E47, 1, _SCHEMA, "this is not the file of a silo session; choose another folder", _DAMAGED)


class SiloStreams(Facts):
    """Facts and streams in a database; subclasses execute queries and transactions."""

    advice = "begin a new session in another folder"

    def transaction(self) -> AbstractContextManager[None]:
        """Commit everything done inside, or nothing where anything is raised."""
        raise NotImplementedError

    def places(self, peer: str) -> tuple[int, int, int, int]:
        """Return pieces received, handled, sent, and acknowledged by the peer."""
        found = self.rows("SELECT came, done, sent, heard FROM places WHERE peer = ?", peer)
        places: tuple[int, int, int, int] = found[0] if found else (0, 0, 0, 0)
        self.check_stored(all(type(place) is int and 0 <= place < 2**62 for place in places), "place")
        return places

    def _set_places(self, peer: str, *places: int) -> None:
        change = "came = excluded.came, done = excluded.done, sent = excluded.sent, heard = excluded.heard"
        self.rows(f"INSERT INTO places VALUES (?, ?, ?, ?, ?) ON CONFLICT (peer) DO UPDATE SET {change}", peer, *places)

    def put(self, peer: str, record: bytes) -> None:
        """Append a record to the stream for a peer."""
        came, done, sent, heard = self.places(peer)
        tag = tag_of(record)
        for ends, content in cut(record):
            self.rows("INSERT INTO sending VALUES (?, ?, ?, ?, ?)", peer, sent, int(ends), tag, content)
            sent += 1
        self._set_places(peer, came, done, sent, heard)

    def message(self, peer: str, number: int, digest: bytes) -> SiloMessage:
        """Return the next message for a peer: unacknowledged pieces, as many as fit."""
        came, _, _, first = self.places(peer)
        room, last = ROOM, first - 1
        sizes = "SELECT place, length(content) FROM sending WHERE peer = ? AND place >= ? ORDER BY place LIMIT 1000"
        for place, size in self.rows(sizes, peer, first):
            self.check_stored(type(place) is int and type(size) is int, "piece")
            room -= size + 8
            if place > first and room < 0:
                break
            last = place
        pieces = "SELECT ends, content FROM sending WHERE peer = ? AND place BETWEEN ? AND ? ORDER BY place"
        found = self.rows(pieces, peer, first, last)
        self.check_stored(all(isinstance(part, bytes) for _, part in found), "piece")
        return SiloMessage(number, digest, came, first, tuple((bool(ends), part) for ends, part in found))

    def waiting(self, peer: str) -> int:
        """Return the number of unacknowledged pieces."""
        _, _, sent, heard = self.places(peer)
        return sent - heard

    def take(self, peer: str, message: SiloMessage) -> list[str]:
        """Store a message's pieces, and return the tags of the records that the peer newly acknowledges.

        Raises:
            BadInput: `silo-message.out-of-step` where the message contradicts earlier ones: a folder was restored.
        """
        came, done, sent, heard = self.places(peer)
        sentence = f"{peer} refers to records that do not exist; its folder or this one was replaced since the start"
        require(message.have <= sent and message.start <= came, "silo-message.out-of-step", sentence)
        delivered: list[str] = []
        if message.have > heard:
            tags = "SELECT tag FROM sending WHERE peer = ? AND place < ? AND ends = 1 ORDER BY place"
            delivered = [tag for (tag,) in self.rows(tags, peer, message.have)]
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

    def next(self, peer: str) -> bytes | None:
        """Return the oldest unhandled record of a peer, if it is complete."""
        end = self.rows("SELECT min(place) FROM coming WHERE peer = ? AND ends = 1", peer)[0][0]
        if end is None:
            return None
        found = self.rows("SELECT content FROM coming WHERE peer = ? AND place <= ? ORDER BY place", peer, end)
        return b"".join(bytes(content) for (content,) in found)

    def finish(self, peer: str) -> None:
        """Delete the oldest record of a peer, which has been handled."""
        end = self.rows("SELECT min(place) FROM coming WHERE peer = ? AND ends = 1", peer)[0][0]
        self.rows("DELETE FROM coming WHERE peer = ? AND place <= ?", peer, end)
        came, _, sent, heard = self.places(peer)
        self._set_places(peer, came, end + 1, sent, heard)


class SiloStore(PrivateDatabase, SiloStreams):
    """Streams in an open SQLite file; in memory without a folder."""

    def __init__(self, folder: Path | None, name: str) -> None:
        path, held = (None, None) if folder is None else (folder / f"{name}.sqlite", folder / f"{name}.lock")
        super().__init__(path, _KIND, held, BUSY)

    def compact(self) -> None:
        """Return the space of deleted rows to the disk, where there is space to do so."""
        with self._mutex, suppress(sqlite3.Error):
            self.database.execute("VACUUM")
            self.database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
