"""Labelled instances of CS-F-LTR: a party's own queries with its own documents, their labels, and joint weights.

CS-F-LTR §VI.A: a party has about 140 labelled instances per query; "other instances from each party" are the test set.
Here a party's queries are divided: some have labels, some are held out for the test, the others are searched for but not
judged. A list holds a query's relevant documents, its best documents by BM25, and random ones. Its features are exact,
since both sides of every pair belong to the party.

`ReferenceRank` labels *as published*, without human judgement: "highly relevant" are the first 10 results of a reference
retrieval over the documents of all parties, "relevant" those up to 100. The paper's reference is the top 100 of MS MARCO;
ours is the query likelihood of title and body with Dirichlet smoothing. The paper has 145,600 documents; with fewer, the
first 100 would be most of the matches, so they become the `share` of all documents and the first 10 a tenth of that. Such a
label is a function of term counts, and so are the features: a ranker that imitates the reference scores as relevant.
`Judged` takes the collection's judgements.

Whether labels by rank help depends on the quality of a party's own labels. The weight of augmented instances is therefore
cross-validated: each fold of the labelled queries is ranked by rankers trained without it, once for each weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from quorank.data.ranking import RankingData
from quorank.errors import require_range
from quorank.kernels.arrays import Doubles, Int8s, Integers
from quorank.kernels.draws import Purpose, uniforms
from quorank.parts import Family
from quorank.silos.holdings import Grades, Holding
from quorank.silos.training.lists import Statistics, join_data
from quorank.text import Features, QueryRows, to_ranking_data

FILL, NOISE = 1 << 21, 1 << 22  # in the addresses of draws: above any turn of a training
HIGHEST = 2
"""Labels are 0, 1 and 2, as in the paper."""


@dataclass(frozen=True, eq=False)
class Instances:
    """Training data of one party: lists with normalised features, and the weight of every row."""

    data: RankingData
    weights: Doubles = field(repr=False)

    @property
    def n_rows(self) -> int:
        return self.data.n_rows


@dataclass(frozen=True)
class Lists:
    """Composition of a query's list."""

    kind: ClassVar[str] = "lists"

    depth: int = 60  # best documents by BM25 of the body
    random: int = 40  # further random documents

    def __post_init__(self) -> None:
        require_range("depth", self.depth, least=1)
        require_range("random", self.random, least=0)

    def rows(self, party: Holding, query: int, grades: Grades, seed: int, number: int) -> Integers:
        """Return the documents of a query's list in ascending order, which reveals no label."""
        relevant = np.array([row for row, grade in grades.items() if grade > 0], dtype=np.int64)
        best = party.documents.best(party.queries[query], self.depth)
        draws = uniforms(seed, Purpose.INSTANCES, self.random, round_=FILL, client=number, interaction=query)
        drawn = (draws * party.n_documents).astype(np.int64)
        return np.unique(np.concatenate((relevant, best, drawn)))


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
    """Return the lists of some queries among the party's own documents, with unnormalised features."""
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
    """Return lists in which each document has, with probability `noise`, the label of another one of its list."""
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
    """Return labels each of which is replaced, with probability `noise`, by a random one of the list."""
    draws = uniforms(seed, Purpose.INSTANCES, 2 * len(labels), round_=NOISE, client=number, interaction=query)
    replaced, by = draws.reshape(2, -1)
    return np.where(replaced < noise, labels[(by * len(labels)).astype(np.int64)], labels).astype(np.int8)


def local_instances(rows: Sequence[QueryRows]) -> Instances:
    """Return own lists with every feature normalised to [0, 1] in its query, and weights of 1."""
    data = to_ranking_data(rows)
    return Instances(data, np.ones(data.n_rows))


def join_instances(parts: Sequence[Instances]) -> Instances:
    """Concatenate the lists of several sources."""
    kept = [part for part in parts if part.n_rows] or list(parts[:1])
    return Instances(join_data([part.data for part in kept]), np.concatenate([part.weights for part in kept]))


def weigh_augmented(own: Instances, found: Instances, weight: float | None) -> Instances:
    """Join own and augmented instances; all augmented ones together weigh `weight` times all own ones.

    None gives every instance the same weight.
    """
    if not own.n_rows or not found.n_rows or weight == 0.0:
        return own if own.n_rows else found
    each = 1.0 if weight is None else weight * own.weights.sum() / found.n_rows
    return join_instances([own, Instances(found.data, np.full(found.n_rows, each))])


def select_lists(instances: Instances, queries: Integers) -> Instances:
    """Return some of the lists."""
    data = instances.data
    rows = [np.arange(data.offsets[q], data.offsets[q + 1]) for q in queries]
    chosen = np.concatenate(rows) if rows else np.empty(0, dtype=np.int64)
    offsets = np.cumsum([0, *(len(r) for r in rows)])
    kept = data.select_rows(chosen, offsets, [data.query_ids[q] for q in queries])
    return Instances(kept, instances.weights[chosen])


def split_fold(own: Instances, fold: int, folds: int) -> tuple[Instances, Instances]:
    """Return a party's lists outside a fold, which train, and those of the fold, which validate."""
    held = np.arange(own.data.n_queries) % folds == fold
    return select_lists(own, np.flatnonzero(~held)), select_lists(own, np.flatnonzero(held))


# ---------------------------------------------------------------- labels


@dataclass(frozen=True)
class Judged:
    """Labels from the collection's judgements."""

    kind: ClassVar[str] = "judged"
    needs_all_documents: ClassVar[bool] = False

    def grades(self, parties: Sequence[Holding]) -> list[list[Grades]]:
        """Return [party][query] → own document → grade."""
        return [list(party.grades) for party in parties]


@dataclass(frozen=True)
class ReferenceRank:
    """Labels by rank: 2 for the first documents of the reference retrieval, 1 for the next, 0 for all others."""

    kind: ClassVar[str] = "reference-rank"
    needs_all_documents: ClassVar[bool] = True  # of all parties: no party can compute these labels

    highly: int = 10  # documents labelled 2, from the top
    relevant: int = 100  # documents labelled 1 or 2, from the top
    share: float = 0.01  # of all documents that `relevant` is at most; at least 20 documents
    mu: float = 1000.0  # μ of the reference's smoothing

    def __post_init__(self) -> None:
        require_range("highly", self.highly, least=1, most=self.relevant)
        require_range("share", self.share, above=0.0, most=1.0)
        require_range("mu", self.mu, above=0.0)

    def cuts(self, documents: int) -> tuple[int, int]:
        """Return the numbers of highly relevant, and of relevant or better documents, in a collection of this size."""
        relevant = min(self.relevant, max(20, int(self.share * documents)))
        return max(1, relevant * self.highly // self.relevant), relevant

    def grades(self, parties: Sequence[Holding]) -> list[list[Grades]]:
        """Return [party][query] → own document → grade."""
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
