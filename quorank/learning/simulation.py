"""What the simulator plays: data, users and a ranker's shape, as the compiled cohort kernels read them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from quorank.compiled import kernel
from quorank.data.ranking import RankingData
from quorank.draws import Purpose, key_of
from quorank.errors import require
from quorank.evaluation.ranker import discounts, ideal_dcg
from quorank.rankers import Ranker
from quorank.users import ClickModel

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Keys = npt.NDArray[np.uint64]

Integers = npt.NDArray[np.int64]
Privatise = Callable[[Doubles, int, Integers], Doubles]
"""Local privacy of the numbers that clients send: (measurements, round, clients) → what leaves them."""

STATISTICS = 3
"""Columns behind a client's update: Σ nDCG of its lists, Σ MaxRR of its clicks, number of clicks."""


class World(NamedTuple):
    """Arrays only, so that it passes into compiled code whole."""

    padded: Floats
    labels: npt.NDArray[np.int8]
    offsets: npt.NDArray[np.int64]
    ideal: Doubles  # (queries,) DCG@k of the best list, 0 where nothing is relevant
    discount: Doubles  # (k,)
    gain: Doubles  # (128,) by label
    examine: Doubles
    click: Doubles
    stop: Doubles
    query_key: Keys
    ranking_key: Keys
    click_key: Keys
    n_features: int
    hidden: int
    k: int
    longest: int


@dataclass(frozen=True, eq=False)
class Simulation:
    """Clients that submit random queries of `data` and click like `users`; every draw is addressed by `seed`."""

    data: RankingData
    ranker: Ranker
    users: ClickModel
    grades: int
    seed: int
    k: int = 10  # documents shown

    def world(self) -> World:
        tables = self.users.tables(self.grades, self.k)
        lowest, highest = int(self.data.labels.min(initial=0)), self.data.max_label
        require(
            lowest >= 0 and highest < len(tables.click),
            f"labels must lie in 0..{len(tables.click) - 1} for these users, got {lowest}..{highest}",
        )
        require(self.data.n_queries >= 1, "there is no query to search for")
        return World(
            self.data.padded,
            self.data.labels,
            self.data.offsets,
            ideal_dcg(self.data, self.k),
            discounts(self.k),
            np.exp2(np.arange(128, dtype=np.float64)) - 1.0,
            tables.examine,
            tables.click,
            tables.stop,
            key_of(self.seed, Purpose.QUERY),
            key_of(self.seed, Purpose.RANKING),
            key_of(self.seed, Purpose.CLICK),
            self.data.n_features,
            self.ranker.hidden,
            self.k,
            self.data.longest,
        )

    @property
    def parameters(self) -> int:
        return self.ranker.size(self.data.n_features)


@dataclass(frozen=True, eq=False)
class Work:
    """What some clients of a cohort do in one round, all starting from the same θ."""

    world: World
    seed: int
    theta: Doubles
    round: int
    clients: Integers
    interactions: Integers  # n_c, one per client
    privatise: Privatise | None = None
    bound: float = math.inf  # clients clip their parameters to this L2 norm after each local step


@kernel
def list_ndcg(world: World, query: int, shown: npt.NDArray[np.int64], k: int) -> float:
    """nDCG@k of the list that was shown, 0 where nothing is relevant (SPEC §1, online)."""
    if world.ideal[query] <= 0.0:
        return 0.0
    start = world.offsets[query]
    total = 0.0
    for p in range(k):
        total += world.gain[world.labels[start + shown[p]]] * world.discount[p]
    return float(total / world.ideal[query])
