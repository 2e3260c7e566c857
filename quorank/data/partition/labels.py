"""Partition of type 2: clients hold documents of few labels only (thesis §4.4.1, after Li et al. 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar

import numpy as np

from quorank.data.partition.shares import Partition, Shares, Step, check_counts, own_shares
from quorank.data.ranking import Collection, RankingData
from quorank.errors import require, require_range
from quorank.kernels.arrays import Booleans, Integers

EVERYONE = -1  # owner of a document that all clients hold
MOST_SHARED = 1 << 32  # bytes that the clients' copies of shared lists may fill


@dataclass(frozen=True)
class LabelSplit(Partition):
    """Type 2: clients own labels, and a document of a label has one owner among the clients that own the label.

    All combinations of #R labels are given to clients in random order, again and again if there are more clients than
    combinations. The documents of each label are divided randomly and equally among its owners. A client's candidate lists
    are its documents of each query; queries of which it has none are not among its queries. With #R = 1 every list holds
    equal labels, so all its rankings are equally good, and clicks say nothing about relevance.

    Data-sharing (thesis §4.4.3, after Zhao et al. 2018) is a remedy: a random share |G|/|D| of the training queries, with
    all of their documents, is given to every client, and the rest is divided. A client draws from own and shared lists
    alike. The ranker that the thesis warms up on the shared data is left out: it does not say with whose clicks.

    Args:
        per_client: #R, labels of a client, 1 to 127.
        iid: The IID twin: every client draws from the whole training set.
        quantity: Interactions of clients per round, cycling (type 4 mixed in); by default those of the experiment.
        shared: |G|/|D|, share of the training queries that every client holds, in [0, 1).

    Raises:
        BadInput: `value.out-of-range` for a field; of `split` `partition.too-few-labels`, `partition.too-few-clients` for a
            combination without a client, `partition.too-many-clients` for a label with fewer documents than owners,
            `partition.nothing-to-divide` if all queries would be shared, and `partition.too-large` for their copies.

    >>> from quorank.data import Collection, RankingData
    >>> lists = RankingData.from_arrays([[0.1], [0.9], [0.4], [0.2]], [0, 1, 1, 0], [0, 2, 4])
    >>> shares = LabelSplit(per_client=1).split(Collection("two", lists, lists), clients=2, interactions=4, seed=1)
    >>> [shares.data.labels[shares.data.rows_of(query)].tolist() for query in range(4)]  # two lists of client 0, two of 1
    [[0], [0], [1], [1]]
    """

    kind: ClassVar[str] = "labels"

    per_client: int = 1
    iid: bool = False
    quantity: tuple[int, ...] | None = None
    shared: float = 0.0

    def __post_init__(self) -> None:
        require_range("per_client", self.per_client, least=1, most=127)
        require_range("shared", self.shared, least=0.0, below=1.0)
        check_counts("quantity", self.quantity)

    def split(self, collection: Collection, clients: int, interactions: int, seed: int) -> Shares:
        alike = self.equal_shares(collection, clients, interactions)
        if self.iid:
            return alike
        return own_shares(alike, *divide_rows(collection.train, self.owners(collection.train, clients, seed), clients))

    def owners(self, data: RankingData, clients: int, seed: int) -> Integers:
        """Return (rows,) the client that holds each document; EVERYONE where all do."""
        common = np.repeat(self.common_queries(data, seed), np.diff(data.offsets))
        labels = np.unique(data.labels[~common]).astype(np.int64)
        have = f"the training documents have only the {len(labels)} labels {', '.join(map(str, labels))}"
        sentence = f"per_client is {self.per_client}, but {have}; take at most {len(labels)}"
        require(self.per_client <= len(labels), "partition.too-few-labels", sentence)
        possible = np.array(list(combinations(labels.tolist(), self.per_client)), dtype=np.int64)
        need = (
            f"{len(labels)} labels make {len(possible)} combinations of {self.per_client}, each of which needs a client"
        )
        sentence = f"{need} exclusively, got {clients} clients; take at least {len(possible)}"
        require(clients >= len(possible), "partition.too-few-clients", sentence)
        held = possible[np.resize(Step.ASSIGNMENT.permutation(seed, len(possible)), clients)]  # (clients, per_client)
        owner = np.full(data.n_rows, EVERYONE, dtype=np.int64)
        for label in labels:
            rows = np.flatnonzero((data.labels == label) & ~common)
            own = np.flatnonzero((held == label).any(axis=1))
            sentence = f"{len(own)} clients own label {label}, of which there are only {len(rows)} documents"
            require(len(own) <= len(rows), "partition.too-many-clients", f"{sentence}; take fewer clients")
            order = Step.DEALING.permutation(seed, len(rows), f"label {label}")
            owner[rows[order]] = own[np.arange(len(rows)) % len(own)]
        return owner

    def common_queries(self, data: RankingData, seed: int) -> Booleans:
        """Draw (queries,) which ones every client holds: the nearest number to `shared` of them, at least one."""
        chosen = np.zeros(data.n_queries, dtype=np.bool_)
        if self.shared == 0.0:
            return chosen
        filled = np.flatnonzero(np.diff(data.offsets))
        count = max(1, round(self.shared * len(filled)))
        left = f"leaves none of {len(filled)} training queries to divide; take a smaller share"
        require(count < len(filled), "partition.nothing-to-divide", f"shared is {self.shared:g}, which {left}")
        chosen[filled[Step.COMMON.permutation(seed, len(filled))[:count]]] = True
        return chosen


def divide_rows(data: RankingData, owner: Integers, owners: int) -> tuple[RankingData, Integers]:
    """Return the rows of owner 0, then of owner 1, …, in candidate lists, and the number of lists of each.

    Rows that EVERYONE owns, which are whole queries, follow those of each owner.
    """
    query = data.query_of_rows()
    common, own = np.flatnonzero(owner == EVERYONE), np.flatnonzero(owner != EVERYONE)
    size = owners * len(common) * data.padded.shape[1] * data.padded.itemsize
    copies = f"each of {owners} clients holds its own copy of the shared lists, altogether {size / 2**30:.1f} GiB"
    require(size <= MOST_SHARED, "partition.too-large", f"{copies}; take fewer clients or a smaller share")
    rows = np.concatenate((own, np.tile(common, owners)))
    of_row = np.concatenate((owner[own], np.repeat(np.arange(owners, dtype=np.int64), len(common))))
    sorted_ = np.argsort(of_row, kind="stable")
    order, by_owner = rows[sorted_].astype(np.int64), of_row[sorted_]
    by_query = query[order]
    new_list = np.ones(len(order), dtype=np.bool_)
    new_list[1:] = (np.diff(by_owner) != 0) | (np.diff(by_query) != 0)
    starts = np.flatnonzero(new_list)
    names = list(data.query_ids)
    divided = data.select_rows(order, np.append(starts, len(order)), [names[q] for q in by_query[starts]])
    return divided, np.bincount(by_owner[starts], minlength=owners).astype(np.int64)
