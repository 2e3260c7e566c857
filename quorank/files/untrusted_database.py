"""Bounded reading of untrusted SQLite databases, such as browser histories."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quorank.errors import BadInput, first_line

if TYPE_CHECKING:
    import sqlite3

MOST_SECONDS = 60.0  # time limit on all queries of a database
_MOST_VALUE = 1 << 26  # bytes of a value or a row
_STEPS = 20_000  # steps of SQLite's virtual machine between two checks of the time


class UntrustedDatabase:
    """In-memory copy of an untrusted SQLite database with a time limit on all of its queries.

    Views, triggers, virtual tables and functions of a schema could run forever or reach other files. Only ordinary tables
    are therefore queried, the schema may not call functions, and a time limit interrupts long queries.
    """

    def __init__(self, copy: Path, seconds: float = MOST_SECONDS) -> None:
        """Load a private copy of a database, into which SQLite may recover the log.

        Raises:
            sqlite3.Error: SQLite cannot read the copy.
        """
        import sqlite3

        self._end, self._seconds = time.monotonic() + seconds, seconds
        self.connection = sqlite3.connect(":memory:")
        try:
            with closing(sqlite3.connect(copy)) as source:
                source.backup(self.connection)
            self.connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
            self.connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_VALUE)
            self.connection.execute("PRAGMA trusted_schema = OFF")
            self.connection.execute("PRAGMA cell_size_check = ON")
            self.connection.execute("PRAGMA query_only = ON")
            self.connection.set_progress_handler(lambda: time.monotonic() > self._end, _STEPS)
            (found,) = self.connection.execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                raise sqlite3.DatabaseError(" ".join(str(found).split()))
        except sqlite3.Error as error:
            self.connection.close()
            if time.monotonic() > self._end:
                raise self.refusal(error) from None
            raise
        except (ValueError, OverflowError, MemoryError) as error:  # of the module, for names that are not UTF-8
            self.connection.close()
            raise sqlite3.DatabaseError(first_line(error)) from None

    def close(self) -> None:
        """Free the memory."""
        self.connection.close()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query; reject a damaged database and one that takes too long."""
        import sqlite3

        try:
            return self.connection.execute(query).fetchall()
        except sqlite3.Error as error:
            raise self.refusal(error) from None
        except (MemoryError, OverflowError, ValueError) as error:
            raise damaged_database(error) from None

    def columns(self) -> dict[str, frozenset[str]]:
        """Return the columns of each ordinary table."""
        listed = self.rows("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
        found = {}
        for name, made in listed:
            plain = isinstance(made, str) and not made.lstrip().upper().startswith("CREATE VIRTUAL")
            if isinstance(name, str) and plain and name.replace("_", "").isalnum():
                found[name] = frozenset(str(row[1]) for row in self.rows(f'PRAGMA table_info("{name}")'))
        return found

    def refusal(self, error: sqlite3.Error) -> BadInput:
        """Return the error for an exception of SQLite."""
        if time.monotonic() > self._end:
            sentence = f"reading the database takes more than {self._seconds:g} s; use another, or a backup of it"
            return BadInput("file.too-slow", sentence)
        return damaged_database(error)


def damaged_database(error: BaseException) -> BadInput:
    """Return the error for a database that SQLite cannot read."""
    sentence = f"the database is damaged ({first_line(error)}); let the browser repair it, or use a backup"
    return BadInput("file.damaged", sentence)
