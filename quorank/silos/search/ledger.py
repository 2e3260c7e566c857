"""Ledger of what an owner has told in searches: entries (document, column) by asker, questions by day, releases.

One SQLite file for the owner's eyes (mode 0600). A question is charged in one transaction that is on disk before its
answer is made; a question that would pass a limit is refused and charges nothing. An entry that an asker was told costs
nothing when it is told again. Totals are counted from the entries when the file is opened.

Documents have numbers by their content: a document that is changed gets a new one, and no number is used again, since the
noise of a cell belongs to the number. What is told under a new secret, ε or key of the group is a new release: it must be
asked for, costs ε again, and the entries of all releases count.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from quorank.errors import require
from quorank.files.private_database import FileKind, PrivateDatabase
from quorank.kernels.arrays import Integers
from quorank.silos.envelopes import check_name

_SCHEMA = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE releases (id INTEGER PRIMARY KEY, fingerprint TEXT NOT NULL, millionths INTEGER NOT NULL, at REAL NOT NULL);
CREATE TABLE documents (number INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE);
CREATE TABLE askers (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE days (asker INTEGER NOT NULL, day INTEGER NOT NULL, questions INTEGER NOT NULL, PRIMARY KEY (asker, day));
CREATE TABLE told (document INTEGER NOT NULL, place INTEGER NOT NULL, asker INTEGER NOT NULL,
    PRIMARY KEY (document, place, asker)) WITHOUT ROWID;
"""
_DAMAGED = "the ledger is damaged; restore it from a copy, or begin a new release in another folder"
_KIND = FileKind(0x51524E4C, 1, _SCHEMA, "this is no ledger of searches; choose another file", _DAMAGED)
BUSY = "another process answers searches with this ledger; stop it first"
_RELEASE = 1 << 32  # places of release r are its columns + r·2^32


class Candidate(NamedTuple):
    """Document that may be named: its number, the columns whose cells it would disclose, and the limit of its entries."""

    number: int
    columns: tuple[int, ...]
    most: int


@dataclass(frozen=True)
class SearchLimits:
    """Limits of one owner: entries for one asker and for all together, and questions per day."""

    entries: int
    entries_of_all: int
    questions_a_day: int


@dataclass(frozen=True)
class SearchSpending:
    """Questions answered and entries told to one asker, entries told to all together, and their limits."""

    questions: int
    questions_today: int
    questions_a_day: int
    entries: int
    most_entries: int
    entries_of_all: int
    most_entries_of_all: int


class SearchLedger(PrivateDatabase):
    """Ledger of one owner in an SQLite file of one process, or in memory without a path.

    All noise depends on the `salt`, drawn from the system for a new file unless it is given (for simulations). An owner
    that has lost its ledger, and with it the numbers of its documents, therefore has other noise, and no number has two
    contents under the same noise.
    """

    def __init__(
        self, owner: str, path: Path | None = None, clock: Callable[[], float] = time.time, salt: bytes | None = None
    ) -> None:
        self.owner, self._clock, self._release = check_name(owner), clock, 0
        super().__init__(path, _KIND, None if path is None else path.with_suffix(".lock"), BUSY)
        try:
            sound = self.rows("PRAGMA integrity_check(1)")[0][0] == "ok"
            require(sound, "silo-ledger.damaged", _DAMAGED, f"{path}")
            whose = self._fact("owner", self.owner)
            said = f"is the ledger of {whose}, not of {self.owner}; give {self.owner} a separate file"
            require(whose == self.owner, "silo-ledger.other-owner", said, f"{path}")
            drawn = salt if salt is not None else bytes(16) if path is None else secrets.token_bytes(16)
            self.salt = bytes.fromhex(self._fact("salt", drawn.hex()))
            self._entries = dict[int, int](self.rows("SELECT asker, count(*) FROM told GROUP BY 1"))
            everything = "SELECT count(*) FROM (SELECT DISTINCT document, place FROM told)"
            self._entries_of_all = int(self.rows(everything)[0][0])
        except BaseException:
            self.close()
            raise

    def _fact(self, name: str, default: str) -> str:
        """Return a stored string; a file without it stores the default."""
        self.rows("INSERT OR IGNORE INTO facts VALUES (?, ?)", name, default)
        return str(self.rows("SELECT value FROM facts WHERE name = ?", name)[0][0])

    # ------------------------------------------------------------ releases and documents

    def begin(self, fingerprint: str, epsilon: float, *, new_release: bool = False) -> int:
        """Continue the last release or begin the first one (or another if `new_release`); return the number of releases."""
        known = {str(name): int(number) for number, name in self.rows("SELECT id, fingerprint FROM releases")}
        if fingerprint not in known:
            said = (
                f"the ledger of {self.owner} is of another secret, ε or group key; what is told now releases every "
                "document again, for ε once more: give back the secret, or begin a new release on purpose"
            )
            require(not known or new_release, "silo-search.other-release", said, f"{self.path or ''}")
            values = (len(known), fingerprint, math.ceil(epsilon * 1_000_000), self._clock())
            with self.transaction():
                self.rows("INSERT INTO releases VALUES (?, ?, ?, ?)", *values)
            known[fingerprint] = len(known)
        self._release = known[fingerprint]
        return len(known)

    @property
    def epsilon(self) -> float:
        """Σ ε over the releases of this ledger."""
        return int(self.rows("SELECT coalesce(sum(millionths), 0) FROM releases")[0][0]) / 1_000_000

    def number_documents(self, digests: Sequence[bytes]) -> Integers:
        """Return the (documents,) numbers of contents; new ones are numbered in the order of their digests."""
        known = {bytes(digest): int(number) for number, digest in self.rows("SELECT number, digest FROM documents")}
        first = 1 + max(known.values(), default=-1)
        new = {digest: number for number, digest in enumerate(sorted(set(digests) - known.keys()), first)}
        with self.transaction():
            for digest, number in new.items():
                self.rows("INSERT INTO documents VALUES (?, ?)", number, digest)
        known |= new
        return np.array([known[digest] for digest in digests], dtype=np.int64)

    # ------------------------------------------------------------ questions

    def charge(
        self, asker: str, ranked: Sequence[Iterable[Candidate]], k: int, limits: SearchLimits
    ) -> list[list[int]]:
        """Choose at most k candidates of each bundle, best first, and charge them; return their places in `ranked`.

        A document beyond its own limit is skipped. The charge is on disk when this returns.

        Raises:
            BadInput: `silo-search.day-spent`, `silo-search.spent` or `silo-search.all-spent`; nothing was charged.
        """
        check_name(asker)
        with self.transaction():
            self.rows("INSERT OR IGNORE INTO askers (name) VALUES (?)", asker)
            spent, number = self.spent(asker, limits), self._number(asker)
            most = limits.questions_a_day
            said = f"{self.owner} answers {asker} {most:,} searches a day, and as many were asked today; ask again tomorrow"
            require(spent.questions_today < most, "silo-search.day-spent", said)
            chosen, fresh = self._choose(number, ranked, k)
            known = "SELECT 1 FROM told WHERE document = ? AND place = ? LIMIT 1"
            unseen = sum(not self.rows(known, *entry) for entry in fresh)
            hint = "repeat earlier searches, which is free, ask with fewer terms or decoys, or agree on a larger share"
            for whom, told, new, limit, code in (
                (asker, spent.entries, len(fresh), limits.entries, "silo-search.spent"),
                ("all askers", spent.entries_of_all, unseen, limits.entries_of_all, "silo-search.all-spent"),
            ):
                counted = f"{told:,} are told and this search needs {new:,} more"
                said = f"{self.owner} tells {whom} {limit:,} entries (a document's count of a term), {counted}"
                require(told + new <= limit, code, f"{said}; {hint}")
            for document, place in sorted(fresh):
                self.rows("INSERT INTO told VALUES (?, ?, ?)", document, place, number)
            self.rows("INSERT OR REPLACE INTO days VALUES (?, ?, ?)", number, self._day, spent.questions_today + 1)
        self._entries[number] = spent.entries + len(fresh)
        self._entries_of_all += unseen
        return chosen

    def spent(self, asker: str, limits: SearchLimits) -> SearchSpending:
        """Return the entries told to an asker so far."""
        number = self._number(asker)
        days = dict(self.rows("SELECT day, questions FROM days WHERE asker = ?", number))
        return SearchSpending(
            sum(days.values()), days.get(self._day, 0), limits.questions_a_day, self._entries.get(number, 0),
            limits.entries, self._entries_of_all, limits.entries_of_all,
        )  # fmt: skip

    @property
    def _day(self) -> int:
        return int(self._clock() // 86_400)

    def _number(self, asker: str) -> int:
        found = self.rows("SELECT id FROM askers WHERE name = ?", asker)
        return int(found[0][0]) if found else -1

    def _choose(
        self, asker: int, ranked: Sequence[Iterable[Candidate]], k: int
    ) -> tuple[list[list[int]], set[tuple[int, int]]]:
        """Return the chosen candidates, and the entries that are new to this asker."""
        told: dict[int, set[int]] = {}
        fresh: set[tuple[int, int]] = set()
        chosen: list[list[int]] = []
        for candidates in ranked:
            chosen.append([])
            for at, candidate in enumerate(candidates):
                if len(chosen[-1]) == k:
                    break
                document = candidate.number
                if document not in told:
                    found = self.rows("SELECT place FROM told WHERE document = ? AND asker = ?", document, asker)
                    told[document] = {int(place) for (place,) in found}
                new = {self._release * _RELEASE + column for column in candidate.columns} - told[document]
                if new and len(told[document]) + len(new) > candidate.most:
                    continue
                chosen[-1].append(at)
                told[document] |= new
                fresh |= {(document, place) for place in new}
        return chosen, fresh
