"""Augmented instances of CS-F-LTR: a party's queries with other parties' documents, labelled by rank.

Features of such pairs come from reverse top-K answers alone (§III). For each term of a query and each field, an answer
holds another party's document numbers with estimated counts (definition 3); besides, the length of every document ("we
assume the length of document is non-private") and the field's statistics are known. A document that an answer does not
name counts as not holding the term: its count is at most the smallest one named.

Labels (§III.B): "after the reverse top-K document query, each party will obtain the augmented data with positive
labels". Nobody has judged these pairs. *As published*, documents are ranked by term counts and all are positive. "It
can be replaced by any other TC-based metrics like BM25", says the paper: `ranking = "bm25"` ranks by the BM25 of body and
title over all of the query's terms. Since a linear ranker cannot learn from positives alone where the zero of a feature
lies, documents in which nothing was found may be added as negatives.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from quorank.errors import require, require_range
from quorank.kernels.arrays import Doubles, Integers
from quorank.silos.holdings import FIELDS, Holding
from quorank.silos.sketch.questions import QuestionSession
from quorank.text import Features, FieldCounts, FieldStatistics, pair_features


@dataclass(frozen=True, eq=False)
class ExactAnswers:
    """Answers of a perfect sketch: the true top-K with true counts. A session of questions has the same methods."""

    parties: Sequence[Holding]
    k: int = 150  # K

    def answer(self, asker: int, owner: int, field: str, term: str) -> tuple[Integers, Doubles]:
        """Return one owner's answer to one asker: its K documents with the largest counts, and the counts."""
        index = getattr(self.parties[owner].documents, field)
        documents, counts = index.top(int(index.term_ids([term])[0]), self.k)
        return documents.astype(np.int64), counts.astype(np.float64)

    def lengths(self, owner: int, field: str) -> Integers:
        """Return the (documents,) true lengths of all documents of an owner."""
        return np.asarray(getattr(self.parties[owner].documents, field).lengths)


Answers = ExactAnswers | QuestionSession


class Candidates(NamedTuple):
    """Documents of one owner in the answers about a query's terms, and their counts of all terms."""

    documents: Integers  # (found,) ascending
    body: Doubles  # (found, terms)
    title: Doubles


def find_candidates(answers: Answers, asker: int, owner: int, terms: Sequence[str]) -> Candidates:
    """Combine the answers of one owner about all terms of a query."""
    given = [[answers.answer(asker, owner, name, term) for term in terms] for name in FIELDS]
    documents = np.unique(np.concatenate([named for of_field in given for named, _ in of_field]))
    counts = np.zeros((len(FIELDS), len(documents), len(terms)))
    for of_field, out in zip(given, counts, strict=True):
        for t, (named, values) in enumerate(of_field):
            out[np.searchsorted(documents, named), t] = values
    return Candidates(documents, *counts)


def cross_features(
    candidates: Candidates,
    lengths: Sequence[Integers],
    statistics: tuple[FieldStatistics, FieldStatistics],
    features: Features | None = None,
) -> Doubles:
    """Compute (documents, 16) features from estimated counts; `lengths` are those of all the owner's bodies and titles."""
    body, title = (
        FieldCounts(counts, of_all[candidates.documents], part)
        for counts, of_all, part in zip((candidates.body, candidates.title), lengths, statistics, strict=True)
    )
    return pair_features(body, title, features)


@dataclass(frozen=True)
class Augment:
    """Rule by which found documents become labelled instances."""

    ranking: Literal["bm25", "count"] = "bm25"  # score by which found documents are ranked
    take: int = 50  # found documents of a query at one owner; the paper's K = 150 over three owners
    negatives: int = 50  # documents in no answer, labelled 0
    # of all of them together, relative to all own instances; several: chosen by validation; none: all instances alike
    weights: tuple[float, ...] = (1.0,)
    queries: Literal["all", "labelled"] = "all"  # queries whose terms are asked

    def __post_init__(self) -> None:
        require_range("take", self.take, least=1)
        require_range("negatives", self.negatives, least=0)
        sound = all(0.0 <= weight < math.inf for weight in self.weights)
        require(sound, "value.out-of-range", f"must be 0 or more, got {self.weights}", "weights")

    @classmethod
    def recommended(cls) -> Augment:
        """Return BM25 ranking with negatives, for all queries, weighted by validation."""
        return cls(weights=(1.0, 0.0, 0.3, 3.0))

    @classmethod
    def published(cls) -> Augment:
        """Return ranking by counts, all positive, for the labelled queries; all instances have the same weight."""
        return cls(ranking="count", negatives=0, weights=(), queries="labelled")
