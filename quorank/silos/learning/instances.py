"""Labelled instances of a party from its own queries and its own documents, and the test lists of all rankers.

CS-F-LTR §VI.A: a party has about 140 instances a query, labelled; "other instances from each party" are the test set.
Here a party's queries are divided: some have labels, some are held back for the test, the others are searched for
but not judged. A list holds a query's relevant documents, its best documents by BM25, and some at random. Its features
are exact, since both sides of every pair belong to the party.

Labels: `ReferenceRank` is CS-F-LTR §VI.A *as published*: there is no human judgement; "highly relevant" are the first 10
of a reference retrieval over the documents of all parties, "relevant" those up to 100. The paper's reference is the top
100 of MS MARCO; ours is the query likelihood of title and body together with Dirichlet smoothing, over all parties. The
paper has 145,600 documents; with fewer, the first 100 would be most of what matches, so they become the `share` of all
documents and the first 10 a tenth of that. Read with care: such a label is a function of term counts, and the features
are functions of the same counts. A ranker that imitates the reference is called relevant. `Judged` takes what people
judged (or what made the documents).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from quorank.data.ranking import RankingData
from quorank.errors import require_range
from quorank.kernels.arrays import Doubles, Int8s, Integers
from quorank.kernels.draws import Purpose, uniforms
from quorank.parts import Family
from quorank.silos.learning.holdings import Grades, Holding
from quorank.text import Features, FieldStatistics, QueryRows, pooled, to_ranking_data

Statistics = Callable[[Sequence[str]], tuple[FieldStatistics, FieldStatistics]]
"""Function from terms to their statistics in all bodies and in all titles."""

SPLIT, FILL, NOISE = 1 << 20, 1 << 21, 1 << 22  # in the addresses of draws: above any turn of a training
HIGHEST = 2
"""Labels are 0, 1 and 2, as in the paper."""


@dataclass(frozen=True, eq=False)
class Instances:
    """Training data of one party: lists with normalised features, and how much every row counts."""

    data: RankingData
    weights: Doubles = field(repr=False)

    @property
    def n_rows(self) -> int:
        return self.data.n_rows


@dataclass(frozen=True)
class Lists:
    """Way in which the list of a query is made."""

    kind: ClassVar[str] = "lists"

    depth: int = 60  # best documents by BM25 of the body
    random: int = 40  # further documents, drawn

    def __post_init__(self) -> None:
        require_range("depth", self.depth, least=1)
        require_range("random", self.random, least=0)

    def rows(self, party: Holding, query: int, grades: Grades, seed: int, number: int) -> Integers:
        """Return the documents of a query's list, each once, in ascending order: the order must tell no label."""
        relevant = np.array([row for row, grade in grades.items() if grade > 0], dtype=np.int64)
        best = party.documents.best(party.queries[query], self.depth)
        draws = uniforms(seed, Purpose.INSTANCES, self.random, round_=FILL, client=number, interaction=query)
        drawn = (draws * party.n_documents).astype(np.int64)
        return np.unique(np.concatenate((relevant, best, drawn)))


@dataclass(frozen=True, eq=False)
class QuerySplit:
    """Division of a party's queries: labelled, without labels, and held back for the test."""

    labelled: tuple[int, ...]
    silent: tuple[int, ...]  # searched for, without labels
    test: tuple[int, ...]


def split_queries(grades: Sequence[Grades], labelled: int, test_share: float, seed: int, number: int) -> QuerySplit:
    """Shuffle and divide a party's queries: the test's share of those that have an answer, then as many labelled ones.

    A query without a relevant document of the party's own judges nothing and teaches nothing: it is silent. A party with
    one answered query learns from it and tests nothing; one with none takes part with its documents only.
    """
    draws = uniforms(seed, Purpose.INSTANCES, len(grades), round_=SPLIT, client=number)
    order = np.argsort(draws, kind="stable").tolist()
    answered = [q for q in order if any(grade > 0 for grade in grades[q].values())]
    cut = min(max(1, round(test_share * len(answered))), max(len(answered) - 1, 0))
    chosen = answered[cut : cut + labelled]
    taken = {*answered[:cut], *chosen}
    return QuerySplit(tuple(chosen), tuple(q for q in order if q not in taken), tuple(answered[:cut]))


def exact_statistics(parties: Sequence[Holding]) -> Statistics:
    """Return the sums over all parties' documents (the IDF of §III), each party's part exact."""

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
    """Make the lists of some queries among the party's own documents, features as they are."""
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
    """Return lists with labels of low quality: with probability `noise` a document has another's label of its list."""
    require_range("noise", noise, least=0.0, most=1.0)
    return [
        QueryRows(
            row.query_id,
            row.document_ids,
            row.features,
            noisy_labels(np.asarray(row.labels, dtype=np.int8), noise, seed, number, q),
        )
        for q, row in enumerate(rows)
    ]


def noisy_labels(labels: Int8s, noise: float, seed: int, number: int, query: int) -> Int8s:
    """Return labels of which each is with probability `noise` another one's of the list, drawn alike."""
    draws = uniforms(seed, Purpose.INSTANCES, 2 * len(labels), round_=NOISE, client=number, interaction=query)
    whether, which = draws.reshape(2, -1)
    return np.where(whether < noise, labels[(which * len(labels)).astype(np.int64)], labels).astype(np.int8)


def local_instances(rows: Sequence[QueryRows]) -> Instances:
    """Return own lists with every feature brought to [0, 1] in its query; every row counts 1."""
    data = to_ranking_data(rows)
    return Instances(data, np.ones(data.n_rows))


def join_instances(parts: Sequence[Instances]) -> Instances:
    """Join the lists of several sources, one behind the other."""
    kept = [part for part in parts if part.n_rows] or list(parts[:1])
    return Instances(join_data([part.data for part in kept]), np.concatenate([part.weights for part in kept]))


def join_data(parts: Sequence[RankingData]) -> RankingData:
    """Join lists with the same features, one behind the other."""
    starts = np.cumsum([0, *(part.n_rows for part in parts)])
    offsets = [part.offsets[:-1] + start for part, start in zip(parts, starts[:-1], strict=True)]
    return RankingData(
        np.concatenate([part.padded for part in parts]),
        np.concatenate([part.labels for part in parts]),
        np.append(np.concatenate(offsets), starts[-1]).astype(np.int64),
        parts[0].n_features,
        [name for part in parts for name in part.query_ids],
    )


# ---------------------------------------------------------------- labels


@dataclass(frozen=True)
class Judged:
    """Labels by the collection's own judgements."""

    kind: ClassVar[str] = "judged"
    needs_all_documents: ClassVar[bool] = False

    def grades(self, parties: Sequence[Holding]) -> list[list[Grades]]:
        """Return [party][query] → own document → grade."""
        return [list(party.grades) for party in parties]


@dataclass(frozen=True)
class ReferenceRank:
    """Labels by rank: 2 for the first documents of the reference retrieval, 1 for the next, 0 for all others."""

    kind: ClassVar[str] = "reference-rank"
    needs_all_documents: ClassVar[bool] = True  # of all parties: no party could compute these labels

    highly: int = 10  # documents labelled 2, from the top
    relevant: int = 100  # documents labelled 1 or 2, from the top
    share: float = 0.01  # of all documents that `relevant` is at most; at least 20 documents
    mu: float = 1000.0  # μ of the reference's smoothing

    def __post_init__(self) -> None:
        require_range("highly", self.highly, least=1, most=self.relevant)
        require_range("share", self.share, above=0.0, most=1.0)
        require_range("mu", self.mu, above=0.0)

    def cuts(self, documents: int) -> tuple[int, int]:
        """Return how many are highly relevant, and how many relevant or more, among so many documents."""
        relevant = min(self.relevant, max(20, int(self.share * documents)))
        return max(1, relevant * self.highly // self.relevant), relevant

    def grades(self, parties: Sequence[Holding]) -> list[list[Grades]]:
        """Return [party][query] → own document → grade: the truth of an experiment, which no party could compute."""
        highly, relevant = self.cuts(sum(party.n_documents for party in parties))
        owner = np.repeat(np.arange(len(parties)), [party.n_documents for party in parties])
        row = np.concatenate([np.arange(party.n_documents) for party in parties])
        found: list[list[Grades]] = []
        for p, party in enumerate(parties):
            graded: list[Grades] = []
            for terms in party.queries:
                scores = reference_scores(parties, terms, self.mu)
                matching = np.flatnonzero(np.isfinite(scores))
                best = matching[np.argsort(-scores[matching], kind="stable")[:relevant]]
                graded.append({int(row[d]): 2 if rank < highly else 1 for rank, d in enumerate(best) if owner[d] == p})
            found.append(graded)
        return found


Labels = Judged | ReferenceRank
LABELS: Family[Labels] = Family("labels", Judged, ReferenceRank)


def reference_scores(parties: Sequence[Holding], terms: Sequence[str], mu: float) -> Doubles:
    """Compute Σ_t log((c(t, d) + μ·p(t)) / (L(d) + μ)) over title and body of all documents; −∞ where no term matches."""
    lengths, counts = [], []
    for party in parties:
        fields = (party.documents.body, party.documents.title)
        lengths.append(fields[0].lengths + fields[1].lengths)
        counted = np.zeros((party.n_documents, len(terms)))
        for index in fields:
            for t, term in enumerate(index.term_ids(terms)):
                documents, occurrences = index.postings(int(term))
                counted[documents, t] += occurrences
        counts.append(counted)
    all_lengths = np.concatenate(lengths).astype(np.float64)
    all_counts = np.concatenate(counts)
    p = np.maximum(all_counts.sum(axis=0), 0.5) / max(all_lengths.sum(), 1.0)
    scores = np.log((all_counts + mu * p) / (all_lengths + mu)[:, None]).sum(axis=1)
    return np.where(all_counts.any(axis=1), scores, -np.inf)
