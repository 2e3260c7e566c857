"""What a party knows about one field of its documents, in columns.

The same counts lie there twice: by document (terms ascending), for features, and by term (documents ascending), for
posting lists and the exact top K of a term.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from quorank.arrays import Doubles, Int32s, Integers
from quorank.compiled import kernel
from quorank.errors import require
from quorank.text.collection import Document
from quorank.text.field_statistics import FieldStatistics
from quorank.text.scanning import Words
from quorank.text.tokens import Tokeniser, spaced

FieldName = Literal["body", "title"]

_BLOCK = 1 << 20  # bytes of text that are counted at once
UNSEEN = -1
"""The id of a term that no document holds."""


@dataclass(frozen=True, eq=False)
class Index:
    """Counts of one field. Terms are numbered in the order of first sight, documents in their given order."""

    tokeniser: Tokeniser
    vocabulary: list[str] = field(repr=False)  # term id → term
    ids: dict[str, int] = field(repr=False)  # term → term id
    # by document: terms[offsets[d] : offsets[d + 1]], ascending, and how often each occurs
    offsets: Integers = field(repr=False)
    terms: Int32s = field(repr=False)
    counts: Int32s = field(repr=False)
    # by term: documents posting_documents[posting_offsets[t] : posting_offsets[t + 1]], ascending
    posting_offsets: Integers = field(repr=False)
    posting_documents: Int32s = field(repr=False)
    posting_counts: Int32s = field(repr=False)
    lengths: Integers = field(repr=False)  # (documents,) terms of a document, with repetitions
    collection_frequency: Integers = field(repr=False)  # (vocabulary,)

    @classmethod
    def build(cls, documents: Iterable[Document], tokeniser: Tokeniser, field: FieldName = "body") -> Index:
        """Count the terms of one field. The texts are taken in blocks: only counts are kept."""
        require(field in ("body", "title"), f"field: expected 'body' or 'title', got {field!r}")
        counter = _Counter(tokeniser)
        texts: list[bytes] = []
        size = 0
        for document in documents:
            texts.append(spaced(document.body if field == "body" else document.title))
            size += len(texts[-1])
            if size >= _BLOCK:
                counter.add(texts)
                texts, size = [], 0
        if texts:
            counter.add(texts)
        return counter.index()

    @property
    def n_documents(self) -> int:
        return len(self.lengths)

    @property
    def n_terms(self) -> int:
        return len(self.vocabulary)

    @cached_property
    def document_frequency(self) -> Integers:
        """(vocabulary,) documents that hold a term."""
        return np.diff(self.posting_offsets)

    @cached_property
    def distinct(self) -> Integers:
        """(documents,) distinct terms of a document."""
        return np.diff(self.offsets)

    @cached_property
    def collection_length(self) -> int:
        return int(self.lengths.sum())

    @property
    def mean_length(self) -> float:
        return self.collection_length / self.n_documents if self.n_documents else 0.0

    def term_ids(self, terms: Sequence[str]) -> Int32s:
        """Ids of terms as the tokeniser gives them, in their order, UNSEEN for one that no document holds."""
        return np.array([self.ids.get(term, UNSEEN) for term in terms], dtype=np.int32)

    def counts_of(self, documents: npt.ArrayLike, terms: Int32s) -> Doubles:
        """(documents, terms) how often each document holds each term."""
        rows = np.ascontiguousarray(documents, dtype=np.int64)
        require(
            rows.ndim == 1 and (not len(rows) or (rows.min() >= 0 and rows.max() < self.n_documents)),
            f"documents: expected numbers from 0 to {self.n_documents - 1}",
        )
        wanted = self._checked(terms)
        out = np.zeros((len(rows), len(wanted)))
        _look_up(self.offsets, self.terms, self.counts, rows, wanted, out)
        return out

    def statistics(self, terms: Int32s) -> FieldStatistics:
        """The numbers that features need, for these terms."""
        wanted = self._checked(terms)
        seen = wanted >= 0
        frequencies = np.zeros((2, len(wanted)))
        frequencies[0, seen] = self.document_frequency[wanted[seen]]
        frequencies[1, seen] = self.collection_frequency[wanted[seen]]
        return FieldStatistics(
            float(self.n_documents),
            frequencies[0],
            frequencies[1],
            float(self.collection_length),
            float(len(self.terms)),
        )

    def postings(self, term: int) -> tuple[Int32s, Int32s]:
        """The documents that hold a term, ascending, and how often each does."""
        if term == UNSEEN:
            return self.posting_documents[:0], self.posting_counts[:0]
        self._checked(np.array([term], dtype=np.int32))
        part = slice(self.posting_offsets[term], self.posting_offsets[term + 1])
        return self.posting_documents[part], self.posting_counts[part]

    def top(self, term: int, k: int) -> tuple[Int32s, Int32s]:
        """Exact reverse top K: the k documents with most occurrences of a term; of equal ones the earlier."""
        documents, counts = self.postings(term)
        if len(counts) > k > 0:
            limit = np.partition(counts, len(counts) - k)[len(counts) - k]
            above = np.flatnonzero(counts > limit)
            equal = np.flatnonzero(counts == limit)[: k - len(above)]
            chosen = np.sort(np.concatenate((above, equal)))
            documents, counts = documents[chosen], counts[chosen]
        order = np.argsort(-counts, kind="stable")[: max(k, 0)]
        return documents[order], counts[order]

    def _checked(self, terms: Int32s) -> Int32s:
        wanted = np.ascontiguousarray(terms, dtype=np.int32)
        require(
            wanted.ndim == 1
            and (not len(wanted) or (wanted.min() >= UNSEEN and wanted.max() < self.n_terms)),
            f"terms: expected ids from {UNSEEN} to {self.n_terms - 1}",
        )
        return wanted


class _Counter:
    """Gathers counts block by block."""

    def __init__(self, tokeniser: Tokeniser) -> None:
        self.tokeniser = tokeniser
        self.words = Words()
        self.term_of = np.empty(
            0, dtype=np.int32
        )  # number of a word → id of its term, UNSEEN if it is left out
        self.vocabulary: list[str] = []
        self.ids: dict[str, int] = {}
        self.blocks: list[tuple[Int32s, Int32s, Integers, Integers]] = []

    def add(self, texts: list[bytes]) -> None:
        known = len(self.words)
        numbers, offsets = self.words.scan(texts)
        new = np.array(
            [self._id(term) for term in self.tokeniser.terms(self.words.words(known))], dtype=np.int32
        )
        self.term_of = np.concatenate((self.term_of, new))
        terms, counts = np.empty(len(numbers), dtype=np.int32), np.empty(len(numbers), dtype=np.int32)
        distinct, lengths = np.empty(len(texts), dtype=np.int64), np.empty(len(texts), dtype=np.int64)
        place = np.full(len(self.vocabulary), -1, dtype=np.int64)
        used = _count(numbers, offsets, self.term_of, place, terms, counts, distinct, lengths)
        self.blocks.append((terms[:used].copy(), counts[:used].copy(), distinct, lengths))

    def _id(self, term: str) -> int:
        if not term:
            return UNSEEN
        number = self.ids.setdefault(term, len(self.vocabulary))
        if number == len(self.vocabulary):
            self.vocabulary.append(term)
        return number

    def index(self) -> Index:
        nothing = (np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64))
        terms, counts, distinct, lengths = (
            np.concatenate(columns) for columns in zip(*(self.blocks or [nothing]), strict=True)
        )
        self.blocks = []
        offsets = np.concatenate(([0], np.cumsum(distinct))).astype(np.int64)
        by_term = _transposed(offsets, terms, counts, len(self.vocabulary))
        # turned twice, the terms of a document come out in ascending order
        by_document = _transposed(*by_term, len(lengths))
        frequency = np.bincount(terms, weights=counts, minlength=len(self.vocabulary)).astype(np.int64)
        return Index(self.tokeniser, self.vocabulary, self.ids, *by_document, *by_term, lengths, frequency)


@kernel
def _count(
    numbers: Int32s,
    offsets: Integers,
    term_of: Int32s,
    place: Integers,
    terms: Int32s,
    counts: Int32s,
    distinct: Integers,
    lengths: Integers,
) -> int:
    """Terms of each document in the order of first sight, and how often; returns how many there are."""
    used = 0
    for d in range(len(offsets) - 1):
        first = used
        length = 0
        for i in range(offsets[d], offsets[d + 1]):
            term = term_of[numbers[i]]
            if term < 0:
                continue
            length += 1
            if place[term] >= first:
                counts[place[term]] += 1
            else:
                place[term] = used
                terms[used] = term
                counts[used] = 1
                used += 1
        distinct[d] = used - first
        lengths[d] = length
    return used


@kernel
def _transposed(
    offsets: Integers, columns: Int32s, counts: Int32s, n_columns: int
) -> tuple[Integers, Int32s, Int32s]:
    """The same sparse matrix by column: rows ascending within each column."""
    turned_offsets = np.zeros(n_columns + 1, dtype=np.int64)
    for i in range(len(columns)):
        turned_offsets[columns[i] + 1] += 1
    for c in range(n_columns):
        turned_offsets[c + 1] += turned_offsets[c]
    fill = turned_offsets.copy()
    rows, turned = np.empty(len(columns), dtype=np.int32), np.empty(len(columns), dtype=np.int32)
    for r in range(len(offsets) - 1):
        for i in range(offsets[r], offsets[r + 1]):
            at = fill[columns[i]]
            fill[columns[i]] += 1
            rows[at] = r
            turned[at] = counts[i]
    return turned_offsets, rows, turned


@kernel
def _look_up(
    offsets: Integers, terms: Int32s, counts: Int32s, rows: Integers, wanted: Int32s, out: Doubles
) -> None:
    for r in range(len(rows)):
        first, last = offsets[rows[r]], offsets[rows[r] + 1]
        for k in range(len(wanted)):
            low, high = first, last
            while low < high:
                middle = (low + high) >> 1
                if terms[middle] < wanted[k]:
                    low = middle + 1
                else:
                    high = middle
            if low < last and terms[low] == wanted[k]:
                out[r, k] = counts[low]
