"""The client's side of growing a tree: its documents in bins, sorted by node, their gradients and scores.

The rows may be one client's, or those of many clients of a simulation together: integer sums are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from quorank.kernels.arrays import Bytes, Doubles, Integers
from quorank.learning.trees.gradients import LambdaRule, fill_best_dcg, fill_gradients, rank_discounts
from quorank.learning.trees.growth import LevelTask
from quorank.learning.trees.histograms import add_leaf_values, divide_rows, fill_histograms, shift_for


@dataclass(eq=False)
class ClientRows:
    """Candidate lists of one or many clients."""

    bins: Bytes  # (blocks, rows, TOGETHER)
    n_features: int
    most_bins: int
    gains: Doubles  # (rows,)
    offsets: Integers  # (lists + 1,)
    rule: LambdaRule
    best: Doubles | None = None  # (lists,) divisor of ΔDCG; default: the best list's DCG
    threads: int = 1
    pool: Executor | None = None
    scores: Doubles = field(init=False, repr=False)

    def __post_init__(self) -> None:
        rows = len(self.gains)
        self.scores = np.zeros(rows)
        self._order, self._spare = np.arange(rows, dtype=np.int64), np.empty(rows, dtype=np.int64)
        self._runs: dict[int, tuple[int, int]] = {}
        self._shift = 1
        self.gradients, self.hessians = np.zeros(rows, dtype=np.int64), np.zeros(rows, dtype=np.int64)

    @cached_property
    def discount(self) -> Doubles:
        """(longest list,) discounts of the ranks."""
        return rank_discounts(max(1, int(np.diff(self.offsets).max(initial=1))))

    @cached_property
    def best_dcg(self) -> Doubles:
        """(lists,) divisor of ΔDCG."""
        if self.best is not None:
            return self.best
        out = np.empty(len(self.offsets) - 1)
        fill_best_dcg(self.gains, self.offsets, self.discount, self.rule.truncation, out)
        return out

    def begin(self) -> None:
        """Compute the gradients at the present scores; all documents are in the root."""
        lists = len(self.offsets) - 1
        best, discount = self.best_dcg, self.discount  # computed before threads ask for them

        def some(first: int, last: int) -> None:
            fill_gradients(
                self.rule, self.gains, self.offsets, best, discount, self.scores, first, last, self.gradients,
                self.hessians,
            )  # fmt: skip

        self._divided(lists, some, 4 * self.threads)
        self._shift = shift_for(self.hessians)
        self._order[:] = np.arange(len(self._order))
        self._runs = {0: (0, len(self._order))}

    def histograms(self, task: LevelTask) -> Integers:
        """Divide the documents by the splits of a task; return (wanted, features, bins, 3) of the nodes it asks for."""
        self._split(task)
        blocks = len(self.bins)
        out = np.empty((len(task.wanted), blocks * self.bins.shape[2], self.most_bins, 3), dtype=np.int64)
        if task.wanted:
            starts, stops = np.array([self._runs[node] for node in task.wanted], dtype=np.int64).T.copy()

            def some(first: int, last: int) -> None:
                fill_histograms(
                    self.bins, self._order, starts, stops, self.gradients, self.hessians, self._shift, first, last, out
                )

            self._divided(blocks, some, self.threads)
        return out[:, : self.n_features]

    def finish(self, task: LevelTask, leaf_nodes: tuple[int, ...], values: Doubles) -> None:
        """Make the last splits of a tree and add its leaves' values to the scores."""
        self._split(task)
        starts, stops = np.array([self._runs[node] for node in leaf_nodes], dtype=np.int64).T.copy()
        add_leaf_values(self._order, starts, stops, values, self.scores)

    def _split(self, task: LevelTask) -> None:
        for split in task.splits:
            start, stop = self._runs.pop(split.node)
            at = divide_rows(self.bins, self._order, start, stop, split.feature, split.last_bin, self._spare)
            self._runs[split.left], self._runs[split.right] = (start, at), (at, stop)

    def _divided(self, count: int, work: Callable[[int, int], None], parts: int) -> None:
        """Call work(first, last) for `parts` runs of 0 … count − 1, on the threads that there are."""
        if self.pool is None or parts == 1:
            work(0, count)
            return
        edges = np.linspace(0, count, min(parts, count) + 1).astype(int).tolist()
        list(self.pool.map(work, edges[:-1], edges[1:]))
