"""Features of pairs whose query and document belong to different parties, from reverse top-K answers alone.

CS-F-LTR §III: with cross-party term counts all features can be computed. What crosses for a query is, for each of its
terms and each field, a list of another party's document numbers with estimated counts (definition 3); besides, once and
for all, the length of every document ("we assume the length of document is non-private") and the field's statistics.
A document that an answer does not name counts as not holding the term: its count is at most the smallest one named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from quorank.arrays import Doubles, Integers
from quorank.silos.learning.holdings import Holding
from quorank.text import Features, FieldCounts, FieldStatistics, pair_features

FIELDS = ("body", "title")


@dataclass(frozen=True, eq=False)
class TopDocuments:
    """Reverse top-K for one term in one field: documents of the owner, and how often they are thought to hold it."""

    documents: Integers = field(repr=False)
    counts: Doubles = field(repr=False)  # estimated, above 0


class Answers(Protocol):
    """Where answers come from: an owner's exact counts, or a session of the protocol."""

    def answer(self, asker: int, owner: int, field: str, term: str) -> TopDocuments: ...

    def lengths(self, owner: int, field: str) -> Integers: ...


@dataclass(frozen=True, eq=False)
class ExactAnswers:
    """True counts and true top-K: what the best of all sketches would answer."""

    parties: Sequence[Holding]
    k: int = 150  # K

    def answer(self, asker: int, owner: int, field: str, term: str) -> TopDocuments:
        index = getattr(self.parties[owner].documents, field)
        documents, counts = index.top(int(index.term_ids([term])[0]), self.k)
        return TopDocuments(documents.astype(np.int64), counts.astype(np.float64))

    def lengths(self, owner: int, field: str) -> Integers:
        return np.asarray(getattr(self.parties[owner].documents, field).lengths)


@dataclass(frozen=True, eq=False)
class Candidates:
    """Documents of one owner that some term of a query found, and their counts of all terms."""

    documents: Integers = field(repr=False)  # (found,) ascending
    body: Doubles = field(repr=False)  # (found, terms)
    title: Doubles = field(repr=False)

    def with_others(self, others: Integers) -> Candidates:
        """The same, followed by documents that no term found: all of their counts are taken as 0."""
        empty = np.zeros((len(others), self.body.shape[1]))
        return Candidates(
            np.concatenate((self.documents, others)),
            np.concatenate((self.body, empty)),
            np.concatenate((self.title, empty)),
        )

    def take(self, chosen: Integers) -> Candidates:
        """Some of them, in this order."""
        return Candidates(self.documents[chosen], self.body[chosen], self.title[chosen])


def find_candidates(answers: Answers, asker: int, owner: int, terms: Sequence[str]) -> Candidates:
    """All answers to a query's terms at one owner, put together."""
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
    """(documents, 16) from estimated counts; lengths are those of all the owner's bodies and titles."""
    body, title = (
        FieldCounts(counts, of_all[candidates.documents], part)
        for counts, of_all, part in zip((candidates.body, candidates.title), lengths, statistics, strict=True)
    )
    return pair_features(body, title, features)
