"""SQLite as a service's store: one file in its folder, for the workers and the holder of one machine."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any

from quorank.errors import BadInput, require
from quorank.service.tables import TABLES

APPLICATION = 0x51524E53
"""Marks the file as a service's in its header."""
PATIENCE = 30.0
"""Seconds to wait for another process's transaction."""


class SQLite:
    """One connection. What is committed is on disk (write-ahead log, synchronous = FULL)."""

    def __init__(self, path: Path) -> None:
        self.path, self._mutex, self._lock = path, RLock(), -1
        if not path.exists():
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
        try:
            self.connection = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
            (application,) = self.connection.execute("PRAGMA application_id").fetchone()
            require(application in (0, APPLICATION), "file.other-kind", "this is not a service's file", f"{path}")
            for pragma in (
                f"application_id = {APPLICATION}", "journal_mode = WAL", "synchronous = FULL", "cache_size = -8000"
            ):  # fmt: skip
                self.connection.execute(f"PRAGMA {pragma}")
        except sqlite3.DatabaseError as error:
            raise self._fault(error) from None

    def _fault(self, error: sqlite3.Error) -> Exception:
        """A full disk and a locked file pass; a damaged one does not."""
        name = getattr(error, "sqlite_errorname", "")
        if name.startswith(
            ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_CANTOPEN", "SQLITE_READONLY")
        ):
            return OSError(28 if name.startswith("SQLITE_FULL") else 5, f"the store cannot be written ({name})")
        if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            return BadInput("file.damaged", "the file is damaged; restore it from a backup", f"{self.path}")
        return error

    def execute(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Rows of a statement; of one that changes rows and returns none, one row with how many it changed."""
        with self._mutex:
            try:
                cursor = self.connection.execute(statement, values)
                return cursor.fetchall() if cursor.description else [(cursor.rowcount,)]
            except sqlite3.Error as error:
                raise self._fault(error) from error

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing, and on disk when it ends; nobody else writes meanwhile."""
        with self._mutex:
            self.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.execute("COMMIT")
            except BaseException:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise

    def create(self) -> None:
        """Make the tables where they are not there."""
        with self.transaction():
            for table in TABLES:
                self.execute(table.format(blob="BLOB", serial="INTEGER PRIMARY KEY AUTOINCREMENT"))

    def try_lock(self) -> bool:
        """Take the lock of the holder; it ends with this process."""
        if self._lock < 0:
            self._lock = os.open(self.path.with_name("holder.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(self) -> None:
        """Let go of it."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def now(self) -> float:
        """This machine's clock."""
        return time.time()

    def close(self) -> None:
        """Hang up."""
        self.unlock()
        self.connection.close()
