"""SQLite store of a service: one file in its folder, for the processes of one machine."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any

from quorank.errors import BadInput, require
from quorank.files.atomic import ProcessLock
from quorank.service.store.database import Database, schema

APPLICATION = 0x51524E56  # application id in the file's header
PATIENCE = 10.0  # timeout for another process's transaction, seconds
_PASSING = ("FULL", "IOERR", "BUSY", "LOCKED", "CANTOPEN", "READONLY", "PERM", "PROTOCOL", "NOMEM", "INTERRUPT")


class SQLite(Database):
    """Connection with durable commits (write-ahead log, synchronous = FULL)."""

    begin_writing, begin_reading = "BEGIN IMMEDIATE", "BEGIN"

    def __init__(self, path: Path, patience: float = PATIENCE) -> None:
        self.path, self._patience, self._mutex = path, patience, RLock()
        self._lock = ProcessLock(path.with_name("holder.lock"))
        if not path.exists():
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
        self._open()
        if self.value("PRAGMA application_id") != APPLICATION:
            with self.transaction():
                for statement in schema("BLOB", "INTEGER PRIMARY KEY AUTOINCREMENT", " WITHOUT ROWID"):
                    self.execute(statement)
                self.execute(f"PRAGMA application_id = {APPLICATION}")

    def _open(self) -> None:
        with self._faults():
            self.connection = sqlite3.connect(
                self.path, timeout=self._patience, isolation_level=None, check_same_thread=False
            )
            try:
                self._prepare()
            except BaseException:
                self.connection.close()
                raise

    def _prepare(self) -> None:
        (tables,) = self.connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        (application,) = self.connection.execute("PRAGMA application_id").fetchone()  # second: written with the tables
        known = application == APPLICATION or (application == 0 and tables == 0)
        require(known, "file.other-kind", "this is not a service's file; choose another folder", f"{self.path}")
        until = time.monotonic() + self._patience
        while self.connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            try:
                self.connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError:  # another process does the same; SQLite does not wait for it
                if time.monotonic() > until:
                    raise
                time.sleep(0.01)
        for pragma in ("synchronous = FULL", "cache_size = -8000", "journal_size_limit = 16777216"):
            self.connection.execute(f"PRAGMA {pragma}")

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """Translate temporary failures to OSError and damage to BadInput."""
        damaged = BadInput("file.damaged", "the file is damaged; restore it from a backup", f"{self.path}")
        try:
            yield
        except UnicodeDecodeError:  # a string in a damaged table, or a message that quotes one
            raise damaged from None
        except sqlite3.Error as error:
            name = getattr(error, "sqlite_errorname", "").removeprefix("SQLITE_")
            if name.startswith(("CORRUPT", "NOTADB")):
                raise damaged from None
            if name.startswith(_PASSING):
                number = errno.ENOSPC if name == "FULL" else errno.EAGAIN if name.startswith("BUSY") else errno.EIO
                raise OSError(number, f"the store cannot be used at the moment ({name})", f"{self.path}") from None
            raise

    def execute(self, statement: str, *values: Any) -> list[Any]:
        with self._mutex, self._faults():
            cursor = self.connection.execute(statement, values)
            return cursor.fetchall() if cursor.description else [(cursor.rowcount,)]

    def each(self, statement: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[Any]:
        prepared = statement.format(given=f"(SELECT {', '.join(f'? AS {name}' for name in columns)}) AS given")
        found: list[Any] = []
        with self._mutex, self._faults():
            for row in rows:
                found += self.connection.execute(prepared, row)
        return found

    @contextmanager
    def begun(self, statement: str) -> Iterator[None]:
        with self._mutex:
            self.execute(statement)
            try:
                yield
                self.execute("COMMIT")
            except BaseException:
                if self.connection.in_transaction:
                    with contextlib.suppress(sqlite3.Error):
                        self.connection.execute("ROLLBACK")
                if self.connection.in_transaction:  # the disk refuses the rollback; a new connection has no transaction
                    self.connection.close()
                    self._open()
                raise

    def skip_numbers(self, table: str, last: int) -> None:
        self.execute("DELETE FROM sqlite_sequence WHERE name = ?", table)
        self.execute("INSERT INTO sqlite_sequence VALUES (?, ?)", table, last)

    def try_lock(self) -> bool:
        return self._lock.acquire()

    def unlock(self) -> None:
        self._lock.release()

    def now(self) -> float:
        return time.time()

    def close(self) -> None:
        self.unlock()
        with self._mutex:
            self.connection.close()
