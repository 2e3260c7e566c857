"""Postings of documents in segments: the documents with a term, its counts, and its first position in each.

A segment is written once and never changed: that of a batch, or several merged into one. A term is identified by a
hash that is keyed with a secret of the index (`TermHash`), so postings do not reveal words. A document has a row
(`ROW`) in a segment with its lengths and the values for filters. A changed document gets a row with another version in
another segment, and the old one is left out when segments are merged.

All is stored as little-endian arrays in blobs: the terms of a field, their offsets, and the postings in chunks of
`CHUNK`, so a query reads a few kilobytes for each term.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from quorank.kernels.arrays import Booleans, Integers, Uint32s, Uint64s
from quorank.text.tokens import Tokeniser

FIELDS = ("body", "title", "name")
"""Counted fields: title and body as one text (`text.index.whole_text`), the title, the words of the file name."""
ROW = np.dtype(
    [
        ("id", "<i8"), ("version", "<i8"), ("modified", "<f8"), ("type", "<u8"), ("source", "<i4"),
        ("body_length", "<i4"), ("body_distinct", "<i4"), ("title_length", "<i4"), ("title_distinct", "<i4"),
    ]
)  # fmt: skip
"""Row of a document in a segment."""
LARGEST_SEGMENT = 1 << 14
"""Maximum number of documents in a segment; a position in it has 16 bits."""
CHUNK = 1 << 12
"""Postings in a blob."""
FAR = (1 << 16) - 1
"""Position of a first occurrence beyond this number of words."""
MERGED = 4
"""Number of segments of about the same size that are merged."""

Uint16s = npt.NDArray[np.uint16]


class TermHash:
    """64-bit hash of terms under a secret key (BLAKE2b); 0 stands for no term."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def __call__(self, term: str) -> int:
        if not term:
            return 0
        digest = hashlib.blake2b(term.encode(), digest_size=8, key=self._key).digest()
        return int.from_bytes(digest, "little") or 1


@dataclass(frozen=True, eq=False)
class FieldPostings:
    """Postings of one field: term i has offsets[i] to offsets[i + 1], places ascending."""

    terms: Uint64s  # ascending
    offsets: Uint32s
    places: Uint16s  # row of the document in its segment
    counts: Uint32s
    firsts: Uint16s  # position of the first occurrence, from 0, at most FAR

    def parts(self) -> Iterator[tuple[int, bytes]]:
        """Yield (number, content) of the stored blobs."""
        yield 0, self.terms.astype("<u8").tobytes()
        yield 1, self.offsets.astype("<u4").tobytes()
        for number, start in enumerate(range(0, len(self.places), CHUNK), 2):
            part = slice(start, start + CHUNK)
            counts = self.counts[part]
            width = "<u1" if counts.max() < 1 << 8 else "<u2" if counts.max() < 1 << 16 else "<u4"
            columns = (self.places[part].astype("<u2"), self.firsts[part].astype("<u2"), counts.astype(width))
            yield number, b"".join(column.tobytes() for column in columns)

    @classmethod
    def from_parts(cls, parts: Sequence[bytes]) -> FieldPostings:
        """Read the stored blobs."""
        terms, offsets = np.frombuffer(parts[0], "<u8"), np.frombuffer(parts[1], "<u4")
        return cls(terms, offsets, *read_chunks(parts[2:], int(offsets[-1])))


def read_chunks(chunks: Sequence[bytes], postings: int) -> tuple[Uint16s, Uint32s, Uint16s]:
    """Read places, counts and firsts from chunks with this number of postings; all but the last are full."""
    places, counts = np.empty(postings, dtype=np.uint16), np.empty(postings, dtype=np.uint32)
    firsts = np.empty(postings, dtype=np.uint16)
    for number, chunk in enumerate(chunks):
        start = number * CHUNK
        size = min(CHUNK, postings - start)
        part = slice(start, start + size)
        places[part] = np.frombuffer(chunk, "<u2", size)
        firsts[part] = np.frombuffer(chunk, "<u2", size, 2 * size)
        counts[part] = np.frombuffer(chunk, f"<u{len(chunk) // size - 4}", size, 4 * size)
    return places, counts, firsts


@dataclass(frozen=True, eq=False)
class Segment:
    """Rows of documents and the postings of their fields, in the order of FIELDS."""

    rows: npt.NDArray[Any]
    fields: tuple[FieldPostings, ...]


def merge_segments(segments: Sequence[Segment], alive: Sequence[Booleans]) -> Segment:
    """Return one segment with the living rows of several."""
    rows = np.concatenate([segment.rows[living] for segment, living in zip(segments, alive, strict=True)])
    bases = np.cumsum([0, *(int(living.sum()) for living in alive)])
    places = [base + np.cumsum(living) - 1 for base, living in zip(bases[:-1], alive, strict=True)]
    fields = tuple(
        _merged([segment.fields[f] for segment in segments], alive, places) for f in range(len(segments[0].fields))
    )
    return Segment(rows, fields)


def _merged(parts: Sequence[FieldPostings], alive: Sequence[Booleans], places: Sequence[Integers]) -> FieldPostings:
    """Merge the postings of all parts; for each term those of the first part, with the earlier rows, come first."""
    kept = [living[part.places] for part, living in zip(parts, alive, strict=True)]
    sizes = [_sizes(part.offsets, keep) for part, keep in zip(parts, kept, strict=True)]
    terms = np.unique(np.concatenate([part.terms[size > 0] for part, size in zip(parts, sizes, strict=True)]))
    total = np.zeros(len(terms), dtype=np.int64)
    where = []
    for part, size in zip(parts, sizes, strict=True):
        where.append(np.searchsorted(terms, part.terms[size > 0]))
        total[where[-1]] += size[size > 0]
    offsets = np.concatenate(([0], np.cumsum(total)))
    fill = offsets[:-1].copy()
    postings = int(offsets[-1])
    new_places, firsts = np.empty(postings, dtype=np.uint16), np.empty(postings, dtype=np.uint16)
    counts = np.empty(postings, dtype=np.uint32)
    for part, keep, size, at, moved in zip(parts, kept, sizes, where, places, strict=True):
        here = size[size > 0]
        starts = np.cumsum(here) - here
        targets = np.repeat((fill[at] - starts).astype(np.int32), here)
        targets += np.arange(len(targets), dtype=np.int32)
        fill[at] += here
        new_places[targets] = moved[part.places[keep]]
        counts[targets] = part.counts[keep]
        firsts[targets] = part.firsts[keep]
    return FieldPostings(terms, offsets.astype(np.uint32), new_places, counts, firsts)


def _sizes(offsets: Uint32s, keep: Booleans) -> Integers:
    """Return (terms,) the number of kept postings of each term."""
    if keep.all():
        return np.asarray(np.diff(offsets.astype(np.int64)), dtype=np.int64)
    before = np.zeros(len(keep) + 1, dtype=np.int32)
    np.cumsum(keep, out=before[1:])
    return np.asarray(np.diff(before[offsets]), dtype=np.int64)


def to_merge(sizes: Sequence[int]) -> list[int]:
    """Choose the segments to merge next by their numbers of documents: MERGED of about the same size, or large ones.

    A document is rewritten a few times at most, and few small segments are left.
    """
    classes: dict[int, list[int]] = {}
    for number, size in enumerate(sizes):
        members = classes.setdefault(max(size, 1).bit_length() // 2, [])
        members.append(number)
        together = sum(sizes[member] for member in members)
        enough = len(members) == MERGED or (len(members) > 1 and 2 * together > LARGEST_SEGMENT)
        if enough and together <= LARGEST_SEGMENT:
            return members
    return []


CountedWord = tuple[str, int, int]
"""A word, how many documents hold it, and how many have it in their name."""


class BatchCounter:
    """Counts of a batch of documents; words keep their numbers from batch to batch."""

    REMEMBERED = 1 << 18
    """Number of distinct words whose hashes are kept from one batch to the next."""

    def __init__(self, tokeniser: Tokeniser, term_hash: TermHash) -> None:
        self._numbers = _Numbers(tokeniser, term_hash)
        self._clear()

    def _clear(self) -> None:
        self._fields = {name: (array("i"), array("q")) for name in FIELDS}
        self._documents = 0

    def __len__(self) -> int:
        return self._documents

    def add(self, name: str, title: str, body: str, *, repeats: bool) -> None:
        """Count a document of normalised words; `repeats`: its body begins with its title."""
        number = self._numbers.__getitem__
        numbers = {part: array("i", map(number, text.split())) for part, text in (("name", name), ("title", title))}
        whole = array("i") if repeats else array("i", numbers["title"])
        whole.extend(map(number, body.split()))
        numbers["body"] = whole
        for part, found in numbers.items():
            words, ends = self._fields[part]
            words.extend(found)
            ends.append(len(words))
        self._documents += 1

    def finish(self, rows: npt.NDArray[Any]) -> tuple[Segment, list[CountedWord]]:
        """Return the segment of the counted documents, with lengths in its rows, and their words; then start over."""
        hashes = self._numbers.hashes()
        fields = []
        for part in FIELDS:
            words, ends = (np.frombuffer(column, dtype=column.typecode) for column in self._fields[part])
            postings, lengths, distinct = _count(words, ends, hashes)
            fields.append(postings)
            if part != "name":
                rows[f"{part}_length"], rows[f"{part}_distinct"] = lengths, distinct
        segment, words_found = Segment(rows, tuple(fields)), self._words()
        self._clear()
        if len(self._numbers) > self.REMEMBERED:
            self._numbers.forget()
        return segment, words_found

    def _words(self) -> list[CountedWord]:
        """Return the words of all documents, including those without a term."""
        documents, names = self._documents_with("body", "name"), self._documents_with("name")
        found = np.flatnonzero(documents)
        words = [self._numbers.words[number] for number in found.tolist()]
        return [*zip(words, documents[found].tolist(), names[found].tolist(), strict=True)]

    def _documents_with(self, *parts: str) -> Integers:
        """Return (words,) the number of documents with each word in one of some fields."""
        total, keys = len(self._numbers), []
        for part in parts:
            words, ends = (np.frombuffer(column, dtype=column.typecode) for column in self._fields[part])
            keys.append(_document_of(ends, len(words)) * total + words)
        ordered = np.sort(np.concatenate(keys))
        distinct = ordered[np.flatnonzero(np.diff(ordered, prepend=-1))]
        return np.bincount(distinct % max(total, 1), minlength=total)


class _Numbers(dict[str, int]):
    """Numbers of words in the order of their first occurrence, and the hash of each word's term."""

    def __init__(self, tokeniser: Tokeniser, term_hash: TermHash) -> None:
        super().__init__()
        self.tokeniser, self.term_hash = tokeniser, term_hash
        self.forget()

    def forget(self) -> None:
        self.clear()
        self.words: list[str] = []
        self._hashes = array("Q")

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self.words)
        self.words.append(word)
        return number

    def hashes(self) -> Uint64s:
        """Return (words,) the hash of the term of each word, 0 without a term."""
        self._hashes.extend(map(self.term_hash, self.tokeniser.terms(self.words[len(self._hashes) :])))
        return np.frombuffer(self._hashes, dtype=np.uint64).copy()  # a viewed array cannot grow


def _document_of(ends: Integers, words: int) -> Integers:
    """Return (words,) the document of each word."""
    return np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0)) if words else np.zeros(0, dtype=np.int64)


def _count(words: npt.NDArray[np.int32], ends: Integers, hashes: Uint64s) -> tuple[FieldPostings, Integers, Integers]:
    """Count one field of documents: its postings, and (documents,) the lengths and the distinct terms."""
    documents = len(ends)
    of = _document_of(ends, len(words))
    first_word = np.concatenate(([0], ends[:-1])) if documents else np.zeros(0, dtype=np.int64)
    places = np.minimum(np.arange(len(words)) - first_word[of], FAR)
    used = np.flatnonzero(np.bincount(words, minlength=len(hashes))) if len(words) else np.zeros(0, dtype=np.int64)
    terms, rank = np.unique(hashes[used], return_inverse=True)
    none = int(len(terms) > 0 and terms[0] == 0)  # stop words, all of hash 0
    number = np.zeros(len(hashes), dtype=np.int64)
    number[used] = rank - none
    key = number[words] * documents + of
    kept = key >= 0
    key, of, places = key[kept], of[kept], places[kept]
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    pairs = ordered[starts]
    counts = np.diff(starts, append=len(ordered))
    terms = terms[none:]
    offsets = np.searchsorted(pairs, np.arange(len(terms) + 1) * max(documents, 1))
    postings = FieldPostings(
        terms,
        offsets.astype(np.uint32),
        (pairs % max(documents, 1)).astype(np.uint16),
        counts.astype(np.uint32),
        places[order[starts]].astype(np.uint16),
    )
    lengths = np.bincount(of, minlength=documents)
    distinct = np.bincount(pairs % max(documents, 1), minlength=documents)
    return postings, lengths, distinct
