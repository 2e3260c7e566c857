"""Index of documents: how often each term occurs in each field of each document, in columns.

`Index` holds one field. The counts are stored twice: by document (terms ascending), for features, and by term
(documents ascending), for posting lists and the exact top K of a term. `IndexedDocuments` holds body and title of a
party's documents, and computes its own features and its own best documents exactly.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from quorank.errors import require, require_choice, require_range
from quorank.kernels.arrays import Doubles, Int32s, Integers
from quorank.text.collection import Document, refuse_twice
from quorank.text.features import Features, FieldCounts, FieldStatistics, bm25_robertson, pair_features
from quorank.text.tokens import Tokeniser, normalised_words

FieldName = Literal["body", "title", "whole"]  # indexed part of a document: its body, its title, or both (`whole_text`)

UNSEEN = -1  # the id of a term that no document holds


class _TermIds(dict[str, int]):
    """Term id of each word, UNSEEN for one that the tokeniser leaves out; terms are numbered by first sight."""

    def __init__(self, tokeniser: Tokeniser) -> None:
        super().__init__()
        self.tokeniser, self.vocabulary, self.ids = tokeniser, list[str](), dict[str, int]()

    def __missing__(self, word: str) -> int:
        (term,) = self.tokeniser.terms([word])
        self[word] = number = self.ids.setdefault(term, len(self.vocabulary)) if term else UNSEEN
        if number == len(self.vocabulary):
            self.vocabulary.append(term)
        return number


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
        """Count the terms of one field."""
        from scipy.sparse import csr_array  # a search, which does not build such an index, starts without it

        require_choice("field", field, ("body", "title", "whole"))
        words, found, ends = _TermIds(tokeniser), array("i"), array("q", [0])
        for document in documents:
            text = whole_text(document) if field == "whole" else getattr(document, field)
            found.extend(map(words.__getitem__, normalised_words(text).decode().split()))
            ends.append(len(found))
        numbers = np.array(found, dtype=np.int32)
        held = numbers != UNSEEN
        offsets = np.concatenate(([0], np.cumsum(held)))[np.array(ends)]
        terms = numbers[held]
        shape = (len(offsets) - 1, len(words.vocabulary))
        lengths, frequency = np.diff(offsets), np.bincount(terms, minlength=shape[1])
        by_document = csr_array((np.ones(len(terms), dtype=np.int32), terms, offsets), shape=shape)
        by_document.sum_duplicates()  # in place, and sorts the terms of a document
        by_term = by_document.tocsc()
        return cls(
            tokeniser,
            words.vocabulary,
            words.ids,
            by_document.indptr.astype(np.int64),
            by_document.indices.astype(np.int32),
            by_document.data,
            by_term.indptr.astype(np.int64),
            by_term.indices.astype(np.int32),
            by_term.data,
            lengths,
            frequency,
        )

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
        for column, term in enumerate(wanted.tolist()):
            out[:, column] = picked(*self.postings(term), rows, 0)
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
        for term, factor in zip(wanted.tolist(), factors.tolist(), strict=True):
            documents, counts = self.postings(term)
            lengths = self.lengths[documents].astype(np.float64)
            scores[documents] += factor * bm25_robertson(
                counts.astype(np.float64), lengths, self.mean_length, part.k1, part.b
            )
        return scores

    def _checked(self, terms: Int32s) -> Int32s:
        wanted = np.ascontiguousarray(terms, dtype=np.int32)
        _require_within(wanted, UNSEEN, len(self.vocabulary), "ids", "terms")
        return wanted


def picked(rows: npt.NDArray[Any], values: Any, chosen: Integers, otherwise: float) -> Any:
    """Return the values of the chosen rows from ascending rows with a value each; `otherwise` for a missing row."""
    if not len(rows):
        return np.full(len(chosen), otherwise)
    at = np.minimum(np.searchsorted(rows, chosen), len(rows) - 1)
    return np.where(rows[at] == chosen, values[at], otherwise)


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

        With `whole` the body holds the title too, as for a search over title and body.
        """
        part, ids = tokeniser or Tokeniser(), tuple(document.id for document in documents)
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

    def best(self, terms: Sequence[str], depth: int) -> Integers:
        """Return the rows of at most `depth` documents with the highest BM25 of the body, best first.

        Only documents that hold a term count; of equal ones the earlier comes first.
        """
        require_range("depth", depth, least=1)
        ids = self.body.term_ids(terms)
        scores, touched = self.body.bm25(ids), self.body.holding(ids)
        return touched[np.argsort(-scores[touched], kind="stable")[:depth]]
