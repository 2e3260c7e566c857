"""LambdaMART over parties: trees grown from histograms summed over all parties' lists, one level per turn.

The trees are those that a central LambdaMART grows on the pooled training lists, bit for bit (`learning.trees`). First the
parties' counts of documents in cells are summed, from which bins are agreed, and the number of their lists: with fewer
than `least_lists` no tree is grown. Then each turn requests the histograms of one level of a tree. One list in `folds` is
held out. After the last tree these lists decide how many trees are kept: the number with the largest gain in nDCG@10 over
the party's own search, if it exceeds a standard error; otherwise none, and every list keeps the order of the search.

A request carries the bins, the finished trees and the splits of the growing one, so that a party stores nothing: it keeps
its documents' places for the next level, and finds them again where they are lost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from quorank.errors import BadInput, require, require_range
from quorank.files.codec import Range, decode, encode
from quorank.kernels.arrays import Doubles, Integers, Uint64s
from quorank.learning.lambdamart import FEWEST, LambdaMART
from quorank.learning.trees.bins import CELLS, Bins, agreed_bins, cell_counts, cells_of
from quorank.learning.trees.client_rows import ClientRows
from quorank.learning.trees.growth import LevelTask, NodeSplit, TreeGrower, columns_of
from quorank.metrics.lists import gain
from quorank.rankers.trees import Trees, add_tree_scores, tree_parameters
from quorank.silos.training.lists import SearchedLists
from quorank.silos.training.sums import ONE, SumAnswers, SumCourse, SumRequest, SumTraining, check_agreed, to_units

QUARTERS = 4  # candidate numbers of trees: a quarter of all, a half, three quarters, all
DEEPEST = 8
FIRST, LAST = (int(cell) for cell in cells_of(np.array([0.0, 1.0], dtype=np.float32)))  # cells of the values 0 and 1
_Natural = Annotated[int, Range(0, below=1 << 31)]
_Split = tuple[_Natural, _Natural, _Natural, _Natural, _Natural]


@dataclass(frozen=True)
class TreeHead:
    """Request for the counts of cells, for a level's histograms, or for the gains of held-out lists."""

    step: Literal["bins", "level", "judge"]
    trees: _Natural = 0  # finished trees
    splits: tuple[tuple[_Split, ...], ...] = ()  # `NodeSplit` of each level of the growing tree
    wanted: tuple[_Natural, ...] = ()  # nodes whose histograms are requested
    edges: tuple[_Natural, ...] = ()  # number of bin edges of each feature, with every request of a level


@dataclass(frozen=True)
class TreeTraining(SumTraining):
    """Trees of depth D with leaf values −η·G/H."""

    kind: ClassVar[str] = "trees"

    trees: int = 100  # T, at most
    eta: float = 0.1  # η, shrinkage of each tree
    depth: int = 4  # D, levels of splits
    bins: int = 64  # bins of a feature, at most
    least_data: int = 20  # documents of a leaf at least
    truncation: int = 30  # a pair has a document above this rank
    least_lists: int = FEWEST  # training lists of all parties, below which no tree is grown
    folds: int = 5  # one list in `folds` is held out

    def __post_init__(self) -> None:
        require_range("trees", self.trees, least=1, most=10_000)
        require_range("depth", self.depth, least=1, most=DEEPEST)
        require_range("folds", self.folds, least=2, most=20)
        self.learner()  # checks the other parameters

    @property
    def planned_turns(self) -> int:
        return 1 + self.trees * self.depth

    def most_sums(self, parties: int) -> int:
        return self.planned_turns + 1 + parties * self.depth

    @property
    def ranker_part(self) -> Trees:
        return Trees(1 << self.depth, self.trees)

    def learner(self) -> LambdaMART:
        """Return the learner that grows the same trees on the pooled training lists."""
        return LambdaMART(
            self.eta, self.depth, self.bins, self.least_data, truncation=self.truncation, least_lists=self.least_lists
        )

    def judged_numbers(self, trees: int) -> list[int]:
        """Return the candidate numbers of trees, of a number of grown ones."""
        return [-(-trees * part // QUARTERS) for part in range(1, QUARTERS + 1)]

    def course(self, w0: Doubles, table: Mapping[str, Any] | None = None) -> SumCourse:
        return TreeCourse(self, len(w0), table)

    def answers(self, own: SearchedLists, w0: Doubles) -> SumAnswers:
        return TreeAnswers(self, own)

    def choose(self, total: Uint64s, trees: int) -> int:
        """Return the number of trees with the largest mean gain above its standard error, or 0."""
        told = total.view(np.int64)
        lists, gains, squares = int(told[0]), told[1 : 1 + QUARTERS] / ONE, told[1 + QUARTERS :] / ONE
        best, chosen = 0.0, 0
        for number, total_gain, square in zip(self.judged_numbers(trees), gains, squares, strict=True):
            mean = total_gain / max(lists, 1)
            variance = max(square - lists * mean * mean, 0.0) / max(lists - 1, 1)
            if lists >= 2 and mean > math.sqrt(variance / lists) and mean > best:
                best, chosen = mean, number
        return chosen


class TreeCourse(SumCourse):
    """Finished trees and the growing one, which is rebuilt from the sums of its levels after a restart."""

    def __init__(self, training: TreeTraining, n_features: int, table: Mapping[str, Any] | None = None) -> None:
        self.training, self.n_features = training, n_features
        self.bins: Bins | None = None
        self.grown: list[Doubles] = []  # the parameters of each finished tree
        self.levels: list[Integers] = []  # summed histograms of the growing tree
        self.judging = False
        self._grower: TreeGrower | None = None
        self._splits: list[tuple[NodeSplit, ...]] = []  # of each level of the growing tree
        if table is not None and table["edges"] is not None:
            self.bins = Bins(tuple(np.array(each, dtype=np.float32) for each in table["edges"]))
            self.grown = [np.frombuffer(bytes.fromhex(raw), dtype="<f8").astype(np.float64) for raw in table["grown"]]
            self.judging = table["judging"]
            shape = (-1, n_features, self.bins.most, 3)
            self.levels = [np.frombuffer(bytes.fromhex(raw), dtype="<i8").reshape(shape) for raw in table["levels"]]

    @property
    def turn(self) -> int:
        return 0 if self.bins is None else 1 + len(self.grown) * self.training.depth + len(self.levels)

    @property
    def request(self) -> SumRequest:
        if self.bins is None:
            return _request(TreeHead("bins"))
        if self.judging:
            return _request(TreeHead("judge", len(self.grown)), *self.grown)
        wanted = tuple(self.grower.task.wanted)  # also updates the splits
        edges = self.bins.edges
        head = TreeHead("level", len(self.grown), tuple(self._splits), wanted, tuple(len(each) for each in edges))
        return _request(head, *edges, *self.grown)

    @property
    def length(self) -> int:
        if self.bins is None:
            return self.n_features * (LAST + 1 - FIRST) + 1
        if self.judging:
            return 1 + 2 * QUARTERS
        return len(self.grower.task.wanted) * self.n_features * self.bins.most * 3

    @property
    def grower(self) -> TreeGrower:
        """The growing tree."""
        if self._grower is None:
            assert self.bins is not None
            self._grower = TreeGrower(self.training.learner().growth_rule(self.training.ranker_part.leaves), self.bins)
            self._splits = [self._grower.accept(histograms).splits for histograms in self.levels]
        return self._grower

    def advance(self, total: Uint64s) -> None:
        if self.bins is None:
            self._agree(total)
        elif self.judging:
            self._end(self.training.choose(total, len(self.grown)))
        else:
            self._grow(total.view(np.int64).reshape(-1, self.n_features, self.bins.most, 3))

    def _agree(self, total: Uint64s) -> None:
        """Choose bins from the summed counts, and end with no tree where there are too few lists."""
        counts = np.zeros((self.n_features, CELLS), dtype=np.int64)
        counts[:, FIRST : LAST + 1] = total[:-1].view(np.int64).reshape(self.n_features, -1)
        self.bins = agreed_bins(counts, self.training.bins)
        if int(total[-1]) < self.training.least_lists:
            self._end(0)

    def _grow(self, histograms: Integers) -> None:
        grower = self.grower
        self._splits.append(grower.accept(histograms).splits)
        self.levels.append(histograms)
        if not grower.finished:
            return
        grew = any(self._splits)
        if grew:
            self.grown.append(tree_parameters(columns_of([grower.tree()])))
        self.restart()
        self.judging = not grew or len(self.grown) == self.training.trees
        if not self.grown:
            self._end(0)

    def _end(self, chosen: int) -> None:
        ranker = self.training.ranker_part
        theta = np.zeros(ranker.size(self.n_features))
        theta[: chosen * ranker.numbers] = np.concatenate([*self.grown[:chosen], np.zeros(0)])
        self.ranker, self.chosen = theta, float(chosen)

    def restart(self) -> None:
        """Grow the current tree again from its root: its sums contain the documents of a party that has left."""
        self.levels, self._grower = [], None

    def table(self) -> dict[str, Any]:
        return {
            "edges": None if self.bins is None else [edges.tolist() for edges in self.bins.edges],
            "grown": [tree.astype("<f8").tobytes().hex() for tree in self.grown],
            "levels": [level.astype("<i8").tobytes().hex() for level in self.levels],
            "judging": self.judging,
        }


class TreeAnswers:
    """A party's counts, histograms and gains."""

    def __init__(self, training: TreeTraining, own: SearchedLists) -> None:
        self.training, self.own = training, own
        self._ranker, self._n = training.ranker_part, own.data.n_features
        self._held = np.arange(own.n_lists) % training.folds == training.folds - 1
        self._edges = np.full(1, np.nan)  # of the bins of `_rows`
        self._scored = np.zeros(0)  # trees in the scores of `_rows`
        self._levels: tuple[tuple[NodeSplit, ...], ...] | None = None  # by whose splits they are divided

    @cached_property
    def _lists(self) -> tuple[Any, Doubles, Integers]:
        """Features, gains and offsets of the training lists."""
        kept = self.own.data.select_lists(np.flatnonzero(~self._held))
        return np.ascontiguousarray(kept.features), gain(kept.labels), kept.offsets

    def __call__(self, request: SumRequest) -> Uint64s:
        try:
            head = decode(TreeHead, request.head)
        except BadInput:
            head = None
        check_agreed(head is not None and request.judging == (head.step == "judge"))
        assert head is not None
        first, size = sum(head.edges), self._ranker.numbers
        check_agreed(head.trees <= self.training.trees and request.numbers.size == first + head.trees * size)
        edges, theta = request.numbers[:first], request.numbers[first:]
        Trees(self._ranker.leaves, head.trees).check_size(theta, self._n)
        if head.step == "judge":
            check_agreed(head == TreeHead("judge", head.trees) and head.trees >= 1)
            found = self._gains(theta, head.trees)
        elif head.step == "bins":
            check_agreed(head == TreeHead("bins"))
            found = self._counts()
        else:
            found = self._histograms(head, edges, theta)
        return found.view(np.uint64)

    def _counts(self) -> Integers:
        features, gains, offsets = self._lists
        inside = not features.size or bool(features.min() >= 0.0 and features.max() <= 1.0)
        require(inside, "trees.raw-features", "features of a list must be from 0 to 1")
        useful = [bool((gains[a:b] > 0.0).any()) for a, b in pairwise(offsets)]
        counts = cell_counts(features)[:, FIRST : LAST + 1]
        return np.concatenate([counts.ravel(), [sum(useful)]]).astype(np.int64)

    # ------------------------------------------------------------ a level

    def _histograms(self, head: TreeHead, edges: Doubles, theta: Doubles) -> Integers:
        levels = tuple(tuple(NodeSplit(*split) for split in splits) for splits in head.splits)
        check_agreed(len(levels) < self.training.depth and head.trees < self.training.trees)
        open_nodes = self._open_nodes(levels, head.edges)
        check_agreed(len(set(head.wanted)) == len(head.wanted) and open_nodes.issuperset(head.wanted))
        if not np.array_equal(edges, self._edges):
            self._rows = self._binned(head.edges, edges)
            self._edges, self._scored, self._levels = edges, np.zeros(0), None
        if not np.array_equal(theta, self._scored):
            if not np.array_equal(theta[: len(self._scored)], self._scored):
                self._rows.scores[:], self._scored = 0.0, np.zeros(0)
            newest = theta[len(self._scored) :]
            ranker = Trees(self._ranker.leaves, len(newest) // self._ranker.numbers)
            add_tree_scores(*ranker.arrays(newest), self._lists[0], self._rows.scores)
            self._scored, self._levels = theta, None
        if self._levels != levels[:-1]:
            self._rows.begin()
            for splits in levels[:-1]:
                self._rows.histograms(LevelTask(splits, ()))
        self._levels = levels
        return self._rows.histograms(LevelTask(levels[-1] if levels else (), head.wanted)).ravel()

    def _open_nodes(self, levels: tuple[tuple[NodeSplit, ...], ...], edges: tuple[int, ...]) -> set[int]:
        """Check the splits of each level, and return the nodes that are not split."""
        check_agreed(len(edges) == self._n and max(edges, default=0) < self.training.bins)
        open_nodes, nodes = {0}, 1
        for split in chain.from_iterable(levels):
            check_agreed(split.node in open_nodes and [split.left, split.right] == [nodes, nodes + 1])
            check_agreed(split.feature < self._n and split.last_bin < edges[split.feature])
            open_nodes = (open_nodes - {split.node}) | {nodes, nodes + 1}
            nodes += 2
        return open_nodes

    def _binned(self, counts: tuple[int, ...], edges: Doubles) -> ClientRows:
        """Return the documents of the training lists in bins with these edges."""
        parts = np.split(edges.astype(np.float32), np.cumsum(counts)[:-1])
        check_agreed(
            all(bool((np.diff(part) > 0).all()) for part in parts) and np.array_equal(np.concatenate(parts), edges)
        )
        (features, gains, offsets), bins = self._lists, Bins(tuple(parts))
        return ClientRows(bins.place(features), self._n, bins.most, gains, offsets, self.training.learner().lambda_rule)

    # ------------------------------------------------------------ held-out lists

    def _gains(self, theta: Doubles, trees: int) -> Integers:
        """Compute the number of held-out lists, and Σ g and Σ g² for each number of trees: g is the gain in nDCG@10."""
        size, counted = self._ranker.numbers, self._held & (self.own.ideal_top > 0.0)

        def ranked(number: int) -> Doubles:
            first = theta[: number * size] if number else np.zeros(size)
            return np.asarray(self.own.ndcg([first], Trees(self._ranker.leaves, max(number, 1)))[0][counted])

        gains = [ranked(number) - ranked(0) for number in self.training.judged_numbers(trees)]
        sums = [to_units(each**power).sum() for power in (1, 2) for each in gains]
        return np.array([counted.sum(), *sums], dtype=np.int64)


def _request(head: TreeHead, *numbers: Any) -> SumRequest:
    found: dict[str, Any] = encode(head, defaults=False)
    return SumRequest(head.step == "judge", found, np.concatenate([*numbers, np.zeros(0)]).astype(np.float64))
