"""Shares of a federation's clients: the queries, labels, users and number of interactions that each client has.

The partitions here leave the lists alone: clients are equal, or differ in their click models or interactions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, ClassVar, Literal
from zlib import crc32

import numpy as np
import numpy.typing as npt

from quorank.data.logs.records import UserSelection
from quorank.data.ranking import Collection, RankingData
from quorank.errors import BadInput, require, require_range
from quorank.kernels.arrays import Doubles, Integers
from quorank.kernels.draws import Purpose, normals, uniforms

ClickSpec = Mapping[str, Any]  # click model as a table of an experiment file; `users` reads it
ANY_CLICK_MODEL = -1  # value of `Shares.click_model` for a model drawn uniformly for each interaction
MINUTE = 60_000_000  # microseconds, the unit of the times of a log
CASCADES = ("perfect", "navigational", "informational")
ETAS = (0.0, 0.5, 1.0, 1.5, 2.0)  # η of the position-based users, thesis §4.5.1


@dataclass(frozen=True, eq=False)
class LogReplay:
    """Turns of clients, by rounds: in its turn a client does `count` of its searches from `first` on.

    It depends on the log alone, so that a replay gives the same bits in any chunks, with any threads, after a resume.
    """

    starts: Integers  # (rounds + 1,) the turns of round t are starts[t] .. starts[t + 1]
    client: Integers  # (turns,) ascending within a round
    first: Integers  # (turns,) a query of the clients' data
    count: Integers  # (turns,)

    @property
    def rounds(self) -> int:
        return len(self.starts) - 1

    @property
    def busiest(self) -> int:
        """Most searches of a client in a round."""
        return int(self.count.max())

    @property
    def smallest(self) -> int:
        """Size of the smallest cohort."""
        return int(np.diff(self.starts).min())

    def turns(self, round_: int) -> tuple[Integers, Integers, Integers]:
        """Return (clients, first searches, counts) of a round, from 0 on."""
        span = slice(int(self.starts[round_]), int(self.starts[round_ + 1]))
        return self.client[span], self.first[span], self.count[span]


def side_by_side(first: Integers, searches: Integers, batch: int) -> LogReplay:
    """Return the replay in which every client does its next `batch` searches in each round, while it has that many.

    first, searches: (clients,) the first search of each client, and how many it has.
    """
    clients, batches = _batches(searches, batch)
    return _replay(batches, clients, first[clients] + batches * batch, batch)


def by_arrival(
    first: Integers, searches: Integers, times: Integers, batch: int, together: int, minutes: float | None
) -> LogReplay:
    """Return the replay in the log's own time: a client comes when it has done `batch` further searches.

    A round is of the next `together` that come, or of all who come within `minutes`; a client that comes twice
    in a round does both batches in it. `times` (searches of all clients,) are those of the clients' data.
    """
    clients, batches = _batches(searches, batch)
    begins = first[clients] + batches * batch
    came = times[begins + batch - 1]
    order = np.lexsort((clients, came))  # those of the same moment: by their numbers
    came, clients, begins = came[order], clients[order], begins[order]
    rounds = np.arange(len(order), dtype=np.int64) // together
    if minutes is not None and len(came):
        window = ((came - came[0]) // max(1, round(minutes * MINUTE))).astype(np.int64)
        rounds = np.unique(window, return_inverse=True)[1].astype(np.int64)  # windows without anybody are no rounds
    return _replay(rounds, clients, begins, batch)


def _batches(searches: Integers, batch: int) -> tuple[Integers, Integers]:
    """Return the client of each full batch, and the number of the batch among the client's."""
    whole = searches // batch
    clients = np.repeat(np.arange(len(searches), dtype=np.int64), whole)
    ends = np.cumsum(whole)
    return clients, np.arange(len(clients), dtype=np.int64) - np.repeat(ends - whole, whole)


def _replay(rounds: Integers, clients: Integers, first: Integers, batch: int) -> LogReplay:
    """Put batches together by round and client; those of one client in one round follow each other."""
    order = np.lexsort((first, clients, rounds))
    rounds, clients, first = rounds[order], clients[order], first[order]
    begins = np.ones(len(order), dtype=np.bool_)
    begins[1:] = (np.diff(rounds) != 0) | (np.diff(clients) != 0)
    at = np.flatnonzero(begins)
    starts = np.searchsorted(rounds[at], np.arange(rounds.max(initial=-1) + 2)).astype(np.int64)
    return LogReplay(starts, clients[at], first[at], batch * np.diff(at, append=len(order)))


@dataclass(frozen=True, eq=False)
class Shares:
    """Training data of a federation's clients. Clients of one group draw their queries from the same lists.

    >>> from quorank.data import Collection
    >>> from quorank.data.partition import Even
    >>> lists = RankingData.from_rows([[0.2], [0.8]], labels=[0, 1])
    >>> Even().split(Collection("mine", lists, lists), clients=3, interactions=4, seed=1).interactions.tolist()
    [4, 4, 4]
    """

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


def own_shares(alike: Shares, data: RankingData, count: Integers) -> Shares:
    """Give client 0 the first count[0] lists of the data, client 1 the next count[1], and so on."""
    each = np.arange(len(count), dtype=np.int64)
    first = np.cumsum(count) - count
    return replace(alike, data=data, first_query=first, query_count=count, group=each, test_of_group=0 * each)


@dataclass(frozen=True)
class Partition(ABC):
    """Base class of divisions of a collection among clients.

    A part has a field `quantity` if type 4 can be combined with it, and a field `iid` if it has an IID counterpart.

    >>> from quorank.data.partition import Even, Quantity
    >>> Even().divides, Quantity(counts=(2, 6)).unequal_interactions
    (False, True)
    """

    kind: ClassVar[str]
    divides: ClassVar[bool] = True  # False: all clients are alike and draw from the whole training set

    @property
    def replays(self) -> bool:
        """Return whether a log decides the clients and queries of a round."""
        return False

    @property
    def rounds_depend_on_others(self) -> bool:
        """Return whether removing a client changes the rounds of the remaining ones."""
        return False

    def selection(self, clients: int) -> UserSelection | None:
        """Return the users of a log that the clients are; None for clients that are not users."""
        return None

    @property
    def own_interactions(self) -> tuple[int, ...] | None:
        """Interactions of clients per round, cycling (type 4); None where all have those of the experiment."""
        return None if getattr(self, "iid", False) else getattr(self, "quantity", None)

    @property
    def unequal_interactions(self) -> bool:
        """Return whether clients differ in interactions per round (type 4)."""
        return len({*(self.own_interactions or ())}) > 1

    def equal_shares(self, collection: Collection, clients: int, interactions: int) -> Shares:
        """Give every client all training data, the experiment's users, and its own or the same number of interactions."""
        require(clients >= 1, "partition.too-few-clients", f"there must be at least one client, got {clients}")
        require_range("interactions", interactions, least=1)
        nobody, one = np.zeros(clients, dtype=np.int64), np.zeros(1, dtype=np.int64)
        queries = np.array([collection.train.n_queries], dtype=np.int64)
        searched = np.resize(np.array(self.own_interactions or (interactions,), dtype=np.int64), clients)
        return Shares(collection.train, one, queries, nobody, nobody, (None,), searched, (collection.test,), one)

    @abstractmethod
    def split(self, collection: Collection, clients: int, interactions: int, seed: int) -> Shares:
        """Return the share of each client in a collection, and how it searches and clicks.

        Args:
            collection: Collection to divide.
            clients: Number of clients.
            interactions: Interactions of a client in a round, unless the partition sets them.
            seed: Seed of the draws.

        Raises:
            BadInput: `partition.too-few-clients`, `partition.client-without-queries`, or an error of the kind.
        """


def check_counts(name: str, counts: tuple[int, ...] | None) -> None:
    """Refuse a list of interactions that is empty or has a number below 1."""
    sound = counts is None or (len(counts) >= 1 and all(1 <= count < 2**31 for count in counts))
    sentence = f"must list the interactions of clients, each at least 1, got {list(counts or ())}"
    require(sound, "value.out-of-range", sentence, name)


@dataclass(frozen=True)
class Even(Partition):
    """No difference: every client searches the whole training set with the experiment's own users.

    >>> from quorank.data import Collection, RankingData
    >>> lists = RankingData.from_arrays([[0.1], [0.9], [0.4]], [0, 1, 1], [0, 1, 2, 3])
    >>> Even().split(Collection("three", lists, lists), clients=2, interactions=4, seed=1).query_count  # one group
    array([3])
    """

    kind: ClassVar[str] = "even"
    divides: ClassVar[bool] = False
    iid: ClassVar[bool] = True

    def split(self, collection: Collection, clients: int, interactions: int, seed: int) -> Shares:
        return self.equal_shares(collection, clients, interactions)


@dataclass(frozen=True)
class Clicks(Partition):
    """Type 3: client i clicks like instantiation i mod M of a click model (thesis §4.5.1).

    The M = 3 instantiations of "cascade" are its presets perfect, navigational and informational; the M = 5 of "position"
    have P(examine rank r) = (1/r)^η with η = 0, 0.5, 1, 1.5 and 2.

    Args:
        model: Click model whose instantiations the clients take in turn.
        preset: Cascade preset of P(click | label) of the position-based users, which the thesis does not state.
        iid: The IID twin: every interaction of every client draws one of the instantiations.
        quantity: Interactions of clients per round, cycling (type 4 mixed in); by default those of the experiment.

    Raises:
        BadInput: `value.out-of-range` for a `quantity` that is empty or has a number below 1.

    >>> [spec["preset"] for spec in Clicks().click_models]
    ['perfect', 'navigational', 'informational']
    """

    kind: ClassVar[str] = "clicks"

    model: Literal["cascade", "position"] = "cascade"
    preset: Literal["perfect", "navigational", "informational"] = "perfect"
    iid: bool = False
    quantity: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        check_counts("quantity", self.quantity)

    @property
    def click_models(self) -> tuple[ClickSpec, ...]:
        """Instantiations that clients take in turn."""
        if self.model == "cascade":
            return tuple({"kind": "cascade", "preset": preset} for preset in CASCADES)
        return tuple({"kind": "position", "eta": eta, "preset": self.preset} for eta in ETAS)

    def split(self, collection: Collection, clients: int, interactions: int, seed: int) -> Shares:
        alike = self.equal_shares(collection, clients, interactions)
        each = np.arange(clients, dtype=np.int64) % len(self.click_models)
        chosen = np.full_like(each, ANY_CLICK_MODEL) if self.iid else each
        return replace(alike, click_model=chosen, click_models=self.click_models)


@dataclass(frozen=True)
class Quantity(Partition):
    """Type 4: client i has Q[i mod |Q|] interactions in a round (thesis §4.5.2).

    Args:
        counts: Q, interactions of clients per round, cycling.
        iid: The IID twin: all clients have the interactions of the experiment.

    Raises:
        BadInput: `value.out-of-range` for `counts` that are empty or have a number below 1.

    >>> from quorank.data import Collection, RankingData
    >>> lists = RankingData.from_arrays([[0.1], [0.9], [0.4]], [0, 1, 1], [0, 1, 2, 3])
    >>> Quantity(counts=(2, 6)).split(Collection("three", lists, lists), clients=3, interactions=4, seed=1).interactions
    array([2, 6, 2])
    """

    kind: ClassVar[str] = "quantity"

    counts: tuple[int, ...] = (1, 3, 5, 7, 9)
    iid: bool = False

    def __post_init__(self) -> None:
        check_counts("counts", self.counts)

    @property
    def quantity(self) -> tuple[int, ...]:
        return self.counts

    def split(self, collection: Collection, clients: int, interactions: int, seed: int) -> Shares:
        return self.equal_shares(collection, clients, interactions)


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
