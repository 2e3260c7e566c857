"""Partition by an assignment: each training query belongs to the client that a list names.

It is how data that came with owners are divided (`FederatedRanker.fit` with `client`), and how any division that is known
beforehand is written down.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from quorank.data.partition.labels import divide_rows
from quorank.data.partition.shares import Partition, Shares, equal_shares
from quorank.data.ranking import Collection
from quorank.errors import require


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
        each = np.arange(clients, dtype=np.int64)
        alike = equal_shares(collection, clients, interactions)
        return replace(alike, data=data, first_query=first, query_count=count, group=each, test_of_group=0 * each)
