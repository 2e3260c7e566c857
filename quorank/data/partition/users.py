"""Partitions by known owners: the users of a log, or a listed client for each training query.

In a log each client is a person with that person's searches.

`order` says how a client goes through its searches. "random": it draws among them, as clients of other partitions do.
"time": in round t it does its searches t·B to t·B + B − 1, and stays away once it has no B left. "arrival": rounds follow
the log's clock; a client comes when it has done B further searches, and a round is of the next `together` that come, or of
those within `minutes`. `iid = true` makes the twin: the same searches at the same times, dealt at random to the same
clients, each with as many (AOL4FOLTR's own experiment compares "time" and "arrival" with their twins).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from quorank.data.logs.records import SearchRecords, UserSelection
from quorank.data.partition.labels import divide_rows
from quorank.data.partition.shares import (
    LogReplay,
    Partition,
    Shares,
    Step,
    by_arrival,
    equal_shares,
    own_shares,
    side_by_side,
)
from quorank.data.ranking import Collection, rows_of_lists
from quorank.errors import require, require_range
from quorank.kernels.arrays import Integers


@dataclass(frozen=True)
class LogUsers(Partition):
    """Clients are the `federation.clients` busiest users of a log, numbered by their first search."""

    kind: ClassVar[str] = "users"

    least: int = 1  # searches to learn from that a user must have
    without: tuple[str, ...] = ()  # users that are left out
    order: Literal["random", "time", "arrival"] = "random"  # how a client goes through its searches
    together: int = 100  # arrivals that make a round
    minutes: float | None = None  # or the window that makes one
    iid: bool = False  # the twin: the same searches, dealt at random

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
        """Give every client the searches of its user."""
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
        first = np.concatenate(([0], np.cumsum(counts)[:-1])).astype(np.int64)
        shares = own_shares(equal_shares(collection, clients, interactions), data, first, counts)
        replay = self._replay(records, first, counts, interactions) if self.replays else None
        return replace(shares, ranks=records.ranks, replay=replay)

    def _replay(self, records: SearchRecords, first: Integers, counts: Integers, batch: int) -> LogReplay:
        """The turns of the clients, in the order that was chosen."""
        sentence = f"no client has {batch} searches to learn from; lower federation.interactions"
        require((counts >= batch).any(), "log.too-short", sentence, "federation.interactions")
        if self.order == "time":
            return side_by_side(first, counts, batch)
        known = int(records.time[0]) != np.iinfo(np.int64).min
        require(known, "log.no-times", 'the log has no times; use order = "time", its own order', "partition.order")
        return by_arrival(first, counts, records.time, batch, self.together, self.minutes)

    def _dealt(self, records: SearchRecords, clients: int, seed: int) -> Integers:
        """The searches as clients 0, 1, … get them by chance, as many each, those of a client in order of time."""
        count = len(records.user)
        by_time = np.lexsort((np.arange(count), records.time))
        client = np.empty(count, dtype=np.int64)
        client[Step.DEALING.permutation(seed, count, "searches")] = np.arange(count) % clients
        return by_time[np.argsort(client, kind="stable")].astype(np.int64)


@dataclass(frozen=True)
class Assigned(Partition):
    """Client of each training query, in the order of the data; every client has at least one."""

    kind: ClassVar[str] = "assigned"

    clients: tuple[int, ...] = (0,)  # of each training query, from 0 on

    def __post_init__(self) -> None:
        sound = len(self.clients) > 0 and min(self.clients) >= 0 and max(self.clients) < 2**31
        require(sound, "value.out-of-range", "must list the client of each training query, from 0 on", "clients")

    def split(self, collection: Collection, clients: int, interactions: int, seed: int) -> Shares:
        """Give every client its queries, in their order."""
        queries, given, highest = collection.train.n_queries, len(self.clients), max(self.clients)
        sentence = f"names the clients of {given:,} queries, and the training split has {queries:,}"
        require(given == queries, "partition.other-queries", sentence, "partition.clients")
        sentence = f"names client {highest}, and there are {clients}, from 0 to {clients - 1}; set federation.clients"
        require(highest < clients, "partition.unknown-client", sentence, "partition.clients")
        owner = np.repeat(np.array(self.clients, dtype=np.int64), np.diff(collection.train.offsets))
        data, first, count = divide_rows(collection.train, owner, clients)
        return own_shares(equal_shares(collection, clients, interactions), data, first, count)
