"""A party's documents with both of their fields counted: its own features and its own best documents, exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from quorank.arrays import Booleans, Doubles, Int32s, Integers
from quorank.compiled import kernel
from quorank.errors import require
from quorank.text.collection import Document, refuse_twice
from quorank.text.features import Features, FieldCounts, pair_features
from quorank.text.field_statistics import FieldStatistics
from quorank.text.formulas import bm25_robertson
from quorank.text.index import Index
from quorank.text.tokens import Tokeniser


@dataclass(frozen=True, eq=False)
class IndexedDocuments:
    """Documents of one party: row d of each index is document ids[d]."""

    ids: tuple[str, ...] = field(repr=False)
    body: Index
    title: Index

    @classmethod
    def build(cls, documents: Sequence[Document], tokeniser: Tokeniser | None = None) -> IndexedDocuments:
        """Count body and title of all documents; an id that stands twice is refused."""
        part = tokeniser or Tokeniser()
        ids = tuple(document.id for document in documents)
        refuse_twice("documents", "document", ids)
        return cls(ids, Index.build(documents, part, "body"), Index.build(documents, part, "title"))

    @property
    def tokeniser(self) -> Tokeniser:
        return self.body.tokeniser

    @cached_property
    def rows(self) -> dict[str, int]:
        """Document id → row."""
        return {id_: row for row, id_ in enumerate(self.ids)}

    def statistics(self, terms: Sequence[str]) -> tuple[FieldStatistics, FieldStatistics]:
        """Of body and of title, for the terms of a query."""
        return self.body.statistics(self.body.term_ids(terms)), self.title.statistics(
            self.title.term_ids(terms)
        )

    def features(
        self,
        terms: Sequence[str],
        rows: npt.ArrayLike,
        features: Features | None = None,
        statistics: tuple[FieldStatistics, FieldStatistics] | None = None,
    ) -> Doubles:
        """(rows, 16) exact features of these documents; `statistics` may be those of several parties together."""
        chosen = np.ascontiguousarray(rows, dtype=np.int64)
        body, title = statistics or self.statistics(terms)

        def counted(index: Index, part: FieldStatistics) -> FieldCounts:
            counts = index.counts_of(chosen, index.term_ids(terms))
            return FieldCounts(counts, index.lengths[chosen], part, index.distinct[chosen])

        return pair_features(counted(self.body, body), counted(self.title, title), features)

    def best(self, terms: Sequence[str], depth: int, features: Features | None = None) -> Integers:
        """The rows of at most `depth` documents with the highest BM25 of the body, best first.

        Only documents that hold a term count; of equal ones the earlier comes first.
        """
        require(depth >= 1, f"depth must be at least 1, got {depth}")
        part = features or Features()
        body = self.body
        term_ids = body.term_ids(terms)
        idf = part.inverse_document_frequency(body.statistics(term_ids))
        scores = np.zeros(body.n_documents)
        touched = np.zeros(body.n_documents, dtype=bool)
        for term, weight in zip(term_ids, idf, strict=True):
            postings = body.postings(int(term))
            _add_bm25(*postings, body.lengths, body.mean_length, weight, part.k1, part.b, scores, touched)
        found = np.flatnonzero(touched)
        return found[np.argsort(-scores[found], kind="stable")[:depth]]


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
    found: Booleans,
) -> None:
    for i in range(len(documents)):
        d = documents[i]
        scores[d] += idf * bm25_robertson(float(counts[i]), float(lengths[d]), mean_length, k1, b)
        found[d] = True
