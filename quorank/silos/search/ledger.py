"""Ledger of an owner's answers to searches: entries (document, column) by asker, questions by day, releases.

One private SQLite file of the owner (mode 0600). Every question counts, and is admitted or refused by what the asker itself
has asked and received, before a document is read: a refusal says nothing else. New entries of an answer are charged on
disk before the answer is made, never more of them than are left. Repeating an entry to the same asker costs nothing.
Budgets of entries are renewed in every period; an entry stays disclosed.

Documents have numbers by their content: a document that is changed gets a new one, and no number is used again, since the
noise of a cell belongs to the number. Answers under a new secret, ε or key of the group are a new release: it must be
asked for, costs ε again, and the entries of all releases count.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

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
    period INTEGER NOT NULL, PRIMARY KEY (document, place, asker)) WITHOUT ROWID;
"""
_DAMAGED = "the ledger is damaged; restore it from a copy, or start a new release in another folder"
_KIND = FileKind(0x51524E4C, 1, _SCHEMA, "this is no ledger of searches; choose another file", _DAMAGED)
BUSY = "another process answers searches with this ledger; stop it first"
REFUSED = "does not answer: the daily questions or the entries of this period are used up, or it cannot read the search"
_RELEASE = 1 << 32  # places of release r are its columns + r·2^32


@dataclass(frozen=True)
class SearchLimits:
    """Limits of each asker: entries in a period of `renew_days` (0: for ever), and questions per day."""

    entries: int
    questions_a_day: int
    renew_days: int = 0


@dataclass(frozen=True)
class SearchSpending:
    """Questions of one asker today, entries disclosed to it in this period, and their limits; the asker knows them."""

    questions_today: int
    questions_a_day: int
    entries: int
    most_entries: int

    @property
    def entries_left(self) -> int:
        """Return the entries that may still be disclosed in this period."""
        return max(self.most_entries - self.entries, 0)


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
            told = self.rows("SELECT asker, period, count(*) FROM told GROUP BY 1, 2")
            self._entries = {(int(asker), int(period)): int(count) for asker, period, count in told}
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
                f"the ledger of {self.owner} is of another secret, ε or group key; answers now release every "
                "document again, for ε once more: restore the secret, or start a new release explicitly"
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

    def admit(self, asker: str, limits: SearchLimits) -> SearchSpending:
        """Count a question, on disk, and return what the asker has spent with it.

        Raises:
            BadInput: `silo-search.spent` where the asker's daily questions or entries are used up.
        """
        check_name(asker)
        with self.transaction():
            self.rows("INSERT OR IGNORE INTO askers (name) VALUES (?)", asker)
            count = "INSERT INTO days VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET questions = questions + 1"
            self.rows(count, self._number(asker), self._day)
        spent = self.spent(asker, limits)
        admitted = spent.questions_today <= spent.questions_a_day and spent.entries_left > 0
        require(admitted, "silo-search.spent", f"{self.owner} {REFUSED}")
        return spent

    def disclosed(self, asker: str, document: int) -> tuple[int, set[int]]:
        """Return the number of entries of a document that an asker has received, and their columns in this release."""
        found = self.rows("SELECT place FROM told WHERE document = ? AND asker = ?", document, self._number(asker))
        here = {int(place) - self._release * _RELEASE for (place,) in found}
        return len(found), {column for column in here if 0 <= column < _RELEASE}

    def charge(self, asker: str, entries: Collection[tuple[int, int]], limits: SearchLimits) -> None:
        """Store new (document, column) entries as disclosed to an asker; they are on disk when this returns."""
        number, period = self._number(asker), self._period(limits)
        with self.transaction():
            for document, column in sorted(entries):
                place = self._release * _RELEASE + column
                self.rows("INSERT INTO told VALUES (?, ?, ?, ?)", document, place, number, period)
        self._entries[number, period] = self._entries.get((number, period), 0) + len(entries)

    def spent(self, asker: str, limits: SearchLimits) -> SearchSpending:
        """Return what an asker has spent of its limits today and in this period."""
        number = self._number(asker)
        today = self.rows("SELECT questions FROM days WHERE asker = ? AND day = ?", number, self._day)
        entries = self._entries.get((number, self._period(limits)), 0)
        return SearchSpending(int(today[0][0]) if today else 0, limits.questions_a_day, entries, limits.entries)

    @property
    def _day(self) -> int:
        return int(self._clock() // 86_400)

    def _period(self, limits: SearchLimits) -> int:
        return self._day // limits.renew_days if limits.renew_days else 0

    def _number(self, asker: str) -> int:
        found = self.rows("SELECT id FROM askers WHERE name = ?", asker)
        return int(found[0][0]) if found else -1
