"""Boosting by a federation: a round adds one tree or a batch of trees, grown from sums over all clients.

Messages for a tree of best splits: down, the splits of the level above and the nodes whose histograms are asked for;
up, Σ G, Σ H and the number of documents for each of these nodes, features and bins. A level is one message each way, and
after the last level the leaves' values go down. For random splits: down, the splits; up, Σ G and Σ H of every leaf.

Without noise the sums are of integers, so that the pooled data give the same bits: a simulation grows its trees from
one pass over all clients' documents, and `masked` plays every client and message. With noise each client's leaf sums go
through the mechanism of its privacy like an update: clipped, in integers, summed, with noise on the sum.
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from quorank.federation.rounds import CohortSum, State
from quorank.federation.sums import RunningSum
from quorank.federation.trees.histogram_sums import masked_sum
from quorank.kernels.arrays import Bytes, Doubles, Floats, Integers
from quorank.learning.simulation import STATISTICS
from quorank.learning.trees.bins import Bins
from quorank.learning.trees.client_rows import ClientRows
from quorank.learning.trees.gradients import UNIT
from quorank.learning.trees.growth import GrownTree, LevelTask, TreeGrower, TreePlan
from quorank.learning.trees.random_splits import (
    DrawnSplits,
    add_drawn_values,
    draw_splits,
    drawn_trees,
    drawn_values,
    fill_leaf_sums,
    release_rows,
    sums_of_release,
)
from quorank.privacy import Mechanism


class TrainingLists(NamedTuple):
    """Candidate or logged lists of all clients."""

    features: Floats  # (rows, features)
    gains: Doubles  # (rows,)
    offsets: Integers  # (lists + 1,)
    owners: Integers  # (lists,) the client of each list
    best: Doubles | None = None  # (lists,) divisor of ΔDCG; by default the best list's DCG

    def of(self, client: int) -> TrainingLists:
        """Return one client's lists alone."""
        own = np.flatnonzero(self.owners == client)
        spans = [np.arange(self.offsets[q], self.offsets[q + 1]) for q in own]
        rows = np.concatenate([*spans, np.zeros(0, dtype=np.int64)]).astype(np.int64)
        offsets = np.concatenate([[0], np.cumsum([len(span) for span in spans])]).astype(np.int64)
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
                own = np.flatnonzero(self.lists.owners == client)
                spans = [scores[self.lists.offsets[q] : self.lists.offsets[q + 1]] for q in own]
                rows.scores[:] = np.concatenate([*spans, np.zeros(0)])

    def grow(self, round_: int) -> list[GrownTree]:
        """Grow the trees of a round from exact sums, and add them to the scores."""
        return self._drawn(round_) if self.plan.random else [self._best()]

    def _best(self) -> GrownTree:
        parties = self._each if self.masked else {0: self.rows}
        for rows in parties.values():
            rows.begin()
        grower = TreeGrower(self.plan.growth, self.bins)
        while not grower.finished:
            grower.accept(self._summed(grower.task), self.pool, self.threads)
        tree = grower.tree()
        for rows in parties.values():
            rows.finish(grower.task, tree.leaf_nodes, tree.value)
        return tree

    def _summed(self, task: LevelTask) -> Integers:
        self.messages += 1
        if not self.masked:
            return self.rows.histograms(task)
        sent = {client: rows.histograms(task) for client, rows in self._each.items()}
        shape = next(iter(sent.values())).shape
        vectors = {client: histograms.ravel() for client, histograms in sent.items()}
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
        sums = self.leaf_sums(splits)
        self.messages += 1
        if self.masked:
            total = masked_sum({c: sums[c].ravel() for c in range(self.clients)}, self.messages, self.masks)
            exact = total.reshape(sums.shape[1:])
        else:
            exact = sums.sum(axis=0)
        return self._added(splits, exact / UNIT)

    def _splits(self, round_: int) -> DrawnSplits:
        return draw_splits(self.seed, round_, self.plan.batch, self.plan.growth.depth, self.bins)

    def _added(self, splits: DrawnSplits, sums: Doubles) -> list[GrownTree]:
        growth = self.plan.growth
        values = drawn_values(sums, growth.eta, growth.ridge)
        add_drawn_values(self.placed, *splits, values, self.rows.scores)
        return drawn_trees(splits, values, self.bins, growth.leaves)

    def grow_with_noise(self, round_: int, mechanism: Mechanism, state: State) -> tuple[list[GrownTree], CohortSum]:
        """Grow the trees of a round from leaf sums under a privacy mechanism; return the released sum too."""
        splits = self._splits(round_)
        sent = release_rows(self.leaf_sums(splits))
        total = released(sent, mechanism, state)
        if total.stays:
            return [], total
        return self._added(splits, sums_of_release(total.total, self.plan.batch)), total


def released(sent: Doubles, mechanism: Mechanism, state: State) -> CohortSum:
    """Return the sum of all clients' numbers (clients, numbers), clipped, with the noise of a round."""
    clients, size = sent.shape
    rows, who = np.zeros((clients, size + STATISTICS)), np.arange(clients, dtype=np.int64)
    rows[:, :size] = sent
    within = mechanism.release(rows[:, :size], state.theta, state.round, who, state.private)
    running = RunningSum(mechanism, size)
    running.add(who, rows, np.ones(clients, dtype=np.int64), within)
    return running.close(state)
