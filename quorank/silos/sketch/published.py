"""CS-F-LTR in one process: parties ask each other about terms and train one ranker on the answers (Wang et al. 2021).

Rows of the comparison (§VI.A, table I), besides *bm25* and *w0*: *local*, each party learns from its own instances;
*local+*, from its own and its augmented ones; *global*, all parties train one ranker on their own instances; *cs-f-ltr*, on
own and augmented instances. All rankers order the lists of each party's own search.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from quorank.errors import require, require_range
from quorank.kernels.arrays import Doubles
from quorank.silos.hashing import seeded_secret
from quorank.silos.holdings import FIELDS, RECOMMENDED, Grades, Holding
from quorank.silos.sketch.augmentation import Answers, Augment, ExactAnswers, augmented_instances
from quorank.silos.sketch.cover import term_cover
from quorank.silos.sketch.descent import InstanceTraining, RoundRobin, best_weight
from quorank.silos.sketch.exchange import ExchangedAnswers, QuestionProtocol, exchange_answers
from quorank.silos.sketch.instances import (
    Instances,
    Judged,
    Labels,
    Lists,
    local_instances,
    own_rows,
    weigh_augmented,
    with_label_noise,
)
from quorank.silos.training.comparison import (
    ComparisonOutcome,
    PartySource,
    Progress,
    Stopwatch,
    TrialResult,
    check_same_text,
    judge_rankers,
)
from quorank.silos.training.lists import OwnSearch, PartySearch, SearchedLists, Statistics
from quorank.silos.training.setting import QuerySplit, check_split, split_queries
from quorank.silos.training.statistics import SharedStatistics, exact_statistics, share_statistics
from quorank.text import Features, Tokeniser

METHODS = ("local", "local+", "global", "cs-f-ltr")
FOLDS = 5


@dataclass(frozen=True)
class PublishedSetting:
    """Parameters of CS-F-LTR's training: text, labels, lists, asked queries, augmentation, descent and features."""

    labels: Labels = field(default_factory=Judged)
    labelled: tuple[int, ...] = (5,)  # labelled queries of each party, cycled over the parties; empty: all
    noise: tuple[float, ...] = (0.0,)  # share of labels replaced by another document's, cycled over the parties
    asked: int = 40  # queries that a party asks the others, at most, labelled ones first
    tested: int = 60  # test queries of a party, at most
    test_share: float = 0.5  # share of a party's answered queries held out for the test
    lists: Lists = field(default_factory=Lists)
    augment: Augment = field(default_factory=Augment.recommended)
    training: InstanceTraining = field(default_factory=RoundRobin)
    features: Features = field(default_factory=Features)
    tokeniser: Tokeniser = RECOMMENDED

    def __post_init__(self) -> None:
        check_split(self.labelled, self.tested, self.test_share)
        is_inside = self.noise and 0.0 <= min(self.noise) <= max(self.noise) <= 1.0
        require(is_inside, "value.out-of-range", f"expected numbers from 0 to 1, got {self.noise}", "noise")
        require_range("asked", self.asked, least=1)

    def divide(self, grades: Sequence[Grades], seed: int, number: int) -> QuerySplit:
        """Divide the queries of party `number`."""
        labelled = self.labelled[number % len(self.labelled)] if self.labelled else len(grades)
        return split_queries(grades, labelled, self.test_share, seed, number)

    def asks(self, split: QuerySplit) -> tuple[int, ...]:
        """Return the queries of a party that the others are asked about."""
        if self.augment.queries == "labelled":
            return split.labelled[: self.asked]
        return (split.labelled + split.unlabelled)[: self.asked]


@dataclass(frozen=True, eq=False)
class PreparedParties:
    """Parties before anything is asked."""

    parties: tuple[Holding, ...]
    setting: PublishedSetting
    seed: int
    splits: list[QuerySplit] = field(repr=False)
    statistics: Statistics = field(repr=False)
    own: list[Instances] = field(repr=False)
    tests: list[SearchedLists] = field(repr=False)

    def asked(self, party: int) -> tuple[int, ...]:
        """Return the queries that a party asks the others."""
        return self.setting.asks(self.splits[party])

    def terms(self, party: int) -> tuple[str, ...]:
        """Return the distinct terms of those queries."""
        return self.parties[party].terms_of(self.asked(party))


def prepare_parties(
    parties: Sequence[Holding], setting: PublishedSetting, seed: int, statistics: Statistics | None = None
) -> PreparedParties:
    """Divide every party's queries, and make its own instances and its test lists."""
    check_same_text(parties)
    grades, known = setting.labels.grades(parties), statistics or exact_statistics(parties)
    splits = [setting.divide(graded, seed, p) for p, graded in enumerate(grades)]
    own: list[Instances] = []
    tests: list[SearchedLists] = []
    for p, (party, graded, split) in enumerate(zip(parties, grades, splits, strict=True)):
        rows = own_rows(party, split.labelled, graded, setting.lists, known, setting.features, seed, p)
        own.append(local_instances(with_label_noise(rows, setting.noise[p % len(setting.noise)], seed, p)))
        search = PartySearch(party, OwnSearch(evidence=()), setting.features, known)
        tests.append(search.lists(split.test[: setting.tested], graded))
    return PreparedParties(tuple(parties), setting, seed, splits, known, own, tests)


def augment_parties(prepared: PreparedParties, answers: Answers) -> list[Instances]:
    """Make the augmented instances of every party from the others' answers."""
    parties, setting, known, seed = prepared.parties, prepared.setting, prepared.statistics, prepared.seed
    return [
        augmented_instances(setting.augment, answers, parties, p, prepared.asked(p), known, setting.features, seed)
        for p in range(len(parties))
    ]


def compare_methods(prepared: PreparedParties, augmented: Sequence[Instances]) -> ComparisonOutcome:
    """Train all methods and evaluate them on the test lists of all parties."""
    own, everyone, training = prepared.own, range(len(prepared.own)), prepared.setting.training
    alone = [train_together(prepared, augmented, [p]) for p in everyone]
    jointly = train_together(prepared, augmented, everyone)
    w0 = OwnSearch(evidence=()).prior_direction()
    rankers = {
        "bm25": [np.zeros(len(w0))],
        "w0": [w0],
        "local": [training.train([part], prepared.seed) for part in own],
        "local+": [theta for _, theta in alone],
        "global": [training.train(own, prepared.seed)],
        "cs-f-ltr": [jointly[1]],
    }
    weights = {"local+": [weight for weight, _ in alone], "cs-f-ltr": [jointly[0]]}
    counts = {"own": [part.n_rows for part in own], "augmented": [part.n_rows for part in augmented]}
    return judge_rankers(rankers, prepared.tests, {}, weights, counts)


def train_together(
    prepared: PreparedParties, augmented: Sequence[Instances], chosen: Sequence[int]
) -> tuple[float | None, Doubles]:
    """Train the ranker of some parties on own and augmented instances; return the chosen weight and the ranker."""
    own, found = [prepared.own[p] for p in chosen], [augmented[p] for p in chosen]
    training, weights = prepared.setting.training, prepared.setting.augment.weights
    weight = weights[0] if weights else None
    if len(weights) > 1:
        weight = best_weight(training, own, found, weights, FOLDS, prepared.seed)
    parts = [weigh_augmented(o, f, weight) for o, f in zip(own, found, strict=True)]
    return weight, training.train(parts, prepared.seed)


def sum_statistics(parties: Sequence[Holding], protocol: QuestionProtocol, seed: int) -> SharedStatistics:
    """Sum the term statistics over all parties, with noise where the protocol asks for it."""
    return share_statistics(parties, seeded_secret(seed, "statistics"), protocol.statistics_epsilon, seed)


def collect_answers(
    prepared: PreparedParties, protocol: QuestionProtocol | None
) -> tuple[Answers, ExchangedAnswers | None]:
    """Return exact answers, or those of a session and their costs."""
    if protocol is None:
        return ExactAnswers(prepared.parties), None
    terms = [prepared.terms(p) for p in range(len(prepared.parties))]
    exchanged = exchange_answers(prepared.parties, terms, protocol, prepared.seed)
    return exchanged, exchanged


def mean_cover_by_field(prepared: PreparedParties, answers: Answers, k: int) -> dict[str, float]:
    """Compute the share of the true top-K that answers name (`term_cover`), by field, over all answerable questions."""
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


def run_published_trial(
    source: PartySource,
    setting: PublishedSetting,
    protocol: QuestionProtocol | None,
    seed: int,
    progress: Progress | None = None,
) -> TrialResult:
    """Run one trial of CS-F-LTR; without a protocol, answers and statistics are exact and cost nothing."""
    say, clock = progress or (lambda done, total, what: None), Stopwatch()
    say(0, 4, "making parties")
    parties = source.holdings(seed)
    clock.lap("parties")
    say(1, 4, "summing statistics")
    shared = None if protocol is None else sum_statistics(parties, protocol, seed)
    prepared = prepare_parties(parties, setting, seed, shared)
    clock.lap("own instances")
    say(2, 4, "asking each other")
    answers, exchanged = collect_answers(prepared, protocol)
    augmented = augment_parties(prepared, answers)
    cover = mean_cover_by_field(prepared, answers, protocol.k if protocol else ExactAnswers.k)
    clock.lap("asking")
    say(3, 4, "learning")
    outcome = compare_methods(prepared, augmented)
    clock.lap("learning")
    say(4, 4, "done")
    wire = {} if exchanged is None else dict(exchanged.wire)
    spent = {} if exchanged is None else dict(exchanged.spent)
    if shared is not None:
        wire["statistics_bytes"] = round(shared.bytes_sent * len(parties))
        spent["statistics_epsilon"] = shared.epsilon
    return TrialResult(tuple(party.name for party in parties), outcome, clock.seconds, cover, wire, spent)
