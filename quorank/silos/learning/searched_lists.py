"""Lists as a party's own search returns them, with features for a ranker that starts from that search.

The list of a query are its first documents by BM25 over title and body; nothing is added that no search found. So a
ranker is trained, validated and tested on what it will be used for, and a relevant document that the search did not find
counts against all rankers alike: nDCG is taken over all documents of the party.

Features are the sixteen text features with the party's own statistics, and evidence that the party computes for itself
while nothing crosses: the BM25 of the query expanded by its first documents (`text.feedback`), the cosine in the latent
space of the party's documents (`text.latent`), and the cosine of embeddings where the group has agreed to bring some.
Each is brought to [0, 1] in its list.

`prior_direction` is the ranking before anything is learned, w₀: BM25, and a third of each evidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from quorank.data.ranking import RankingData
from quorank.errors import require, require_range
from quorank.kernels.arrays import Doubles, Int32s, Integers
from quorank.metrics.evaluator import Evaluator, discounts, ideal_dcg
from quorank.rankers import Linear, Ranker
from quorank.silos.learning.holdings import Grades, Holding
from quorank.silos.learning.instances import Statistics, join_data, noisy_labels
from quorank.text import FEATURE_NAMES, Features, QueryRows, to_ranking_data
from quorank.text.feedback import Feedback
from quorank.text.latent import Latent, LatentSpace

EvidenceName = Literal["feedback", "latent", "embedding"]
BM25 = FEATURE_NAMES.index("BM25 of body")
LINEAR = Linear()
TOP = 10
"""Documents that nDCG@10 looks at."""
Figures = dict[str, float]
MEASURES = ("err", "ndcg@10", "ndcg")


@dataclass(frozen=True)
class OwnSearch:
    """Which documents a list holds, and which evidence stands beside the sixteen text features."""

    kind: ClassVar[str] = "own-search"

    depth: int = 100  # documents of a list
    evidence: tuple[EvidenceName, ...] = ("feedback", "latent")  # beside the text features; also embedding
    share: float = 1 / 3  # of each evidence in w₀, where BM25 has 1

    def __post_init__(self) -> None:
        require_range("depth", self.depth, least=1)
        require_range("share", self.share, least=0.0)
        said = f"an evidence stands twice in {', '.join(self.evidence)}"
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
    """One party's search over its own documents, and the features of what it finds.

    The text features take the party's own statistics, unless those of all parties together are given.
    """

    def __init__(
        self,
        party: Holding,
        searched: OwnSearch,
        features: Features | None = None,
        statistics: Statistics | None = None,
    ) -> None:
        self.party, self.searched, self.features, self._statistics = party, searched, features or Features(), statistics
        said = f"{party.name} has no embeddings; give word vectors or an encoder, as the group has agreed"
        lacks = "embedding" in searched.evidence and party.embedded is None
        require(not lacks, "evidence.missing", said)

    @cached_property
    def _space(self) -> LatentSpace:
        return Latent().space(self.party.documents.body)

    def rows(self, query: int, grades: Grades) -> QueryRows:
        """Return the list of a query in the order of the search, with features as they are."""
        party, index = self.party, self.party.documents.body
        terms = party.queries[query]
        ids = index.term_ids(terms)
        scores = index.bm25(ids, self.features)
        found = index.holding(ids)
        rows = found[np.argsort(-scores[found], kind="stable")[: self.searched.depth]]
        known = None if self._statistics is None else self._statistics(terms)
        columns = [party.documents.features(terms, rows, self.features, known)]
        columns += [self._evidence(name, query, ids, scores, rows)[:, None] for name in self.searched.evidence]
        labels = np.array([grades.get(int(row), 0) for row in rows], dtype=np.int8)
        names = [party.documents.ids[row] for row in rows]
        return QueryRows(f"{party.name}:{party.query_ids[query]}", names, np.hstack(columns), labels)

    def _evidence(self, name: str, query: int, ids: Int32s, scores: Doubles, rows: Integers) -> Doubles:
        index = self.party.documents.body
        if name == "feedback":
            return Feedback().scores(index, ids, scores, self.features)[rows]
        if name == "latent":
            return self._space.cosines(ids, rows)
        assert self.party.embedded is not None
        return self.party.embedded.cosines(query, rows)

    def lists(self, queries: Sequence[int], grades: Sequence[Grades]) -> SearchedLists:
        """Make the lists of some queries; one that finds nothing is empty, and counts 0."""
        rows = [self.rows(query, grades[query]) for query in queries]
        judged = [np.array(sorted(grades[query].values(), reverse=True), dtype=np.int64) for query in queries]
        width = len(self.searched.feature_names)
        return SearchedLists(to_ranking_data(rows, width), *_ideals(judged, self.searched.depth))


def _ideals(judged: Sequence[Integers], depth: int) -> tuple[Doubles, Doubles]:
    """Compute (lists,) the DCG@10 and the DCG of the best order of all judged documents, found or not."""
    longest = max((len(grades) for grades in judged), default=1)
    weights = discounts(max(longest, depth, TOP))
    gains = [2.0 ** np.maximum(grades, 0) - 1.0 for grades in judged]
    top = [float(gain[:TOP] @ weights[: min(TOP, len(gain))]) for gain in gains]
    return np.array(top), np.array([float(gain @ weights[: len(gain)]) for gain in gains])


@dataclass(frozen=True, eq=False)
class SearchedLists:
    """Labelled lists of a party with normalised features, and what the best order of all its documents would be worth."""

    data: RankingData
    ideal_top: Doubles = field(repr=False)  # (lists,) DCG@10 of the best order of all documents of the party
    ideal: Doubles = field(repr=False)  # the same without a cut

    @property
    def n_lists(self) -> int:
        return self.data.n_queries

    @staticmethod
    def joined(parts: Sequence[SearchedLists]) -> SearchedLists:
        """Join the lists of several parties, one behind the other."""
        together = join_data([part.data for part in parts])
        ideals = zip(*((part.ideal_top, part.ideal) for part in parts), strict=True)
        return SearchedLists(together, *(np.concatenate(each) for each in ideals))

    def with_label_noise(self, noise: float, seed: int, number: int) -> SearchedLists:
        """Return lists with labels of low quality: with probability `noise` a document has another's label of its list."""
        if noise == 0.0:
            return self
        labels = self.data.labels.copy()
        for q in range(self.n_lists):
            rows = self.data.rows_of(q)
            labels[rows] = noisy_labels(self.data.labels[rows], noise, seed, number, q)
        return replace(self, data=replace(self.data, labels=labels))

    def ndcg(self, thetas: Sequence[Doubles], ranker: Ranker = LINEAR) -> Doubles:
        """Compute the (rankers, lists) nDCG@10 over all documents of the party."""
        found = Evaluator(self.data, ranker, k=TOP).per_query(thetas)[0]
        return np.asarray(found * _ratio(ideal_dcg(self.data, TOP), self.ideal_top))

    def figures(self, thetas: Sequence[Doubles], ranker: Ranker = LINEAR) -> list[Figures]:
        """Compute ERR, nDCG@10 and nDCG of each ranker, means over the lists whose query has a relevant document."""
        depth = max(self.data.longest, TOP)
        whole = Evaluator(self.data, ranker, k=depth)
        counted = self.ideal_top > 0.0
        ndcg, all_of_it = self.ndcg(thetas, ranker), whole.per_query(thetas)[0]
        all_of_it = all_of_it * _ratio(ideal_dcg(self.data, depth), self.ideal)
        return [
            {
                "err": _mean(whole.err(theta)[counted]),
                "ndcg@10": _mean(ndcg[i][counted]),
                "ndcg": _mean(all_of_it[i][counted]),
            }
            for i, theta in enumerate(thetas)
        ]


def _ratio(found: Doubles, best: Doubles) -> Doubles:
    return np.divide(found, best, out=np.zeros(len(best)), where=best > 0.0)


def _mean(values: Doubles) -> float:
    return float(values.mean()) if len(values) else 0.0
