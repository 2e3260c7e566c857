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
from quorank.kernels.arrays import Doubles, Floats, Int8s, Integers, Uint64s
from quorank.kernels.compiled import kernel
from quorank.kernels.draws import Purpose, key_of, uniform_pair
from quorank.metrics.evaluator import discounts, ideal_dcg
from quorank.rankers import Ranker
from quorank.users import ClickModel
from quorank.users.click_model import stack_tables

Privatise = Callable[[Doubles, int, Integers], Doubles]
"""Local privacy of the numbers that clients send: (measurements, round, clients) → what leaves them."""

STATISTICS = 3
"""Columns behind a client's update: Σ nDCG@10 of its lists, Σ MaxRR of its clicks, number of clicks."""

JUDGED = 10
"""Online nDCG is nDCG@10 of the list that was shown, however long that is."""


class SimulationArrays(NamedTuple):
    """Arrays only, so that it passes into compiled code whole."""

    padded: Floats
    labels: Int8s
    offsets: Integers
    ideal: Doubles  # (queries,) DCG@10 of the best list, 0 where nothing is relevant
    discount: Doubles  # (k,)
    gain: Doubles  # (128,) by label
    examine: Doubles  # (click models, 1 or k + 1, k), see `users.click_model.stack_tables`
    click: Doubles  # (click models, 1 or k, grades)
    stop: Doubles  # (click models, grades)
    group: Integers  # (clients,) whose queries a client submits; of length 1 where all are alike
    first_query: Integers  # (groups,)
    query_count: Integers  # (groups,) below 0: nothing is drawn, a client's queries follow each other
    click_model: Integers  # (clients,) or of length 1; −1 draws one of the first `drawn` anew for each interaction
    drawn: int
    query_key: Uint64s
    ranking_key: Uint64s
    click_key: Uint64s
    n_features: int
    hidden: int  # the ranker's `layer`
    k: int  # documents of a list that are shown
    longest: int


@dataclass(frozen=True, eq=False)
class ClientDifferences:
    """How clients differ: in the queries they submit and in how they click."""

    group: Integers  # (clients,)
    first_query: Integers  # (groups,)
    query_count: Integers  # (groups,)
    click_model: Integers  # (clients,) an index into the models, or −1 for one drawn anew each time
    click_models: tuple[ClickModel, ...]
    drawn: int = 1  # how many of the models −1 draws from


@dataclass(frozen=True, eq=False)
class Simulation:
    """Clients that submit random queries of `data` and click like `users`; every draw is addressed by `seed`."""

    data: RankingData
    ranker: Ranker
    users: ClickModel
    grades: int
    seed: int
    k: int = 10  # documents shown
    who: ClientDifferences | None = None  # how clients differ; None: all alike
    ranks: npt.NDArray[np.int16] | None = None  # (rows,) where documents were shown, if lists and clicks are replayed

    @cached_property
    def inputs(self) -> RankingData:
        """The lists as the ranker scores them."""
        return self.ranker.prepared(self.data)

    def world(self) -> SimulationArrays:
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
        return SimulationArrays(
            data.padded,
            data.labels,
            data.offsets,
            ideal_dcg(data, JUDGED),
            discounts(self.k),
            np.exp2(np.arange(128, dtype=np.float64)) - 1.0,
            *stack_tables(tables),
            np.asarray(who.group, dtype=np.int64),
            np.asarray(who.first_query, dtype=np.int64),
            np.asarray(who.query_count, dtype=np.int64),
            np.asarray(who.click_model, dtype=np.int64),
            who.drawn,
            key_of(self.seed, Purpose.QUERY),
            key_of(self.seed, Purpose.RANKING),
            key_of(self.seed, Purpose.CLICK),
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
        """What an interaction takes, roughly: a list is drawn and learned from, and before that its documents scored."""
        documents = self.data.n_rows / max(1, self.data.n_queries)
        return 1.0 + documents * self.parameters / 10_000


class Work(NamedTuple):
    """What some clients of a cohort do in one round, all starting from the same θ."""

    world: SimulationArrays
    seed: int
    theta: Doubles
    round: int
    clients: Integers
    interactions: Integers  # n_c, one per client
    privatise: Privatise | None = None
    bound: float = math.inf  # clients clip their parameters to this L2 norm after each local step
    offsets: Doubles | None = None  # (clients, parameters) what each client adds to θ for itself
    ranks: npt.NDArray[np.int16] | None = None  # (rows,) where documents were shown, if lists and clicks are replayed


@kernel
def draw_query(
    key: Uint64s,
    group: Integers,
    first_query: Integers,
    query_count: Integers,
    click_model: Integers,
    drawn: int,
    interaction: int,
    client: int,
    round_: int,
) -> tuple[int, int]:
    """The query that a client submits, and the click model that its user follows (arguments as in SimulationArrays)."""
    u, v = uniform_pair(key, 0, interaction, client, round_)
    of = group[client if len(group) > 1 else 0]
    model = click_model[client if len(click_model) > 1 else 0]
    if model < 0:
        model = int(v * drawn)
    count = query_count[of]
    return first_query[of] + (interaction if count < 0 else int(u * count)), model


@kernel
def list_ndcg(
    labels: Int8s, start: int, ideal: float, gain: Doubles, discount: Doubles, shown: Integers, k: int
) -> float:
    """nDCG@10 of the list of k documents that was shown, 0 where nothing is relevant (SPEC §1, online)."""
    if ideal <= 0.0:
        return 0.0
    total = 0.0
    for p in range(min(k, JUDGED)):
        total += gain[labels[start + shown[p]]] * discount[p]
    return float(total / ideal)


@kernel
def keep_within(theta: Doubles, bound: float) -> bool:
    """θ ← θ·min(1, bound/‖θ‖) (FPDGD eq. 13); True if that changed it."""
    total = 0.0
    for j in range(len(theta)):
        total += theta[j] * theta[j]
    length = math.sqrt(total)
    if length <= bound:
        return False
    for j in range(len(theta)):
        theta[j] *= bound / length
    return True
