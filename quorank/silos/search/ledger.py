"""Ledger of what an owner has told in searches: entries (document, column) by asker, questions by day, releases.

One SQLite file for the owner's eyes (mode 0600). A question is charged in one transaction that is on disk before its
answer is made; a question that would pass a limit is refused and charges nothing. An entry that an asker was told costs
nothing when it is told again. Totals are stored with the entries and must fit them when the file is opened.

Documents have numbers by their content: a document that is changed gets a new one, and no number is used again, since the
noise of a cell belongs to the number. What is told under a new secret, ε or key of the group is a new release: it must be
asked for, costs ε again, and the entries of all releases count.
"""

from __future__ import annotations

import hashlib
import math
import secrets
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from quorank.errors import BadInput, require
from quorank.files.private_database import FileKind, PrivateDatabase
from quorank.kernels.arrays import Integers
from quorank.silos.envelopes import check_name
from quorank.silos.search.settings import DISTINCT, SearchTerms

_SCHEMA = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE releases (id INTEGER PRIMARY KEY, fingerprint TEXT NOT NULL, millionths INTEGER NOT NULL, at REAL NOT NULL);
CREATE TABLE documents (number INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE);
CREATE TABLE askers (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, entries INTEGER NOT NULL,
    questions INTEGER NOT NULL);
CREATE TABLE days (asker INTEGER NOT NULL, day INTEGER NOT NULL, questions INTEGER NOT NULL, PRIMARY KEY (asker, day));
CREATE TABLE told (document INTEGER NOT NULL, place INTEGER NOT NULL, asker INTEGER NOT NULL,
    PRIMARY KEY (document, place, asker)) WITHOUT ROWID;
"""
_DAMAGED = "the ledger is damaged; restore it from a copy, or begin a new release in another folder"
_KIND = FileKind(0x51524E4C, 1, _SCHEMA, "this is no ledger of searches; choose another file", _DAMAGED)
BUSY = "another process answers searches with this ledger; stop it first"
_AT_ONCE = 4096  # documents whose entries are read at once
_ENTRY = struct.Struct("<qqq")
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

    @classmethod
    def of(cls, terms: SearchTerms, lengths: Sequence[float] | Any, distinct: float = DISTINCT) -> SearchLimits:
        """Return shares of the estimated number of pairs, `distinct`·Σ L̂ by noisy lengths."""
        pairs = distinct * float(np.sum(lengths))
        return cls(math.floor(terms.share * pairs), math.floor(terms.share_of_all * pairs), terms.questions_a_day)


@dataclass(frozen=True)
class SearchSpending:
    """Entries told to one asker and to all together, with the limits."""

    asker: str
    questions: int
    questions_today: int
    entries: int
    entries_of_all: int
    limits: SearchLimits

    def to_table(self) -> dict[str, int]:
        """Return the fields as JSON values."""
        return {
            "questions": self.questions,
            "questions_today": self.questions_today,
            "questions_a_day": self.limits.questions_a_day,
            "entries": self.entries,
            "most_entries": self.limits.entries,
            "entries_of_all": self.entries_of_all,
            "most_entries_of_all": self.limits.entries_of_all,
        }


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
            self._check_whole()
            self.salt = self._salted(
                salt if salt is not None else bytes(16) if path is None else secrets.token_bytes(16)
            )
        except BaseException:
            self.close()
            raise

    # ------------------------------------------------------------ releases and documents

    def begin(self, fingerprint: str, epsilon: float, *, new_release: bool = False) -> int:
        """Continue the last release or begin the first one (or another if `new_release`); return the number of releases."""
        found = self.rows("SELECT id, fingerprint FROM releases ORDER BY id")
        known = {str(name): int(number) for number, name in found}
        if fingerprint not in known:
            said = (
                f"the ledger of {self.owner} is of another secret, ε or group key; what is told now releases every "
                "document again, for ε once more: give back the secret, or begin a new release on purpose"
            )
            require(not known or new_release, "silo-search.other-release", said, f"{self.path or ''}")
            with self.transaction():
                number = len(known)
                values = (number, fingerprint, math.ceil(epsilon * 1_000_000), self._clock())
                self.rows("INSERT INTO releases VALUES (?, ?, ?, ?)", *values)
            known[fingerprint] = number
        self._release = known[fingerprint]
        return len(known)

    @property
    def epsilon(self) -> float:
        """Σ ε over the releases of this ledger."""
        return int(self.rows("SELECT coalesce(sum(millionths), 0) FROM releases")[0][0]) / 1_000_000

    def number_documents(self, digests: Sequence[bytes]) -> Integers:
        """Return the (documents,) numbers of contents; new ones are numbered in the order of their digests."""
        known = {bytes(digest): int(number) for number, digest in self.rows("SELECT number, digest FROM documents")}
        new = sorted(set(digests) - known.keys())
        first = 1 + max(known.values(), default=-1)
        with self.transaction():
            for number, digest in enumerate(new, first):
                self.rows("INSERT INTO documents VALUES (?, ?)", number, digest)
        known |= {digest: number for number, digest in enumerate(new, first)}
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
            self.rows("INSERT OR IGNORE INTO askers (name, entries, questions) VALUES (?, 0, 0)", asker)
            number, entries = self.rows("SELECT id, entries FROM askers WHERE name = ?", asker)[0]
            today = self._day()
            asked = self._today(number, today)
            self._check_day(asker, asked, limits)
            chosen, fresh = self._choose(number, ranked, k)
            self._check_entries(asker, entries, fresh, limits)
            checksum = self._number("checksum")
            for document, place in sorted(fresh):
                self.rows("INSERT INTO told VALUES (?, ?, ?)", document, place, number)
                checksum ^= _mark(document, place, number)
            self._set_number("checksum", checksum)
            self.rows(
                "UPDATE askers SET entries = entries + ?, questions = questions + 1 WHERE id = ?", len(fresh), number
            )
            self.rows("INSERT OR REPLACE INTO days VALUES (?, ?, ?)", number, today, asked + 1)
        return chosen

    def spent(self, asker: str, limits: SearchLimits) -> SearchSpending:
        """Return the entries told to an asker so far."""
        found = self.rows("SELECT id, entries, questions FROM askers WHERE name = ?", asker)
        number, entries, questions = found[0] if found else (-1, 0, 0)
        today = self._today(number, self._day())
        return SearchSpending(asker, int(questions), today, int(entries), self._union(), limits)

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

    def _check_day(self, asker: str, asked: int, limits: SearchLimits) -> None:
        most = limits.questions_a_day
        said = (
            f"{self.owner} answers {asker} {most:,} searches a day, and {asked:,} were asked today; ask again tomorrow"
        )
        require(asked < most, "silo-search.day-spent", said)

    def _check_entries(self, asker: str, entries: int, fresh: set[tuple[int, int]], limits: SearchLimits) -> None:
        would = entries + len(fresh)
        counted = f"{entries:,} are told and this search needs {len(fresh):,} more"
        said = f"{self.owner} tells {asker} {limits.entries:,} entries (a document's count of a term), {counted}"
        hint = "repeat earlier searches, which is free, ask with fewer terms or decoys, or agree on a larger share"
        require(would <= limits.entries, "silo-search.spent", f"{said}; {hint}")
        everyone = self._union()
        unseen = self._count_union(fresh)
        counted = f"{everyone:,} are told and this search needs {unseen:,} more"
        said = f"{self.owner} tells all askers together {limits.entries_of_all:,} entries, {counted}"
        require(everyone + unseen <= limits.entries_of_all, "silo-search.all-spent", f"{said}; {hint}")

    def _count_union(self, fresh: set[tuple[int, int]]) -> int:
        """Count the entries that are new to all askers, and add them to the total."""
        unseen = sum(
            not self.rows("SELECT 1 FROM told WHERE document = ? AND place = ? LIMIT 1", *entry) for entry in fresh
        )
        self._set_number("entries of all", self._union() + unseen)
        return unseen

    # ------------------------------------------------------------ the file

    def _salted(self, new: bytes) -> bytes:
        """Return the file's salt; a file without one stores the new one."""
        found = self.rows("SELECT value FROM facts WHERE name = 'salt'")
        if not found:
            with self.transaction():
                self.rows("INSERT INTO facts VALUES ('salt', ?)", new.hex())
            return new
        try:
            return bytes.fromhex(found[0][0])
        except (ValueError, TypeError):
            raise BadInput("silo-ledger.damaged", _DAMAGED, f"{self.path}") from None

    def _day(self) -> int:
        return int(self._clock() // 86_400)

    def _today(self, asker: int, day: int) -> int:
        found = self.rows("SELECT questions FROM days WHERE asker = ? AND day = ?", asker, day)
        return int(found[0][0]) if found else 0

    def _union(self) -> int:
        return self._number("entries of all")

    def _number(self, name: str) -> int:
        found = self.rows("SELECT value FROM facts WHERE name = ?", name)
        return int(found[0][0]) if found else 0

    def _set_number(self, name: str, value: int) -> None:
        self.rows("INSERT OR REPLACE INTO facts VALUES (?, ?)", name, str(value))

    def _check_whole(self) -> None:
        """Refuse a file with broken pages, totals that do not fit its entries, or another owner."""
        sound = False
        with suppress(ValueError, TypeError, OverflowError, struct.error):
            sound = self.rows("PRAGMA integrity_check(1)")[0][0] == "ok" and self._adds_up()
        if not sound:
            raise BadInput("silo-ledger.damaged", _DAMAGED, f"{self.path}")
        found = self.rows("SELECT value FROM facts WHERE name = 'owner'")
        if not found:
            with self.transaction():
                self.rows("INSERT INTO facts VALUES ('owner', ?)", self.owner)
        whose = found[0][0] if found else self.owner
        said = f"is the ledger of {whose}, not of {self.owner}; give {self.owner} a file of its own"
        require(whose == self.owner, "silo-ledger.other-owner", said, f"{self.path}")

    def _adds_up(self) -> bool:
        told = dict(self.rows("SELECT asker, count(*) FROM told GROUP BY asker"))
        days = dict(self.rows("SELECT asker, sum(questions) FROM days GROUP BY asker"))
        askers = self.rows("SELECT id, entries, questions FROM askers")
        union = self.rows("SELECT count(*) FROM (SELECT DISTINCT document, place FROM told)")[0][0]
        fits = all((told.pop(a, 0), days.pop(a, 0)) == (entries, questions) for a, entries, questions in askers)
        checksum = 0
        last = self.rows("SELECT coalesce(max(document), -1) FROM told")[0][0]
        for first in range(0, int(last) + 1, _AT_ONCE):
            between = "SELECT document, place, asker FROM told WHERE document BETWEEN ? AND ?"
            for entry in self.rows(between, first, first + _AT_ONCE - 1):
                checksum ^= _mark(*entry)
        sums = (union, checksum) == (self._union(), self._number("checksum"))
        return fits and not told and not days and sums


def _mark(document: int, place: int, asker: int) -> int:
    """Return the 62-bit digest of an entry; the checksum is the exclusive or of all digests."""
    digest = hashlib.blake2b(_ENTRY.pack(document, place, asker), digest_size=8, person=b"quorank told")
    return int.from_bytes(digest.digest(), "little") >> 2
