"""CS-F-LTR figure 5: positive and negative instances with features from sketched counts (Wang et al. 2021).

The paper shows t-SNE maps and judges by eye whether there is still a boundary. A map can show one that is not
there, so the result here is a number: the area under the ROC curve of a linear discriminant on held-out pairs. The
charts show the first two principal components, a linear map that cannot show a boundary that is not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import Annotated, ClassVar, Literal

import numpy as np

from quorank.files.codec import Range
from quorank.kernels.arrays import Booleans, Doubles, Integers
from quorank.kernels.draws import Purpose, uniforms
from quorank.reports.panels import Curve, Panel
from quorank.reports.report import ReportTable
from quorank.reproduce.studies.silos import source_of
from quorank.reproduce.studies.study import StudyFinding, StudyRequest, StudyResults
from quorank.silos.count_sketch import Hashing, Naive, seeded_secret
from quorank.silos.holdings import Holding
from quorank.silos.sketch.instances import list_rows
from quorank.silos.training.statistics import exact_statistics
from quorank.text import FieldCounts, Index, pair_features

ALIKE = 0.03  # a difference of AUC that does not count


@dataclass(frozen=True)
class Strategy:
    """Sketch of z × w cells of which z1 rows are asked, or exact counts; one panel each."""

    title: str
    sketch: Literal["none", "count", "count-min"] = "count"
    rows: int = 30  # z
    columns: int = 200  # w
    real: int = 30  # z1


STRATEGIES = (
    Strategy("without sketch", "none"),
    Strategy("Count Sketch, w = 200, z1 = 30"),
    Strategy("Count Sketch, w = 50", columns=50),
    Strategy("Count Sketch, w = 10", columns=10),
    Strategy("Count-Min, w = 200", "count-min"),
    Strategy("Count Sketch, z1 = 5", real=5),
    Strategy("Count Sketch, z1 = 3", real=3),
    Strategy("Count Sketch, z1 = 1", real=1),
)


@dataclass(frozen=True)
class SketchedFeatures:
    """Figure 5: the same pairs under each strategy."""

    kind: ClassVar[str] = "silo-embedding"

    pairs: Annotated[int, Range(40)] = 400  # half of them positive
    documents: int = 1000  # where they are generated

    def measure(self, request: StudyRequest) -> StudyResults:
        scores: dict[str, list[float]] = {strategy.title: [] for strategy in STRATEGIES}
        charts: list[Panel] = []
        party_of = lru_cache(1)(lambda seed: source_of(request, 4, self.documents).holdings(seed)[0])
        for seed, strategy in request.trials(STRATEGIES, lambda strategy: strategy.title):
            party = party_of(seed)
            pairs = choose_pairs(party, self.pairs, seed)
            features, positive = sketched_features(party, pairs, strategy, seed), pairs[:, 2] > 0
            auc = separability(features, positive)
            scores[strategy.title].append(auc)
            if seed == 1:
                charts.append(_chart(f"{strategy.title}: AUC {auc:.2f}", features, positive))
        means = {title: float(np.mean(values)) for title, values in scores.items()}
        exact, usual, _, narrow, count_min, _, few, one = means.values()
        findings = (
            StudyFinding(
                "the boundary is still there after Count Sketch",
                usual > exact - ALIKE,
                f"AUC {usual:.3f}, without sketch {exact:.3f}",
            ),
            StudyFinding(
                "Count-Min does about as well",
                abs(count_min - usual) < ALIKE,
                f"AUC {count_min:.3f}, Count Sketch {usual:.3f}",
            ),
            StudyFinding("narrow sketches blur it", narrow < usual - ALIKE, f"AUC {narrow:.3f} with w = 10"),
            StudyFinding(
                "few rows are enough, one is not",
                few > usual - ALIKE and one < usual - ALIKE,
                f"AUC {few:.3f} with three rows, {one:.3f} with one",
            ),
        )
        rows = tuple((title, f"{means[title]:.3f}", f"{np.std(scores[title]):.3f}") for title in means)
        sheet = ReportTable("separability of positive and negative pairs", ("strategy", "AUC", "±"), rows)
        notes = ("AUC of a linear discriminant on held-out pairs (five folds); features as they are, not per query.",)
        return StudyResults(tuple(charts), (sheet,), findings, notes, {"auc": scores})


def choose_pairs(party: Holding, count: int, seed: int) -> Integers:
    """Return (pairs, 3) query, document, label: half positive where there are enough, negatives mostly at random."""
    found = []
    for q, grades in enumerate(party.grades):
        for row in list_rows(party, q, grades, seed, 0, depth=1):
            found.append((q, int(row), grades.get(int(row), 0)))
    every = np.array(found, dtype=np.int64)
    parts = []
    for positive in (True, False):
        rows = np.flatnonzero((every[:, 2] > 0) == positive)
        order = np.argsort(uniforms(seed, Purpose.STUDY, len(rows), client=int(positive)), kind="stable")
        parts.append(every[rows[order[: count // 2]]])
    return np.concatenate(parts)


def sketched_features(party: Holding, pairs: Integers, strategy: Strategy, seed: int) -> Doubles:
    """Return (pairs, 16) features from counts as the strategy estimates them."""
    statistics = exact_statistics([party])
    fields = [CountEstimator(index, strategy, seed) for index in (party.documents.body, party.documents.title)]
    rows = []
    for query, document, _ in pairs:
        terms, one = party.queries[query], np.array([document])
        body, title = (
            FieldCounts(
                field.counts(int(document), terms)[None, :], field.index.lengths[one], known, field.index.distinct[one]
            )
            for field, known in zip(fields, statistics(terms), strict=True)
        )
        rows.append(pair_features(body, title)[0])
    return np.array(rows)


class CountEstimator:
    """Estimator of term counts in single documents: exact, or by eq. 3 over z1 rows of a sketch."""

    def __init__(self, index: Index, strategy: Strategy, seed: int) -> None:
        self.index = index
        hashing = Hashing(seeded_secret(seed, "figure 5"), strategy.rows, strategy.columns)
        naive = None if strategy.sketch == "none" else Naive(hashing, index, strategy.sketch)
        self._estimates = None if naive is None else cache(partial(naive.estimates, rows=strategy.real))

    def counts(self, document: int, terms: Sequence[str]) -> Doubles:
        """Return the counts (terms,) of one document."""
        if self._estimates is None:
            return np.asarray(self.index.counts_of([document], self.index.term_ids(terms))[0])
        return np.array([self._estimates(term)[document] for term in terms])


def separability(features: Doubles, positive: Booleans, folds: int = 5) -> float:
    """Return the area under the ROC curve of a ridge discriminant by cross-validation; features are (pairs, features)."""
    x = standardise(features)
    scores = np.empty(len(x))
    fold = np.arange(len(x)) % folds
    for number in range(folds):
        train, test = fold != number, fold == number
        a = np.column_stack([x[train], np.ones(train.sum())])
        target = np.where(positive[train], 1.0, -1.0)
        theta = np.linalg.solve(a.T @ a + 1e-2 * len(a) * np.eye(a.shape[1]), a.T @ target)
        scores[test] = np.column_stack([x[test], np.ones(test.sum())]) @ theta
    return auc(scores, positive)


def auc(scores: Doubles, positive: Booleans) -> float:
    """Return the area under the ROC curve: P(a positive scores above a negative), ties counting half."""
    above = scores[positive][:, None] - scores[~positive][None, :]
    return float(np.mean((above > 0) + 0.5 * (above == 0)))


def standardise(features: Doubles) -> Doubles:
    """Scale each feature to mean 0 and deviation 1; a constant feature becomes 0."""
    spread = features.std(axis=0)
    return np.asarray((features - features.mean(axis=0)) / np.where(spread > 0, spread, 1.0))


def _chart(title: str, features: Doubles, positive: Booleans) -> Panel:
    x = standardise(features)
    _, _, axes = np.linalg.svd(x, full_matrices=False)
    axes = axes[:2] * np.where(axes[:2, :1] >= 0, 1.0, -1.0)  # a component's sign is arbitrary
    places = x @ axes.T
    lines = tuple(
        Curve.of_means(name, places[chosen, 0], places[chosen, 1])
        for name, chosen in (("positive", positive), ("negative", ~positive))
    )
    return Panel(title, "first component", "second", lines, form="points")
