"""SQLite store of a person's choices: query, document, and the list of the choice; nothing of it ever leaves.

Each choice has the features of the documents in the same band, from which the personal part of the ranker is fitted.
The store also has the parameters of the shared ranker. Forgotten content is erased: no byte of it stays in the folder.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from quorank.errors import require
from quorank.files.private_database import FileKind, PrivateDatabase
from quorank.kernels.arrays import Doubles
from quorank.search.ranking.personal_part import ChosenList, RankerTrial
from quorank.search.ranking.search_features import WINDOW, Document, PastChoices
from quorank.text.tokens import normalised_words

FILE = "choices.sqlite"
MOST_CHOICES = 5000  # maximum number of choices; the oldest are forgotten
MOST_TRIALS = 200
_SCHEMA = """
CREATE TABLE choices (
    id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, query TEXT NOT NULL, source INTEGER NOT NULL, key TEXT NOT NULL,
    rank INTEGER NOT NULL, chosen INTEGER NOT NULL, documents INTEGER NOT NULL, features BLOB NOT NULL, token TEXT NOT NULL
);
CREATE TABLE trials (
    id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, run TEXT NOT NULL, round INTEGER NOT NULL,
    lists INTEGER NOT NULL, difference REAL NOT NULL, error REAL NOT NULL, taken INTEGER NOT NULL
);
CREATE TABLE facts (name TEXT PRIMARY KEY, value BLOB NOT NULL);
INSERT INTO facts VALUES ('version', 0);
"""
_DROP_OLDEST = "DELETE FROM {table} WHERE id NOT IN (SELECT id FROM {table} ORDER BY id DESC LIMIT ?)"
_DROP_RANKERS = "DELETE FROM facts WHERE name = 'shared' OR name LIKE 'mean %'"
CHOICES = FileKind(
    0x51524348,
    1,
    _SCHEMA,
    "this is not a file of choices; choose another folder",
    "the file of choices is damaged; restore it from a copy, or delete it to start over",
)


class StoredChoice(NamedTuple):
    """Stored choice."""

    name: str  # random, under which a device stores the same list
    at: float  # Unix seconds
    query: str
    document: Document
    rank: int


class StoredTrial(NamedTuple):
    """Stored trial of a received ranker."""

    at: float
    run: str
    round: int
    trial: RankerTrial


def query_key(text: str) -> str:
    """Return the normalised words of a query, under which its choices are stored."""
    return " ".join(normalised_words(text).decode().split())


class ChoiceHistory:
    """Choices of one person, in a file and in memory."""

    def __init__(self, folder: Path, n_features: int) -> None:
        self.n_features = n_features
        self._database = PrivateDatabase(folder / FILE, CHOICES)
        self._version = -1
        self._choices: list[StoredChoice] = []

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction that increments the version, so that every process reloads the choices."""
        with self._database.transaction():
            yield self._database.database
            self._database.database.execute("UPDATE facts SET value = value + 1 WHERE name = 'version'")

    @property
    def version(self) -> int:
        """Number that changes with every stored and every forgotten choice."""
        return int(self._database.rows("SELECT value FROM facts WHERE name = 'version'")[0][0])

    # choices

    def add(self, at: float, query: str, document: Document, one: ChosenList) -> str:
        """Store a choice; return its random name, under which a device stores the same list."""
        token, features = secrets.token_hex(16), np.ascontiguousarray(one.features, dtype="<f4")
        row = (at, query_key(query), *document, one.rank, one.chosen, len(features), features.tobytes(), token)
        with self._writing() as database:
            database.execute("INSERT INTO choices VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
            database.execute(_DROP_OLDEST.format(table="choices"), (MOST_CHOICES,))
        return token

    def choices(self) -> list[StoredChoice]:
        """Return all choices, the oldest first."""
        version = self.version
        if version != self._version:
            rows = self._database.rows("SELECT token, at, query, source, key, rank FROM choices ORDER BY id")
            self._choices = [StoredChoice(name, at, q, (source, key), rank) for name, at, q, source, key, rank in rows]
            self._version = version
        return self._choices

    def past(self, query: str) -> PastChoices:
        """Return the earlier choices for a query."""
        key, choices = query_key(query), self.choices()
        here = [choice.document for choice in choices if choice.query == key][-WINDOW:]
        others = [choice for choice in choices if choice.query != key]
        longer = [choice.document for choice in others if key and choice.query.startswith(key)][-WINDOW:]
        opened: dict[Document, list[float]] = {}
        for choice in others:
            opened.setdefault(choice.document, []).append(choice.at)
        return PastChoices(Counter(here), len(here), Counter(longer), len(longer), opened)

    def lists(self, newest: int) -> list[ChosenList]:
        """Return the newest choices with their lists, the oldest first."""
        columns = "features, documents, chosen, rank, query"
        rows = self._database.rows(f"SELECT {columns} FROM choices ORDER BY id DESC LIMIT ?", newest)
        found = []
        for raw, documents, chosen, rank, query in reversed(rows):
            self._require_intact(len(raw) == 4 * documents * self.n_features and 0 <= chosen < documents)
            features = np.frombuffer(raw, dtype="<f4").reshape(documents, self.n_features).astype(np.float32)
            found.append(ChosenList(features, chosen, rank, query))
        return found

    def _require_intact(self, intact: bool) -> None:
        require(intact, "file.damaged", CHOICES.damaged, f"{self._database.path}")

    def forget(self, names: Sequence[str], *, all_: bool = False) -> None:
        """Erase choices by their names; with `all_` also the shared ranker and all trials."""
        with self._writing() as database:
            database.executemany("DELETE FROM choices WHERE token = ?", [(name,) for name in names])
            if all_:
                database.execute("DELETE FROM trials")
                database.execute(_DROP_RANKERS)
        self._database.overwrite_deleted()

    # the shared ranker

    @property
    def shared(self) -> Doubles | None:
        """Parameters of the last accepted shared ranker; None before the first."""
        return self._numbers("shared", self.n_features)

    def _numbers(self, name: str, size: int) -> Doubles | None:
        """Return stored numbers; None without any."""
        found = self._database.rows("SELECT value FROM facts WHERE name = ?", name)
        if not found:
            return None
        self._require_intact(len(found[0][0]) == 8 * size)
        return np.frombuffer(found[0][0], dtype="<f8").astype(np.float64)

    def last_tried(self, run: str) -> int:
        """Return the round of the last tried ranker of a run; −1 before the first."""
        found = self._database.rows("SELECT round FROM trials WHERE run = ? ORDER BY id DESC LIMIT 1", run)
        return int(found[0][0]) if found else -1

    def mean(self, run: str) -> tuple[Doubles, int] | None:
        """Return the mean of the received rankers of a run, and their number; None before the first."""
        found = self._numbers(f"mean {run}", self.n_features + 1)
        return None if found is None else (found[:-1], int(found[-1]))

    def note_trial(self, at: float, run: str, round_: int, trial: RankerTrial, theta: Doubles, count: int) -> None:
        """Store the result of a trial of the mean of `count` rankers, and the mean."""
        facts = [(f"mean {run}", np.append(theta, count)), *([("shared", theta)] if trial.taken else [])]
        with self._writing() as database:
            database.execute("INSERT INTO trials VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)", (at, run, round_, *trial))
            database.execute(_DROP_OLDEST.format(table="trials"), (MOST_TRIALS,))
            for name, numbers in facts:
                database.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, numbers.astype("<f8").tobytes()))

    def trials(self) -> list[StoredTrial]:
        """Return the trials, the newest first."""
        columns = "at, run, round, lists, difference, error, taken"
        rows = self._database.rows(f"SELECT {columns} FROM trials ORDER BY id DESC")
        return [StoredTrial(at, run, round_, RankerTrial(*trial)) for at, run, round_, *trial in rows]

    def drop_shared(self) -> None:
        """Restore the shipped ranker."""
        with self._writing() as database:
            database.execute(_DROP_RANKERS)
