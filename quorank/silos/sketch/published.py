"""CS-F-LTR in one process: parties ask each other about terms and train one ranker on the answers (Wang et al. 2021).

Rows of the comparison (§VI.A, table I), besides *bm25* and *w0*: *local*, each party learns from its own instances;
*local+*, from its own and its augmented ones; *global*, all parties train one ranker on their own instances; *cs-f-ltr*, on
own and augmented instances. All rankers order the lists of each party's own search.

Whether labels by rank help depends on the quality of a party's own labels. The weight of augmented instances is therefore
cross-validated: each fold of the labelled queries is ranked by rankers trained without it, once for each weight.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from quorank.errors import require, require_choice, require_range
from quorank.kernels.arrays import Doubles
from quorank.kernels.draws import Purpose, uniforms
from quorank.metrics.evaluator import Evaluator
from quorank.silos.holdings import FIELDS, Holding
from quorank.silos.sketch.augmentation import (
    Answers,
    Augment,
    Candidates,
    ExactAnswers,
    cross_features,
    find_candidates,
)
from quorank.silos.sketch.instances import HIGHEST, Instances, LabelSource, own_rows, reference_grades
from quorank.silos.sketch.questions import QuestionProtocol, QuestionSession
from quorank.silos.training.comparison import ComparisonOutcome, check_same_text, judge_rankers
from quorank.silos.training.lists import LINEAR, OwnSearch, PartySearch, SearchedLists, Statistics
from quorank.silos.training.setting import QuerySplit, check_split, divide_queries
from quorank.silos.training.statistics import exact_statistics
from quorank.text import FEATURE_NAMES, Features, QueryRows

OTHERS = 1 << 23  # in the addresses of draws; owners follow
HIGHLY = 0.1  # share of the found documents, from the top, that is labelled 2; the others are labelled 1
BM25 = tuple(i for i, name in enumerate(FEATURE_NAMES) if name.startswith("BM25"))
METHODS = ("local", "local+", "global", "cs-f-ltr")
FOLDS = 5


@dataclass(frozen=True)
class RoundRobin:
    """Descent of §III.B, "a simple round-robin distributed SGD": one party per turn takes steps on its own instances.

    A step is θ ← θ − η·(mean gradient of (θ·x − y)²/2 over a batch + λ·θ), with labels y divided by the highest one; η
    falls in a straight line to 0. The last parameter is the intercept, on which no ranking depends. Only parameters travel.
    """

    eta: float = 0.3  # η at the first step
    batch: int = 32  # instances of a step, drawn with replacement in proportion to their weights
    decay: float = 1e-4  # λ, not on the intercept
    turns: int = 80
    steps: int = 30  # of a party in a turn

    def __post_init__(self) -> None:
        require_range("eta", self.eta, above=0.0)
        require_range("decay", self.decay, least=0.0, most=1.0 / self.eta)
        for name in ("batch", "turns", "steps"):
            require_range(name, getattr(self, name), least=1)

    def train(self, parties: Sequence[Instances], seed: int = 1) -> Doubles:
        """Train the weights of a linear ranker."""
        present = [own for own in parties if own.n_rows]
        require(present, "training.no-instance", "no party has an instance to learn from")
        inputs = [np.column_stack([own.data.features, np.ones(own.n_rows)]).astype(np.float64) for own in present]
        targets, shares = ([own.data.labels / HIGHEST for own in present], [np.cumsum(own.weights) for own in present])
        theta = np.zeros(inputs[0].shape[1])
        decay = np.append(np.full(len(theta) - 1, self.decay), 0.0)
        for turn in range(self.turns):
            party = turn % len(present)
            draws = uniforms(seed, Purpose.INSTANCES, self.steps * self.batch, round_=turn, client=party)
            rows = np.searchsorted(shares[party], draws * shares[party][-1], side="right")
            rows = np.minimum(rows, present[party].n_rows - 1).reshape(self.steps, self.batch)
            for step, chosen in enumerate(rows):
                x = inputs[party][chosen]
                eta = self.eta * (1.0 - (turn + step / self.steps) / self.turns)
                theta = theta - eta * ((x @ theta - targets[party][chosen]) @ x / self.batch + decay * theta)
        return theta[:-1]


@dataclass(frozen=True)
class PublishedSetting:
    """Parameters of CS-F-LTR's training: text, labels, lists, asked queries, augmentation, descent and features."""

    labels: LabelSource = "judged"  # the collection's judgements, or ranks of a reference retrieval
    labelled: tuple[int, ...] = (5,)  # labelled queries of each party, cycled over the parties; empty: all
    noise: tuple[float, ...] = (0.0,)  # share of labels replaced by another document's, cycled over the parties
    asked: int = 40  # queries that a party asks the others, at most, labelled ones first
    tested: int = 60  # test queries of a party, at most
    test_share: float = 0.5  # share of a party's answered queries held out for the test
    augment: Augment = field(default_factory=Augment.recommended)
    training: RoundRobin = field(default_factory=RoundRobin)
    features: Features = field(default_factory=Features)

    def __post_init__(self) -> None:
        require_choice("labels", self.labels, ("judged", "reference-rank"))
        check_split(self.labelled, self.tested, self.test_share)
        is_inside = self.noise and 0.0 <= min(self.noise) <= max(self.noise) <= 1.0
        require(is_inside, "value.out-of-range", f"expected numbers from 0 to 1, got {self.noise}", "noise")
        require_range("asked", self.asked, least=1)


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
        split = self.splits[party]
        unlabelled = split.unlabelled if self.setting.augment.queries == "all" else ()
        return (split.labelled + unlabelled)[: self.setting.asked]

    def answers(self, protocol: QuestionProtocol | None) -> Answers:
        """Return exact answers, or those of a session."""
        return QuestionSession(self.parties, protocol, self.seed) if protocol else ExactAnswers(self.parties)


def prepare_parties(
    parties: Sequence[Holding], setting: PublishedSetting, seed: int, statistics: Statistics | None = None
) -> PreparedParties:
    """Divide every party's queries, and make its own instances and its test lists."""
    check_same_text(parties)
    known = statistics or exact_statistics(parties)
    grades = (
        reference_grades(parties) if setting.labels == "reference-rank" else [list(each.grades) for each in parties]
    )
    splits = [divide_queries(setting.labelled, setting.test_share, graded, seed, p) for p, graded in enumerate(grades)]
    own: list[Instances] = []
    tests: list[SearchedLists] = []
    for p, (party, graded, split) in enumerate(zip(parties, grades, splits, strict=True)):
        noise = setting.noise[p % len(setting.noise)]
        own.append(Instances.of(own_rows(party, split.labelled, graded, known, setting.features, seed, p, noise)))
        search = PartySearch(party, OwnSearch(evidence=()), setting.features, known)
        tests.append(search.lists(split.test[: setting.tested], graded))
    return PreparedParties(tuple(parties), setting, seed, splits, known, own, tests)


def augment_parties(prepared: PreparedParties, answers: Answers) -> list[Instances]:
    """Make the augmented instances of every party from the others' answers: a list for each query and owner."""
    found = []
    for p in range(len(prepared.parties)):
        rows = [
            augmented_rows(prepared, answers, p, owner, query)
            for query in prepared.asked(p)
            for owner in range(len(prepared.parties))
            if owner != p
        ]
        found.append(Instances.of([row for row in rows if row is not None]))
    return found


def augmented_rows(prepared: PreparedParties, answers: Answers, asker: int, owner: int, query: int) -> QueryRows | None:
    """Return the augmented instances of one query at one owner; None where nothing was found."""
    party, features, augment = prepared.parties[asker], prepared.setting.features, prepared.setting.augment
    terms = party.queries[query]
    found = find_candidates(answers, asker, owner, terms)
    if not len(found.documents):
        return None
    lengths, known = [answers.lengths(owner, name) for name in FIELDS], prepared.statistics(terms)
    values = cross_features(found, lengths, known, features)
    scores = found.body.sum(axis=1) if augment.ranking == "count" else values[:, BM25].sum(axis=1)
    best = np.argsort(-scores, kind="stable")[: augment.take]  # ties: the earlier one
    count, round_ = augment.negatives, OTHERS + owner
    draws = uniforms(prepared.seed, Purpose.INSTANCES, 2 * count, round_=round_, client=asker, interaction=query)
    others = np.setdiff1d((draws * len(lengths[0])).astype(np.int64), found.documents)
    if len(others) > count:
        others = others[np.linspace(0, len(others) - 1, count).round().astype(np.int64)]
    none = np.zeros((len(others), len(terms)))
    parts = zip(found, (others, none, none), strict=True)
    kept = Candidates(*(np.concatenate((part[best], more)) for part, more in parts))
    highly = math.ceil(HIGHLY * len(best))
    labels = np.repeat(np.array([2, 1, 0], dtype=np.int8), (highly, len(best) - highly, len(others)))
    order = np.argsort(kept.documents, kind="stable")
    ids = [str(d) for d in kept.documents[order]]
    values = cross_features(kept, lengths, known, features)
    return QueryRows(f"{party.name}:{party.query_ids[query]}@{owner}", ids, values[order], labels[order])


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
    return judge_rankers(prepared.parties, rankers, prepared.tests, {}, weights, counts)


def train_together(
    prepared: PreparedParties, augmented: Sequence[Instances], chosen: Sequence[int]
) -> tuple[float | None, Doubles]:
    """Train the ranker of some parties on own and augmented instances; return the chosen weight and the ranker."""
    own, found = [prepared.own[p] for p in chosen], [augmented[p] for p in chosen]
    training, weights = prepared.setting.training, prepared.setting.augment.weights
    weight = weights[0] if weights else None
    if len(weights) > 1:
        weight = best_weight(training, own, found, weights, prepared.seed)
    parts = [o.with_augmented(f, weight) for o, f in zip(own, found, strict=True)]
    return weight, training.train(parts, prepared.seed)


def best_weight(
    training: RoundRobin, own: Sequence[Instances], found: Sequence[Instances], weights: Sequence[float], seed: int
) -> float:
    """Return the weight of augmented instances whose rankers order the held-out lists of all parties and folds best.

    The first weight is kept unless another one is better by more than the standard error of their difference: few lists
    say little, and a random choice costs more than a weight that is not quite the best.
    """
    scores = [np.empty((len(weights), 0))]
    for fold in range(FOLDS):
        parts = [part.split(fold, FOLDS) for part in own]
        if not any(kept.n_rows for kept, _ in parts):
            continue
        kept_found = list(zip((kept for kept, _ in parts), found, strict=True))
        thetas = [training.train([k.with_augmented(f, weight) for k, f in kept_found], seed) for weight in weights]
        for _, held in parts:
            if held.n_rows:
                evaluator = Evaluator(held.data, LINEAR)
                scores.append(evaluator.per_query(thetas)[0][:, evaluator.counted()])
    every = np.concatenate(scores, axis=1)
    gains, lists = every - every[:1], every.shape[1]
    if lists < 2:
        return float(weights[0])
    mean, error = gains.mean(axis=1), gains.std(axis=1, ddof=1) / np.sqrt(lists)
    return float(weights[int(np.argmax(np.where(mean > error, mean, 0.0)))])
