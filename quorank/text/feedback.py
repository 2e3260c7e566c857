"""Pseudo-relevance feedback: the BM25 of a query with terms of its best documents.

Relevance models (Lavrenko and Croft 2001) mixed with the query as in RM3 (Abdul-Jaleel et al. 2004), with BM25 in the
place of the query likelihood. The first m documents give the probability of a term in an answer,

    p(t) = Σ_d s_d / Σ s · c(t, d) / L_d,

s_d being their BM25. The n terms with the largest p(t)·IDF(t) are kept, their weights made to sum to 1, and mixed with
the terms of the query, which are weighted alike: q(t) = (1 − α)/|q| + α·p̂(t).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quorank.kernels.arrays import Doubles, Int32s, Integers
from quorank.text.features import Features
from quorank.text.index import UNSEEN, Index


def telling_terms(likely: Doubles, idf: Doubles, most: int) -> tuple[Integers, Doubles]:
    """Return the places of the n terms with the largest p(t)·IDF(t) of (terms,) each, and their weights, summing to 1."""
    weights = likely * np.maximum(idf, 0.0)
    best = np.argsort(-weights, kind="stable")[:most]
    best = best[weights[best] > 0.0]
    return best, weights[best] / max(float(weights[best].sum()), np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class Feedback:
    """Expansion of a query by its first documents."""

    documents: int = 5  # m
    terms: int = 20  # n
    share: float = 0.3  # α

    def expanded(
        self, index: Index, terms: Int32s, scores: Doubles, features: Features | None = None
    ) -> tuple[Int32s, Doubles]:
        """Return the terms of the expanded query, ascending, and their weights q(t); `scores` are (documents,) BM25."""
        known = np.unique(terms[terms != UNSEEN])
        order = np.argsort(-scores, kind="stable")[: self.documents]
        first = order[scores[order] > 0.0]
        mixed = np.zeros(len(index.vocabulary))
        if len(known):
            mixed[known] = (1.0 - self.share if len(first) else 1.0) / len(known)
        if len(first):
            likely = np.zeros(len(index.vocabulary))
            for document, score in zip(first, scores[first] / scores[first].sum(), strict=True):
                own = slice(index.offsets[document], index.offsets[document + 1])
                likely[index.terms[own]] += score * index.counts[own] / index.lengths[document]
            held = np.flatnonzero(likely).astype(np.int32)
            idf = (features or Features()).inverse_document_frequency(index.statistics(held))
            best, weights = telling_terms(likely[held], idf, self.terms)
            mixed[held[best]] += self.share * weights
        chosen = np.flatnonzero(mixed).astype(np.int32)
        return chosen, mixed[chosen]

    def scores(self, index: Index, terms: Int32s, scores: Doubles, features: Features | None = None) -> Doubles:
        """Compute (documents,) Σ_t q(t)·BM25(t, d) of the expanded query."""
        chosen, weights = self.expanded(index, terms, scores, features)
        return index.bm25(chosen, features, weights)
