"""Partitions by known owners: the users of a log, or a listed client for each training query."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from quorank.data.logs.records import SearchRecords, UserSelection
from quorank.data.partition.labels import divide_rows
from quorank.data.partition.shares import LogReplay, Partition, Shares, Step, by_arrival, own_shares, side_by_side
from quorank.data.ranking import Collection, rows_of_lists
from quorank.errors import require, require_range
from quorank.kernels.arrays import Integers


@dataclass(frozen=True)
class LogUsers(Partition):
    """Clients are the `federation.clients` busiest users of a click log, numbered by their first search.

    Args:
        least: Fewest searches to learn from that a user must have.
        without: Users that are left out.
        order: Order of a client's searches. "random": it draws among them, as clients of other partitions do. "time": in
            round t it does its searches t·B to t·B + B − 1, and stays away once fewer than B are left. "arrival": rounds
            follow the log's clock, and a client arrives when it has done B further searches.
        together: Arrivals that make a round.
        minutes: Length of a round in the log's time, in place of `together`.
        iid: The IID twin: the same searches at the same times, dealt at random and equally to the same clients
            (AOL4FOLTR's own experiment compares "time" and "arrival" with their twins).

    Raises:
        BadInput: `value.out-of-range` for a field; of `split` `log.no-users` for a collection that is no log,
            `partition.users-differ` if it was loaded for other clients, `log.too-short` if no client has B searches, and
            `log.no-times` for `order = "arrival"` without times.

    >>> from quorank.data.source import DataSource, load
    >>> part = LogUsers(order="time")
    >>> collection = load(DataSource("synthetic:clicks", queries=40), part.selection(clients=2))
    >>> part.split(collection, clients=2, interactions=4, seed=1).replay.turns(0)  # clients, first searches, counts
    (array([0, 1]), array([ 0, 15]), array([4, 4]))
    """

    kind: ClassVar[str] = "users"

    least: int = 1
    without: tuple[str, ...] = ()
    order: Literal["random", "time", "arrival"] = "random"
    together: int = 100
    minutes: float | None = None
    iid: bool = False

    def __post_init__(self) -> None:
        require_range("least", self.least, least=1, below=2**31)
        require_range("together", self.together, least=1, below=2**31)
        if self.minutes is not None:
            require_range("minutes", self.minutes, above=0.0, most=1e7)

    @property
    def replays(self) -> bool:
        return self.order != "random"

    @property
    def rounds_depend_on_others(self) -> bool:
        return self.order == "arrival"

    def selection(self, clients: int) -> UserSelection:
        return UserSelection(clients, self.least, self.without)

    def split(self, collection: Collection, clients: int, interactions: int, seed: int) -> Shares:
        sentence = f"{collection.name} names no users; use a log of clicks (quorank data import --format …)"
        require(collection.log is not None, "log.no-users", sentence, "data.source")
        assert collection.log is not None
        records, data = collection.log.train, collection.train
        found = int(records.user.max(initial=-1)) + 1
        sentence = f"the searches of {found} users cannot be those of {clients} clients; load them for that many"
        require(found == clients, "partition.users-differ", sentence, "federation.clients")
        if self.iid:
            order = self._dealt(records, clients, seed)
            rows, _ = rows_of_lists(data.offsets, order)
            data = data.select_lists(order)
            dealt = np.sort(np.arange(len(order), dtype=np.int64) % clients)
            records = records.select(order, rows, dealt)
        counts = np.bincount(records.user, minlength=clients).astype(np.int64)
        shares = own_shares(self.equal_shares(collection, clients, interactions), data, counts)
        replay = self._replay(records, shares.first_query, counts, interactions) if self.replays else None
        return replace(shares, ranks=records.ranks, replay=replay)

    def _replay(self, records: SearchRecords, first: Integers, counts: Integers, batch: int) -> LogReplay:
        """Return the turns of the clients in the chosen order."""
        most = int(counts.max())
        sentence = (
            f"the busiest client has {most} searches; take federation.interactions = {most} or fewer, got {batch}"
        )
        require((counts >= batch).any(), "log.too-short", sentence, "federation.interactions")
        if self.order == "time":
            return side_by_side(first, counts, batch)
        known = int(records.time[0]) != np.iinfo(np.int64).min
        require(known, "log.no-times", 'the log has no times; use order = "time", its own order', "partition.order")
        return by_arrival(first, counts, records.time, batch, self.together, self.minutes)

    def _dealt(self, records: SearchRecords, clients: int, seed: int) -> Integers:
        """Deal the searches to clients 0, 1, … at random and equally; return them by client, then time."""
        count = len(records.user)
        by_time = np.lexsort((np.arange(count), records.time))
        client = np.empty(count, dtype=np.int64)
        client[Step.DEALING.permutation(seed, count, "searches")] = np.arange(count) % clients
        return by_time[np.argsort(client, kind="stable")].astype(np.int64)


@dataclass(frozen=True)
class Assigned(Partition):
    """Listed clients: training query i belongs to client clients[i]; every client has at least one query.

    Args:
        clients: Client of each training query, from 0, in the order of the data.

    Raises:
        BadInput: `value.out-of-range` for an empty list or a negative client; of `split` `partition.other-queries` for a
            list of another length, and `partition.unknown-client` for a client that the federation does not have.

    >>> from quorank.data import Collection, RankingData
    >>> lists = RankingData.from_arrays([[0.1], [0.9], [0.4]], [0, 1, 1], [0, 1, 2, 3])
    >>> shares = Assigned(clients=(1, 0, 1)).split(Collection("three", lists, lists), clients=2, interactions=4, seed=1)
    >>> shares.data.query_ids, shares.query_count  # the list of client 0, then those of client 1
    (['1', '0', '2'], array([1, 2]))
    """

    kind: ClassVar[str] = "assigned"

    clients: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        sound = len(self.clients) > 0 and min(self.clients) >= 0 and max(self.clients) < 2**31
        require(sound, "value.out-of-range", "must list the client of each training query, from 0 on", "clients")

    def split(self, collection: Collection, clients: int, interactions: int, seed: int) -> Shares:
        queries, given, highest = collection.train.n_queries, len(self.clients), max(self.clients)
        sentence = f"names the clients of {given:,} queries, and the training split has {queries:,}"
        require(given == queries, "partition.other-queries", sentence, "partition.clients")
        sentence = f"names client {highest}, and there are {clients}, from 0 to {clients - 1}; set federation.clients"
        require(highest < clients, "partition.unknown-client", sentence, "partition.clients")
        owner = np.repeat(np.array(self.clients, dtype=np.int64), np.diff(collection.train.offsets))
        data, count = divide_rows(collection.train, owner, clients)
        return own_shares(self.equal_shares(collection, clients, interactions), data, count)
