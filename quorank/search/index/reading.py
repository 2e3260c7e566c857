"""Rows and term directories of all segments in memory, and postings read from the database as queries ask for them.

What is in memory follows the database: a change by another connection is seen before the next query is answered. Numbers of
documents and occurrences are counted over the living rows each time, so that no cached statistic can be wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from quorank.arrays import Booleans, Doubles, Integers, Uint32s, Uint64s
from quorank.search.index.postings import CHUNK, FIELDS, ROW, read_chunks

MOST_KEPT = 500_000
"""Postings of terms that are kept from one query to the next, 24 bytes each."""
Fetch = Callable[..., list[tuple[Any, ...]]]
"""Rows of a statement and its values."""


def part_key(segment: int, field: int, number: int) -> int:
    """Return the key of a blob of postings in its table."""
    return segment << 28 | field << 24 | number


@dataclass(frozen=True, eq=False)
class TermPostings:
    """Living rows that hold a term, ascending, how often each does, and at which word first."""

    rows: Integers
    counts: Doubles
    firsts: Integers

    @staticmethod
    def union(parts: Sequence[TermPostings]) -> TermPostings:
        """Join the postings of several terms as if they were one term: counts add up, the first place is the least."""
        if len(parts) == 1:
            return parts[0]
        rows = np.concatenate([part.rows for part in parts] or [np.zeros(0, dtype=np.int64)])
        if not len(rows):
            return TermPostings(rows, np.zeros(0), rows)
        order = np.argsort(rows, kind="stable")
        ordered = rows[order]
        starts = np.flatnonzero(np.diff(ordered, prepend=-1))
        counts = np.concatenate([part.counts for part in parts])[order]
        firsts = np.concatenate([part.firsts for part in parts])[order]
        return TermPostings(ordered[starts], np.add.reduceat(counts, starts), np.minimum.reduceat(firsts, starts))

    def within(self, allowed: Booleans) -> TermPostings:
        """Return those of rows that are allowed."""
        kept = allowed[self.rows]
        return TermPostings(self.rows[kept], self.counts[kept], self.firsts[kept])


@dataclass(frozen=True, eq=False)
class LoadedSegment:
    """Rows of a segment, and the terms and offsets of each field."""

    number: int
    rows: npt.NDArray[Any]
    directories: tuple[tuple[Uint64s, Uint32s], ...]


@dataclass(frozen=True, eq=False)
class LoadedRows:
    """Rows of all segments one after the other."""

    segments: tuple[LoadedSegment, ...]
    dead: Integers  # versions of rows that are no document's any more

    @cached_property
    def bases(self) -> list[int]:
        """Row at which each segment begins."""
        return [int(base) for base in np.cumsum([0, *(len(segment.rows) for segment in self.segments)])]

    @cached_property
    def table(self) -> npt.NDArray[Any]:
        """All rows."""
        return np.concatenate([np.zeros(0, dtype=ROW), *(segment.rows for segment in self.segments)])

    @cached_property
    def alive(self) -> Booleans:
        """(rows,) whether each is that of a document."""
        return np.asarray(~np.isin(self.table["version"], self.dead))

    @cached_property
    def documents(self) -> int:
        """Documents that can be found."""
        return int(self.alive.sum())

    @cached_property
    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Columns of `table`, each in one piece; lengths as floating point numbers."""
        exact = ("id", "version", "source", "type")
        names = ROW.names or ()
        return {name: self.table[name].astype(None if name in exact else np.float64) for name in names}

    @cached_property
    def totals(self) -> dict[str, float]:
        """Sums of the lengths and of the distinct terms over all documents."""
        names = [f"{field}_{what}" for field in ("body", "title") for what in ("length", "distinct")]
        return {name: float(self.table[name][self.alive].sum(dtype=np.int64)) for name in names}

    @cached_property
    def _by_id(self) -> tuple[Integers, Integers]:
        living = np.flatnonzero(self.alive)
        ids = self.table["id"][living]
        order = np.argsort(ids)
        return ids[order], living[order]

    def rows_of(self, wanted: Integers) -> Integers:
        """Return the rows of documents by their ids; an id without one is passed over."""
        known, rows = self._by_id
        if not len(known):
            return np.zeros(0, dtype=np.int64)
        at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        return np.asarray(rows[at[known[at] == wanted]])


class SegmentReader:
    """Segments of a database as they are now."""

    def __init__(self, fetch: Fetch) -> None:
        self.fetch = fetch
        self._seen: object = None
        self._kept: dict[tuple[str, int], TermPostings] = {}
        self._room = MOST_KEPT
        self.loaded = LoadedRows((), np.zeros(0, dtype=np.int64))

    def refresh(self) -> LoadedRows:
        """Load what has changed since the last call."""
        seen = self.fetch("PRAGMA data_version")[0][0]
        if seen != self._seen:
            known = {segment.number: segment for segment in self.loaded.segments}
            numbers = sorted(self.numbers("id", "segments").tolist())
            segments = tuple(known.get(number) or self._load(number) for number in numbers)
            self.loaded = LoadedRows(segments, self.numbers("version", "dead"))
            self._seen = seen
            self._kept, self._room = {}, MOST_KEPT
        return self.loaded

    def numbers(self, column: str, of: str, *values: object) -> Integers:
        """Return a column of whole numbers: joined by SQLite, which is ten times faster than a row for each."""
        joined = self.fetch(f"SELECT group_concat({column}, ' ') FROM {of}", *values)[0][0]
        return np.fromstring(joined or "", dtype=np.int64, sep=" ")

    def _load(self, number: int) -> LoadedSegment:
        rows = np.frombuffer(self.fetch("SELECT rows FROM segments WHERE id = ?", number)[0][0], dtype=ROW)
        directories = []
        for field in range(len(FIELDS)):
            terms, offsets = self._parts(part_key(number, field, 0), part_key(number, field, 1))
            directories.append((np.frombuffer(terms, "<u8"), np.frombuffer(offsets, "<u4")))
        return LoadedSegment(number, rows, tuple(directories))

    def _parts(self, first: int, last: int) -> list[bytes]:
        found = self.fetch("SELECT content FROM postings WHERE key BETWEEN ? AND ? ORDER BY key", first, last)
        return [content for (content,) in found]

    def postings(self, field: str, term: int) -> TermPostings:
        """Return the postings of a term, by its hash, over all segments; those of the last queries are kept."""
        kept = self._kept.get((field, term))
        if kept is None:
            kept = self._read(field, term)
            self._room -= len(kept.rows)
            if self._room < 0:
                self._kept, self._room = {}, MOST_KEPT
            self._kept[field, term] = kept
        return kept

    def _read(self, field: str, term: int) -> TermPostings:
        at = FIELDS.index(field)
        rows, counts, firsts = [], [], []
        wanted = np.uint64(term)
        for segment, base in zip(self.loaded.segments, self.loaded.bases, strict=False):
            terms, offsets = segment.directories[at]
            place = int(np.searchsorted(terms, wanted))
            if place == len(terms) or terms[place] != wanted:
                continue
            first, last = int(offsets[place]), int(offsets[place + 1])
            low, high = first // CHUNK, (last - 1) // CHUNK
            parts = self._parts(part_key(segment.number, at, 2 + low), part_key(segment.number, at, 2 + high))
            size = min(int(offsets[-1]), (high + 1) * CHUNK) - low * CHUNK
            found = read_chunks(parts, size)
            part = slice(first - low * CHUNK, last - low * CHUNK)
            rows.append(found[0][part].astype(np.int64) + base)
            counts.append(found[1][part])
            firsts.append(found[2][part])
        if not rows:
            nothing = np.zeros(0, dtype=np.int64)
            return TermPostings(nothing, np.zeros(0), nothing)
        together = TermPostings(
            np.concatenate(rows), np.concatenate(counts).astype(np.float64), np.concatenate(firsts).astype(np.int64)
        )
        return together.within(self.loaded.alive) if len(self.loaded.dead) else together
