"""Comparison of Local, Local+, Global and CS-F-LTR on the same parties (CS-F-LTR §VI.A, table I).

Local: a party learns from its own instances. Local+: from its own and its augmented ones. Global: all parties train one
ranker on their own instances. CS-F-LTR: all parties train one ranker on own and augmented instances. All rankers are
judged by the same test lists of all parties, whose queries were in no training.

A trial is a comparison with one seed from beginning to end: parties, shared statistics, a session of the protocol,
instances, trained rankers.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from quorank.arrays import Doubles
from quorank.data.ranking import RankingData
from quorank.errors import require, require_range
from quorank.metrics.evaluator import Evaluator
from quorank.metrics.significance import Difference, corrected, paired_t
from quorank.rankers import Linear
from quorank.silos.generated import Generator
from quorank.silos.learning.augmentation import BM25, Answers, Augment, ExactAnswers, augmented_instances
from quorank.silos.learning.exchange import ExchangedAnswers, SiloProtocol, exchange_answers, seeded_secret
from quorank.silos.learning.holdings import FIELDS, Grades, Holding, generated_holdings, read_holdings
from quorank.silos.learning.instances import (
    Instances,
    Judged,
    Labels,
    Lists,
    QuerySplit,
    Statistics,
    exact_statistics,
    join_instances,
    local_instances,
    own_rows,
    split_queries,
    with_label_noise,
)
from quorank.silos.learning.shared_statistics import SharedStatistics, share_statistics
from quorank.silos.learning.training import RoundRobin, Training
from quorank.silos.learning.validation import best_weight, weigh_augmented
from quorank.silos.sketch.cover import term_cover
from quorank.text import Features, QueryRows, Tokeniser

Progress = Callable[[int, int, str], None]
Figures = dict[str, float]

METHODS = ("local", "local+", "global", "cs-f-ltr")
MEASURES = ("err", "ndcg@10", "ndcg")
FOLDS = 5


@dataclass(frozen=True)
class SiloSetting:
    """Parameters of learning across parties: labels, lists, asked queries, augmentation, training, features."""

    labels: Labels = field(default_factory=Judged)
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
        counts, shares = self.labelled, self.noise
        require(counts and min(counts) >= 1, "value.out-of-range", f"expected numbers ≥ 1, got {counts}", "labelled")
        is_inside = shares and 0.0 <= min(shares) <= max(shares) <= 1.0
        require(is_inside, "value.out-of-range", f"expected numbers from 0 to 1, got {shares}", "noise")
        require_range("asked", self.asked, least=1)
        require_range("tested", self.tested, least=1)
        require_range("test_share", self.test_share, above=0.0, below=1.0)

    def divide(self, grades: Sequence[Grades], seed: int, number: int) -> QuerySplit:
        """Divide the queries of party `number`."""
        labelled = self.labelled[number % len(self.labelled)]
        return split_queries(grades, labelled, self.test_share, seed, number)

    def asks(self, parts: QuerySplit) -> tuple[int, ...]:
        """Return the queries of a party that the others are asked about."""
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
        """Make the own instances of party `number`, and its test lists."""

        def rows(queries: Sequence[int]) -> list[QueryRows]:
            return own_rows(party, queries, grades, self.lists, statistics, self.features, seed, number)

        noise = self.noise[number % len(self.noise)]
        own = local_instances(with_label_noise(rows(parts.labelled), noise, seed, number))
        return own, local_instances(rows(parts.test[: self.tested])).data


@dataclass(frozen=True, eq=False)
class PreparedParties:
    """Parties before anything is asked: splits, own instances and test lists."""

    parties: tuple[Holding, ...]
    setting: SiloSetting
    seed: int
    splits: list[QuerySplit] = field(repr=False)
    statistics: Statistics = field(repr=False)
    own: list[Instances] = field(repr=False)
    tests: list[RankingData] = field(repr=False)

    def asked(self, party: int) -> tuple[int, ...]:
        """Return the queries that a party asks the others."""
        return self.setting.asks(self.splits[party])

    def terms(self, party: int) -> tuple[str, ...]:
        """Return the different terms of those queries."""
        return self.parties[party].terms_of(self.asked(party))


@dataclass(frozen=True, eq=False)
class ComparisonOutcome:
    """Result of a comparison with one seed."""

    table: dict[str, Figures]  # method → measure; of Local and Local+ the mean over the parties
    by_party: dict[str, list[Figures]]  # of Local and Local+, a row for each party
    own_tests: dict[str, list[float]]  # nDCG@10 of each method on each party's own test lists
    bm25: Figures  # no learning at all: the BM25 of the body
    weights: dict[str, list[float | None]]  # of augmented instances: of each party in Local+, of all in CS-F-LTR
    instances: dict[str, list[int]]  # own and augmented instances of each party
    test_queries: int


def prepare_parties(
    parties: Sequence[Holding], setting: SiloSetting, seed: int, statistics: Statistics | None = None
) -> PreparedParties:
    """Split every party's queries, and make its own instances and test lists."""
    grades = setting.labels.grades(parties)
    known = statistics or exact_statistics(parties)
    splits = [setting.divide(grades[p], seed, p) for p in range(len(parties))]
    made = [setting.instances(party, grades[p], splits[p], known, seed, p) for p, party in enumerate(parties)]
    own, tests = [instances for instances, _ in made], [test for _, test in made]
    return PreparedParties(tuple(parties), setting, seed, splits, known, own, tests)


def augment_parties(prepared: PreparedParties, answers: Answers) -> list[Instances]:
    """Make the augmented instances of every party, from what the others answered."""
    parties, setting, known, seed = prepared.parties, prepared.setting, prepared.statistics, prepared.seed
    return [
        augmented_instances(setting.augment, answers, parties, p, prepared.asked(p), known, setting.features, seed)
        for p in range(len(parties))
    ]


def compare_methods(prepared: PreparedParties, augmented: Sequence[Instances]) -> ComparisonOutcome:
    """Train the four methods and evaluate their rankers."""
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
    evaluators = [Evaluator(test, Linear()) for test in prepared.tests]
    own_tests = {
        method: [float(each.means([thetas[p % len(thetas)]])[0][0]) for p, each in enumerate(evaluators)]
        for method, thetas in rankers.items()
    }
    bm25 = np.zeros(together.n_features)
    bm25[BM25[0]] = 1.0
    return ComparisonOutcome(
        table,
        {method: judged[method] for method in ("local", "local+")},
        own_tests,
        evaluate_rankers(together, [bm25])[0],
        {"local+": [weight for weight, _ in alone], "cs-f-ltr": [jointly[0]]},
        {"own": [part.n_rows for part in own], "augmented": [part.n_rows for part in augmented]},
        together.n_queries,
    )


def train_together(
    prepared: PreparedParties, augmented: Sequence[Instances], chosen: Sequence[int]
) -> tuple[float | None, Doubles]:
    """Train the ranker of some parties on own and augmented instances: the weight that is best for them, and the ranker."""
    setting, own = prepared.setting, [prepared.own[p] for p in chosen]
    found = [augmented[p] for p in chosen]
    weights = setting.augment.weights
    weight = weights[0] if weights else None
    if len(weights) > 1:
        weight = best_weight(setting.training, own, found, weights, FOLDS, prepared.seed)
    parts = [weigh_augmented(o, f, weight) for o, f in zip(own, found, strict=True)]
    return weight, setting.training.train(parts, prepared.seed)


def evaluate_rankers(test: RankingData, thetas: Sequence[Doubles]) -> list[Figures]:
    """Compute ERR, nDCG@10 and nDCG of each ranker; queries without a relevant document are left out."""
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
        """Return the (seeds,) values of a measure of a method."""
        return np.array([outcome.table[method][measure] for outcome in self.outcomes])

    def mean(self, method: str, measure: str = "ndcg@10") -> float:
        """Return the mean over seeds."""
        return float(self.values(method, measure).mean())

    def spread(self, method: str, measure: str = "ndcg@10") -> float:
        """Return the standard deviation over seeds; 0 for one."""
        return float(self.values(method, measure).std(ddof=1)) if len(self.outcomes) > 1 else 0.0

    def against(self, measure: str = "ndcg@10") -> dict[str, Difference]:
        """Test CS-F-LTR minus each other method, paired by seed, p corrected over the three."""
        others = METHODS[:-1]
        ours = self.values("cs-f-ltr", measure)
        tests = corrected([paired_t(ours, self.values(other, measure)) for other in others])
        return dict(zip(others, tests, strict=True))

    def as_dict(self) -> dict[str, Any]:
        """Return means, deviations and tests as plain values."""
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
    """Return a difference in words: 'above (+0.012, p = .003)'."""
    word = "alike" if difference.difference == 0 else "above" if difference.difference > 0 else "below"
    p = difference.corrected_p
    if p is None or math.isnan(p):
        tested = "not tested"
    else:
        tested = "p < .001" if p < 0.001 else f"p = {p:.3f}".replace("0.", ".")
    return f"{word} ({difference.difference:+.4f}, {tested})"


# ---------------------------------------------------------------- trials


@dataclass(frozen=True)
class PartySource:
    """Source of the parties: collections on disk, or the generator."""

    collections: tuple[str, ...] = ()
    parties: int = 4  # N; several collections are a party each
    generator: Generator = field(default_factory=Generator)
    tokeniser: Tokeniser = field(default_factory=Tokeniser)

    def __post_init__(self) -> None:
        require_range("parties", self.parties, least=2)

    def holdings(self, seed: int) -> tuple[Holding, ...]:
        """Return the parties of one trial; one collection is dealt out anew for each seed."""
        if not self.collections:
            return generated_holdings(replace(self.generator, parties=self.parties), seed)
        return read_holdings(self.collections, self.parties, seed, self.tokeniser)


@dataclass(frozen=True, eq=False)
class TrialResult:
    """Result of a trial."""

    names: tuple[str, ...]
    outcome: ComparisonOutcome
    cover: dict[str, float]  # of the true top-K, by field
    wire: dict[str, Any]
    spent: dict[str, Any]
    seconds: dict[str, float]


def run_trial(
    source: PartySource,
    setting: SiloSetting,
    protocol: SiloProtocol | None,
    seed: int,
    progress: Progress | None = None,
) -> TrialResult:
    """Run one trial. Without a protocol, answers and statistics are exact, and nothing is counted."""
    say = progress or (lambda done, total, what: None)
    clock = {}
    start = time.perf_counter()
    say(0, 4, "making parties")
    parties = source.holdings(seed)
    clock["parties"] = time.perf_counter() - start
    say(1, 4, "adding up statistics")
    shared = None if protocol is None else sum_statistics(parties, protocol, seed)
    prepared = prepare_parties(parties, setting, seed, shared)
    clock["own instances"] = time.perf_counter() - start - sum(clock.values())
    say(2, 4, "asking each other")
    answers, exchanged = collect_answers(prepared, protocol)
    clock["asking"] = time.perf_counter() - start - sum(clock.values())
    say(3, 4, "learning")
    outcome = compare_methods(prepared, augment_parties(prepared, answers))
    clock["learning"] = time.perf_counter() - start - sum(clock.values())
    say(4, 4, "done")
    wire = {} if exchanged is None else dict(exchanged.wire)
    spent = {} if exchanged is None else dict(exchanged.spent)
    if shared is not None:
        wire["statistics_bytes"] = round(shared.bytes_sent * len(parties))
        spent["statistics_epsilon"] = shared.epsilon
    return TrialResult(
        tuple(party.name for party in parties),
        outcome,
        mean_cover_by_field(prepared, answers, protocol.k if protocol else ExactAnswers.k),
        wire,
        spent,
        clock,
    )


def sum_statistics(parties: Sequence[Holding], protocol: SiloProtocol, seed: int) -> SharedStatistics:
    """Sum the term statistics over all parties, with noise where the protocol asks for it."""
    key = seeded_secret(seed, "statistics")
    return share_statistics(parties, key, epsilon=protocol.statistics_epsilon, seed=seed)


def collect_answers(
    prepared: PreparedParties, protocol: SiloProtocol | None
) -> tuple[Answers, ExchangedAnswers | None]:
    """Return exact answers, or those of a session and its costs."""
    if protocol is None:
        return ExactAnswers(prepared.parties), None
    terms = [prepared.terms(p) for p in range(len(prepared.parties))]
    exchanged = exchange_answers(prepared.parties, terms, protocol, prepared.seed)
    return exchanged, exchanged


def mean_cover_by_field(prepared: PreparedParties, answers: Answers, k: int) -> dict[str, float]:
    """Compute the share of the true top-K that answers name (`term_cover`), by field, over all questions with an answer."""
    found: dict[str, list[float]] = {name: [] for name in FIELDS}
    for asker, owner in itertools.permutations(range(len(prepared.parties)), 2):
        for name, term in itertools.product(FIELDS, prepared.terms(asker)):
            index = getattr(prepared.parties[owner].documents, name)
            documents, counts = index.postings(int(index.term_ids([term])[0]))
            if len(documents):
                held = np.zeros(index.n_documents, dtype=np.int32)
                held[documents] = counts
                found[name].append(term_cover(held, answers.answer(asker, owner, name, term).documents, k))
    return {name: float(np.mean(shares)) if shares else 0.0 for name, shares in found.items()}


def summarise(results: Sequence[TrialResult]) -> dict[str, Any]:
    """Summarise trials: means, tests, and of the first trial what crossed the wire."""
    figures = RepeatedComparison([result.outcome for result in results]).as_dict()
    first = results[0]
    return {
        "table": figures["mean"],
        "baseline": {"bm25": _means([result.outcome.bm25 for result in results])},
        "parties": {
            name: {
                method: _means([result.outcome.by_party[method][p] for result in results])
                for method in ("local", "local+")
            }
            | {"instances": {what: counts[p] for what, counts in first.outcome.instances.items()}}
            for p, name in enumerate(first.names)
        },
        "own_tests": {
            method: [float(np.mean([r.outcome.own_tests[method][p] for r in results])) for p in range(len(first.names))]
            for method in METHODS
        },
        "weights": [result.outcome.weights for result in results],
        "significance": figures["cs-f-ltr minus"],
        "deviation": figures["deviation"],
        "cover": {name: float(np.mean([r.cover[name] for r in results])) for name in FIELDS},
        "wire": first.wire,
        "privacy": first.spent,
        "test_queries": first.outcome.test_queries,
        "trials": len(results),
        "seconds": {key: sum(r.seconds[key] for r in results) for key in first.seconds},
    }


def _means(rows: Sequence[Figures]) -> Figures:
    return {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}
