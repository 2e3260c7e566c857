"""What a store asks of a database, whichever it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar


class Database(ABC):
    """A connection to a database. Statements have `?` for their values; bytes come back as bytes."""

    begin_writing: ClassVar[str]  # begins a transaction that nobody else writes beside
    begin_reading: ClassVar[str]  # begins one that sees a single moment

    @abstractmethod
    def execute(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Rows of a statement; of one that changes rows and returns none, one row with how many it changed."""

    @abstractmethod
    def each(self, statement: str, columns: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
        """All rows of a statement over a table `{given}` of these rows; columns are named with PostgreSQL's types."""

    @abstractmethod
    def begun(self, statement: str) -> AbstractContextManager[None]:
        """A transaction that begins so: all or nothing, and on disk when it ends. OSError where that is not certain."""

    @abstractmethod
    def create(self) -> None:
        """Make the tables (`tables`) where they are not there."""

    @abstractmethod
    def skip_numbers(self, table: str, last: int) -> None:
        """Let the rows to come of a table that numbers its own begin after this number."""

    @abstractmethod
    def try_lock(self) -> bool:
        """Take the lock of the holder, until this process ends or `unlock`; False where another has it."""

    @abstractmethod
    def unlock(self) -> None:
        """Let go of it."""

    @abstractmethod
    def now(self) -> float:
        """Seconds since 1970, by the one clock that all workers and hosts of the store share."""

    @abstractmethod
    def close(self) -> None:
        """Hang up."""

    def transaction(self) -> AbstractContextManager[None]:
        """A transaction beside which nobody else writes."""
        return self.begun(self.begin_writing)

    def snapshot(self) -> AbstractContextManager[None]:
        """What is read inside is of one moment."""
        return self.begun(self.begin_reading)

    def value(self, query: str, *values: Any) -> Any:
        """The first value of the first row; None where there is no row."""
        found = self.execute(query, *values)
        return found[0][0] if found else None
