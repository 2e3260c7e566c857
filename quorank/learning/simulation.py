"""Simulation of clients: data, users and a ranker's shape as the arrays that compiled cohort kernels read."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from quorank.data.ranking import RankingData
from quorank.errors import require
from quorank.kernels.arrays import Doubles, Floats, Integers, Uint64s
from quorank.kernels.draws import Purpose, key_of
from quorank.metrics.evaluator import ideal_dcg
from quorank.metrics.lists import discounts, gain
from quorank.rankers import Ranker
from quorank.users import ClickModel
from quorank.users.click_model import ClickArrays, stack_tables

Privatise = Callable[[Doubles, int, Integers], Doubles]
"""Local privacy of the numbers that clients send: (measurements, round, clients) → what leaves them."""

STATISTICS = 3
"""Columns behind a client's update: Σ nDCG@10 of its lists, Σ MaxRR of its clicks, number of clicks."""

JUDGED = 10
"""Online nDCG is nDCG@10 of the list that was shown, however long that is."""


class World(NamedTuple):
    """Data, users and a ranker's shape, as compiled loops read them."""

    padded: Floats  # (documents, stride) features padded with zeros
    offsets: Integers  # (queries + 1,) first row of each query's candidates
    ideal: Doubles  # (queries,) DCG@10 of the best list, 0 where nothing is relevant
    discount: Doubles  # (k,)
    gain: Doubles  # (128,) by label
    users: ClickArrays
    group: Integers  # (clients,) group of queries that a client submits; of length 1 where all are alike
    first_query: Integers  # (groups,)
    query_count: Integers  # (groups,) below 0: a client's queries follow each other instead of being drawn
    click_model: Integers  # (clients,) or of length 1; −1 draws one of the first `drawn` for each interaction
    drawn: int
    query_key: Uint64s
    ranking_key: Uint64s
    n_features: int
    hidden: int  # the ranker's `layer`
    k: int  # documents shown
    longest: int  # documents of the longest list


@dataclass(frozen=True, eq=False)
class ClientDifferences:
    """Differences between clients: their queries and their click models."""

    group: Integers  # (clients,)
    first_query: Integers  # (groups,)
    query_count: Integers  # (groups,)
    click_model: Integers  # (clients,) an index into the models, or −1 for one drawn per interaction
    click_models: tuple[ClickModel, ...]
    drawn: int = 1  # number of models that −1 draws from


@dataclass(frozen=True, eq=False)
class Simulation:
    """Clients that submit random queries of `data` and click like `users`; every draw is addressed by `seed`."""

    data: RankingData
    ranker: Ranker
    users: ClickModel
    grades: int
    seed: int
    k: int = 10  # documents shown
    who: ClientDifferences | None = None  # None: all clients alike
    ranks: npt.NDArray[np.int16] | None = None  # (rows,) rank of each document, if lists and clicks are replayed

    @cached_property
    def inputs(self) -> RankingData:
        """The lists as the ranker scores them."""
        return self.ranker.prepared(self.data)

    def world(self) -> World:
        """Return the arrays that cohort kernels read."""
        data = self.inputs
        require(data.n_queries >= 1, "simulation.no-query", "there is no query to search for")
        alike = np.zeros(1, dtype=np.int64)
        who = self.who or ClientDifferences(alike, alike, np.array([data.n_queries]), alike, (self.users,))
        tables = [model.tables(self.grades, self.k) for model in who.click_models]
        lowest, highest = int(data.labels.min(initial=0)), data.max_label
        grades = min(table.click.shape[-1] for table in tables)
        outside = f"labels must lie in 0..{grades - 1} for these users, got {lowest}..{highest}"
        require(lowest >= 0 and highest < grades, "simulation.label-out-of-range", outside)
        require((who.query_count >= 1).all(), "simulation.no-query", "a client has no query to search for")
        return World(
            data.padded,
            data.offsets,
            ideal_dcg(data, JUDGED),
            discounts(self.k),
            gain(np.arange(128)),
            ClickArrays(data.labels, *stack_tables(tables), key_of(self.seed, Purpose.CLICK)),
            np.asarray(who.group, dtype=np.int64),
            np.asarray(who.first_query, dtype=np.int64),
            np.asarray(who.query_count, dtype=np.int64),
            np.asarray(who.click_model, dtype=np.int64),
            who.drawn,
            key_of(self.seed, Purpose.QUERY),
            key_of(self.seed, Purpose.RANKING),
            data.n_features,
            self.ranker.layer,
            self.k,
            data.longest,
        )

    @cached_property
    def parameters(self) -> int:
        return self.ranker.size(self.data.n_features)

    @cached_property
    def microseconds(self) -> float:
        """Estimated microseconds per interaction: drawing and learning, and scoring the candidates."""
        documents = self.data.n_rows / max(1, self.data.n_queries)
        return 1.0 + documents * self.parameters / 10_000


class Work(NamedTuple):
    """Work of some clients of a cohort in one round, all starting from the same θ."""

    world: World
    seed: int
    theta: Doubles
    round: int
    clients: Integers
    interactions: Integers  # n_c, one per client
    privatise: Privatise | None = None
    bound: float = math.inf  # clients clip their parameters to this L2 norm after each local step
    offsets: Doubles | None = None  # (clients, parameters) each client's personal addition to θ
    ranks: npt.NDArray[np.int16] | None = None  # (rows,) rank of each document, if lists and clicks are replayed
