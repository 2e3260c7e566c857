"""The labels of a party's own pairs.

`ReferenceRank` is CS-F-LTR §VI.A *as published*: there is no human judgement; "highly relevant" are the first 10 of a
reference retrieval over the documents of all parties, "relevant" those up to 100. The paper's reference is the top 100
of MS MARCO; ours is the query likelihood of title and body together with Dirichlet smoothing, over all parties. The
paper has 145,600 documents; with fewer, the first 100 would be most of what matches, so they become the `share` of all
documents and the first 10 a tenth of that.

Read with care: such a label is a function of term counts, and the features are functions of the same counts. A
ranker that imitates the reference is called relevant. `Judged` takes what people judged (or what made the documents).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quorank.arrays import Doubles
from quorank.errors import require
from quorank.parts import Family
from quorank.silos.learning.holdings import Grades, Holding


@dataclass(frozen=True)
class Judged:
    """The collection's own judgements."""

    kind: ClassVar[str] = "judged"

    def grades(self, parties: Sequence[Holding]) -> list[list[Grades]]:
        """[party][query] → own document → grade."""
        return [list(party.grades) for party in parties]


@dataclass(frozen=True)
class ReferenceRank:
    """2 for the first documents of the reference retrieval, 1 for the next, 0 for all others."""

    kind: ClassVar[str] = "reference-rank"

    highly: int = 10
    relevant: int = 100
    share: float = 0.01  # of all documents that `relevant` is at most; at least 20 documents
    mu: float = 1000.0  # μ of the reference's smoothing

    def __post_init__(self) -> None:
        require(1 <= self.highly <= self.relevant, "expected 1 ≤ highly ≤ relevant")
        require(0.0 < self.share <= 1.0, f"share must be above 0 and at most 1, got {self.share}")
        require(self.mu > 0.0, f"mu must be above 0, got {self.mu}")

    def cuts(self, documents: int) -> tuple[int, int]:
        """How many are highly relevant, and how many relevant or more, among so many documents."""
        relevant = min(self.relevant, max(20, int(self.share * documents)))
        return max(1, relevant * self.highly // self.relevant), relevant

    def grades(self, parties: Sequence[Holding]) -> list[list[Grades]]:
        """[party][query] → own document → grade. Nobody could compute this in earnest: it is the experiment's truth."""
        highly, relevant = self.cuts(sum(party.n_documents for party in parties))
        own_rows = [np.full(party.n_documents, p) for p, party in enumerate(parties)]
        owner = np.concatenate(own_rows)
        row = np.concatenate([np.arange(party.n_documents) for party in parties])
        found: list[list[Grades]] = []
        for p, party in enumerate(parties):
            graded: list[Grades] = []
            for terms in party.queries:
                scores = reference_scores(parties, terms, self.mu)
                matching = np.flatnonzero(np.isfinite(scores))
                best = matching[np.argsort(-scores[matching], kind="stable")[:relevant]]
                graded.append(
                    {int(row[d]): 2 if rank < highly else 1 for rank, d in enumerate(best) if owner[d] == p}
                )
            found.append(graded)
        return found


LABELS: Family[Judged | ReferenceRank] = Family("labels", Judged, ReferenceRank)


def reference_scores(parties: Sequence[Holding], terms: Sequence[str], mu: float) -> Doubles:
    """Σ_t log((c(t, d) + μ·p(t)) / (L(d) + μ)) over title and body of every party's documents; −∞ where none matches."""
    lengths, counts = [], []
    for party in parties:
        fields = (party.documents.body, party.documents.title)
        lengths.append(sum(index.lengths for index in fields))
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
