"""Boosting by a federation: a round adds one tree or a batch of trees, grown from sums over all clients.

Messages for a tree of best splits: down, the splits of the level above and the nodes whose histograms are asked for;
up, Σ G, Σ H and the number of documents for each of these nodes, features and bins. A level is one message each way, and
after the last level the leaves' values go down. For random splits: down, the splits; up, Σ G and Σ H of every leaf.

Without noise the sums are of integers, so that the pooled data give the same bits: a simulation grows its trees from
one pass over all clients' documents, and `masked` plays every client and message. With noise each client's leaf sums go
through the mechanism of its privacy like an update: clipped, in integers, summed, with noise on the sum.

A secure sum adds vectors modulo 2^32, so a number is sent as limbs of b bits, so few that n clients' limbs add up below
2^31: b = 31 − ⌈log2 n⌉. The last limb has the sign. The total is that of the numbers themselves, to the last bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import NamedTuple

import numpy as np

from quorank.errors import require
from quorank.federation.rounds import CohortSum, State, private_sum
from quorank.kernels.arrays import Bytes, Doubles, Floats, Integers, Uint32s
from quorank.learning.trees.bins import Bins
from quorank.learning.trees.client_rows import ClientRows
from quorank.learning.trees.growth import (
    UNIT,
    DrawnSplits,
    GrownTree,
    TreeGrower,
    TreePlan,
    add_drawn_values,
    draw_splits,
    drawn_trees,
    drawn_values,
    fill_leaf_sums,
    release_rows,
    sums_of_release,
)
from quorank.privacy import Mechanism
from quorank.privacy.secure_sum.in_process import secure_sum

LEAST_BITS = 40  # least bits of a client's number with its sign, which decide the number of limbs
SESSION = b"quorank trees"


class TrainingLists(NamedTuple):
    """Candidate or logged lists of all clients."""

    features: Floats  # (rows, features)
    gains: Doubles  # (rows,)
    offsets: Integers  # (lists + 1,)
    owners: Integers  # (lists,) the client of each list
    best: Doubles | None = None  # (lists,) divisor of ΔDCG; by default the best list's DCG

    def rows_of(self, client: int) -> Integers:
        """Return the rows of one client's lists."""
        return np.flatnonzero(np.repeat(self.owners, np.diff(self.offsets)) == client)

    def of(self, client: int) -> TrainingLists:
        """Return one client's lists alone."""
        own, rows = self.owners == client, self.rows_of(client)
        offsets = np.append(0, np.cumsum(np.diff(self.offsets)[own]))
        best = None if self.best is None else self.best[own]
        return TrainingLists(self.features[rows], self.gains[rows], offsets, self.owners[own], best)


def list_owners(lists: int, clients: int) -> Integers:
    """Return (lists,) the client of each list, in rotation."""
    return np.arange(lists, dtype=np.int64) % clients


@dataclass(eq=False)
class Boosting:
    """Federation that grows trees, with the current scores of all documents."""

    plan: TreePlan
    lists: TrainingLists
    bins: Bins
    clients: int
    seed: int
    masked: bool = False  # play every client and message of the sums
    masks: bool = True  # with `masked`: use masks
    threads: int = 1
    pool: Executor | None = None
    messages: int = field(default=0, init=False)  # sums so far

    @cached_property
    def placed(self) -> Bytes:
        """Binned features of all documents."""
        return self.bins.place(self.lists.features)

    @cached_property
    def rows(self) -> ClientRows:
        """Rows of all clients together."""
        return self._rows(self.lists, self.placed)

    def _rows(self, lists: TrainingLists, placed: Bytes) -> ClientRows:
        most, n = self.bins.most, lists.features.shape[1]
        return ClientRows(
            placed, n, most, lists.gains, lists.offsets, self.plan.gradients, lists.best, self.threads, self.pool
        )

    @cached_property
    def _each(self) -> dict[int, ClientRows]:
        """Rows of each client."""
        own = {client: self.lists.of(client) for client in range(self.clients)}
        return {client: self._rows(lists, self.bins.place(lists.features)) for client, lists in own.items()}

    def start(self, scores: Doubles) -> None:
        """Start from these scores of all documents, (rows,)."""
        self.rows.scores[:] = scores
        if self.masked:
            for client, rows in self._each.items():
                rows.scores[:] = scores[self.lists.rows_of(client)]

    def grow(self, round_: int) -> list[GrownTree]:
        """Grow the trees of a round from exact sums, and add them to the scores."""
        return self._drawn(round_) if self.plan.random else [self._best()]

    def _best(self) -> GrownTree:
        parties = self._each if self.masked else {0: self.rows}
        for rows in parties.values():
            rows.begin()
        grower = TreeGrower(self.plan.growth, self.bins)
        while not grower.finished:
            histograms = {client: rows.histograms(grower.task) for client, rows in parties.items()}
            grower.accept(self._sum(histograms), self.pool, self.threads)
        tree = grower.tree()
        for rows in parties.values():
            rows.finish(grower.task, tree.leaf_nodes, tree.value)
        return tree

    def _sum(self, sent: Mapping[int, Integers]) -> Integers:
        """Return the sum of the clients' integers, by the messages of a secure sum if it is `masked`."""
        self.messages += 1
        if not self.masked:
            return reduce(np.add, sent.values())
        shape = next(iter(sent.values())).shape
        vectors = {client: numbers.ravel() for client, numbers in sent.items()}
        return masked_sum(vectors, self.messages, self.masks).reshape(shape)

    # ------------------------------------------------------------ random splits

    def leaf_sums(self, splits: DrawnSplits) -> Integers:
        """Return Σ G and Σ H of each client and leaf, (clients, trees, 2, leaves), in integers of 1/UNIT."""
        self.rows.begin()
        trees, depth = splits.features.shape
        out = np.zeros((self.clients, trees, 2, 1 << depth), dtype=np.int64)
        rows, lists = self.rows, self.lists
        fill_leaf_sums(
            self.placed, *splits, lists.offsets, lists.owners, rows.gradients, rows.hessians, 0, len(lists.owners), out
        )
        return out

    def _drawn(self, round_: int) -> list[GrownTree]:
        splits = self._splits(round_)
        return self._add_trees(splits, self._sum(dict(enumerate(self.leaf_sums(splits)))) / UNIT)

    def _splits(self, round_: int) -> DrawnSplits:
        return draw_splits(self.seed, round_, self.plan.batch, self.plan.growth.depth, self.bins)

    def _add_trees(self, splits: DrawnSplits, sums: Doubles) -> list[GrownTree]:
        growth = self.plan.growth
        values = drawn_values(sums, growth.eta, growth.ridge)
        add_drawn_values(self.placed, *splits, values, self.rows.scores)
        return drawn_trees(splits, values, self.bins, growth.leaves)

    def grow_with_noise(self, round_: int, mechanism: Mechanism, state: State) -> tuple[list[GrownTree], CohortSum]:
        """Grow the trees of a round from leaf sums under a privacy mechanism; return the released sum too."""
        splits = self._splits(round_)
        sent = release_rows(self.leaf_sums(splits))
        total = private_sum(sent, mechanism, state)
        if total.stays:
            return [], total
        return self._add_trees(splits, sums_of_release(total.total, self.plan.batch)), total


def limb_bits(clients: int) -> int:
    """Return the bits of a limb that this number of clients may sum."""
    bits = 31 - max(1, (clients - 1).bit_length())
    require(bits >= 8, "trees.too-many-clients", "these are too many clients for one secure sum of histograms")
    return bits


def to_limbs(numbers: Integers, clients: int) -> Uint32s:
    """Return a client's numbers (n,) as limbs (limbs·n,), modulo 2^32."""
    bits = limb_bits(clients)
    count = -(-LEAST_BITS // bits)
    sentence = "a client's sums are too large for the limbs of a secure sum; divide its lists among several clients"
    fits = not len(numbers) or int(np.abs(numbers).max()) < 1 << (bits * count - 1)
    require(fits, "trees.sum-too-large", sentence)
    limbs = [(numbers >> (bits * i)) & ((1 << bits) - 1) for i in range(count - 1)]
    limbs.append(numbers >> (bits * (count - 1)))
    return np.concatenate(limbs).astype(np.uint32)


def from_limbs(total: Uint32s, clients: int) -> Integers:
    """Return the sums (n,) of which these are the summed limbs."""
    bits = limb_bits(clients)
    count = -(-LEAST_BITS // bits)
    limbs = total.reshape(count, -1)
    whole = sum(limbs[i].astype(np.int64) << (bits * i) for i in range(count - 1))
    return np.asarray(whole + (limbs[-1].view(np.int32).astype(np.int64) << (bits * (count - 1))), dtype=np.int64)


def masked_sum(vectors: Mapping[int, Integers], round_: int, masks: bool = True) -> Integers:
    """Return Σ vectors (n,), by the messages of a secure sum; without `masks` by the same limbs, added in the open."""
    clients = len(vectors)
    limbs = {client: to_limbs(vector, clients) for client, vector in vectors.items()}
    if masks:
        return from_limbs(secure_sum(limbs, round_=round_, session=SESSION).total, clients)
    total = np.zeros(len(next(iter(limbs.values()))), dtype=np.uint32)
    for limb in limbs.values():
        total += limb
    return from_limbs(total, clients)
