"""Parameters of a group's training: text, the lists of each party's own search, and how the ranker is trained on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from quorank.errors import require, require_range
from quorank.kernels.draws import Purpose, uniforms
from quorank.parts import Family
from quorank.silos.holdings import RECOMMENDED, Grades, Holding
from quorank.silos.training.lists import OwnSearch, PartySearch, SearchedLists
from quorank.silos.training.prior import FromPrior
from quorank.silos.training.trees import TreeTraining
from quorank.text import Features, Tokeniser

SPLIT = 1 << 20  # in the addresses of draws: above any turn of a training
Training = FromPrior | TreeTraining
TRAININGS: Family[Training] = Family("training", FromPrior, TreeTraining)


class QuerySplit(NamedTuple):
    """Division of a party's queries, by their numbers."""

    labelled: tuple[int, ...]
    unlabelled: tuple[int, ...]
    test: tuple[int, ...]


def divide_queries(
    labelled: Sequence[int], test_share: float, grades: Sequence[Grades], seed: int, number: int
) -> QuerySplit:
    """Shuffle and divide the queries of party `number`: `test_share` of the answered ones for the test, then the labelled.

    A query is answered if a document of the party's own is relevant; all others are unlabelled. A party with one answered
    query trains on it and tests nothing; one with none takes part with its documents only.
    """
    most = labelled[number % len(labelled)] if labelled else len(grades)
    draws = uniforms(seed, Purpose.INSTANCES, len(grades), round_=SPLIT, client=number)
    order = np.argsort(draws, kind="stable").tolist()
    answered = [q for q in order if any(grade > 0 for grade in grades[q].values())]
    cut = min(max(1, round(test_share * len(answered))), max(len(answered) - 1, 0))
    chosen = answered[cut : cut + most]
    taken = {*answered[:cut], *chosen}
    return QuerySplit(tuple(chosen), tuple(q for q in order if q not in taken), tuple(answered[:cut]))


def check_split(labelled: Sequence[int], tested: int, test_share: float) -> None:
    """Refuse numbers and shares that divide no queries."""
    sound = not labelled or min(labelled) >= 1
    require(sound, "value.out-of-range", f"expected numbers ≥ 1, got {tuple(labelled)}", "labelled")
    require_range("tested", tested, least=1)
    require_range("test_share", test_share, above=0.0, below=1.0)


@dataclass(frozen=True)
class SiloSetting:
    """Parameters of a training on the lists that the parties' own searches return."""

    labelled: tuple[int, ...] = ()  # labelled queries of each party, cycled over the parties; empty: all
    tested: int = 60  # test queries of a party, at most
    test_share: float = 0.5  # share of a party's answered queries held out for the test
    searched: OwnSearch = field(default_factory=OwnSearch)
    training: Training = field(default_factory=FromPrior)
    features: Features = field(default_factory=Features)
    tokeniser: Tokeniser = RECOMMENDED  # the same at all parties

    def __post_init__(self) -> None:
        check_split(self.labelled, self.tested, self.test_share)

    def lists(self, party: Holding, seed: int, number: int) -> tuple[SearchedLists, SearchedLists]:
        """Return the training lists and the test lists of party `number`."""
        split = divide_queries(self.labelled, self.test_share, party.grades, seed, number)
        search = PartySearch(party, self.searched, self.features)
        return search.lists(split.labelled, party.grades), search.lists(split.test[: self.tested], party.grades)
