"""Database of a device: interactions waiting to be learned from, consent, and the log of releases."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from quorank.errors import require
from quorank.files.private_database import Damaged, FileKind, PrivateDatabase, overwrite_with_zeros, wipe

FILE, LOCK = "device.sqlite", "device.lock"
BUSY = "another process plays this device; stop it first, or give each device its own folder"
_SCHEMA = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE consent (id INTEGER PRIMARY KEY, at REAL NOT NULL, given INTEGER NOT NULL);
CREATE TABLE interactions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, run TEXT NOT NULL, round INTEGER NOT NULL,
    documents INTEGER NOT NULL, features BLOB NOT NULL, shown BLOB NOT NULL, clicks BLOB NOT NULL,
    circumstances BLOB NOT NULL, checksum BLOB NOT NULL, query TEXT, release INTEGER REFERENCES releases (id)
);
CREATE INDEX waiting ON interactions (id) WHERE release IS NULL;
CREATE TABLE releases (
    id INTEGER PRIMARY KEY, at REAL NOT NULL, run TEXT NOT NULL, round INTEGER NOT NULL, interactions INTEGER NOT NULL,
    bytes INTEGER NOT NULL, privacy TEXT NOT NULL, task BLOB NOT NULL, reply BLOB, UNIQUE (run, round)
);
CREATE TABLE kept (run TEXT NOT NULL, round INTEGER NOT NULL, content BLOB NOT NULL, PRIMARY KEY (run, round));
"""
DEVICE = FileKind(
    0x51524E4B,
    1,
    _SCHEMA,
    "this is not a device's file; choose another folder",
    "the file is damaged; restore it from a copy, or move it away and join again",
)


class DeviceDatabase(PrivateDatabase):
    """Database of a device; its `owner` holds the lock and has checked the integrity of the file."""

    def __init__(self, folder: Path, *, owner: bool) -> None:
        self.folder, path = folder, folder / FILE
        sentence = "there is no device here; join with an invitation first"
        require(owner or path.is_file(), "device.missing", sentence, f"{folder}")
        self._owner = owner
        super().__init__(path, DEVICE, folder / LOCK if owner else None, BUSY)

    def _prepare(self, database: sqlite3.Connection) -> None:
        super()._prepare(database)
        if self._owner and database.execute("PRAGMA integrity_check(1)").fetchone()[0] != "ok":
            raise Damaged("file.damaged", self.kind.damaged, f"{self.path}")

    def overwrite(self) -> int:
        """Overwrite the database with zeros, close and delete it; return the bytes overwritten."""
        with self._mutex:
            with self.faults():
                self.database.execute("PRAGMA wal_checkpoint(FULL)")
            path, log, index = files_of(self.folder)
            total = overwrite_with_zeros(log)  # before closing, which deletes it; all of it is in the database by now
            self.database.close()
            total += wipe([path, log, index])
            self._unlock()
            return total


def files_of(folder: Path) -> tuple[Path, Path, Path]:
    """Return the paths of the database, its write-ahead log and the index of the log."""
    path = folder / FILE
    return path, path.with_name(f"{FILE}-wal"), path.with_name(f"{FILE}-shm")
