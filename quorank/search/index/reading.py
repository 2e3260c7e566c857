"""Rows and term directories of all segments in memory, and postings read from the database on demand.

The memory follows the database: a change by another connection is seen before the next query is answered. Documents and
occurrences are counted over the living rows for each query, so no cached statistic can be wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from quorank.kernels.arrays import Booleans, Doubles, Integers, Uint32s, Uint64s
from quorank.search.index.postings import CHUNK, FIELDS, POSTING, ROW, TermHash
from quorank.text.features import FieldStatistics
from quorank.text.index import picked
from quorank.text.tokens import Tokeniser

Fetch = Callable[..., list[tuple[Any, ...]]]  # rows of a statement and its values


def part_key(segment: int, field: int, number: int) -> int:
    """Return the key of a blob of postings in its table."""
    return segment << 28 | field << 24 | number


class TermPostings(NamedTuple):
    """Living rows with a term, ascending, the count of the term in each, and the position of its first occurrence."""

    rows: Integers
    counts: Doubles
    firsts: Integers

    @staticmethod
    def joined(parts: Sequence[TermPostings]) -> TermPostings:
        """Concatenate postings."""
        nothing = TermPostings(np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64))
        return TermPostings(*map(np.concatenate, zip(nothing, *parts, strict=True)))

    @staticmethod
    def union(parts: Sequence[TermPostings]) -> TermPostings:
        """Join the postings of several terms into those of one: counts add up, the first position is the least."""
        rows, counts, firsts = TermPostings.joined(parts)
        if len(parts) < 2 or not len(rows):
            return TermPostings(rows, counts, firsts)
        order = np.argsort(rows, kind="stable")
        found, starts = np.unique(rows[order], return_index=True)
        return TermPostings(found, np.add.reduceat(counts[order], starts), np.minimum.reduceat(firsts[order], starts))

    def within(self, allowed: Booleans) -> TermPostings:
        """Return the postings of allowed rows."""
        kept = allowed[self.rows]
        return TermPostings(self.rows[kept], self.counts[kept], self.firsts[kept])


class LoadedSegment(NamedTuple):
    """Rows of a segment, and terms and offsets of each field."""

    number: int
    rows: npt.NDArray[Any]
    directories: list[tuple[Uint64s, Uint32s]]


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
    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Contiguous columns of all rows; lengths as floating point numbers."""
        table = np.concatenate([np.zeros(0, dtype=ROW), *(segment.rows for segment in self.segments)])
        exact = ("id", "version", "source", "type")
        return {name: table[name].astype(None if name in exact else np.float64) for name in ROW.names or ()}

    @cached_property
    def alive(self) -> Booleans:
        """(rows,) whether each belongs to a document."""
        return np.asarray(~np.isin(self.columns["version"], self.dead))

    @cached_property
    def totals(self) -> dict[str, float]:
        """Number of documents, and sums of their lengths and of their distinct terms."""
        names = [f"{field}_{what}" for field in ("body", "title") for what in ("length", "distinct")]
        found = {name: float(self.columns[name][self.alive].sum()) for name in names}
        return found | {"documents": float(self.alive.sum())}

    @cached_property
    def _by_id(self) -> tuple[Integers, Integers]:
        living = np.flatnonzero(self.alive)
        ids = self.columns["id"][living]
        order = np.argsort(ids)
        return ids[order], living[order]

    def rows_of(self, wanted: Integers) -> Integers:
        """Return the rows of documents by their ids; unknown ids are ignored."""
        rows: Integers = picked(*self._by_id, wanted, -1)
        return rows[rows >= 0]


def field_statistics(name: str, postings: Sequence[TermPostings], loaded: LoadedRows) -> FieldStatistics:
    """Count documents and occurrences of terms in a field by their postings."""
    return FieldStatistics(
        documents=loaded.totals["documents"],
        document_frequency=np.array([float(len(part.rows)) for part in postings]),
        collection_frequency=np.array([float(part.counts.sum()) for part in postings]),
        collection_length=loaded.totals[f"{name}_length"],
        distinct_total=loaded.totals[f"{name}_distinct"],
    )


class SegmentReader:
    """Reader of the current segments of a database."""

    def __init__(self, fetch: Fetch, tokeniser: Tokeniser, term_hash: TermHash) -> None:
        self.fetch, self.tokeniser, self.hash = fetch, tokeniser, term_hash
        self._seen: object = None
        self._names: list[str] | None = None
        self.loaded = LoadedRows((), np.zeros(0, dtype=np.int64))

    def refresh(self) -> LoadedRows:
        """Load changes since the last call."""
        seen = self.fetch("PRAGMA data_version")[0][0]
        if seen != self._seen:
            known = {segment.number: segment for segment in self.loaded.segments}
            numbers = sorted(self.numbers("id", "segments").tolist())
            segments = tuple(known.get(number) or self._load(number) for number in numbers)
            self.loaded = LoadedRows(segments, self.numbers("version", "dead"))
            self._seen, self._names = seen, None
        return self.loaded

    def _load(self, number: int) -> LoadedSegment:
        rows = np.frombuffer(self.fetch("SELECT rows FROM segments WHERE id = ?", number)[0][0], dtype=ROW)
        directories = []
        for field in range(len(FIELDS)):
            keys = part_key(number, field, 0), part_key(number, field, 1)
            (terms,), (offsets,) = self.fetch("SELECT content FROM postings WHERE key IN (?, ?) ORDER BY key", *keys)
            directories.append((np.frombuffer(terms, "<u8"), np.frombuffer(offsets, "<u4")))
        return LoadedSegment(number, rows, directories)

    def numbers(self, column: str, of: str, *values: object) -> Integers:
        """Return a column of integers, joined by SQLite: ten times faster than a row for each."""
        joined = self.fetch(f"SELECT group_concat({column}, ' ') FROM {of}", *values)[0][0]
        return np.fromstring(joined or "", dtype=np.int64, sep=" ")

    def hashes(self, words: Sequence[str]) -> list[int]:
        """Return the hashes of the terms of some words; stop words have none."""
        return [self.hash(term) for term in dict.fromkeys(self.tokeniser.terms([*words])) if term]

    def name_words(self) -> list[str]:
        """Return the words of all names."""
        if self._names is None:
            keys = self.fetch("SELECT name_key FROM documents")
            self._names = sorted({word for (key,) in keys for word in key.split()})
        return self._names

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

    def postings(self, field: str, *terms: int) -> list[TermPostings]:
        """Return the postings of terms, by their hashes, over all segments; all chunks are read in one statement."""
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
