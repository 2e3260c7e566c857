"""Shares of a federation's clients: the queries, labels, users and number of interactions that each client has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar
from zlib import crc32

import numpy as np
import numpy.typing as npt

from quorank.data.partition.replay import LogReplay
from quorank.data.ranking import Collection, RankingData
from quorank.data.search_records import UserSelection
from quorank.errors import BadInput, require, require_range
from quorank.kernels.arrays import Doubles, Integers
from quorank.kernels.draws import Purpose, normals, uniforms

ClickSpec = Mapping[str, Any]
"""Click model as a table of an experiment file; `users` reads it."""

ANY_CLICK_MODEL = -1
"""Value of `Shares.click_model` for a model drawn uniformly for each interaction."""


@dataclass(frozen=True, eq=False)
class Shares:
    """Training data of a federation's clients. Clients of one group draw their queries from the same lists."""

    data: RankingData  # the lists of all groups, one group behind the other
    first_query: Integers  # (groups,) a group has the queries first_query .. first_query + query_count
    query_count: Integers  # (groups,)
    group: Integers  # (clients,)
    click_model: Integers  # (clients,) index into click_models, or ANY_CLICK_MODEL
    click_models: tuple[ClickSpec | None, ...]  # None is the experiment's own users
    interactions: Integers  # (clients,) in each round
    tests: tuple[RankingData, ...]  # one per preference, else one
    test_of_group: Integers  # (groups,) the test split that judges a group's clients
    ranks: npt.NDArray[np.int16] | None = None  # (rows of data,) where documents of a log were shown, 0 where unknown
    replay: LogReplay | None = None  # which searches are done when, where a log is replayed

    def __post_init__(self) -> None:
        require(len(self.group) >= 1, "partition.too-few-clients", "there must be at least one client")
        empty = np.flatnonzero(self.query_count[self.group] < 1)
        if len(empty):
            sentence = f"client {empty[0]} is left without a single query; take fewer clients or more data"
            raise BadInput("partition.client-without-queries", sentence)


@dataclass(frozen=True)
class Partition(ABC):
    """Division of a collection among clients."""

    kind: ClassVar[str]
    divides: ClassVar[bool] = True  # False: all clients are alike, and no shares need to be made

    @property
    def replays(self) -> bool:
        """Return whether a log decides the clients and queries of a round."""
        return False

    @property
    def rounds_depend_on_others(self) -> bool:
        """Return whether removing a client changes the rounds of others."""
        return False

    def selection(self, clients: int) -> UserSelection | None:
        """Return the users of a log that the clients are; None for clients that are not users."""
        return None

    @property
    def unequal_interactions(self) -> bool:
        """Return whether clients differ in interactions per round (type 4)."""
        counts = None if getattr(self, "iid", False) else getattr(self, "quantity", None)
        return counts is not None and len(set(counts)) > 1

    @abstractmethod
    def split(self, collection: Collection, clients: int, interactions: int, seed: int) -> Shares:
        """Return the share of each client in a collection, and how it searches and clicks."""


def equal_shares(
    collection: Collection, clients: int, interactions: int, counts: tuple[int, ...] | None = None
) -> Shares:
    """Give all clients all training data and the experiment's own users.

    All have as many interactions in a round, or they cycle through `counts`: type 4 (thesis §4.5.2).
    """
    require(clients >= 1, "partition.too-few-clients", f"there must be at least one client, got {clients}")
    require_range("interactions", interactions, least=1)
    nobody, one = np.zeros(clients, dtype=np.int64), np.zeros(1, dtype=np.int64)
    queries = np.array([collection.train.n_queries], dtype=np.int64)
    searched = np.resize(np.array(counts or (interactions,), dtype=np.int64), clients)
    return Shares(collection.train, one, queries, nobody, nobody, (None,), searched, (collection.test,), one)


def check_counts(name: str, counts: tuple[int, ...] | None) -> None:
    """Refuse a list of interactions that is empty or has a number below 1."""
    sound = counts is None or (len(counts) >= 1 and all(1 <= count < 2**31 for count in counts))
    sentence = f"must list the interactions of clients, each at least 1, got {list(counts or ())}"
    require(sound, "value.out-of-range", sentence, name)


class Step(IntEnum):
    """Purpose of a draw within a partition: the last word of its address."""

    ASSIGNMENT = 1  # which client has which labels
    DEALING = 2  # which of a label's owners gets a document
    INTENTS = 3  # which preference an intent of a query is
    DIRECTIONS = 4  # what preferences are about
    SHARED = 5  # which relevant documents all preferences have
    NOISE = 6  # what a direction does not say about a preference
    COMMON = 7  # which queries all clients hold

    def uniforms(self, seed: int, count: int, query: str = "") -> Doubles:
        """Draw uniforms for a query: the same in whichever split, at whichever place the query stands."""
        return uniforms(seed, Purpose.PARTITION, count, client=crc32(query.encode()), interaction=int(self))

    def normals(self, seed: int, count: int, query: str = "") -> Doubles:
        """Draw standard normals, addressed as in `uniforms`."""
        return normals(seed, Purpose.PARTITION, count, client=crc32(query.encode()), interaction=int(self))

    def permutation(self, seed: int, count: int, query: str = "") -> Integers:
        """Draw a permutation of 0 .. count − 1, all with the same probability."""
        return np.argsort(self.uniforms(seed, count, query), kind="stable").astype(np.int64)
