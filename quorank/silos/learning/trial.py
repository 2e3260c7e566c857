"""One trial from beginning to end: parties, shared statistics, a session of the protocol, instances, trained rankers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from quorank.arrays import Doubles
from quorank.errors import require
from quorank.silos.generated import Generator
from quorank.silos.learning.comparison import (
    METHODS,
    Figures,
    ComparisonOutcome,
    PreparedParties,
    RepeatedComparison,
    SiloSetting,
    augment,
    compare_methods,
    prepare_parties,
    train_together,
)
from quorank.silos.learning.cross_features import FIELDS, Answers, ExactAnswers
from quorank.silos.learning.holdings import Holding, generated_holdings, read_holdings
from quorank.silos.learning.shared_statistics import SharedStatistics, share_statistics
from quorank.silos.protocol.exchange import ExchangedAnswers, Progress, SiloProtocol, exchange, seeded_secret
from quorank.text import Tokeniser


@dataclass(frozen=True)
class PartySource:
    """Where the parties come from: collections on disk, or the generator."""

    collections: tuple[str, ...] = ()
    parties: int = 4  # N; several collections are a party each
    generator: Generator = field(default_factory=Generator)
    tokeniser: Tokeniser = field(default_factory=Tokeniser)

    def __post_init__(self) -> None:
        require(self.parties >= 2, f"there must be at least two parties, got {self.parties}")

    def holdings(self, seed: int) -> tuple[Holding, ...]:
        """The parties of one trial; one collection is dealt out anew for each seed."""
        if not self.collections:
            return generated_holdings(replace(self.generator, parties=self.parties), seed)
        return read_holdings(self.collections, self.parties, seed, self.tokeniser)


@dataclass(frozen=True, eq=False)
class TrialResult:
    """What came out of a trial."""

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
    """All of it with one seed. Without a protocol, answers and statistics are exact, and nothing is counted."""
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
    answers, heard = collect_answers(prepared, protocol)
    clock["asking"] = time.perf_counter() - start - sum(clock.values())
    say(3, 4, "learning")
    outcome = compare_methods(prepared, augment(prepared, answers))
    clock["learning"] = time.perf_counter() - start - sum(clock.values())
    say(4, 4, "done")
    wire = {} if heard is None else dict(heard.wire)
    spent = {} if heard is None else dict(heard.spent)
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


def joint_ranker(parties: Sequence[Holding], setting: SiloSetting, protocol: SiloProtocol, seed: int) -> Doubles:
    """The CS-F-LTR ranker alone: what the same parties come to over a network, to the last bit."""
    prepared = prepare_parties(parties, setting, seed, sum_statistics(parties, protocol, seed))
    answers, _ = collect_answers(prepared, protocol)
    return train_together(prepared, augment(prepared, answers), range(len(parties)))[1]


def sum_statistics(parties: Sequence[Holding], protocol: SiloProtocol, seed: int) -> SharedStatistics:
    """The sums over all parties."""
    key = seeded_secret(seed, "statistics")
    return share_statistics(parties, key, epsilon=protocol.statistics_epsilon, seed=seed)


def collect_answers(prepared: PreparedParties, protocol: SiloProtocol | None) -> tuple[Answers, ExchangedAnswers | None]:
    """Exact answers, or those of a session."""
    if protocol is None:
        return ExactAnswers(prepared.parties), None
    terms = [prepared.terms(p) for p in range(len(prepared.parties))]
    heard = exchange(prepared.parties, terms, protocol, prepared.seed)
    return heard, heard


def mean_cover_by_field(prepared: PreparedParties, answers: Answers, k: int) -> dict[str, float]:
    """The share of the true top-K that answers name, by field, over all questions that have an answer.

    A document counts if it holds the term at least as often as the K-th best does; where fewer than K hold it at all,
    these are all.
    """
    found: dict[str, list[float]] = {name: [] for name in FIELDS}
    for asker in range(len(prepared.parties)):
        for owner, party in enumerate(prepared.parties):
            if owner == asker:
                continue
            for name in FIELDS:
                index = getattr(party.documents, name)
                for term in prepared.terms(asker):
                    documents, counts = index.postings(int(index.term_ids([term])[0]))
                    if not len(documents):
                        continue
                    wanted = min(k, len(documents))
                    least = np.sort(counts)[len(counts) - wanted]
                    good = documents[counts >= least]
                    named = answers.answer(asker, owner, name, term).documents
                    found[name].append(min(1.0, np.isin(named, good).sum() / wanted))
    return {name: float(np.mean(shares)) if shares else 0.0 for name, shares in found.items()}


def summarise(results: Sequence[TrialResult]) -> dict[str, Any]:
    """Means over trials, tests, and of the first trial what crossed the wire."""
    repeated = RepeatedComparison([result.outcome for result in results])
    first = results[0]
    return {
        "table": {
            method: {key: repeated.mean(method, key) for key in first.outcome.table[method]}
            for method in METHODS
        },
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
            method: [
                float(np.mean([r.outcome.own_tests[method][p] for r in results]))
                for p in range(len(first.names))
            ]
            for method in METHODS
        },
        "weights": [result.outcome.weights for result in results],
        "significance": repeated.as_dict()["cs-f-ltr minus"],
        "deviation": repeated.as_dict()["deviation"],
        "cover": {name: float(np.mean([r.cover[name] for r in results])) for name in FIELDS},
        "wire": first.wire,
        "privacy": first.spent,
        "test_queries": first.outcome.test_queries,
        "trials": len(results),
        "seconds": {key: sum(r.seconds[key] for r in results) for key in first.seconds},
    }


def _means(rows: Sequence[Figures]) -> Figures:
    return {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}
