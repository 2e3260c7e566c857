"""SQLite databases of private state: mode 0600, one writing process, committed transactions survive a power cut.

Damaged files, files of newer versions and files of other kinds are rejected.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple

from quorank.errors import BadInput, require
from quorank.files.atomic import ProcessLock, check_private, make_folder, sync_to_disk
from quorank.files.documents import json_bytes, parse_json

SYNCHRONOUS = "FULL"  # committed transactions survive a power cut; tests, which only end processes, set OFF
_PATIENCE = 10.0  # seconds to wait for another process's transaction


class Damaged(BadInput):
    """Error of a damaged database."""


class FileKind(NamedTuple):
    """Kind of a private database: its SQLite application id and version, its schema, and sentences for its owner."""

    application: int
    version: int
    schema: str
    other: str  # sentence for a file of another kind
    damaged: str  # sentence for a damaged file


class PrivateDatabase:
    """Open database of a kind; changes are made inside `transaction`.

    Args:
        path: File, created if it is missing; None for a database in memory.
        kind: Expected kind of the file.
        lock_file: Lock that this process holds while the database is open.
        busy: Sentence if another process holds the lock.
    """

    def __init__(self, path: Path | None, kind: FileKind, lock_file: Path | None = None, busy: str = "") -> None:
        self.path, self.kind, self._mutex = path, kind, RLock()
        self._unlock: Callable[[], object] = lambda: None
        if path is not None and path.parent.is_dir():
            check_private(path.parent)
            _check_regular(lock_file, *(path.with_name(path.name + end) for end in ("", "-wal", "-shm", "-journal")))
        if lock_file is not None:
            make_folder(lock_file.parent, private=True)
            lock = ProcessLock(lock_file)
            require(lock.acquire(), "folder.busy", busy, f"{lock_file.parent}")
            self._unlock = weakref.finalize(self, lock.release)
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
        names = ("application_id", "user_version")
        application, version = (int(database.execute(f"PRAGMA {name}").fetchone()[0]) for name in names)
        empty = database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        if not (empty and application == 0 and version == 0):  # neither new nor left half-made by a killed process
            require(application == kind.application, "file.other-kind", kind.other, where)
            sentence = f"has version {version} of a newer Quorank, this one reads {kind.version}; install the newer one"
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
        """Commit all changes of the block to disk, or none of them if it raises."""
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
        """Return the rows of a query."""
        with self._mutex, self.faults():
            return self.database.execute(query, values).fetchall()

    def overwrite_deleted(self) -> None:
        """Remove every trace of deleted rows from the files.

        SQLite overwrites freed cells (secure_delete) but not earlier copies of moved ones. The remaining rows are therefore
        copied to a fresh file and from there over all pages; then the write-ahead log is checkpointed and truncated.
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
        sentence = "deleted, but another process still reads the log with the deleted rows; close it and forget again"
        require(not busy, "file.busy", sentence, f"{self.path}")

    def remove_copy(self) -> None:
        """Remove the fresh copy and its journal that a killed `overwrite_deleted` left."""
        assert self.path is not None
        fresh = self.path.with_suffix(".fresh")
        for left in (fresh, fresh.with_name(f"{fresh.name}-journal")):
            left.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the database and release the lock."""
        with self._mutex:
            self.database.close()
            self._unlock()

    @contextmanager
    def faults(self) -> Iterator[None]:
        """Translate SQLite's errors into sentences for the owner."""
        try:
            yield
        except sqlite3.ProgrammingError:
            raise
        except UnicodeDecodeError:  # of a stored string, or of SQLite's message that quotes one
            raise self._damaged() from None
        except sqlite3.Error as error:
            code, where = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF, f"{self.path}"
            if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):
                raise self._damaged() from None
            if code == sqlite3.SQLITE_BUSY:
                raise BadInput("file.busy", "another process is writing to it; try again later", where) from None
            if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
                raise BadInput("file.unwritable", "cannot be opened for writing; check its owner", where) from None
            number = errno.ENOSPC if code == sqlite3.SQLITE_FULL else errno.EIO
            raise OSError(number, os.strerror(number), where) from None


def _check_regular(*paths: Path | None) -> None:
    """Reject links and pipes in place of files, which another account may have planted."""
    for path in filter(None, paths):
        with suppress(FileNotFoundError):
            sentence = "is a link or no file, which this program never makes; remove it"
            require(stat.S_ISREG(path.lstat().st_mode), "file.not-regular", sentence, f"{path}")


class Facts:
    """Single values by name in the table `facts (name TEXT PRIMARY KEY, value BLOB NOT NULL)`.

    Subclasses execute the queries. A change outside a transaction is committed at once.
    """

    path: Path | None = None
    advice = "restore the file from a copy, or move it away and join again"

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Execute a query and return its rows."""
        raise NotImplementedError

    def fact(self, name: str) -> bytes | None:
        """Return the bytes stored under a name."""
        found = self.rows("SELECT value FROM facts WHERE name = ?", name)
        value = found[0][0] if found else None
        self.check_stored(value is None or isinstance(value, bytes), name)
        return value

    def set_fact(self, name: str, value: bytes) -> None:
        """Store bytes under a name."""
        conflict = "ON CONFLICT (name) DO UPDATE SET value = excluded.value"
        self.rows(f"INSERT INTO facts VALUES (?, ?) {conflict}", name, value)

    def drop_fact(self, name: str) -> None:
        """Delete the value under a name."""
        self.rows("DELETE FROM facts WHERE name = ?", name)

    def note(self, name: str, hint: Any = Any, default: Any = None) -> Any:
        """Return the JSON value stored under a name, decoded by an annotation."""
        found = self.fact(name)
        return default if found is None else parse_json(found, hint, f"{self.path}: {name}")

    def set_note(self, name: str, value: Any) -> None:
        """Store a JSON value under a name."""
        self.set_fact(name, json_bytes(value))

    def check_stored(self, intact: bool, name: str) -> None:
        """Reject a value that this program did not store."""
        require(intact, "file.damaged", f"the stored {name} is damaged; {self.advice}", f"{self.path}")


def wipe(paths: Sequence[Path]) -> int:
    """Overwrite files with zeros on disk and delete them; return the bytes overwritten. Missing files are skipped.

    A program cannot reach copies that a file system keeps elsewhere (snapshots, journals, worn flash cells).
    """
    total = 0
    for path in paths:
        total += overwrite_with_zeros(path)
        path.unlink(missing_ok=True)
    for folder in {path.parent for path in paths}:
        sync_to_disk(folder)
    return total


def overwrite_with_zeros(path: Path) -> int:
    """Overwrite a file with zeros on disk; return its bytes, 0 for a missing file."""
    if not path.exists():
        return 0
    length = path.stat().st_size
    with path.open("r+b") as file:
        for start in range(0, length, 1 << 20):
            file.write(bytes(min(1 << 20, length - start)))
        file.flush()
        os.fsync(file.fileno())
    return length
