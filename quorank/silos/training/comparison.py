"""Comparison of rankers on the same parties: the gain of labels, and of other parties, over a party's own search.

All rankers order the same lists, those that each party's own search returns for held-out test queries, and nDCG is taken
over all documents of the query's party. Rows of every comparison: *bm25*, the order of the search itself; *w0*, the
prior; *alone*, trained by each party on its own labels; and *ours*, trained by all parties together. A trial is a
comparison with one seed, from the parties to the trained rankers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from quorank.errors import require, require_range
from quorank.kernels.arrays import Doubles
from quorank.metrics.significance import Difference, corrected, paired_t
from quorank.rankers import Ranker
from quorank.silos.generated import Generator
from quorank.silos.holdings import RECOMMENDED, Holding, generated_holdings, read_holdings
from quorank.silos.training.lists import LINEAR, MEASURES, Figures, SearchedLists
from quorank.silos.training.prior import NONE
from quorank.silos.training.setting import SiloSetting
from quorank.text import Tokeniser


@dataclass(frozen=True, eq=False)
class ComparisonOutcome:
    """Result of one trial."""

    parties: tuple[str, ...]
    table: dict[str, Figures]  # method → measures; for methods that each party trains alone, the mean over the parties
    by_party: dict[str, list[Figures]]  # for these, one row per party
    weights: dict[str, list[float | None]]  # λ, number of trees or weight of augmented instances that was chosen
    instances: dict[str, list[int]]  # labelled lists, or instances, of each party
    test_queries: int


def judge_rankers(
    parties: Sequence[Holding],
    rankers: Mapping[str, Sequence[Doubles]],
    tests: Sequence[SearchedLists],
    kinds: Mapping[str, Ranker],
    weights: dict[str, list[float | None]],
    instances: dict[str, list[int]],
) -> ComparisonOutcome:
    """Evaluate methods on the test lists of all parties; a method has one ranker, or one per party."""
    together = SearchedLists.joined(tests)
    judged = {method: together.figures(thetas, kinds.get(method, LINEAR)) for method, thetas in rankers.items()}
    table = {method: _means(rows) for method, rows in judged.items()}
    by_party = {method: rows for method, rows in judged.items() if len(rows) > 1}
    names = tuple(party.name for party in parties)
    return ComparisonOutcome(names, table, by_party, weights, instances, together.n_lists)


def _means(rows: Sequence[Mapping[str, float]]) -> Figures:
    return {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}


def check_same_text(parties: Sequence[Holding]) -> None:
    """Refuse a party without documents, or with another tokeniser than the first one."""
    for party in parties:
        said = f"{party.name} has no documents; every party needs some"
        require(party.n_documents, "party.no-documents", said)
        first, own = parties[0].documents.body.tokeniser, party.documents.body.tokeniser
        said = f"{party.name} tokenises by {own} and {parties[0].name} by {first}; agree on one tokeniser"
        require(first == own, "party.other-tokeniser", said)


def prepare_lists(
    parties: Sequence[Holding], setting: SiloSetting, seed: int
) -> list[tuple[SearchedLists, SearchedLists]]:
    """Return the training lists and the test lists of every party."""
    check_same_text(parties)
    return [setting.lists(party, seed, number) for number, party in enumerate(parties)]


def compare_with_search(parties: Sequence[Holding], setting: SiloSetting, seed: int) -> ComparisonOutcome:
    """Train each party's ranker alone and that of all together, and compare them with the search."""
    lists, training, w0 = prepare_lists(parties, setting, seed), setting.training, setting.searched.prior_direction()
    labelled, tests = [own for own, _ in lists], [test for _, test in lists]
    alone = [training.train([own], w0) for own in labelled]
    chosen, jointly = training.train(labelled, w0)
    rankers = {"bm25": [np.zeros(len(w0))], "w0": [w0], "alone": [theta for _, theta in alone], "ours": [jointly]}
    found = {"alone": [value for value, _ in alone], "ours": [chosen]}
    weights = {method: [None if value == NONE else value for value in values] for method, values in found.items()}
    kinds, counts = dict.fromkeys(("alone", "ours"), setting.training.ranker_part), [own.n_lists for own in labelled]
    return judge_rankers(parties, rankers, tests, kinds, weights, {"lists": counts})


def joint_ranker(parties: Sequence[Holding], setting: SiloSetting, seed: int) -> Doubles:
    """Train the ranker of all parties in one process: the same bits as a rehearsal over a network with this seed."""
    labelled = [own for own, _ in prepare_lists(parties, setting, seed)]
    return setting.training.train(labelled, setting.searched.prior_direction())[1]


# ---------------------------------------------------------------- trials


@dataclass(frozen=True)
class PartySource:
    """Source of the parties: collections on disk, or the generator."""

    collections: tuple[str, ...] = ()
    parties: int = 4  # N; several collections are one party each
    generator: Generator = field(default_factory=Generator)
    tokeniser: Tokeniser = RECOMMENDED
    whole: bool = True  # bodies include titles

    def __post_init__(self) -> None:
        require_range("parties", self.parties, least=2)

    def holdings(self, seed: int) -> tuple[Holding, ...]:
        """Return the parties of one trial; one collection is divided again for each seed."""
        if not self.collections:
            return generated_holdings(replace(self.generator, parties=self.parties), seed)
        return read_holdings(self.collections, self.parties, seed, self.tokeniser, whole=self.whole)


@dataclass(frozen=True, eq=False)
class RepeatedComparison:
    """Comparisons with several seeds."""

    outcomes: Sequence[ComparisonOutcome]

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
        """Compared methods; the last one is trained by all parties together."""
        return tuple(self.outcomes[0].table)

    def against(self, others: Sequence[str] = ()) -> dict[str, Difference]:
        """Test nDCG@10 of the last method minus each other one (or some), paired by seed, p corrected over them."""
        *everything, last = self.methods
        others = others or everything
        tests = corrected([paired_t(self.values(last), self.values(other)) for other in others])
        return dict(zip(others, tests, strict=True))

    def party_means(self, method: str, party: int) -> Figures:
        """Return the means over seeds of the ranker that one party has trained alone."""
        return _means([outcome.by_party[method][party] for outcome in self.outcomes])

    def as_dict(self) -> dict[str, Any]:
        """Return means, deviations and tests as JSON values."""
        first = self.outcomes[0]
        return {
            "table": {method: {m: self.mean(method, m) for m in MEASURES} for method in self.methods},
            "parties": {
                name: {method: self.party_means(method, p) for method in first.by_party}
                | {"instances": {what: counts[p] for what, counts in first.instances.items()}}
                for p, name in enumerate(first.parties)
            },
            "weights": [outcome.weights for outcome in self.outcomes],
            "significance": {
                other: {"difference": d.difference, "p": d.p, "corrected_p": d.corrected_p}
                for other, d in self.against().items()
            },
            "deviation": {method: {m: self.spread(method, m) for m in MEASURES} for method in self.methods},
            "test_queries": first.test_queries,
            "trials": len(self.outcomes),
        }
