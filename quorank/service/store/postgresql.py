"""PostgreSQL as a service's store, for several workers and hosts.

Every transaction that writes begins with a lock of the one row of `service`, so they follow each other; with READ
COMMITTED each sees all that the one before has committed. A connection that was lost is made anew by the next call; what
it was in the middle of is an OSError, and nothing of it may be confirmed.
"""

from __future__ import annotations

import contextlib
import errno
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from threading import RLock
from typing import Any
from urllib.parse import unquote, urlsplit

from quorank.errors import BadInput, first_line, require
from quorank.service.store.database import Database, schema

try:
    import psycopg
except ImportError:
    sentence = "PostgreSQL needs the package psycopg: pip install 'quorank[postgres]'"
    raise BadInput("database.no-driver", sentence, "--database") from None

PATIENCE = 10
"""Timeout for another transaction, seconds; the database ends one that is idle three times as long."""
_LOCK = 0x51524E53
_CLOCK_SECONDS = 60.0  # seconds for which the clock difference is reused
_SESSION = """
SET lock_timeout = '{patience}s';
SET idle_in_transaction_session_timeout = '{idle}s';
SET tcp_keepalives_idle = 10;
SET tcp_keepalives_interval = 5;
SET tcp_keepalives_count = 3;
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') IN ('off', 'local');
"""
_DEFAULTS: dict[str, Any] = {
    "application_name": "quorank", "connect_timeout": 10, "keepalives_idle": 10, "keepalives_interval": 5,
    "keepalives_count": 3, "tcp_user_timeout": 25_000,
}  # fmt: skip


class PostgreSQL(Database):
    """Connection for statements, another one for the holder's lock."""

    begin_writing = "BEGIN; SELECT 1 FROM service WHERE id = 1 FOR UPDATE"
    begin_reading = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

    def __init__(self, url: str) -> None:
        self._url, self._mutex = url, RLock()
        self._connection: psycopg.Connection[Any] | None = None
        self._holder: psycopg.Connection[Any] | None = None
        self._inside: psycopg.Connection[Any] | None = None  # with an open transaction
        self._offset, self._asked = 0.0, float("-inf")
        self._password = _check_url(url)
        try:
            self._connected()
        except OSError as error:
            raise BadInput("database.unreachable", f"{error.strerror}", "--database") from None

    def _connect(self) -> psycopg.Connection[Any]:
        with self._faults():
            given = psycopg.conninfo.conninfo_to_dict(self._url)
            made: psycopg.Connection[Any] = psycopg.connect(autocommit=True, **{**_DEFAULTS, **given})
            try:
                made.execute(_SESSION.format(patience=PATIENCE, idle=3 * PATIENCE))
            except BaseException:
                made.close()
                raise
            return made

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            self._connection = self._connect()
        return self._connection

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """Translate temporary failures to OSError; errors of a statement stay."""
        try:
            yield
        except (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError) as error:
            number = errno.ENOSPC if error.sqlstate == "53100" else errno.EIO
            why = error.diag.message_primary or first_line(error)
            why = why.replace(self._password, "…") if self._password else why
            raise OSError(number, f"the database cannot be used at the moment ({why})") from None
        except psycopg.errors.InsufficientPrivilege as error:
            raise BadInput("database.refused", f"{error.diag.message_primary}", "--database") from None

    def execute(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._mutex:
            if self._inside is not None:  # always on the transaction's connection
                return self._run(self._inside, statement, values)
            connection = self._connected()
            try:
                return self._run(connection, statement, values)
            except OSError:
                if connection.closed and statement.startswith("SELECT"):  # PostgreSQL was restarted
                    return self._run(self._connected(), statement, values)
                raise

    def _run(self, connection: psycopg.Connection[Any], statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        with self._faults():
            cursor = connection.execute(_translated(statement), values, binary=True)
            return cursor.fetchall() if cursor.description else [(cursor.rowcount,)]

    def each(self, statement: str, columns: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
        if not rows:
            return []
        arrays = ", ".join(f"?::{kind}[]" for kind in columns.values())
        prepared = statement.format(given=f"unnest({arrays}) AS given({', '.join(columns)})")
        found = self.execute(prepared, *map(list, zip(*rows, strict=True)))
        return found if "RETURNING" in statement or statement.startswith("SELECT") else []

    @contextmanager
    def begun(self, statement: str) -> Iterator[None]:
        with self._mutex:
            if self._inside is not None:
                raise RuntimeError("a transaction inside another one would end it")
            connection = self._connected()
            try:
                with self._faults():
                    connection.execute(statement)
            except OSError:
                if not connection.closed:
                    with contextlib.suppress(psycopg.Error):
                        connection.rollback()
                    raise
                connection = self._connected()  # lost while idle: retry on a new connection
                with self._faults():
                    connection.execute(statement)
            self._inside = connection
            try:
                yield
                with self._faults():
                    connection.execute("COMMIT")
            except BaseException:
                try:
                    connection.rollback()
                except psycopg.Error:
                    connection.close()
                raise
            finally:
                self._inside = None

    def create(self) -> None:
        if self.value("SELECT to_regclass('events') IS NOT NULL AND to_regclass('admitted_members') IS NOT NULL"):
            return
        with self.begun(f"BEGIN; SELECT pg_advisory_xact_lock({_LOCK}, hashtext('create'))"):
            for made in schema("BYTEA", "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY", ""):
                self.execute(made)

    def skip_numbers(self, table: str, last: int) -> None:
        self.execute("SELECT setval(pg_get_serial_sequence(?, 'id'), ?)", table, max(1, last))

    def try_lock(self) -> bool:
        """Take the holder's lock, which ends with this process and with the server."""
        with self._mutex:
            if self._holder is None or self._holder.closed:
                self._holder = self._connect()
            question = "SELECT pg_try_advisory_lock(?, hashtext(current_schema()))"
            return bool(self._run(self._holder, question, (_LOCK,))[0][0])

    def unlock(self) -> None:
        if self._holder is not None:
            with contextlib.suppress(psycopg.Error):  # free at once, before the server notices the end
                self._holder.execute("SELECT pg_advisory_unlock_all()")
            self._holder.close()
            self._holder = None

    def now(self) -> float:
        """Return the database's time; the difference to the monotonic clock is measured once a minute."""
        before = time.monotonic()
        if before - self._asked > _CLOCK_SECONDS:
            with self._mutex:
                before = time.monotonic()
                there = self.value("SELECT extract(epoch FROM clock_timestamp())::double precision")
                after = time.monotonic()
                self._offset, self._asked = there - (before + after) / 2.0, after
        return time.monotonic() + self._offset

    def close(self) -> None:
        self.unlock()
        with self._mutex:
            if self._connection is not None:
                self._connection.close()


@cache
def _translated(statement: str) -> str:
    return statement.replace("?", "%s")


def _check_url(url: str) -> str:
    """Return the password in a URL; reject one that libpq would parse differently, without showing it."""
    sentence = (
        "expected postgresql://user:password@host:port/name, with @ : / ? # % in a password written as %40 and so on"
    )
    try:
        parts = urlsplit(url)
        good = parts.netloc.count("@") <= 1 and re.fullmatch(r"[^@/?#]*", parts.netloc.rpartition("@")[2])
        psycopg.conninfo.conninfo_to_dict(url)
    except (ValueError, psycopg.Error):
        good = None
    require(good, "database.unknown", sentence, "--database")
    return unquote(parts.password or "")
