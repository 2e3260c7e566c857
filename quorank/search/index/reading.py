"""Rows and term directories of all segments in memory, and postings read from the database on demand.

The memory follows the database: a change by another connection is seen before the next query is answered. Documents and
occurrences are counted over the living rows for each query, so no cached statistic can be wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from quorank.kernels.arrays import Booleans, Doubles, Integers, Uint32s, Uint64s
from quorank.search.index.postings import CHUNK, FIELDS, POSTING, ROW
from quorank.text.features import FieldStatistics

MOST_KEPT = 500_000
"""Postings kept from one query to the next, 24 bytes each."""
Fetch = Callable[..., list[tuple[Any, ...]]]
"""Rows of a statement and its values."""


def part_key(segment: int, field: int, number: int) -> int:
    """Return the key of a blob of postings in its table."""
    return segment << 28 | field << 24 | number


@dataclass(frozen=True, eq=False)
class TermPostings:
    """Living rows with a term, ascending, the count of the term in each, and the position of its first occurrence."""

    rows: Integers
    counts: Doubles
    firsts: Integers

    @staticmethod
    def joined(parts: Sequence[TermPostings]) -> TermPostings:
        """Concatenate postings."""
        if len(parts) == 1:
            return parts[0]
        nothing = np.zeros(0, dtype=np.int64)
        rows, firsts = ([getattr(part, name) for part in parts] for name in ("rows", "firsts"))
        counts = [np.zeros(0), *(part.counts for part in parts)]
        return TermPostings(*map(np.concatenate, ([nothing, *rows], counts, [nothing, *firsts])))

    @staticmethod
    def union(parts: Sequence[TermPostings]) -> TermPostings:
        """Join the postings of several terms into those of one: counts add up, the first position is the least."""
        together = TermPostings.joined(parts)
        if len(parts) == 1 or not len(together.rows):
            return together
        order = np.argsort(together.rows, kind="stable")
        ordered = together.rows[order]
        starts = np.flatnonzero(np.diff(ordered, prepend=-1))
        counts, firsts = (
            np.add.reduceat(together.counts[order], starts),
            np.minimum.reduceat(together.firsts[order], starts),
        )
        return TermPostings(ordered[starts], counts, firsts)

    def within(self, allowed: Booleans) -> TermPostings:
        """Return the postings of allowed rows."""
        kept = allowed[self.rows]
        return TermPostings(self.rows[kept], self.counts[kept], self.firsts[kept])


@dataclass(frozen=True, eq=False)
class LoadedSegment:
    """Rows of a segment, and terms and offsets of each field."""

    number: int
    rows: npt.NDArray[Any]
    directories: tuple[tuple[Uint64s, Uint32s], ...]


@dataclass(frozen=True, eq=False)
class LoadedRows:
    """Rows of all segments, concatenated."""

    segments: tuple[LoadedSegment, ...]
    dead: Integers  # versions of rows without a document

    @cached_property
    def bases(self) -> list[int]:
        """First row of each segment."""
        return [int(base) for base in np.cumsum([0, *(len(segment.rows) for segment in self.segments)])]

    @cached_property
    def table(self) -> npt.NDArray[Any]:
        """All rows."""
        return np.concatenate([np.zeros(0, dtype=ROW), *(segment.rows for segment in self.segments)])

    @cached_property
    def alive(self) -> Booleans:
        """(rows,) whether each belongs to a document."""
        return np.asarray(~np.isin(self.table["version"], self.dead))

    @cached_property
    def documents(self) -> int:
        """Number of living documents."""
        return int(self.alive.sum())

    @cached_property
    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Contiguous columns of `table`; lengths as floating point numbers."""
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
        """Return the rows of documents by their ids; unknown ids are ignored."""
        known, rows = self._by_id
        if not len(known):
            return np.zeros(0, dtype=np.int64)
        at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        return np.asarray(rows[at[known[at] == wanted]])


def field_statistics(name: str, postings: Sequence[TermPostings], loaded: LoadedRows) -> FieldStatistics:
    """Count documents and occurrences of terms in a field by their postings."""
    return FieldStatistics(
        documents=float(loaded.documents),
        document_frequency=np.array([float(len(part.rows)) for part in postings]),
        collection_frequency=np.array([float(part.counts.sum()) for part in postings]),
        collection_length=loaded.totals[f"{name}_length"],
        distinct_total=loaded.totals[f"{name}_distinct"],
    )


class SegmentReader:
    """Reader of the current segments of a database."""

    def __init__(self, fetch: Fetch) -> None:
        self.fetch = fetch
        self._seen: object = None
        self._kept: dict[tuple[str, int], TermPostings] = {}
        self._free = MOST_KEPT
        self.loaded = LoadedRows((), np.zeros(0, dtype=np.int64))

    def refresh(self) -> LoadedRows:
        """Load changes since the last call."""
        seen = self.fetch("PRAGMA data_version")[0][0]
        if seen != self._seen:
            known = {segment.number: segment for segment in self.loaded.segments}
            numbers = sorted(self.numbers("id", "segments").tolist())
            segments = tuple(known.get(number) or self._load(number) for number in numbers)
            self.loaded = LoadedRows(segments, self.numbers("version", "dead"))
            self._seen = seen
            self._kept, self._free = {}, MOST_KEPT
        return self.loaded

    def numbers(self, column: str, of: str, *values: object) -> Integers:
        """Return a column of integers, joined by SQLite: ten times faster than a row for each."""
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

    def postings(self, field: str, *terms: int) -> list[TermPostings]:
        """Return the postings of terms, by their hashes, over all segments; recent ones are cached."""
        missing = [term for term in dict.fromkeys(terms) if (field, term) not in self._kept]
        found = {term: self._kept[field, term] for term in terms if (field, term) in self._kept}
        for term, read in zip(missing, self._read(field, missing), strict=True):
            found[term] = read
            self._free -= len(read.rows)
            if self._free < 0:
                self._kept, self._free = {}, MOST_KEPT
            self._kept[field, term] = read
        return [found[term] for term in terms]

    def frequencies(self, field: str, terms: Uint64s) -> Doubles:
        """Return (terms,) the number of rows with each term, by its hash; dead rows count until a merge."""
        order, found = np.argsort(terms), np.zeros(len(terms))  # ascending: neighbours share cache lines
        for _, first, last in self._places(FIELDS.index(field), terms[order]):
            found[order] += last - first
        return found

    def _places(self, at: int, terms: Uint64s) -> Iterator[tuple[int, Integers, Integers]]:
        """Yield the position of each segment, and (terms,) begin and end of its postings of each term of a field."""
        for number, segment in enumerate(self.loaded.segments):
            known, offsets = segment.directories[at]
            if len(known):
                places = np.minimum(np.searchsorted(known, terms), len(known) - 1)
                first = offsets[places].astype(np.int64)
                yield number, first, np.where(known[places] == terms, offsets[places + 1], first)

    def _read(self, field: str, terms: Sequence[int]) -> list[TermPostings]:
        """Read the postings of some terms, all chunks in one statement."""
        if not terms:
            return []
        at, wanted = FIELDS.index(field), list[tuple[int, int, int, int, list[int]]]()
        for number, firsts, lasts in self._places(at, np.array(terms, dtype=np.uint64)):
            for term, (first, last) in enumerate(zip(firsts.tolist(), lasts.tolist(), strict=True)):
                if last > first:
                    chunks = range(first // CHUNK, (last - 1) // CHUNK + 1)
                    keys = [part_key(self.loaded.segments[number].number, at, 2 + chunk) for chunk in chunks]
                    wanted.append((term, number, first, last, keys))
        listed = ",".join({str(key) for *_, keys in wanted for key in keys})
        content: dict[int, bytes] = dict(self.fetch(f"SELECT key, content FROM postings WHERE key IN ({listed})"))
        parts: list[list[TermPostings]] = [[] for _ in terms]
        for term, number, first, last, keys in wanted:
            begin = first // CHUNK * CHUNK
            read = np.frombuffer(b"".join(content[key] for key in keys), POSTING)[first - begin : last - begin]
            rows = read["place"].astype(np.int64) + self.loaded.bases[number]
            parts[term].append(TermPostings(rows, read["count"].astype(np.float64), read["first"].astype(np.int64)))
        together = [TermPostings.joined(found) for found in parts]
        return [one.within(self.loaded.alive) for one in together] if len(self.loaded.dead) else together
