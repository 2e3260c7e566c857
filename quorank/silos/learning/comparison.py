"""Local, Local+, Global and CS-F-LTR on the same parties (CS-F-LTR §VI.A, table I).

Local: a party learns from its own instances. Local+: from its own and its augmented ones. Global: all parties train one
ranker on their own instances. CS-F-LTR: all parties train one ranker on own and augmented instances. All rankers are
judged by the same test lists of all parties, whose queries were in no training.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from quorank.arrays import Doubles
from quorank.data.ranking import RankingData
from quorank.errors import require
from quorank.metrics.evaluator import Evaluator
from quorank.metrics.significance import Difference, corrected, paired_t
from quorank.rankers import Linear
from quorank.silos.learning.augmented import BM25, Augment, augmented_instances
from quorank.silos.learning.cross_features import Answers
from quorank.silos.learning.holdings import Grades, Holding
from quorank.silos.learning.instances import (
    Instances,
    Lists,
    QuerySplit,
    Statistics,
    exact_statistics,
    join_instances,
    with_label_noise,
    local_instances,
    own_rows,
    split,
)
from quorank.silos.learning.labels import Judged, ReferenceRank
from quorank.silos.learning.training import RoundRobin, Training
from quorank.silos.learning.validation import best_weight, weigh_augmented
from quorank.text import Features, QueryRows

Figures = dict[str, float]

METHODS = ("local", "local+", "global", "cs-f-ltr")
MEASURES = ("err", "ndcg@10", "ndcg")
FOLDS = 5


@dataclass(frozen=True)
class SiloSetting:
    """What is compared."""

    labels: Judged | ReferenceRank = field(default_factory=Judged)
    labelled: tuple[int, ...] = (5,)  # queries with labels of each party; parties take turns through the list
    noise: tuple[float, ...] = (0.0,)  # share of labels that are another document's, likewise
    asked: int = 40  # queries that a party asks the others at most, labelled ones first
    tested: int = 60  # test queries of a party at most
    test_share: float = 0.5
    lists: Lists = field(default_factory=Lists)
    augment: Augment = field(default_factory=Augment.recommended)
    training: Training = field(default_factory=RoundRobin)
    features: Features = field(default_factory=Features)

    def __post_init__(self) -> None:
        require(
            self.labelled and min(self.labelled) >= 1, f"labelled: expected numbers ≥ 1, got {self.labelled}"
        )
        require(self.noise and 0.0 <= min(self.noise) <= max(self.noise) <= 1.0, "noise: expected 0 to 1")
        require(self.asked >= 1 and self.tested >= 1, "asked and tested must be at least 1")
        require(0.0 < self.test_share < 1.0, "test_share must lie between 0 and 1")

    def divide(self, grades: Sequence[Grades], seed: int, number: int) -> QuerySplit:
        """Which queries of party `number` are for what."""
        labelled = self.labelled[number % len(self.labelled)]
        return split(grades, labelled, self.test_share, seed, number)

    def asks(self, parts: QuerySplit) -> tuple[int, ...]:
        """The queries of a party that the others are asked about."""
        if self.augment.queries == "labelled":
            return parts.labelled[: self.asked]
        return (parts.labelled + parts.silent)[: self.asked]

    def instances(
        self,
        party: Holding,
        grades: Sequence[Grades],
        parts: QuerySplit,
        statistics: Statistics,
        seed: int,
        number: int,
    ) -> tuple[Instances, RankingData]:
        """The own instances of party `number`, and its test lists."""

        def rows(queries: Sequence[int]) -> list[QueryRows]:
            return own_rows(party, queries, grades, self.lists, statistics, self.features, seed, number)

        noise = self.noise[number % len(self.noise)]
        own = local_instances(with_label_noise(rows(parts.labelled), noise, seed, number))
        return own, local_instances(rows(parts.test[: self.tested])).data


@dataclass(frozen=True, eq=False)
class PreparedParties:
    """Everything before anything is asked: splits, own instances and test lists."""

    parties: tuple[Holding, ...]
    setting: SiloSetting
    seed: int
    grades: list[list[Grades]] = field(repr=False)
    splits: list[QuerySplit] = field(repr=False)
    statistics: Statistics = field(repr=False)
    own: list[Instances] = field(repr=False)
    tests: list[RankingData] = field(repr=False)

    def asked(self, party: int) -> tuple[int, ...]:
        """The queries that a party asks the others."""
        return self.setting.asks(self.splits[party])

    def terms(self, party: int) -> tuple[str, ...]:
        """The different terms of those queries."""
        return terms_of(self.parties[party], self.asked(party))


@dataclass(frozen=True, eq=False)
class ComparisonOutcome:
    """A comparison with one seed."""

    table: dict[str, Figures]  # method → measure; of Local and Local+ the mean over the parties
    by_party: dict[str, list[Figures]]  # of Local and Local+, a row for each party
    own_tests: dict[str, list[float]]  # nDCG@10 of each method on each party's own test lists
    bm25: Figures  # no learning at all: the BM25 of the body
    weights: dict[
        str, list[float | None]
    ]  # of augmented instances, of each party in Local+ and of all in CS-F-LTR
    instances: dict[str, list[int]]  # own and augmented instances of each party
    test_queries: int


def prepare_parties(
    parties: Sequence[Holding], setting: SiloSetting, seed: int, statistics: Statistics | None = None
) -> PreparedParties:
    """QuerySplit every party's queries, and make its own instances and test lists."""
    grades = setting.labels.grades(parties)
    known = statistics or exact_statistics(parties)
    splits, own, tests = [], [], []
    for p, party in enumerate(parties):
        splits.append(setting.divide(grades[p], seed, p))
        instances, test = setting.instances(party, grades[p], splits[-1], known, seed, p)
        own.append(instances)
        tests.append(test)
    return PreparedParties(tuple(parties), setting, seed, grades, splits, known, own, tests)


def augment(prepared: PreparedParties, answers: Answers) -> list[Instances]:
    """The augmented instances of every party, from what the others answered."""
    setting = prepared.setting
    return [
        augmented_instances(
            setting.augment,
            answers,
            prepared.parties,
            p,
            prepared.asked(p),
            prepared.statistics,
            setting.features,
            prepared.seed,
        )
        for p in range(len(prepared.parties))
    ]


def compare_methods(prepared: PreparedParties, augmented: Sequence[Instances]) -> ComparisonOutcome:
    """Train the four methods and evaluate_rankers them."""
    setting, own = prepared.setting, prepared.own

    def train(*instances: Instances) -> Doubles:
        return setting.training.train(instances, prepared.seed)

    everyone = range(len(own))
    alone = [train_together(prepared, augmented, [p]) for p in everyone]
    jointly = train_together(prepared, augmented, everyone)
    rankers = {
        "local": [train(part) for part in own],
        "local+": [theta for _, theta in alone],
        "global": [train(*own)],
        "cs-f-ltr": [jointly[1]],
    }
    together = join_instances([Instances(test, np.ones(test.n_rows)) for test in prepared.tests]).data
    judged = {method: evaluate_rankers(together, thetas) for method, thetas in rankers.items()}
    table = {m: {k: float(np.mean([row[k] for row in rows])) for k in MEASURES} for m, rows in judged.items()}
    own_tests = {
        method: [
            float(Evaluator(test, Linear()).means([thetas[p % len(thetas)]])[0][0])
            for p, test in enumerate(prepared.tests)
        ]
        for method, thetas in rankers.items()
    }
    return ComparisonOutcome(
        table,
        {method: judged[method] for method in ("local", "local+")},
        own_tests,
        evaluate_rankers(together, [_bm25(together.n_features)])[0],
        {"local+": [weight for weight, _ in alone], "cs-f-ltr": [jointly[0]]},
        {"own": [part.n_rows for part in own], "augmented": [part.n_rows for part in augmented]},
        together.n_queries,
    )


def terms_of(party: Holding, queries: Sequence[int]) -> tuple[str, ...]:
    """The different terms of some queries."""
    return tuple(dict.fromkeys(term for q in queries for term in party.queries[q]))


def train_together(
    prepared: PreparedParties, augmented: Sequence[Instances], chosen: Sequence[int]
) -> tuple[float | None, Doubles]:
    """The ranker of some parties on own and augmented instances, at the weight that is best for them, and the weight."""
    setting, own = prepared.setting, [prepared.own[p] for p in chosen]
    found = [augmented[p] for p in chosen]
    weights = setting.augment.weights
    weight = weights[0] if weights else None
    if len(weights) > 1:
        weight = best_weight(setting.training, own, found, weights, FOLDS, prepared.seed)
    parts = [weigh_augmented(o, f, weight) for o, f in zip(own, found, strict=True)]
    return weight, setting.training.train(parts, prepared.seed)


def _bm25(n_features: int) -> Doubles:
    theta = np.zeros(n_features)
    theta[BM25[0]] = 1.0
    return theta


def evaluate_rankers(test: RankingData, thetas: Sequence[Doubles]) -> list[Figures]:
    """ERR, nDCG@10 and nDCG of each ranker; queries without a relevant document are left out, of which there are none."""
    ten, whole = Evaluator(test, Linear(), k=10), Evaluator(test, Linear(), k=max(test.longest, 10))
    counted = whole.counted()
    first, last = ten.means(thetas)[0], whole.means(thetas)[0]
    return [
        {"err": float(whole.err(theta)[counted].mean()), "ndcg@10": float(first[i]), "ndcg": float(last[i])}
        for i, theta in enumerate(thetas)
    ]


@dataclass(frozen=True, eq=False)
class RepeatedComparison:
    """Comparisons with several seeds."""

    outcomes: list[ComparisonOutcome]

    def values(self, method: str, measure: str = "ndcg@10") -> Doubles:
        """(seeds,) a figure of a method."""
        return np.array([outcome.table[method][measure] for outcome in self.outcomes])

    def mean(self, method: str, measure: str = "ndcg@10") -> float:
        return float(self.values(method, measure).mean())

    def spread(self, method: str, measure: str = "ndcg@10") -> float:
        """The standard deviation over seeds; 0 for one."""
        return float(self.values(method, measure).std(ddof=1)) if len(self.outcomes) > 1 else 0.0

    def against(self, measure: str = "ndcg@10") -> dict[str, Difference]:
        """CS-F-LTR minus each other method, paired by seed, p corrected over the three."""
        others = METHODS[:-1]
        ours = self.values("cs-f-ltr", measure)
        tests = corrected([paired_t(ours, self.values(other, measure)) for other in others])
        return dict(zip(others, tests, strict=True))

    def as_dict(self) -> dict[str, Any]:
        """Means, deviations and tests as plain values."""
        return {
            "seeds": len(self.outcomes),
            "mean": {m: {k: self.mean(m, k) for k in MEASURES} for m in METHODS},
            "deviation": {m: {k: self.spread(m, k) for k in MEASURES} for m in METHODS},
            "cs-f-ltr minus": {
                other: {"difference": d.difference, "p": d.p, "corrected_p": d.corrected_p}
                for other, d in self.against().items()
            },
        }


def verdict(difference: Difference) -> str:
    """A difference in words: 'above (+0.012, p = .003)'."""
    word = "alike" if difference.difference == 0 else "above" if difference.difference > 0 else "below"
    p = difference.corrected_p
    told = (
        "not tested"
        if p is None or math.isnan(p)
        else "p < .001"
        if p < 0.001
        else f"p = {p:.3f}".replace("0.", ".")
    )
    return f"{word} ({difference.difference:+.4f}, {told})"
