"""SQLite files of private state, a device's and a party's: readable by their owner only, written by one process at a time.

What is committed is on disk (write-ahead log, synchronous = FULL), what is not committed never was. A file belongs to
its owner alone (mode 0600). One that is damaged, newer than this program or not Quorank's is refused with a sentence.
The process that plays a device or a party holds a lock for as long as it lives; of a device's file others may read, and
may give or withdraw consent.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple

from quorank.errors import BadInput, require

FILE, LOCK = "device.sqlite", "device.lock"
BUSY = "another process plays this device; stop it first, or give each device its own folder"
SYNCHRONOUS = "FULL"
"""What is committed survives a power cut; tests, which end processes only, take OFF."""

_PATIENCE = 10.0  # seconds to wait for another process's transaction
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


class Damaged(BadInput):
    """The file cannot be trusted any more."""


class FileKind(NamedTuple):
    """A kind of private file: its mark in the header, its version, its tables, and what its owner is told."""

    application: int
    version: int
    schema: str
    other: str  # of a file that is none of the kind
    damaged: str


DEVICE = FileKind(
    0x51524E4B,
    1,
    _SCHEMA,
    "this is not a device's file; choose another folder",
    "the file is damaged; restore it from a copy, or move it away and join again",
)


class PrivateDatabase:
    """An open file of a kind; without a path, the same in memory. Every change is made inside `transaction`.

    Where a lock is given, this process alone works with the file; `busy` is what another one is told.
    """

    def __init__(self, path: Path | None, kind: FileKind, lock_file: Path | None = None, busy: str = "") -> None:
        self.path, self.kind, self._mutex = path, kind, RLock()
        self._let_go: Callable[[], object] = lambda: None  # lets go of the lock
        if lock_file is not None:
            make_folder(lock_file.parent)
            self._let_go = weakref.finalize(self, os.close, lock(lock_file, busy))
        try:
            self.database = self._open()
        except BaseException:
            self._unlock()
            raise

    def _open(self) -> sqlite3.Connection:
        if self.path is not None and not self.path.exists():
            os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        with self.faults():
            name = self.path or ":memory:"
            database = sqlite3.connect(name, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
            try:
                self._prepare(database)
            except BaseException:
                database.close()
                raise
        if self.path is not None:
            self.path.chmod(0o600)
        return database

    def _prepare(self, database: sqlite3.Connection) -> None:
        kind, where = self.kind, f"{self.path}"
        application, version = (
            int(database.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("application_id", "user_version")
        )
        empty = database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        if not (empty and application == 0 and version == 0):  # not new, nor killed while it was made
            require(application == kind.application, "file.other-kind", kind.other, where)
            sentence = (
                f"written by a newer Quorank (version {version} of the file, this one reads {kind.version}); "
                "install the newer one"
            )
            require(version <= kind.version, "file.newer", sentence, where)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute(f"PRAGMA synchronous = {SYNCHRONOUS}")
        database.execute("PRAGMA secure_delete = ON")
        if empty:
            database.executescript(
                f"BEGIN IMMEDIATE; {kind.schema} PRAGMA application_id = {kind.application};"
                f"PRAGMA user_version = {kind.version}; COMMIT;"
            )

    def _damaged(self) -> Damaged:
        return Damaged("file.damaged", self.kind.damaged, f"{self.path}")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of what is done inside is on disk afterwards, or none of it where anything is raised."""
        with self._mutex, self.faults():
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
        with self._mutex, self.faults():
            return self.database.execute(query, values).fetchall()

    def overwrite_deleted(self) -> None:
        """Leave nothing of deleted rows in any file.

        SQLite overwrites what it gives back (secure_delete), but not what it moved from page to page before; so all that is
        left is copied to a fresh file beside the database, and from there over all of its pages. Then the write-ahead log
        is brought into the database and cut to nothing.
        """
        assert self.path is not None
        with self._mutex:
            self.remove_copy()
            fresh = self.path.with_suffix(".fresh")
            try:
                os.close(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
                self.rows("VACUUM INTO ?", f"{fresh}")
                with self.faults(), closing(sqlite3.connect(fresh)) as source:
                    source.backup(self.database)
            finally:
                self.remove_copy()
            busy = self.rows("PRAGMA wal_checkpoint(TRUNCATE)")[0][0]
        sentence = "deleted, but another process is still reading the log that holds it; close it and forget again"
        require(not busy, "file.busy", sentence, f"{self.path}")

    def remove_copy(self) -> None:
        """Remove the copy of an erasure, and the journal beside it, where a killed process left one."""
        assert self.path is not None
        fresh = self.path.with_suffix(".fresh")
        for left in (fresh, fresh.with_name(f"{fresh.name}-journal")):
            left.unlink(missing_ok=True)

    def close(self) -> None:
        with self._mutex:
            self.database.close()
            self._unlock()

    def _unlock(self) -> None:
        self._let_go()

    @contextmanager
    def faults(self) -> Iterator[None]:
        """SQLite's faults as sentences for the owner."""
        try:
            yield
        except sqlite3.ProgrammingError:
            raise
        except UnicodeDecodeError:  # a table's text, or SQLite's own message that quotes one
            raise self._damaged() from None
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
            if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):
                raise self._damaged() from None
            if code == sqlite3.SQLITE_BUSY:
                raise BadInput(
                    "file.busy", "another process is writing to it; try again when it is done", f"{self.path}"
                ) from None
            if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
                raise BadInput(
                    "file.unwritable", "cannot be opened for writing; check who owns it", f"{self.path}"
                ) from None
            number = errno.ENOSPC if code == sqlite3.SQLITE_FULL else errno.EIO
            raise OSError(number, os.strerror(number), str(self.path)) from None


class PrivateFile(PrivateDatabase):
    """A device's file; whoever is its `owner` holds the lock, and has checked that all of it can be read."""

    def __init__(self, folder: Path, *, owner: bool) -> None:
        self.folder, path = folder, folder / FILE
        sentence = "there is no device here; join with an invitation first"
        require(owner or path.is_file(), "device.missing", sentence, f"{folder}")
        self._owner = owner
        super().__init__(path, DEVICE, folder / LOCK if owner else None, BUSY)

    def _prepare(self, database: sqlite3.Connection) -> None:
        super()._prepare(database)
        if self._owner and database.execute("PRAGMA integrity_check(1)").fetchone()[0] != "ok":
            raise self._damaged()

    def overwrite(self) -> int:
        """Write zeros over all of the database, close it and delete it; returns the bytes that were overwritten."""
        with self._mutex:
            with self.faults():
                self.database.execute("PRAGMA wal_checkpoint(FULL)")
            path, log, index = files_of(self.folder)
            total = _zeros(log)  # before closing, which deletes it; all of it is in the database by now
            self.database.close()
            total += wipe([path, log, index])
            self._unlock()
            return total


def files_of(folder: Path) -> tuple[Path, Path, Path]:
    """The database, its log and the index of the log."""
    path = folder / FILE
    return path, path.with_name(f"{FILE}-wal"), path.with_name(f"{FILE}-shm")


def wipe(paths: Sequence[Path]) -> int:
    """Overwrite files with zeros on disk, then delete them; returns their bytes. A missing file is passed over.

    What a file system keeps elsewhere (snapshots, journals, worn cells of flash memory) is out of a program's reach.
    """
    total = 0
    for path in paths:
        if path.exists():
            total += _zeros(path)
            path.unlink()
    for folder in {path.parent for path in paths}:
        descriptor = os.open(folder, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    return total


def _zeros(path: Path) -> int:
    if not path.exists():
        return 0
    length = path.stat().st_size
    with path.open("r+b") as file:
        for start in range(0, length, 1 << 20):
            file.write(bytes(min(1 << 20, length - start)))
        file.flush()
        os.fsync(file.fileno())
    return length


def make_folder(folder: Path) -> None:
    """A folder for its owner's eyes."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput("folder.unwritable", f"cannot be created ({error.strerror})", f"{folder}") from None


def lock(path: Path, busy: str) -> int:
    """Held until the descriptor is closed, also by the end of the process, however it ends; `busy`: why it is refused."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise BadInput("folder.busy", f"{busy}", f"{path.parent}") from None
    return descriptor
