"""Labelled instances of CS-F-LTR: a party's own queries with its own documents, their labels, and joint weights.

CS-F-LTR §VI.A: a party has about 140 labelled instances per query; "other instances from each party" are the test set.
Here a party's queries are divided: some have labels, some are held out for the test, the others are searched for but not
judged. A list holds a query's relevant documents, its best documents by BM25, and random ones. Its features are exact,
since both sides of every pair belong to the party.

Labels are the collection's judgements, or *reference ranks* as published, without human judgement: "highly relevant" are
the first 10 results of a reference retrieval over the documents of all parties, "relevant" those up to 100. The paper's
reference is the top 100 of MS MARCO; ours is the query likelihood of title and body with Dirichlet smoothing. The paper has
145,600 documents; with fewer, the first 100 would be most of the matches, so they become a hundredth of all documents and
the first 10 a tenth of that. Such a label is a function of term counts, and so are the features: a ranker that imitates the
reference scores as relevant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from quorank.data.ranking import RankingData, join_parts, rows_of_lists
from quorank.kernels.arrays import Doubles, Int8s, Integers
from quorank.kernels.draws import Purpose, uniforms
from quorank.silos.holdings import Grades, Holding
from quorank.silos.training.lists import Statistics
from quorank.text import Features, QueryRows, to_ranking_data
from quorank.text.features import dirichlet

FILL, NOISE = 1 << 21, 1 << 22  # in the addresses of draws: above any turn of a training
HIGHEST = 2  # labels are 0, 1 and 2, as in the paper
DEPTH, RANDOM = 60, 40  # documents of a list by BM25 of the body, and random ones
MU = 1000.0  # μ of the reference retrieval's smoothing
LabelSource = Literal["judged", "reference-rank"]


@dataclass(frozen=True, eq=False)
class Instances:
    """Training data of one party: lists with normalised features, and the weight of every row."""

    data: RankingData
    weights: Doubles = field(repr=False)

    @property
    def n_rows(self) -> int:
        return self.data.n_rows

    @classmethod
    def of(cls, rows: Sequence[QueryRows]) -> Instances:
        """Return lists with every feature normalised to [0, 1] in its query, and weights of 1."""
        data = to_ranking_data(rows)
        return cls(data, np.ones(data.n_rows))

    def split(self, fold: int, folds: int) -> tuple[Instances, Instances]:
        """Return the lists outside a fold, which train, and those of the fold, which validate."""
        held = np.arange(self.data.n_queries) % folds == fold
        train, validate = (
            Instances(self.data.select_lists(lists), self.weights[rows_of_lists(self.data.offsets, lists)[0]])
            for lists in (np.flatnonzero(~held), np.flatnonzero(held))
        )
        return train, validate

    def with_augmented(self, found: Instances, weight: float | None) -> Instances:
        """Join own and augmented instances; all augmented ones together weigh `weight` times all own ones.

        None gives every instance the same weight.
        """
        if not self.n_rows or not found.n_rows or weight == 0.0:
            return self if self.n_rows else found
        each = 1.0 if weight is None else weight * self.weights.sum() / found.n_rows
        together = np.concatenate((self.weights, np.full(found.n_rows, each)))
        return Instances(join_parts([self.data, found.data]), together)


def list_rows(party: Holding, query: int, grades: Grades, seed: int, number: int, depth: int = DEPTH) -> Integers:
    """Return the documents of a query's list in ascending order, which reveals no label."""
    relevant = np.array([row for row, grade in grades.items() if grade > 0], dtype=np.int64)
    draws = uniforms(seed, Purpose.INSTANCES, RANDOM, round_=FILL, client=number, interaction=query)
    best, random = party.documents.best(party.queries[query], depth), (draws * party.n_documents).astype(np.int64)
    return np.unique(np.concatenate((relevant, best, random)))


def own_rows(
    party: Holding,
    queries: Sequence[int],
    grades: Sequence[Grades],
    statistics: Statistics,
    features: Features,
    seed: int,
    number: int,
    noise: float = 0.0,
) -> list[QueryRows]:
    """Return the lists of some queries among the party's own documents, with unnormalised features.

    With probability `noise`, a document has the label of a random one of its list.
    """
    found = []
    for place, q in enumerate(queries):
        terms, graded = party.queries[q], grades[q]
        rows = list_rows(party, q, graded, seed, number)
        values = party.documents.features(terms, rows, features, statistics(terms))
        labels = np.array([graded.get(int(row), 0) for row in rows], dtype=np.int8)
        labels = noisy_labels(labels, noise, seed, number, place)
        ids = [party.documents.ids[row] for row in rows]
        found.append(QueryRows(f"{party.name}:{party.query_ids[q]}", ids, values, labels))
    return found


def noisy_labels(labels: Int8s, noise: float, seed: int, number: int, query: int) -> Int8s:
    """Return labels each of which is replaced, with probability `noise`, by a random one of the list."""
    draws = uniforms(seed, Purpose.INSTANCES, 2 * len(labels), round_=NOISE, client=number, interaction=query)
    replaced, by = draws.reshape(2, -1)
    return np.where(replaced < noise, labels[(by * len(labels)).astype(np.int64)], labels).astype(np.int8)


# ---------------------------------------------------------------- labels


def reference_grades(parties: Sequence[Holding], mu: float = MU) -> list[list[Grades]]:
    """Return [party][query] → own document → grade: 2 for the first of the reference retrieval, 1 for the next."""
    sizes = [party.n_documents for party in parties]
    relevant = min(100, max(20, sum(sizes) // 100))
    owner, row = np.repeat(np.arange(len(parties)), sizes), np.concatenate([np.arange(size) for size in sizes])
    found: list[list[Grades]] = []
    for p, party in enumerate(parties):
        found.append([])
        for terms in party.queries:
            scores = reference_scores(parties, terms, mu)
            matching = np.flatnonzero(np.isfinite(scores))
            best = matching[np.argsort(-scores[matching], kind="stable")[:relevant]]
            found[p].append({int(row[d]): 1 + (rank < relevant // 10) for rank, d in enumerate(best) if owner[d] == p})
    return found


def reference_scores(parties: Sequence[Holding], terms: Sequence[str], mu: float) -> Doubles:
    """Compute Σ_t log((c(t, d) + μ·p(t)) / (L(d) + μ)) over title and body of all documents; −∞ where no term matches."""
    lengths, counts = [], []
    for party in parties:
        fields = (party.documents.body, party.documents.title)
        lengths.append(sum(index.lengths for index in fields))
        every = np.arange(party.n_documents)
        counts.append(sum(index.counts_of(every, index.term_ids(terms)) for index in fields))
    all_lengths, all_counts = np.concatenate(lengths).astype(np.float64), np.concatenate(counts)
    p = np.maximum(all_counts.sum(axis=0), 0.5) / max(all_lengths.sum(), 1.0)
    scores = np.log(dirichlet(all_counts, all_lengths[:, None], p, mu)).sum(axis=1)
    return np.where(all_counts.any(axis=1), scores, -np.inf)
