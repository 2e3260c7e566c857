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
from collections.abc import Sequence
from typing import Any, NamedTuple

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
POSTING = np.dtype([("place", "<u2"), ("first", "<u2"), ("count", "<u2")])
"""Posting of a term: row of the document in its segment, position of the first occurrence, number of occurrences."""
MOST = (1 << 16) - 1  # largest position and number of a posting; beyond they are taken as this one
LARGEST_SEGMENT = 1 << 13  # maximum number of documents in a segment
CHUNK = 1 << 12  # postings in a blob
MERGED = 4  # number of segments of about the same size that are merged
REMEMBERED = 1 << 18  # number of distinct words whose hashes are kept from one batch to the next

Postings = npt.NDArray[Any]  # of POSTING


class TermHash:
    """64-bit hash of terms under a secret key (BLAKE2b); 0 stands for no term."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def __call__(self, term: str) -> int:
        if not term:
            return 0
        digest = hashlib.blake2b(term.encode(), digest_size=8, key=self._key).digest()
        return int.from_bytes(digest, "little") or 1


class FieldPostings(NamedTuple):
    """Postings of one field: term i has those from offsets[i] to offsets[i + 1], places ascending."""

    terms: Uint64s  # ascending
    offsets: Uint32s
    postings: Postings


class Segment(NamedTuple):
    """Rows of documents and the postings of their fields, in the order of FIELDS."""

    rows: npt.NDArray[Any]
    fields: Sequence[FieldPostings]


def merge_segments(segments: Sequence[Segment], alive: Sequence[Booleans]) -> Segment:
    """Return one segment with the living rows of several."""
    rows = np.concatenate([segment.rows[living] for segment, living in zip(segments, alive, strict=True)])
    ends, fields = np.cumsum([len(living) for living in alive]), []
    moved = np.split(np.cumsum(np.concatenate(alive)) - 1, ends[:-1])  # new place of each living row
    for number in range(len(FIELDS)):
        parts = [segment.fields[number] for segment in segments]
        known = np.unique(np.concatenate([part.terms for part in parts]))
        terms, postings = [], []
        for part, living, places in zip(parts, alive, moved, strict=True):
            kept = living[part.postings["place"]]
            of_part = np.searchsorted(known, part.terms).astype(np.int32)
            terms.append(np.repeat(of_part, np.diff(part.offsets))[kept])
            postings.append(part.postings[kept])
            postings[-1]["place"] = places[postings[-1]["place"]]
        of_term, joined = np.concatenate(terms), np.concatenate(postings)
        del terms, postings  # which take most of the memory of an update
        order = np.argsort(of_term, kind="stable")  # for each term the earlier rows come first
        fields.append(_field(known, of_term[order], joined[order]))
    return Segment(rows, fields)


def _field(known: Uint64s, of_term: Integers, postings: Postings) -> FieldPostings:
    """Return the postings of a field from the ascending numbers of known terms with a posting each."""
    numbers, starts = np.unique(of_term, return_index=True)
    return FieldPostings(known[numbers], np.append(starts, len(of_term)).astype(np.uint32), postings)


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


class BatchCounter(dict[str, int]):
    """Counter of the terms of a batch of documents; it holds the hash of each word's term, 0 without one."""

    def __init__(self, tokeniser: Tokeniser, term_hash: TermHash) -> None:
        super().__init__()
        self._tokeniser, self._hash = tokeniser, term_hash
        self._fields = {name: (array("Q"), array("q", [0])) for name in FIELDS}

    def __missing__(self, word: str) -> int:
        self[word] = found = self._hash(self._tokeniser.terms([word])[0])
        return found

    def add(self, name: str, title: str, body: str, *, repeats: bool) -> None:
        """Count a document of normalised words; `repeats`: its body begins with its title."""
        whole = body if repeats else f"{title} {body}"
        for field, text in (("body", whole), ("title", title), ("name", name)):
            terms, ends = self._fields[field]
            terms.extend(map(self.__getitem__, text.split()))
            ends.append(len(terms))

    def finish(self, rows: npt.NDArray[Any]) -> Segment:
        """Return the segment of the counted documents, with lengths in its rows; then start over."""
        fields = []
        for name, (terms, ends) in self._fields.items():
            postings, lengths, distinct = _count(np.array(terms, dtype=np.uint64), np.array(ends))
            fields.append(postings)
            if name != "name":
                rows[f"{name}_length"], rows[f"{name}_distinct"] = lengths, distinct
        self._fields = {name: (array("Q"), array("q", [0])) for name in FIELDS}
        if len(self) > REMEMBERED:
            self.clear()
        return Segment(rows, fields)


def _count(terms: Uint64s, ends: Integers) -> tuple[FieldPostings, Integers, Integers]:
    """Count one field of documents: its postings, and (documents,) the lengths and the distinct terms."""
    documents = len(ends) - 1
    of = np.repeat(np.arange(documents), np.diff(ends))
    held = terms != 0
    places = (np.arange(len(terms)) - ends[of])[held]
    terms, number = np.unique(terms[held], return_inverse=True)
    keys, starts, counts = np.unique(number * documents + of[held], return_index=True, return_counts=True)
    postings = np.zeros(len(keys), dtype=POSTING)
    postings["place"] = keys % max(documents, 1)
    postings["first"], postings["count"] = np.minimum(places[starts], MOST), np.minimum(counts, MOST)
    lengths, distinct = (np.bincount(rows, minlength=documents) for rows in (of[held], postings["place"]))
    return _field(terms, keys // max(documents, 1), postings), lengths, distinct
