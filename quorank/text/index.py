"""Index of documents: how often each term occurs in each field of each document, in columns.

`Index` holds one field. The same counts lie there twice: by document (terms ascending), for features, and by term
(documents ascending), for posting lists and the exact top K of a term. `IndexedDocuments` holds body and title of a
party's documents, and computes its own features and its own best documents exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from quorank.errors import require, require_choice, require_range
from quorank.kernels.arrays import Bytes, Doubles, Int32s, Integers, Uint64s
from quorank.kernels.compiled import kernel
from quorank.text.collection import Document, refuse_twice
from quorank.text.features import Features, FieldCounts, FieldStatistics, bm25_robertson, pair_features
from quorank.text.tokens import Tokeniser, normalised_words

FieldName = Literal["body", "title", "whole"]
"""Indexed part of a document: its body, its title, or both (`whole_text`)."""

_BLOCK = 1 << 20  # bytes of text that are counted at once
UNSEEN = -1
"""The id of a term that no document holds."""
_BASIS, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)  # of the hash FNV-1a
_32 = np.uint64(32)
_SPACE, _END_OF_TEXT = 32, 10


@dataclass(frozen=True, eq=False)
class Index:
    """Term counts of one field. Terms are numbered in the order of first sight, documents in their given order."""

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
        require_choice("field", field, ("body", "title", "whole"))
        counter = _Counter(tokeniser)
        texts: list[bytes] = []
        size = 0
        for document in documents:
            text = whole_text(document) if field == "whole" else getattr(document, field)
            texts.append(normalised_words(text))
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
        """Return the ids of terms as the tokeniser gives them, UNSEEN for one that no document holds."""
        return np.array([self.ids.get(term, UNSEEN) for term in terms], dtype=np.int32)

    def counts_of(self, documents: npt.ArrayLike, terms: Int32s) -> Doubles:
        """Count (documents, terms) how often each document holds each term."""
        rows = np.ascontiguousarray(documents, dtype=np.int64)
        _require_within(rows, 0, self.n_documents, "numbers", "documents")
        wanted = self._checked(terms)
        out = np.zeros((len(rows), len(wanted)))
        _look_up(self.offsets, self.terms, self.counts, rows, wanted, out)
        return out

    def statistics(self, terms: Int32s) -> FieldStatistics:
        """Return the statistics that features need, for these terms."""
        wanted = self._checked(terms)
        seen = wanted >= 0
        of_documents, of_collection = np.zeros((2, len(wanted)))
        of_documents[seen] = self.document_frequency[wanted[seen]]
        of_collection[seen] = self.collection_frequency[wanted[seen]]
        length, distinct = float(self.collection_length), float(len(self.terms))
        return FieldStatistics(float(self.n_documents), of_documents, of_collection, length, distinct)

    def postings(self, term: int) -> tuple[Int32s, Int32s]:
        """Return the documents that hold a term, ascending, and how often each does."""
        if term == UNSEEN:
            return self.posting_documents[:0], self.posting_counts[:0]
        self._checked(np.array([term], dtype=np.int32))
        part = slice(self.posting_offsets[term], self.posting_offsets[term + 1])
        return self.posting_documents[part], self.posting_counts[part]

    def holding(self, terms: Int32s) -> Integers:
        """Return the documents that hold one of some terms, ascending."""
        found = np.zeros(self.n_documents, dtype=bool)
        for term in self._checked(terms):
            found[self.postings(int(term))[0]] = True
        return np.flatnonzero(found)

    def top(self, term: int, k: int) -> tuple[Int32s, Int32s]:
        """Return the exact reverse top K: the k documents with most occurrences of a term; of equal ones the earlier."""
        documents, counts = self.postings(term)
        if len(counts) > k > 0:
            limit = np.partition(counts, len(counts) - k)[len(counts) - k]
            above = np.flatnonzero(counts > limit)
            equal = np.flatnonzero(counts == limit)[: k - len(above)]
            chosen = np.sort(np.concatenate((above, equal)))
            documents, counts = documents[chosen], counts[chosen]
        order = np.argsort(-counts, kind="stable")[: max(k, 0)]
        return documents[order], counts[order]

    def bm25(self, terms: Int32s, features: Features | None = None, weights: Doubles | None = None) -> Doubles:
        """Compute (documents,) Σ_t weight(t)·BM25(t, d); weights are 1 unless given. A document without any term has 0."""
        part, wanted = features or Features(), self._checked(terms)
        factors = part.inverse_document_frequency(self.statistics(wanted))
        if weights is not None:
            factors = factors * np.asarray(weights, dtype=np.float64)
        scores = np.zeros(self.n_documents)
        for term, factor in zip(wanted, factors, strict=True):
            _add_bm25(*self.postings(int(term)), self.lengths, self.mean_length, factor, part.k1, part.b, scores)
        return scores

    def _checked(self, terms: Int32s) -> Int32s:
        wanted = np.ascontiguousarray(terms, dtype=np.int32)
        _require_within(wanted, UNSEEN, len(self.vocabulary), "ids", "terms")
        return wanted


def _require_within(values: npt.NDArray[Any], least: int, below: int, what: str, name: str) -> None:
    inside = values.ndim == 1 and bool(np.all((values >= least) & (values < below)))
    require(inside, "value.out-of-range", f"expected {what} from {least} to {below - 1}", name)


def whole_text(document: Document) -> str:
    """Return title and body as one text; the body alone where it begins with the title, as in Cranfield."""
    title, begins = document.title.split(), document.body.split(maxsplit=len(document.title.split()))
    repeats = [word.casefold() for word in begins[: len(title)]] == [word.casefold() for word in title]
    return document.body if repeats else f"{document.title}\n{document.body}"


@dataclass(frozen=True, eq=False)
class IndexedDocuments:
    """Body and title of one party's documents: row d of each index is document ids[d]."""

    ids: tuple[str, ...] = field(repr=False)
    body: Index
    title: Index

    @classmethod
    def build(
        cls, documents: Sequence[Document], tokeniser: Tokeniser | None = None, *, whole: bool = False
    ) -> IndexedDocuments:
        """Count body and title of all documents; an id that stands twice is refused.

        With `whole` the body holds the title too: what a search over title and body finds.
        """
        part = tokeniser or Tokeniser()
        ids = tuple(document.id for document in documents)
        refuse_twice("documents", "document", ids)
        body = Index.build(documents, part, "whole" if whole else "body")
        return cls(ids, body, Index.build(documents, part, "title"))

    @cached_property
    def rows(self) -> dict[str, int]:
        """Document id → row."""
        return {id_: row for row, id_ in enumerate(self.ids)}

    def statistics(self, terms: Sequence[str]) -> tuple[FieldStatistics, FieldStatistics]:
        """Return the statistics of body and of title, for the terms of a query."""
        body, title = (index.statistics(index.term_ids(terms)) for index in (self.body, self.title))
        return body, title

    def features(
        self,
        terms: Sequence[str],
        rows: npt.ArrayLike,
        features: Features | None = None,
        statistics: tuple[FieldStatistics, FieldStatistics] | None = None,
    ) -> Doubles:
        """Compute (rows, 16) exact features of these documents; `statistics` may be those of several parties together."""
        chosen = np.ascontiguousarray(rows, dtype=np.int64)
        body, title = statistics or self.statistics(terms)

        def counted(index: Index, part: FieldStatistics) -> FieldCounts:
            counts = index.counts_of(chosen, index.term_ids(terms))
            return FieldCounts(counts, index.lengths[chosen], part, index.distinct[chosen])

        return pair_features(counted(self.body, body), counted(self.title, title), features)

    def best(self, terms: Sequence[str], depth: int, features: Features | None = None) -> Integers:
        """Return the rows of at most `depth` documents with the highest BM25 of the body, best first.

        Only documents that hold a term count; of equal ones the earlier comes first.
        """
        require_range("depth", depth, least=1)
        scores = self.body.bm25(self.body.term_ids(terms), features)
        touched = self.body.holding(self.body.term_ids(terms))
        return touched[np.argsort(-scores[touched], kind="stable")[:depth]]


class _Counter:
    """Counts of an index under construction, gathered block by block."""

    def __init__(self, tokeniser: Tokeniser) -> None:
        self.tokeniser = tokeniser
        self.words = Words()
        # number of a word → id of its term, UNSEEN if it is left out
        self.term_of = np.empty(0, dtype=np.int32)
        self.vocabulary: list[str] = []
        self.ids: dict[str, int] = {}
        self.blocks: list[tuple[Int32s, Int32s, Integers, Integers]] = []

    def add(self, texts: list[bytes]) -> None:
        known = len(self.words)
        numbers, offsets = self.words.scan(texts)
        new = np.array([self._id(term) for term in self.tokeniser.terms(self.words.words(known))], dtype=np.int32)
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
    """Count the terms of each document in the order of first sight; return how many there are."""
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
def _transposed(offsets: Integers, columns: Int32s, counts: Int32s, n_columns: int) -> tuple[Integers, Int32s, Int32s]:
    """Return the same sparse matrix by column: rows ascending within each column."""
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
def _look_up(offsets: Integers, terms: Int32s, counts: Int32s, rows: Integers, wanted: Int32s, out: Doubles) -> None:
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


@kernel
def _add_bm25(
    documents: Int32s,
    counts: Int32s,
    lengths: Integers,
    mean_length: float,
    idf: float,
    k1: float,
    b: float,
    scores: Doubles,
) -> None:
    for i in range(len(documents)):
        d = documents[i]
        scores[d] += idf * bm25_robertson(float(counts[i]), float(lengths[d]), mean_length, k1, b)


class Words:
    """Numbers for the words of many texts, in the order of first sight: a compiled pass over bytes with a hash table.

    A Python dictionary would hash and compare a new string object for each occurrence; here a string is made once for
    each distinct word.
    """

    def __init__(self) -> None:
        self._slots = np.full(1 << 14, -1, dtype=np.int32)
        self._hashes = np.empty(1 << 13, dtype=np.uint64)
        # word i lies in _letters[_ends[i] : _ends[i + 1]]
        self._ends = np.zeros((1 << 13) + 1, dtype=np.int64)
        self._letters = np.empty(1 << 17, dtype=np.uint8)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def words(self, first: int) -> list[str]:
        """Return the words from number `first` on."""
        ends = self._ends[first : self._count + 1]
        if len(ends) < 2:
            return []
        text = self._letters[ends[0] : ends[-1]].tobytes()
        places = (ends - ends[0]).tolist()
        return [text[a:b].decode() for a, b in pairwise(places)]

    def scan(self, texts: list[bytes]) -> tuple[Int32s, Integers]:
        """Return the numbers of all words, and where each text's begin; words are divided by spaces."""
        block = np.frombuffer(b"\n".join(texts), dtype=np.uint8)
        numbers = np.empty(len(block) // 2 + 1, dtype=np.int32)
        offsets = np.zeros(len(texts) + 1, dtype=np.int64)
        state = np.array([0, 0, 0, self._count], dtype=np.int64)
        while not _scan(block, self._slots, self._hashes, self._ends, self._letters, state, numbers, offsets):
            self._count = int(state[3])
            self._grow(len(block))
        self._count = int(state[3])
        return numbers[: state[1]], offsets

    def _grow(self, longest: int) -> None:
        """Double the arrays that are full; `longest` bounds the letters of the next word."""
        capacity = len(self._hashes)
        used = int(self._ends[self._count])
        if used + longest > len(self._letters):
            self._letters = _longer(self._letters, 2 * (used + longest))
        if self._count == capacity:
            self._hashes = _longer(self._hashes, 2 * capacity)
            self._ends = _longer(self._ends, 2 * capacity + 1)
            self._slots = np.full(4 * capacity, -1, dtype=np.int32)
            _refill(self._slots, self._hashes, self._count)


def _longer(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    grown = np.empty(size, dtype=array.dtype)
    grown[: len(array)] = array
    return grown


@kernel
def _place(hash_: Any, mask: Any) -> Any:
    return (hash_ ^ (hash_ >> _32)) & mask


@kernel
def _refill(slots: Int32s, hashes: Uint64s, count: int) -> None:
    mask = np.uint64(len(slots) - 1)
    for word in range(count):
        at = _place(hashes[word], mask)
        while slots[at] >= 0:
            at = (at + np.uint64(1)) & mask
        slots[at] = word


@kernel
def _scan(
    block: Bytes,
    slots: Int32s,
    hashes: Uint64s,
    ends: Integers,
    letters: Bytes,
    state: Integers,
    numbers: Int32s,
    offsets: Integers,
) -> bool:
    """Go on from `state` (byte, words read, texts read, words known); False when a table is full."""
    byte_at, read, text, known = state[0], state[1], state[2], state[3]
    mask = np.uint64(len(slots) - 1)
    first = -1
    hash_ = _BASIS
    for i in range(byte_at, len(block) + 1):
        byte = block[i] if i < len(block) else np.uint8(_END_OF_TEXT)
        if byte > _SPACE:
            if first < 0:
                first, hash_ = i, _BASIS
            hash_ = (hash_ ^ np.uint64(byte)) * _PRIME
            continue
        if first >= 0:
            size = i - first
            at = _place(hash_, mask)
            while True:
                word = slots[at]
                if word < 0:
                    start = ends[known]
                    if known == len(hashes) or start + size > len(letters):
                        state[0], state[1], state[2], state[3] = first, read, text, known
                        return False
                    slots[at] = known
                    hashes[known] = hash_
                    for j in range(size):
                        letters[start + j] = block[first + j]
                    ends[known + 1] = start + size
                    word = known
                    known += 1
                    break
                if hashes[word] == hash_ and ends[word + 1] - ends[word] == size:
                    same = True
                    for j in range(size):
                        if letters[ends[word] + j] != block[first + j]:
                            same = False
                            break
                    if same:
                        break
                at = (at + np.uint64(1)) & mask
            numbers[read] = word
            read += 1
            first = -1
        if byte == _END_OF_TEXT:
            text += 1
            offsets[text] = read
    state[0], state[1], state[2], state[3] = len(block) + 1, read, text, known
    return True
