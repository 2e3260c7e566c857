"""Lists as a party's own search returns them, with features for a ranker that starts from that search.

The list of a query holds its first documents by BM25 over title and body. A ranker is therefore trained, validated and
tested on the lists that it will rank, and a relevant document that the search did not find counts against all rankers
alike: nDCG is taken over all documents of the party.

Features are the sixteen text features with the party's own statistics, and evidence that the party computes by itself:
the BM25 of the query expanded by its first documents (`text.feedback`), the cosine in the latent space of the party's
documents (`text.latent`), and the cosine of embeddings where the group has agreed on them. Each is normalised to [0, 1]
in its list. `prior_direction` is w₀, the ranking before anything is learned: BM25 and a third of each evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from quorank.data.ranking import RankingData, join_parts
from quorank.errors import require, require_range
from quorank.kernels.arrays import Doubles, Int32s, Integers
from quorank.metrics.evaluator import Evaluator, ideal_dcg
from quorank.metrics.lists import discounts, gain
from quorank.rankers import Linear, Ranker
from quorank.silos.holdings import Grades, Holding
from quorank.text import FEATURE_NAMES, Features, FieldStatistics, QueryRows, to_ranking_data
from quorank.text.feedback import Feedback
from quorank.text.latent import LatentSpace

EvidenceName = Literal["feedback", "latent", "embedding"]
Statistics = Callable[[Sequence[str]], tuple[FieldStatistics, FieldStatistics]]
"""Function from terms to their statistics in all bodies and in all titles."""
Figures = dict[str, float]
MEASURES = ("err", "ndcg@10", "ndcg")
BM25 = FEATURE_NAMES.index("BM25 of body")
LINEAR = Linear()
TOP = 10  # documents that nDCG@10 looks at


@dataclass(frozen=True)
class OwnSearch:
    """Length of a list, and the evidence added to the sixteen text features."""

    kind: ClassVar[str] = "own-search"

    depth: int = 100  # documents of a list
    evidence: tuple[EvidenceName, ...] = ("feedback", "latent")  # after the text features; also embedding
    share: float = 1 / 3  # weight of each evidence in w₀, where BM25 has 1

    def __post_init__(self) -> None:
        require_range("depth", self.depth, least=1)
        require_range("share", self.share, least=0.0)
        said = f"an evidence occurs twice in {', '.join(self.evidence)}"
        require(len(set(self.evidence)) == len(self.evidence), "value.repeated", said, "evidence")

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features, in their order."""
        return (*FEATURE_NAMES, *(f"{name} of body" for name in self.evidence))

    def prior_direction(self) -> Doubles:
        """Return w₀: 1 for the BM25 of the body, `share` for each evidence, 0 for all others."""
        w0 = np.zeros(len(self.feature_names))
        w0[BM25] = 1.0
        w0[len(FEATURE_NAMES) :] = self.share
        return w0


class PartySearch:
    """Search of a party over its own documents, with features of the results.

    The text features use the party's own statistics unless those of all parties are given.
    """

    def __init__(
        self, party: Holding, searched: OwnSearch, features: Features, statistics: Statistics | None = None
    ) -> None:
        self.party, self.searched, self.features = party, searched, features
        self._statistics = statistics or party.documents.statistics
        said = f"{party.name} has no embeddings; give word vectors or an encoder, as the group has agreed"
        lacks = "embedding" in searched.evidence and party.embedded is None
        require(not lacks, "evidence.missing", said)

    @cached_property
    def _space(self) -> LatentSpace:
        return LatentSpace.build(self.party.documents.body)

    def candidates(self, terms: Sequence[str], query: int | None = None) -> tuple[Integers, Doubles]:
        """Search the party's documents.

        Args:
            terms: Different terms of the query.
            query: Number of the party's query, whose embedding is compared where embeddings are agreed on.

        Returns:
            (documents,) rows in the order of the search, and their (documents, features) unnormalised features.
        """
        party, index = self.party, self.party.documents.body
        ids = index.term_ids(terms)
        scores = index.bm25(ids, self.features)
        found = index.holding(ids)
        rows = found[np.argsort(-scores[found], kind="stable")[: self.searched.depth]]
        columns = [party.documents.features(terms, rows, self.features, self._statistics(terms))]
        columns += [self._evidence(name, query, ids, scores, rows)[:, None] for name in self.searched.evidence]
        return rows, np.hstack(columns)

    def rows(self, query: int, grades: Grades) -> QueryRows:
        """Return the list of a query in the order of the search, with unnormalised features."""
        party = self.party
        rows, features = self.candidates(party.queries[query], query)
        labels = np.array([grades.get(int(row), 0) for row in rows], dtype=np.int8)
        names = [party.documents.ids[row] for row in rows]
        return QueryRows(f"{party.name}:{party.query_ids[query]}", names, features, labels)

    def _evidence(self, name: str, query: int | None, ids: Int32s, scores: Doubles, rows: Integers) -> Doubles:
        index = self.party.documents.body
        if name == "feedback":
            return Feedback().scores(index, ids, scores, self.features)[rows]
        if name == "latent":
            return self._space.cosines(ids, rows)
        assert self.party.embedded is not None and query is not None
        return self.party.embedded.cosines(query, rows)

    def lists(self, queries: Sequence[int], grades: Sequence[Grades], k: int = TOP) -> SearchedLists:
        """Return the lists of some queries, to be judged at k; one without results is empty and counts 0."""
        rows = [self.rows(query, grades[query]) for query in queries]
        judged = [np.array(sorted(grades[query].values(), reverse=True), dtype=np.int64) for query in queries]
        width = len(self.searched.feature_names)
        return SearchedLists(to_ranking_data(rows, width), _ideal(judged, k), _ideal(judged), k)


def _ideal(judged: Sequence[Integers], k: int | None = None) -> Doubles:
    """Compute (lists,) DCG@k of the best order of all judged documents, found or not."""
    gains = [gain(np.maximum(grades[:k], 0)) for grades in judged]
    return np.array([float(each @ discounts(len(each))) for each in gains])


@dataclass(frozen=True, eq=False)
class SearchedLists:
    """Labelled lists of a party with normalised features."""

    data: RankingData
    ideal_top: Doubles = field(repr=False)  # (lists,) DCG@k of the best order of all documents of the party
    ideal: Doubles = field(repr=False)  # (lists,) DCG of it
    k: int = TOP

    @property
    def n_lists(self) -> int:
        return self.data.n_queries

    @staticmethod
    def joined(parts: Sequence[SearchedLists]) -> SearchedLists:
        """Concatenate the lists of several parties."""
        top, whole = (np.concatenate([getattr(part, name) for part in parts]) for name in ("ideal_top", "ideal"))
        return SearchedLists(join_parts([part.data for part in parts]), top, whole)

    def evaluator(self, ranker: Ranker, k: int) -> Evaluator:
        """Return the evaluator of the found documents; those with equal scores keep the order of the search."""
        return Evaluator(self.data, ranker, k, ordered=True)

    def ndcg(self, thetas: Sequence[Doubles], ranker: Ranker = LINEAR) -> Doubles:
        """Compute (rankers, lists) nDCG@k over all documents of the party."""
        found = self.evaluator(ranker, self.k).per_query(thetas)[0]
        return np.asarray(found * _ratio(ideal_dcg(self.data, self.k), self.ideal_top))

    def figures(self, thetas: Sequence[Doubles], ranker: Ranker = LINEAR) -> list[Figures]:
        """Compute ERR, nDCG@10 and nDCG of each ranker: means over the queries that have a relevant document."""
        depth = max(self.data.longest, TOP)
        whole = self.evaluator(ranker, depth)
        counted = self.ideal_top > 0.0
        top, full = self.ndcg(thetas, ranker), whole.per_query(thetas)[0]
        full = full * _ratio(ideal_dcg(self.data, depth), self.ideal)
        return [
            {"err": _mean(whole.err(t)[counted]), "ndcg@10": _mean(top[i][counted]), "ndcg": _mean(full[i][counted])}
            for i, t in enumerate(thetas)
        ]


def _ratio(found: Doubles, best: Doubles) -> Doubles:
    return np.divide(found, best, out=np.zeros(len(best)), where=best > 0.0)


def _mean(values: Doubles) -> float:
    return float(values.mean()) if len(values) else 0.0
