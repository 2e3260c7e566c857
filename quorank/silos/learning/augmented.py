"""Augmented instances: a party's queries with other parties' documents, labelled by how high a search ranks them.

CS-F-LTR §III.B: "after the reverse top-K document query, each party will obtain the augmented data with positive
labels". Nobody has judged these pairs. *As published*, documents are ranked by term counts and all that is found is
positive. "It can be replaced by any other TC-based metrics like BM25", says the paper: `ranking = "bm25"` ranks by the
BM25 of body and title over all of the query's terms. Since a linear ranker cannot learn from positives alone where the
zero of a feature lies, documents that nothing was found in may be added as negatives.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from quorank.arrays import Doubles, Int8s, Integers
from quorank.draws import Purpose, uniforms
from quorank.errors import require
from quorank.silos.learning.cross_features import FIELDS, Answers, Candidates, cross_features, find_candidates
from quorank.silos.learning.holdings import Holding
from quorank.silos.learning.instances import HIGHEST, Instances, Statistics
from quorank.text import FEATURE_NAMES, Features, QueryRows, to_ranking_data

OTHERS = 1 << 23  # in the addresses of draws; owners follow
BM25 = tuple(i for i, name in enumerate(FEATURE_NAMES) if name.startswith("BM25"))


@dataclass(frozen=True)
class Augment:
    """How found documents become labelled instances."""

    kind: ClassVar[str] = "augment"

    ranking: Literal["bm25", "count"] = "bm25"
    take: int = 50  # found documents of a query at one owner; the paper's K = 150 over three owners
    highly: float = 0.1  # share of them, from the top, that is labelled 2
    relevant: float = 1.0  # share of them, from the top, that is labelled 1 or 2; the rest is 0
    negatives: int = 50  # documents that nothing was found in, labelled 0
    # of all of them together, where all own instances count 1; several: the best by validation; none: each counts alike
    weights: tuple[float, ...] = (1.0,)
    queries: Literal["all", "labelled"] = "all"  # which queries are asked: labels are not needed to ask

    def __post_init__(self) -> None:
        require(self.take >= 1, f"take must be at least 1, got {self.take}")
        require(0.0 <= self.highly <= self.relevant <= 1.0, "expected 0 ≤ highly ≤ relevant ≤ 1")
        require(self.negatives >= 0, f"negatives must be 0 or more, got {self.negatives}")
        require(
            all(0.0 <= weight < math.inf for weight in self.weights),
            f"weights must be 0 or more, got {self.weights}",
        )

    @classmethod
    def recommended(cls) -> Augment:
        """Ranked by BM25, with negatives, for all queries, counted as much as validation says."""
        return cls(weights=(1.0, 0.0, 0.3, 3.0))

    @classmethod
    def published(cls) -> Augment:
        """Ranked by counts, all of it positive, for the labelled queries; an instance is an instance."""
        return cls(ranking="count", negatives=0, weights=(), queries="labelled")

    def labels(self, found: int) -> Int8s:
        """(found,) labels from the first rank to the last."""
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
        """The instances of one query at one owner, or None where nothing was found."""
        terms = party.queries[query]
        found = find_candidates(answers, asker, owner, terms)
        if not len(found.documents):
            return None
        body, title = (answers.lengths(owner, name) for name in FIELDS)
        known = statistics(terms)
        values = cross_features(found, (body, title), known, features)
        best = self._order(found, values)[: self.take]
        labels = self.labels(len(best))
        kept = found.take(best).with_others(self._others(found, len(body), seed, asker, owner, query))
        values = cross_features(kept, (body, title), known, features)
        labels = np.concatenate((labels, np.zeros(len(values) - len(labels), dtype=np.int8)))
        order = np.argsort(kept.documents, kind="stable")
        ids = [str(d) for d in kept.documents[order]]
        return QueryRows(f"{party.name}:{party.query_ids[query]}@{owner}", ids, values[order], labels[order])

    def _order(self, found: Candidates, values: Doubles) -> Integers:
        """Best first; of equal ones the earlier."""
        if self.ranking == "count":
            scores = found.body.sum(axis=1)
        else:
            scores = values[:, BM25].sum(axis=1)
        return np.argsort(-scores, kind="stable")

    def _others(
        self, found: Candidates, documents: int, seed: int, asker: int, owner: int, query: int
    ) -> Integers:
        """Documents of the owner that no term found, drawn; fewer where nearly all were found."""
        draws = uniforms(
            seed,
            Purpose.INSTANCES,
            2 * self.negatives,
            round_=OTHERS + owner,
            client=asker,
            interaction=query,
        )
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
    """What one party learns from the documents of all others; a list for each query and owner."""
    rows = [
        augment.rows(answers, asker, owner, parties[asker], query, statistics, features, seed)
        for query in queries
        for owner in range(len(parties))
        if owner != asker
    ]
    data = to_ranking_data([row for row in rows if row is not None])
    assert data.max_label <= HIGHEST
    return Instances(data, np.ones(data.n_rows))
