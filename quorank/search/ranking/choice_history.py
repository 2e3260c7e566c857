"""SQLite store of a person's choices: query, document, and the list of the choice; nothing of it ever leaves.

Each choice has the features of the documents in the same band, from which the personal part of the ranker is fitted.
The store also has the parameters of the shared ranker. Forgotten content is erased: no byte of it stays in the folder.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from quorank.errors import require
from quorank.files.private_database import FileKind, PrivateDatabase
from quorank.kernels.arrays import Doubles
from quorank.search.ranking.personal_part import ChosenList, RankerTrial
from quorank.search.ranking.search_features import WINDOW, Document, PastChoices
from quorank.text.tokens import normalised_words

FILE = "choices.sqlite"
MOST_CHOICES = 5000
"""Maximum number of choices; the oldest are forgotten."""
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
"""
CHOICES = FileKind(
    0x51524348,
    1,
    _SCHEMA,
    "this is not a file of choices; choose another folder",
    "the file of choices is damaged; restore it from a copy, or delete it to start over",
)


class StoredChoice(NamedTuple):
    """Stored choice."""

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
        self._choices: list[tuple[StoredChoice, str]] = []

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    # choices

    def add(self, at: float, query: str, document: Document, one: ChosenList) -> str:
        """Store a choice; return its random name, under which a device stores the same list."""
        token = secrets.token_hex(16)
        features = np.ascontiguousarray(one.features, dtype="<f4")
        with self._database.transaction():
            execute = self._database.database.execute
            execute(
                "INSERT INTO choices (at, query, source, key, rank, chosen, documents, features, token)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (at, query_key(query), *document, one.rank, one.chosen, len(features), features.tobytes(), token),
            )
            execute(
                "DELETE FROM choices WHERE id NOT IN (SELECT id FROM choices ORDER BY id DESC LIMIT ?)", (MOST_CHOICES,)
            )
            self._bump_version()
        return token

    def _bump_version(self) -> None:
        """Increment the version, so that every process reloads the choices; inside a transaction."""
        now = self._number("version") + 1
        self._set("version", now.to_bytes(8, "little"))

    def _number(self, name: str) -> int:
        return int.from_bytes(self._fact(name) or b"", "little")

    def _fact(self, name: str) -> bytes | None:
        found = self._database.rows("SELECT value FROM facts WHERE name = ?", name)
        return bytes(found[0][0]) if found else None

    def _set(self, name: str, value: bytes) -> None:
        self._database.database.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    @property
    def version(self) -> int:
        """Number that changes with every stored and every forgotten choice."""
        return self._number("version")

    def choices(self) -> list[StoredChoice]:
        """Return all choices, the oldest first."""
        self._load()
        return [choice for choice, _ in self._choices]

    def _load(self) -> None:
        version = self.version
        if version != self._version:
            rows = self._database.rows("SELECT at, query, source, key, rank, token FROM choices ORDER BY id")
            self._choices = [
                (StoredChoice(at, q, (source, key), rank), token) for at, q, source, key, rank, token in rows
            ]
            self._version = version

    def past(self, query: str) -> PastChoices:
        """Return the earlier choices for a query."""
        self._load()
        key, here, longer = query_key(query), list[Document](), list[Document]()
        opened: dict[Document, list[float]] = {}
        for choice, _ in self._choices:
            if choice.query == key:
                here.append(choice.document)
                continue
            opened.setdefault(choice.document, []).append(choice.at)
            if key and choice.query.startswith(key):
                longer.append(choice.document)
        here, longer = here[-WINDOW:], longer[-WINDOW:]
        times = {document: tuple(at) for document, at in opened.items()}
        return PastChoices(Counter(here), len(here), Counter(longer), len(longer), times)

    def lists(self, newest: int) -> list[ChosenList]:
        """Return the newest choices with their lists, the oldest first."""
        rows = self._database.rows(
            "SELECT features, documents, chosen, rank, query FROM choices ORDER BY id DESC LIMIT ?", newest
        )
        found = []
        for raw, documents, chosen, rank, query in reversed(rows):
            valid = len(raw) == 4 * documents * self.n_features and 0 <= chosen < documents
            require(valid, "file.damaged", CHOICES.damaged, f"{self._database.path}")
            features = np.frombuffer(raw, dtype="<f4").reshape(documents, self.n_features).astype(np.float32)
            found.append(ChosenList(features, chosen, rank, query))
        return found

    # forgetting

    def names(self, *, document: Document | None = None, query: str | None = None, all_: bool = False) -> list[str]:
        """Return the names of the choices of a document, for a query, or of all."""
        self._load()
        key = None if query is None else query_key(query)
        return [token for choice, token in self._choices if all_ or choice.document == document or choice.query == key]

    def forget(self, names: Sequence[str], *, all_: bool = False) -> None:
        """Erase choices by their names; with `all_` also the shared ranker and all trials."""
        with self._database.transaction():
            self._database.database.executemany("DELETE FROM choices WHERE token = ?", [(name,) for name in names])
            if all_:
                self._database.database.execute("DELETE FROM trials")
                self._database.database.execute("DELETE FROM facts WHERE name = 'shared' OR name LIKE 'mean %'")
            self._bump_version()
        self._database.overwrite_deleted()

    # the shared ranker

    @property
    def shared(self) -> Doubles | None:
        """Parameters of the last accepted shared ranker; None before the first."""
        raw = self._parameters("shared")
        return None if raw is None else np.frombuffer(raw, dtype="<f8").astype(np.float64)

    def _parameters(self, name: str, before: int = 0) -> bytes | None:
        """Return stored parameters with some bytes before them; None without any."""
        raw = self._fact(name)
        fits = raw is None or len(raw) == before + 8 * self.n_features
        require(fits, "file.damaged", CHOICES.damaged, f"{self._database.path}")
        return raw

    def last_tried(self, run: str) -> int:
        """Return the round of the last tried ranker of a run; −1 before the first."""
        found = self._database.rows("SELECT round FROM trials WHERE run = ? ORDER BY id DESC LIMIT 1", run)
        return int(found[0][0]) if found else -1

    def mean(self, run: str) -> tuple[Doubles, int] | None:
        """Return the mean of the received rankers of a run, and their number; None before the first."""
        raw = self._parameters(f"mean {run}", before=8)
        if raw is None:
            return None
        return np.frombuffer(raw[8:], dtype="<f8").astype(np.float64), int.from_bytes(raw[:8], "little")

    def note_trial(self, at: float, run: str, round_: int, trial: RankerTrial, theta: Doubles, count: int) -> None:
        """Store the result of a trial of the mean of `count` rankers, and the mean."""
        with self._database.transaction():
            self._database.database.execute(
                "INSERT INTO trials (at, run, round, lists, difference, error, taken) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (at, run, round_, trial.lists, trial.difference, trial.error, int(trial.taken)),
            )
            self._database.database.execute(
                "DELETE FROM trials WHERE id NOT IN (SELECT id FROM trials ORDER BY id DESC LIMIT ?)", (MOST_TRIALS,)
            )
            self._set(f"mean {run}", count.to_bytes(8, "little") + theta.astype("<f8").tobytes())
            if trial.taken:
                self._set("shared", theta.astype("<f8").tobytes())
            self._bump_version()

    def trials(self) -> list[StoredTrial]:
        """Return the trials, the newest first."""
        rows: list[tuple[Any, ...]] = self._database.rows(
            "SELECT at, run, round, lists, difference, error, taken FROM trials ORDER BY id DESC"
        )
        return [
            StoredTrial(at, run, round_, RankerTrial(lists, difference, error, bool(taken)))
            for at, run, round_, lists, difference, error, taken in rows
        ]

    def drop_shared(self) -> None:
        """Go back to the shipped ranker."""
        with self._database.transaction():
            self._database.database.execute("DELETE FROM facts WHERE name = 'shared' OR name LIKE 'mean %'")
            self._bump_version()
