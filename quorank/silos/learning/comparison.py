"""Comparison of rankers on the same parties: what labels, other parties and other parties' documents add to a search.

All rankers order the same lists, those that each party's own search returns for test queries that were in no training
(`searched_lists`), and nDCG is taken over all documents of the query's party. Rows of every comparison: *bm25*, the order
of the search itself, and *w0*, the prior. Then, by what is trained:

- from a prior (`prior.FromPrior`, the default): *alone*, a party by its own labels, and *ours*, all parties together;
- as CS-F-LTR does (§VI.A, table I): *local*, a party learns from its own instances; *local+*, from its own and its
  augmented ones; *global*, all parties train one ranker on their own instances; *cs-f-ltr*, on own and augmented instances.

A trial is a comparison with one seed from beginning to end: parties, shared statistics, a session of the protocol,
instances, trained rankers.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from quorank.errors import require, require_range
from quorank.kernels.arrays import Doubles
from quorank.metrics.significance import Difference, corrected, paired_t
from quorank.rankers import Ranker
from quorank.silos.generated import Generator
from quorank.silos.learning.augmentation import Answers, Augment, ExactAnswers, augmented_instances
from quorank.silos.learning.exchange import ExchangedAnswers, SiloProtocol, exchange_answers, seeded_secret
from quorank.silos.learning.holdings import FIELDS, RECOMMENDED, Grades, Holding, generated_holdings, read_holdings
from quorank.silos.learning.instances import (
    Instances,
    Judged,
    Labels,
    Lists,
    QuerySplit,
    Statistics,
    exact_statistics,
    local_instances,
    own_rows,
    split_queries,
    with_label_noise,
)
from quorank.silos.learning.prior import NONE, FromPrior
from quorank.silos.learning.searched_lists import LINEAR, MEASURES, Figures, OwnSearch, PartySearch, SearchedLists
from quorank.silos.learning.shared_statistics import SharedStatistics, share_statistics
from quorank.silos.learning.summed_training import SumTraining
from quorank.silos.learning.training import InstanceTraining, RoundRobin, Training
from quorank.silos.learning.validation import best_weight, weigh_augmented
from quorank.silos.sketch.cover import term_cover
from quorank.text import Features, Tokeniser

Progress = Callable[[int, int, str], None]

METHODS = ("local", "local+", "global", "cs-f-ltr")
"""What is compared where instances are learned from as in the paper."""
PRIOR_METHODS = ("alone", "ours")
"""What is compared where a ranker is learned from a prior."""
FOLDS = 5


@dataclass(frozen=True)
class SiloSetting:
    """Parameters of learning across parties: text, labels, lists, asked queries, augmentation, training, features."""

    labels: Labels = field(default_factory=Judged)
    labelled: tuple[
        int, ...
    ] = ()  # queries with labels of each party, in turns through the list; all where it is empty
    noise: tuple[float, ...] = (0.0,)  # share of labels that are another document's, likewise
    asked: int = 40  # queries that a party asks the others at most, labelled ones first
    tested: int = 60  # test queries of a party at most
    test_share: float = 0.5  # share of a party's queries that are kept for tests
    searched: OwnSearch = field(default_factory=OwnSearch)  # the lists of a search, by which all rankers are judged
    lists: Lists = field(default_factory=Lists)  # the instances of a training as published
    augment: Augment = field(default_factory=Augment.recommended)
    training: Training = field(default_factory=FromPrior)
    features: Features = field(default_factory=Features)
    tokeniser: Tokeniser = RECOMMENDED  # of all parties

    def __post_init__(self) -> None:
        counts, shares = self.labelled, self.noise
        sound = not counts or min(counts) >= 1
        require(sound, "value.out-of-range", f"expected numbers ≥ 1, got {counts}", "labelled")
        is_inside = shares and 0.0 <= min(shares) <= max(shares) <= 1.0
        require(is_inside, "value.out-of-range", f"expected numbers from 0 to 1, got {shares}", "noise")
        require_range("asked", self.asked, least=1)
        require_range("tested", self.tested, least=1)
        require_range("test_share", self.test_share, above=0.0, below=1.0)

    @classmethod
    def published(cls, **chosen: Any) -> SiloSetting:
        """Return the setting of CS-F-LTR: a pointwise ranker, trained in turns on own and augmented instances."""
        return replace(cls(labelled=(5,), training=RoundRobin()), **chosen)

    @property
    def from_sums(self) -> SumTraining:
        """The training, where it learns from sums."""
        return cast("SumTraining", self.training)

    @property
    def ranker_part(self) -> Ranker:
        """The kind of ranker that is trained."""
        return self.from_sums.ranker_part if self.training.learns_from_sums else LINEAR

    @property
    def from_instances(self) -> InstanceTraining:
        """The training, where it learns from instances as published."""
        return cast("InstanceTraining", self.training)

    def divide(self, grades: Sequence[Grades], seed: int, number: int) -> QuerySplit:
        """Divide the queries of party `number`."""
        labelled = self.labelled[number % len(self.labelled)] if self.labelled else len(grades)
        return split_queries(grades, labelled, self.test_share, seed, number)

    def asks(self, parts: QuerySplit) -> tuple[int, ...]:
        """Return the queries of a party that the others are asked about: none where only sums are learned from."""
        if self.training.learns_from_sums:
            return ()
        if self.augment.queries == "labelled":
            return parts.labelled[: self.asked]
        return (parts.labelled + parts.silent)[: self.asked]

    def search_lists(
        self,
        party: Holding,
        grades: Sequence[Grades],
        parts: QuerySplit,
        seed: int,
        number: int,
        statistics: Statistics | None = None,
    ) -> tuple[SearchedLists, SearchedLists]:
        """Make the lists of party `number` that a search returns for labelled and for test queries.

        `statistics` are those of all parties; without them features have the party's own.
        """
        search = PartySearch(party, self.searched, self.features, statistics)
        noise = self.noise[number % len(self.noise)]
        labelled = search.lists(parts.labelled, grades).with_label_noise(noise, seed, number)
        return labelled, search.lists(parts.test[: self.tested], grades)

    def instances(
        self,
        party: Holding,
        grades: Sequence[Grades],
        parts: QuerySplit,
        statistics: Statistics,
        seed: int,
        number: int,
    ) -> tuple[Instances, SearchedLists]:
        """Make the own instances of party `number` as published, and its test lists with the same features."""
        made = own_rows(party, parts.labelled, grades, self.lists, statistics, self.features, seed, number)
        noise = self.noise[number % len(self.noise)]
        own = local_instances(with_label_noise(made, noise, seed, number))
        search = PartySearch(party, replace(self.searched, evidence=()), self.features, statistics)
        return own, search.lists(parts.test[: self.tested], grades)


@dataclass(frozen=True, eq=False)
class PreparedParties:
    """Parties before anything is asked: splits, what each learns from, and test lists."""

    parties: tuple[Holding, ...]
    setting: SiloSetting
    seed: int
    splits: list[QuerySplit] = field(repr=False)
    statistics: Statistics = field(repr=False)
    own: list[Instances] = field(repr=False)  # of a training as published
    labelled: list[SearchedLists] = field(repr=False)  # of a training from a prior
    tests: list[SearchedLists] = field(repr=False)

    def asked(self, party: int) -> tuple[int, ...]:
        """Return the queries that a party asks the others."""
        return self.setting.asks(self.splits[party])

    def terms(self, party: int) -> tuple[str, ...]:
        """Return the different terms of those queries."""
        return self.parties[party].terms_of(self.asked(party))

    def prior(self) -> Doubles:
        """Return the ranking before anything is learned, on the features of the test lists."""
        learns = self.setting.training.learns_from_sums
        return (self.setting.searched if learns else replace(self.setting.searched, evidence=())).prior_direction()


@dataclass(frozen=True, eq=False)
class ComparisonOutcome:
    """Result of a comparison with one seed."""

    table: dict[str, Figures]  # method → measure; of what a party learns alone the mean over the parties
    by_party: dict[str, list[Figures]]  # of those, a row for each party
    own_tests: dict[str, list[float]]  # nDCG@10 of each method on each party's own test lists
    weights: dict[str, list[float | None]]  # of augmented instances, or λ: of each party alone, and of all together
    instances: dict[str, list[int]]  # own and augmented instances, or labelled lists, of each party
    test_queries: int

    @property
    def bm25(self) -> Figures:
        """The search itself, with nothing learned."""
        return self.table["bm25"]


def prepare_parties(
    parties: Sequence[Holding], setting: SiloSetting, seed: int, statistics: Statistics | None = None
) -> PreparedParties:
    """Split every party's queries, and make its own instances or lists and its test lists."""
    check_same_text(parties)
    grades = setting.labels.grades(parties)
    known = statistics or exact_statistics(parties)
    splits = [setting.divide(grades[p], seed, p) for p in range(len(parties))]
    own: list[Instances] = []
    labelled: list[SearchedLists] = []
    tests: list[SearchedLists] = []
    for p, party in enumerate(parties):
        if setting.training.learns_from_sums:
            lists, test = setting.search_lists(party, grades[p], splits[p], seed, p)
            labelled.append(lists)
        else:
            instances, test = setting.instances(party, grades[p], splits[p], known, seed, p)
            own.append(instances)
        tests.append(test)
    return PreparedParties(tuple(parties), setting, seed, splits, known, own, labelled, tests)


def check_same_text(parties: Sequence[Holding]) -> None:
    """Refuse a party without documents, or whose terms are made otherwise than the first one's."""
    for party in parties:
        said = f"{party.name} has no documents; a party takes part with documents of its own"
        require(party.n_documents, "party.no-documents", said)
        first, own = parties[0].documents.body.tokeniser, party.documents.body.tokeniser
        said = f"{party.name} makes terms by {own} and {parties[0].name} by {first}; settle on one tokeniser"
        require(first == own, "party.other-tokeniser", said)


def augment_parties(prepared: PreparedParties, answers: Answers) -> list[Instances]:
    """Make the augmented instances of every party, from what the others answered."""
    parties, setting, known, seed = prepared.parties, prepared.setting, prepared.statistics, prepared.seed
    return [
        augmented_instances(setting.augment, answers, parties, p, prepared.asked(p), known, setting.features, seed)
        for p in range(len(parties))
    ]


def compare_methods(prepared: PreparedParties, augmented: Sequence[Instances] = ()) -> ComparisonOutcome:
    """Train all methods and judge their rankers on the test lists of all parties."""
    if prepared.setting.training.learns_from_sums:
        rankers, weights, counts = _from_sums(prepared, prepared.setting.from_sums)
    else:
        rankers, weights, counts = _from_instances(prepared, prepared.setting.from_instances, augmented)
    together = SearchedLists.joined(prepared.tests)
    width = together.data.n_features
    untrained = {"bm25": [np.zeros(width)], "w0": [prepared.prior()]}
    kinds = dict.fromkeys(untrained, LINEAR) | dict.fromkeys(rankers, prepared.setting.ranker_part)
    rankers = untrained | rankers
    judged = {method: together.figures(thetas, kinds[method]) for method, thetas in rankers.items()}
    table = {m: {k: float(np.mean([row[k] for row in rows])) for k in MEASURES} for m, rows in judged.items()}
    own_tests = {
        method: [
            each.figures([thetas[p % len(thetas)]], kinds[method])[0]["ndcg@10"]
            for p, each in enumerate(prepared.tests)
        ]
        for method, thetas in rankers.items()
    }
    by_party = {method: rows for method, rows in judged.items() if len(rows) > 1}
    return ComparisonOutcome(table, by_party, own_tests, weights, counts, together.n_lists)


Compared = tuple[dict[str, list[Doubles]], dict[str, list[float | None]], dict[str, list[int]]]
"""Rankers by method, weights (or λ) by method, and what each party learns from."""


def _from_sums(prepared: PreparedParties, training: SumTraining) -> Compared:
    w0 = prepared.prior()
    alone = [training.train([own], w0) for own in prepared.labelled]
    value, jointly = training.train(prepared.labelled, w0)

    def told(chosen: float) -> float | None:
        return None if chosen == NONE else chosen

    return (
        {"alone": [theta for _, theta in alone], "ours": [jointly]},
        {"alone": [told(chosen) for chosen, _ in alone], "ours": [told(value)]},
        {"lists": [own.n_lists for own in prepared.labelled]},
    )


def _from_instances(prepared: PreparedParties, training: InstanceTraining, augmented: Sequence[Instances]) -> Compared:
    own, everyone = prepared.own, range(len(prepared.own))
    alone = [train_together(prepared, augmented, [p]) for p in everyone]
    jointly = train_together(prepared, augmented, everyone)
    rankers = {
        "local": [training.train([part], prepared.seed) for part in own],
        "local+": [theta for _, theta in alone],
        "global": [training.train(own, prepared.seed)],
        "cs-f-ltr": [jointly[1]],
    }
    weights = {"local+": [weight for weight, _ in alone], "cs-f-ltr": [jointly[0]]}
    return rankers, weights, {"own": [part.n_rows for part in own], "augmented": [part.n_rows for part in augmented]}


def train_together(
    prepared: PreparedParties, augmented: Sequence[Instances], chosen: Sequence[int]
) -> tuple[float | None, Doubles]:
    """Train the ranker of some parties on own and augmented instances: the weight that is best for them, and the ranker."""
    setting, own = prepared.setting, [prepared.own[p] for p in chosen]
    training = setting.from_instances
    found = [augmented[p] for p in chosen]
    weights = setting.augment.weights
    weight = weights[0] if weights else None
    if len(weights) > 1:
        weight = best_weight(training, own, found, weights, FOLDS, prepared.seed)
    parts = [weigh_augmented(o, f, weight) for o, f in zip(own, found, strict=True)]
    return weight, training.train(parts, prepared.seed)


def joint_ranker(parties: Sequence[Holding], setting: SiloSetting, protocol: SiloProtocol, seed: int) -> Doubles:
    """Train the ranker of all parties in one process: that of a session over a network with this seed, to the last bit."""
    if setting.training.learns_from_sums:
        prepared = prepare_parties(parties, setting, seed)
        return setting.from_sums.train(prepared.labelled, prepared.prior())[1]
    prepared = prepare_parties(parties, setting, seed, sum_statistics(parties, protocol, seed))
    answers, _ = collect_answers(prepared, protocol)
    return train_together(prepared, augment_parties(prepared, answers), range(len(parties)))[1]


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

    @property
    def methods(self) -> tuple[str, ...]:
        """All that was compared; the last one is what the parties train together."""
        return tuple(self.outcomes[0].table)

    def against(self, measure: str = "ndcg@10", others: Sequence[str] = ()) -> dict[str, Difference]:
        """Test the last method minus each other one (or some), paired by seed, p corrected over them."""
        *everything, last = self.methods
        others = others or everything
        ours = self.values(last, measure)
        tests = corrected([paired_t(ours, self.values(other, measure)) for other in others])
        return dict(zip(others, tests, strict=True))

    def as_dict(self) -> dict[str, Any]:
        """Return means, deviations and tests as plain values."""
        return {
            "seeds": len(self.outcomes),
            "mean": {m: {k: self.mean(m, k) for k in MEASURES} for m in self.methods},
            "deviation": {m: {k: self.spread(m, k) for k in MEASURES} for m in self.methods},
            f"{self.methods[-1]} minus": {
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
    tokeniser: Tokeniser = RECOMMENDED
    whole: bool = True  # bodies hold titles

    def __post_init__(self) -> None:
        require_range("parties", self.parties, least=2)

    def holdings(self, seed: int) -> tuple[Holding, ...]:
        """Return the parties of one trial; one collection is dealt out anew for each seed."""
        if not self.collections:
            return generated_holdings(replace(self.generator, parties=self.parties), seed)
        return read_holdings(self.collections, self.parties, seed, self.tokeniser, whole=self.whole)


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
    """Run one trial. Without a protocol, answers and statistics are exact, and nothing is counted.

    A ranker from a prior takes no answers: then nothing is asked.
    """
    say = progress or (lambda done, total, what: None)
    clock = {}
    start = time.perf_counter()
    say(0, 4, "making parties")
    parties = source.holdings(seed)
    clock["parties"] = time.perf_counter() - start
    asks = not setting.training.learns_from_sums
    say(1, 4, "adding up statistics" if asks else "searching")
    shared = sum_statistics(parties, protocol, seed) if asks and protocol is not None else None
    prepared = prepare_parties(parties, setting, seed, shared)
    clock["own instances"] = time.perf_counter() - start - sum(clock.values())
    cover, wire, spent = {}, {}, {}
    augmented: list[Instances] = []
    if asks:
        say(2, 4, "asking each other")
        answers, exchanged = collect_answers(prepared, protocol)
        augmented = augment_parties(prepared, answers)
        cover = mean_cover_by_field(prepared, answers, protocol.k if protocol else ExactAnswers.k)
        if exchanged is not None:
            wire, spent = dict(exchanged.wire), dict(exchanged.spent)
    clock["asking"] = time.perf_counter() - start - sum(clock.values())
    say(3, 4, "learning")
    outcome = compare_methods(prepared, augmented)
    clock["learning"] = time.perf_counter() - start - sum(clock.values())
    say(4, 4, "done")
    if shared is not None:
        wire["statistics_bytes"] = round(shared.bytes_sent * len(parties))
        spent["statistics_epsilon"] = shared.epsilon
    return TrialResult(tuple(party.name for party in parties), outcome, cover, wire, spent, clock)


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
    repeated = RepeatedComparison([result.outcome for result in results])
    figures, first = repeated.as_dict(), results[0]
    alone = tuple(first.outcome.by_party)
    return {
        "table": figures["mean"],
        "parties": {
            name: {method: _means([result.outcome.by_party[method][p] for result in results]) for method in alone}
            | {"instances": {what: counts[p] for what, counts in first.outcome.instances.items()}}
            for p, name in enumerate(first.names)
        },
        "own_tests": {
            method: [float(np.mean([r.outcome.own_tests[method][p] for r in results])) for p in range(len(first.names))]
            for method in repeated.methods
        },
        "weights": [result.outcome.weights for result in results],
        "significance": figures[f"{repeated.methods[-1]} minus"],
        "deviation": figures["deviation"],
        "cover": {name: float(np.mean([r.cover[name] for r in results])) for name in first.cover},
        "wire": first.wire,
        "privacy": first.spent,
        "test_queries": first.outcome.test_queries,
        "trials": len(results),
        "seconds": {key: sum(r.seconds[key] for r in results) for key in first.seconds},
    }


def _means(rows: Sequence[Figures]) -> Figures:
    return {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}
