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
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple, Protocol

import numpy as np

from quorank.errors import require, require_range
from quorank.kernels.arrays import Doubles, Int8s, Integers
from quorank.kernels.draws import Purpose, uniforms
from quorank.silos.holdings import FIELDS, Holding
from quorank.silos.sketch.instances import Instances, local_instances
from quorank.silos.training.lists import Statistics
from quorank.text import FEATURE_NAMES, Features, FieldCounts, FieldStatistics, QueryRows, pair_features

OTHERS = 1 << 23  # in the addresses of draws; owners follow
BM25 = tuple(i for i, name in enumerate(FEATURE_NAMES) if name.startswith("BM25"))


@dataclass(frozen=True, eq=False)
class TopDocuments:
    """Reverse top-K of one term in one field: documents of the owner with their estimated counts."""

    documents: Integers = field(repr=False)
    counts: Doubles = field(repr=False)  # estimated, above 0


class Answers(Protocol):
    """Source of reverse top-K answers: exact counts, or a session of questions.

    `answer` is one owner's answer to one asker about a term; `lengths` are those of all documents of the owner.
    """

    def answer(self, asker: int, owner: int, field: str, term: str) -> TopDocuments: ...

    def lengths(self, owner: int, field: str) -> Integers: ...


@dataclass(frozen=True, eq=False)
class ExactAnswers:
    """Answers of a perfect sketch: the true top-K with true counts."""

    parties: Sequence[Holding]
    k: int = 150  # K

    def answer(self, asker: int, owner: int, field: str, term: str) -> TopDocuments:
        """Return the K documents with the largest counts."""
        index = getattr(self.parties[owner].documents, field)
        documents, counts = index.top(int(index.term_ids([term])[0]), self.k)
        return TopDocuments(documents.astype(np.int64), counts.astype(np.float64))

    def lengths(self, owner: int, field: str) -> Integers:
        """Return the (documents,) true lengths."""
        return np.asarray(getattr(self.parties[owner].documents, field).lengths)


class Candidates(NamedTuple):
    """Documents of one owner in the answers about a query's terms, and their counts of all terms."""

    documents: Integers  # (found,) ascending
    body: Doubles  # (found, terms)
    title: Doubles

    def selected(self, chosen: Integers, others: Integers) -> Candidates:
        """Return some of them, followed by documents in no answer, whose counts are 0."""
        none = np.zeros((len(others), self.body.shape[1]))
        parts = zip(self, (others, none, none), strict=True)
        return Candidates(*(np.concatenate((part[chosen], more)) for part, more in parts))


def find_candidates(answers: Answers, asker: int, owner: int, terms: Sequence[str]) -> Candidates:
    """Combine the answers of one owner about all terms of a query."""
    given = {f: [answers.answer(asker, owner, f, term) for term in terms] for f in FIELDS}
    named = [answer.documents for of_field in given.values() for answer in of_field]
    documents = np.unique(np.concatenate(named)) if named else np.empty(0, dtype=np.int64)
    counts = {}
    for name, of_field in given.items():
        counts[name] = np.zeros((len(documents), len(terms)))
        for t, answer in enumerate(of_field):
            counts[name][np.searchsorted(documents, answer.documents), t] = answer.counts
    return Candidates(documents, counts["body"], counts["title"])


def cross_features(
    candidates: Candidates,
    lengths: tuple[Integers, Integers],
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

    kind: ClassVar[str] = "augment"

    ranking: Literal["bm25", "count"] = "bm25"  # score by which found documents are ranked
    take: int = 50  # found documents of a query at one owner; the paper's K = 150 over three owners
    highly: float = 0.1  # share of them, from the top, that is labelled 2
    relevant: float = 1.0  # share of them, from the top, that is labelled 1 or 2; the rest is 0
    negatives: int = 50  # documents in no answer, labelled 0
    # of all of them together, relative to all own instances; several: chosen by validation; none: all instances alike
    weights: tuple[float, ...] = (1.0,)
    queries: Literal["all", "labelled"] = "all"  # queries whose terms are asked

    def __post_init__(self) -> None:
        require_range("take", self.take, least=1)
        is_ordered = 0.0 <= self.highly <= self.relevant <= 1.0
        require(is_ordered, "value.out-of-range", "expected 0 ≤ highly ≤ relevant ≤ 1", "highly")
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

    def labels(self, found: int) -> Int8s:
        """Return (found,) labels from the first rank to the last."""
        labels = np.zeros(found, dtype=np.int8)
        labels[: math.ceil(self.relevant * found)] = 1
        labels[: math.ceil(self.highly * found)] = 2
        return labels

    def rows(
        self,
        answers: Answers,
        asker: int,
        owner: int,
        party: Holding,
        query: int,
        statistics: Statistics,
        features: Features,
        seed: int,
    ) -> QueryRows | None:
        """Return the instances of one query at one owner; None where nothing was found."""
        terms = party.queries[query]
        found = find_candidates(answers, asker, owner, terms)
        if not len(found.documents):
            return None
        body, title = (answers.lengths(owner, name) for name in FIELDS)
        known = statistics(terms)
        values = cross_features(found, (body, title), known, features)
        scores = found.body.sum(axis=1) if self.ranking == "count" else values[:, BM25].sum(axis=1)
        best = np.argsort(-scores, kind="stable")[: self.take]  # ties: the earlier one
        labels = self.labels(len(best))
        kept = found.selected(best, self._others(found, len(body), seed, asker, owner, query))
        values = cross_features(kept, (body, title), known, features)
        labels = np.concatenate((labels, np.zeros(len(values) - len(labels), dtype=np.int8)))
        order = np.argsort(kept.documents, kind="stable")
        ids = [str(d) for d in kept.documents[order]]
        return QueryRows(f"{party.name}:{party.query_ids[query]}@{owner}", ids, values[order], labels[order])

    def _others(self, found: Candidates, documents: int, seed: int, asker: int, owner: int, query: int) -> Integers:
        """Draw documents of the owner in no answer; fewer where nearly all were found."""
        count, round_ = 2 * self.negatives, OTHERS + owner
        draws = uniforms(seed, Purpose.INSTANCES, count, round_=round_, client=asker, interaction=query)
        drawn = np.setdiff1d((draws * documents).astype(np.int64), found.documents)
        if len(drawn) <= self.negatives:
            return drawn
        every = np.linspace(0, len(drawn) - 1, self.negatives).round().astype(np.int64)
        return np.asarray(drawn[every])


def augmented_instances(
    augment: Augment,
    answers: Answers,
    parties: Sequence[Holding],
    asker: int,
    queries: Sequence[int],
    statistics: Statistics,
    features: Features,
    seed: int,
) -> Instances:
    """Return one party's instances at all other owners: a list for each query and owner."""
    rows = [
        augment.rows(answers, asker, owner, parties[asker], query, statistics, features, seed)
        for query in queries
        for owner in range(len(parties))
        if owner != asker
    ]
    return local_instances([row for row in rows if row is not None])
