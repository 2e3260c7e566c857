"""Interface of a service's database, and its tables."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

FORMAT = 3  # version of the tables, checked for equality

TABLES = {
    "service": "id INTEGER PRIMARY KEY, format INTEGER NOT NULL, epoch BIGINT NOT NULL, version BIGINT NOT NULL,"
    " filled BIGINT NOT NULL, turns BIGINT NOT NULL",
    "documents": "name TEXT PRIMARY KEY, content {blob} NOT NULL",
    "publication": "id INTEGER PRIMARY KEY, number BIGINT NOT NULL, kind TEXT NOT NULL, run TEXT NOT NULL,"
    " round BIGINT NOT NULL, next DOUBLE PRECISION NOT NULL, room BIGINT NOT NULL, most BIGINT NOT NULL,"
    " rest BIGINT NOT NULL, opened DOUBLE PRECISION NOT NULL, signature {blob} NOT NULL, content {blob} NOT NULL,"
    " asked {blob} NOT NULL, limits {blob} NOT NULL",
    "members": "number BIGINT PRIMARY KEY, name TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, code {blob} UNIQUE,"
    " key {blob} UNIQUE, invited DOUBLE PRECISION NOT NULL, enrolled DOUBLE PRECISION, revoked DOUBLE PRECISION,"
    " gone DOUBLE PRECISION, seen DOUBLE PRECISION, program TEXT",
    "listed": "position BIGINT PRIMARY KEY, entry {blob} NOT NULL, digest {blob} NOT NULL",
    "turns": "run TEXT NOT NULL, member BIGINT NOT NULL, taken BIGINT NOT NULL, last BIGINT NOT NULL,"
    " PRIMARY KEY (run, member)",
    "tokens": "digest {blob} PRIMARY KEY, quota BIGINT NOT NULL, used BIGINT NOT NULL, ends DOUBLE PRECISION NOT NULL",
    "replies": "id {serial}, run TEXT NOT NULL, round BIGINT NOT NULL, member BIGINT NOT NULL, content {blob} NOT NULL,"
    " UNIQUE (run, round, member)",
    "letters": "id {serial}, member BIGINT NOT NULL, turn BIGINT UNIQUE, content {blob} NOT NULL, answer {blob}",
    "leaving": "member BIGINT PRIMARY KEY, at DOUBLE PRECISION NOT NULL, request {blob} NOT NULL, receipt {blob}",
    "events": "id {serial}, at DOUBLE PRECISION NOT NULL, event TEXT NOT NULL, facts TEXT NOT NULL",
    "tallies": "name TEXT PRIMARY KEY, count BIGINT NOT NULL",
    "nonces": "slot BIGINT NOT NULL, member BIGINT NOT NULL, nonce {blob} NOT NULL, PRIMARY KEY (slot, member, nonce)",
    "facts": "name TEXT PRIMARY KEY, value {blob} NOT NULL",
    "places": "peer TEXT PRIMARY KEY, came BIGINT NOT NULL, done BIGINT NOT NULL, sent BIGINT NOT NULL,"
    " heard BIGINT NOT NULL",
    "sending": "peer TEXT NOT NULL, place BIGINT NOT NULL, ends BIGINT NOT NULL, tag TEXT NOT NULL,"
    " content {blob} NOT NULL, PRIMARY KEY (peer, place)",
    "coming": "peer TEXT NOT NULL, place BIGINT NOT NULL, ends BIGINT NOT NULL, content {blob} NOT NULL,"
    " PRIMARY KEY (peer, place)",
}
"""Columns by table; `{blob}` and `{serial}` stand for each database's bytes and automatic row number.

`service` has one row: the holder's epoch, the version of what workers read, the number of replies of the open round, and
the number of answers ever given, which orders them in `letters.turn`. `listed` is the list of members
(`protocol.member_list`): position 0 holds the bytes that name it, and the digest of an empty list. `turns` counts the
replies of a member in a run. `nonces` is cut into slots of time, so that expired ones are deleted together. `facts`,
`places`, `sending` and `coming` hold a group's session (`silos.session.streams`).
"""

INDEXES = (
    "CREATE INDEX IF NOT EXISTS open_letters ON letters (member, id) WHERE answer IS NULL",
    "CREATE INDEX IF NOT EXISTS admitted_members ON members (number)"
    " WHERE key IS NOT NULL AND revoked IS NULL AND gone IS NULL",
)


def columns_of(table: str) -> dict[str, str]:
    """Return the columns of a table with PostgreSQL's names of their types."""
    found = re.findall(r"(\w+) (\{\w+\}|TEXT|BIGINT|INTEGER|DOUBLE PRECISION)", TABLES[table])
    return {name: {"{blob}": "bytea", "{serial}": "bigint"}.get(kind, kind.lower()) for name, kind in found}


# types of all columns: columns of one name have one type
TYPES = {name: kind for table in reversed(TABLES) for name, kind in columns_of(table).items()} | {"id": "bigint"}


def schema(blob: str, serial: str, compact: str) -> list[str]:
    """Return the statements that create the tables; `compact` follows the columns of tables without a row number."""
    tables = [
        f"CREATE TABLE IF NOT EXISTS {name} ({columns.format(blob=blob, serial=serial)})"
        + (compact if name in ("nonces", "turns") else "")
        for name, columns in TABLES.items()
    ]
    return [*tables, *INDEXES, f"INSERT INTO service VALUES (1, {FORMAT}, 0, 0, 0, 0) ON CONFLICT DO NOTHING"]


class Database(ABC):
    """Connection to a database with all tables. Statements have `?` for their values; bytes come back as bytes."""

    begin_writing: ClassVar[str]  # begins a transaction that excludes other writers
    begin_reading: ClassVar[str]  # begins a transaction that sees a single moment

    @abstractmethod
    def execute(self, statement: str, *values: Any) -> list[Any]:
        """Return the rows of a statement; one row with the number of changed rows where it returns none."""

    @abstractmethod
    def each(self, statement: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[Any]:
        """Return the rows of a statement over a table `{given}` of these rows; columns are named as in `TYPES`."""

    @abstractmethod
    def begun(self, statement: str) -> AbstractContextManager[None]:
        """Open a transaction: all or nothing, and on disk when it ends. OSError where that is not certain."""

    @abstractmethod
    def skip_numbers(self, table: str, last: int) -> None:
        """Begin the automatic numbers of a table after this one."""

    @abstractmethod
    def try_lock(self) -> bool:
        """Take the holder's lock until this process ends or `unlock`; False where another process has it."""

    @abstractmethod
    def unlock(self) -> None:
        """Release the holder's lock."""

    @abstractmethod
    def now(self) -> float:
        """Return the seconds since 1970 by the clock that all workers and hosts of the store share."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    def transaction(self) -> AbstractContextManager[None]:
        """Open a transaction that excludes other writers."""
        return self.begun(self.begin_writing)

    def value(self, query: str, *values: Any) -> Any:
        """Return the first value of the first row; None without a row."""
        found = self.execute(query, *values)
        return found[0][0] if found else None
