"""Training instances of a party from its own queries and its own documents, and the lists that judge all rankers.

CS-F-LTR §VI.A: a party has about 140 instances a query, labelled; "other instances from each party" are the test set.
Here a party's queries are divided: some have labels, some are held back for the test, the others are searched for
but not judged. A list holds a query's relevant documents, its best documents by BM25, and some at random. Its features
are exact, since both sides of every pair belong to the party.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from quorank.arrays import Doubles, Integers
from quorank.data.ranking import RankingData
from quorank.draws import Purpose, uniforms
from quorank.errors import require
from quorank.silos.learning.holdings import Grades, Holding
from quorank.text import Features, FieldStatistics, QueryRows, pooled, to_ranking_data

Statistics = Callable[[Sequence[str]], tuple[FieldStatistics, FieldStatistics]]
"""Terms → what is known about them in all bodies and in all titles."""

SPLIT, FILL, NOISE = 1 << 20, 1 << 21, 1 << 22  # in the addresses of draws: above any turn of a training
HIGHEST = 2
"""Labels are 0, 1 and 2, as in the paper."""


@dataclass(frozen=True, eq=False)
class Instances:
    """What one party learns from: lists with normalised features, and how much every row counts."""

    data: RankingData
    weights: Doubles = field(repr=False)

    @property
    def n_rows(self) -> int:
        return self.data.n_rows


@dataclass(frozen=True)
class Lists:
    """How a list is made."""

    kind: ClassVar[str] = "lists"

    depth: int = 60  # best documents by BM25 of the body
    random: int = 40  # further documents, drawn

    def __post_init__(self) -> None:
        require(self.depth >= 1, f"depth must be at least 1, got {self.depth}")
        require(self.random >= 0, f"random must be 0 or more, got {self.random}")

    def rows(self, party: Holding, query: int, grades: Grades, seed: int, number: int) -> Integers:
        """The documents of a query's list, each once, in ascending order: the order must tell no label."""
        relevant = np.array([row for row, grade in grades.items() if grade > 0], dtype=np.int64)
        best = party.documents.best(party.queries[query], self.depth)
        draws = uniforms(seed, Purpose.INSTANCES, self.random, round_=FILL, client=number, interaction=query)
        drawn = (draws * party.n_documents).astype(np.int64)
        return np.unique(np.concatenate((relevant, best, drawn)))


@dataclass(frozen=True, eq=False)
class QuerySplit:
    """Which queries of a party are for what."""

    labelled: tuple[int, ...]
    silent: tuple[int, ...]  # searched for, without labels
    test: tuple[int, ...]


def split(grades: Sequence[Grades], labelled: int, test_share: float, seed: int, number: int) -> QuerySplit:
    """A shuffle of the party's queries: the test's share of those that have an answer, then as many labelled ones.

    A query without a relevant document of the party's own judges nothing and teaches nothing: it is silent.
    """
    draws = uniforms(seed, Purpose.INSTANCES, len(grades), round_=SPLIT, client=number)
    order = np.argsort(draws, kind="stable").tolist()
    answered = [q for q in order if any(grade > 0 for grade in grades[q].values())]
    require(
        len(answered) >= 2,
        f"party number {number} has {len(answered)} queries that one of its own documents answers; expected at least 2",
    )
    cut = min(max(1, round(test_share * len(answered))), len(answered) - 1)
    chosen = answered[cut : cut + labelled]
    taken = {*answered[:cut], *chosen}
    return QuerySplit(tuple(chosen), tuple(q for q in order if q not in taken), tuple(answered[:cut]))


def exact_statistics(parties: Sequence[Holding]) -> Statistics:
    """The sums over all parties' documents (the IDF of §III), each party's part exact."""

    def statistics(terms: Sequence[str]) -> tuple[FieldStatistics, FieldStatistics]:
        each = [party.documents.statistics(terms) for party in parties]
        return pooled(*(body for body, _ in each)), pooled(*(title for _, title in each))

    return statistics


def own_rows(
    party: Holding,
    queries: Sequence[int],
    grades: Sequence[Grades],
    lists: Lists,
    statistics: Statistics,
    features: Features,
    seed: int,
    number: int,
) -> list[QueryRows]:
    """The lists of some queries among the party's own documents, features as they are."""
    found = []
    for q in queries:
        terms, graded = party.queries[q], grades[q]
        rows = lists.rows(party, q, graded, seed, number)
        values = party.documents.features(terms, rows, features, statistics(terms))
        ids = [party.documents.ids[row] for row in rows]
        labels = np.array([graded.get(int(row), 0) for row in rows], dtype=np.int8)
        found.append(QueryRows(f"{party.name}:{party.query_ids[q]}", ids, values, labels))
    return found


def with_label_noise(rows: Sequence[QueryRows], noise: float, seed: int, number: int) -> list[QueryRows]:
    """Labels of low quality: with probability `noise` a document has the label of another one of its list."""
    require(0.0 <= noise <= 1.0, f"noise must be from 0 to 1, got {noise}")
    found = []
    for q, row in enumerate(rows):
        labels = np.asarray(row.labels, dtype=np.int8)
        draws = uniforms(
            seed, Purpose.INSTANCES, 2 * len(labels), round_=NOISE, client=number, interaction=q
        ).reshape(2, -1)
        other = labels[(draws[1] * len(labels)).astype(np.int64)]
        found.append(
            QueryRows(row.query_id, row.document_ids, row.features, np.where(draws[0] < noise, other, labels))
        )
    return found


def local_instances(rows: Sequence[QueryRows]) -> Instances:
    """Own lists with every feature brought to [0, 1] in its query; every row counts 1."""
    data = to_ranking_data(rows)
    return Instances(data, np.ones(data.n_rows))


def join_instances(parts: Sequence[Instances]) -> Instances:
    """The lists of several sources, one behind the other."""
    kept = [part for part in parts if part.n_rows] or list(parts[:1])
    starts = np.cumsum([0, *(part.n_rows for part in kept)])
    offsets = [part.data.offsets[:-1] + start for part, start in zip(kept, starts[:-1], strict=True)]
    data = RankingData(
        np.concatenate([part.data.padded for part in kept]),
        np.concatenate([part.data.labels for part in kept]),
        np.append(np.concatenate(offsets), starts[-1]).astype(np.int64),
        kept[0].data.n_features,
        [name for part in kept for name in part.data.query_ids],
    )
    return Instances(data, np.concatenate([part.weights for part in kept]))
