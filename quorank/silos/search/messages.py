"""Messages of a search and their bytes, to be sealed between two parties; numbers are little-endian.

A question is M bundles of columns: 1 byte each for the version, M, the terms T of every bundle and its width, T rounded up
to a multiple of 4, then M·width columns of 4 bytes; the places behind the T-th hold 2^32 − 1. An answer begins with the
version, M, the width, k, 8 bytes of a digest of the question, and what the asker has spent: four numbers of 4 bytes; then
for every bundle, the number of documents (1 byte), k document numbers (4 bytes) and k·width cells (2 bytes), padded with
zeros. Both sizes follow from M, the width and k.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import astuple, dataclass

import numpy as np

from quorank.errors import require
from quorank.kernels.arrays import Integers
from quorank.silos.count_sketch import Hashing
from quorank.silos.envelopes import VERSION, ByteReader
from quorank.silos.search.ledger import SearchSpending
from quorank.silos.search.settings import MOST_AMONG, MOST_TERMS, SearchTerms

WIDTH = 4  # bundles are filled up to a multiple of this many columns
MOST_VALUE = 0xFFFF
_NOTHING = 0xFFFFFFFF
_QUESTION = struct.Struct("<BBBB")
_ANSWER = struct.Struct("<BBBB8s4I")


def width_of(terms: int) -> int:
    """Return the width of a bundle of terms in messages."""
    return -(-terms // WIDTH) * WIDTH


def by_column(hashing: Hashing, bundle: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return terms and columns in the order of the columns, which is independent of the query's."""
    columns, terms = zip(*sorted(zip(hashing.places(bundle)[0][:, 0].tolist(), bundle, strict=True)), strict=True)
    return terms, columns


def question_digest(raw: bytes) -> bytes:
    """Return the 8 bytes by which an answer names its question."""
    return hashlib.blake2b(raw, digest_size=8, person=b"quorank search").digest()


@dataclass(frozen=True)
class SearchQuestion:
    """Question: bundles of equally many columns."""

    bundles: tuple[tuple[int, ...], ...]

    def to_bytes(self) -> bytes:
        """Return the text to be sealed."""
        count, terms = len(self.bundles), len(self.bundles[0])
        places = np.full((count, width_of(terms)), _NOTHING, dtype="<u4")
        places[:, :terms] = self.bundles
        return _QUESTION.pack(VERSION, count, terms, places.shape[1]) + places.tobytes()

    @classmethod
    def from_bytes(cls, raw: bytes, sender: str, terms: SearchTerms) -> SearchQuestion:
        """Decode a question; its columns must be within the group's table."""
        reader = ByteReader(raw, f"the search of {sender}")
        version, count, size, width = reader.unpack(_QUESTION)
        reader.check_version(version)
        reader.check(1 <= count <= MOST_AMONG, f"holds {count} bundles, 1 to {MOST_AMONG} are read")
        reader.check(1 <= size <= MOST_TERMS, f"has bundles of {size} terms, 1 to {MOST_TERMS} are read")
        reader.check(width == width_of(size), f"has bundles of width {width} where {width_of(size)} is due")
        places = np.frombuffer(reader.bytes(4 * count * width), dtype="<u4").reshape(count, width)
        reader.end()
        reader.check(bool((places[:, size:] == _NOTHING).all()), "has something behind the columns of a bundle")
        largest = int(places[:, :size].max())
        reader.check(largest < terms.columns, f"names column {largest} where the table has {terms.columns:,}")
        return cls(tuple(tuple(bundle) for bundle in places[:, :size].tolist()))


@dataclass(frozen=True)
class NamedDocuments:
    """Documents that an owner names for one bundle, best first."""

    numbers: Integers  # (documents,)
    cells: Integers  # (documents, terms), 0 where the noisy cell is below 1


@dataclass(frozen=True)
class SearchAnswer:
    """Answer: for every bundle of a question at most k documents with their cells."""

    question: bytes  # its digest
    bundles: tuple[NamedDocuments, ...]
    spending: SearchSpending

    def to_bytes(self, terms: int, k: int) -> bytes:
        """Return the text to be sealed, of a size that follows from the question and k."""
        width = width_of(terms)
        spent = (min(number, _NOTHING) for number in astuple(self.spending))
        parts = [_ANSWER.pack(VERSION, len(self.bundles), width, k, self.question, *spent)]
        for named in self.bundles:
            count = len(named.numbers)
            numbers, cells = np.zeros(k, dtype="<u4"), np.zeros((k, width), dtype="<u2")
            numbers[:count] = named.numbers
            cells[:count, :terms] = np.clip(named.cells, 0, MOST_VALUE)
            parts += [bytes([count]), numbers.tobytes(), cells.tobytes()]
        return b"".join(parts)

    @classmethod
    def from_bytes(cls, raw: bytes, sender: str, asked: bytes, terms: SearchTerms) -> SearchAnswer:
        """Decode the answer to an own question: at most k documents, each once per bundle, followed by zeros."""
        question = SearchQuestion.from_bytes(asked, "this party", terms)
        count, size, k = len(question.bundles), len(question.bundles[0]), terms.k
        reader = ByteReader(raw, f"the answer of {sender}")
        version, bundles, width, named, digest, *spent = reader.unpack(_ANSWER)
        reader.check_version(version)
        said = f"the answer of {sender} is to another question; drop it and ask again"
        require(digest == question_digest(asked), "silo-search.other-question", said)
        reader.check(
            (bundles, width, named) == (count, width_of(size), k), "has another form than the question asks for"
        )
        found = []
        for _ in range(count):
            documents = reader.bytes(1)[0]
            reader.check(documents <= k, f"names {documents} documents where {k} are agreed")
            numbers = np.frombuffer(reader.bytes(4 * k), dtype="<u4").astype(np.int64)
            cells = np.frombuffer(reader.bytes(2 * k * width), dtype="<u2").reshape(k, width).astype(np.int64)
            filled = numbers[documents:].any() or cells[documents:].any() or cells[:, size:].any()
            reader.check(not filled, "has something behind its documents")
            numbers, cells = numbers[:documents], cells[:documents, :size]
            reader.check(numbers.max(initial=0) < 2**31, "names a document above 2^31 − 1")
            reader.check(len(np.unique(numbers)) == documents, "names a document twice in one bundle")
            reader.check(bool(cells.any(axis=1).all()), "names a document without any term")
            found.append(NamedDocuments(numbers, cells))
        reader.end()
        return cls(digest, tuple(found), SearchSpending(*spent))
