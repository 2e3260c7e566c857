"""LambdaMART over parties: trees grown from histograms summed over all parties' lists, one level per turn.

The trees are those that a central LambdaMART grows on the pooled training lists, bit for bit (`learning.trees`). First the
parties' counts of documents in cells are summed, from which bins are agreed, and the number of their lists: with fewer
than `least_lists` no tree is grown. Then each turn requests the histograms of one level of a tree. One list in `folds` is
held out. After the last tree these lists decide how many trees are kept: the number with the largest gain in nDCG@10 over
the party's own search, if it exceeds a standard error; otherwise none, and every list keeps the order of the search.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, pairwise
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from quorank.errors import BadInput, require, require_range
from quorank.files.codec import Range, decode, encode
from quorank.kernels.arrays import Doubles, Integers, Uint64s
from quorank.learning.lambdamart import FEWEST
from quorank.learning.trees.bins import CELLS, MOST_BINS, Bins, agreed_bins, cell_counts, cells_of
from quorank.learning.trees.client_rows import ClientRows
from quorank.learning.trees.gradients import LambdaRule
from quorank.learning.trees.growth import GrowthRule, LevelTask, NodeSplit, TreeGrower, columns_of
from quorank.rankers.trees import Trees, add_tree_scores, tree_parameters
from quorank.silos.training.lists import SearchedLists
from quorank.silos.training.sums import ONE, SumAnswers, SumCourse, SumRequest, SumTraining, TrainingMemory, not_agreed

QUARTERS = 4
"""Candidate numbers of trees: a quarter of all, a half, three quarters, all."""
DEEPEST = 8
FIRST, LAST = (int(cells_of(np.array([value], dtype=np.float32))[0]) for value in (0.0, 1.0))
"""Cells of the feature values 0 and 1."""
BINS, TREES = "training bins", "training trees"
"""Names under which a party stores the agreed bins and the finished trees."""
_Natural = Annotated[int, Range(0, below=1 << 31)]
_Split = tuple[_Natural, _Natural, _Natural, _Natural, _Natural]


@dataclass(frozen=True)
class TreeHead:
    """Request for the counts of cells, for a level's histograms, or for the gains of held-out lists."""

    step: Literal["bins", "level", "judge"]
    trees: _Natural = 0  # finished trees
    splits: tuple[tuple[_Split, ...], ...] = ()  # `NodeSplit` of each level of the growing tree
    wanted: tuple[_Natural, ...] = ()  # nodes whose histograms are requested
    edges: tuple[_Natural, ...] = ()  # number of bin edges of each feature, with the first request of all


@dataclass(frozen=True)
class TreeTraining(SumTraining):
    """Trees of depth D with leaf values −η·G/(H + λ)."""

    kind: ClassVar[str] = "trees"

    trees: int = 100  # T, at most
    eta: float = 0.1  # η, shrinkage of each tree
    depth: int = 4  # D, levels of splits
    bins: int = 64  # bins of a feature, at most
    least_data: int = 20  # documents of a leaf at least
    least_hessian: float = 1e-3  # H of a leaf at least
    ridge: float = 0.0  # λ, added to H of a leaf
    sigmoid: float = 1.0  # σ, steepness of the pairwise logistic loss
    truncation: int = 30  # a pair has a document above this rank
    least_lists: int = FEWEST  # training lists of all parties, below which no tree is grown
    folds: int = 5  # one list in `folds` is held out

    def __post_init__(self) -> None:
        require_range("trees", self.trees, least=1, most=10_000)
        require_range("eta", self.eta, above=0.0, most=10.0)
        require_range("depth", self.depth, least=1, most=DEEPEST)
        require_range("bins", self.bins, least=2, most=MOST_BINS)
        require_range("least_data", self.least_data, least=0, below=2**31)
        require_range("least_hessian", self.least_hessian, least=0.0)
        require_range("ridge", self.ridge, least=0.0)
        require_range("sigmoid", self.sigmoid, above=0.0, most=1e3)
        require_range("truncation", self.truncation, least=1, below=2**31)
        require_range("least_lists", self.least_lists, least=0, below=2**31)
        require_range("folds", self.folds, least=2, most=20)

    @property
    def planned_turns(self) -> int:
        return 1 + self.trees * self.depth

    def most_sums(self, parties: int) -> int:
        return self.planned_turns + 1 + parties * self.depth

    @property
    def ranker_part(self) -> Trees:
        return Trees(1 << self.depth, self.trees)

    @property
    def growth(self) -> GrowthRule:
        """Rule by which a tree grows."""
        return GrowthRule(
            self.depth, 1 << self.depth, self.least_data, self.least_hessian, self.ridge, 0.0, self.eta
        )  # fmt: skip

    @property
    def gradients(self) -> LambdaRule:
        """Rule by which gradients are computed."""
        return LambdaRule(self.sigmoid, self.truncation, True)

    def judged_numbers(self, trees: int) -> list[int]:
        """Return the candidate numbers of trees, of a number of grown ones."""
        return [-(-trees * part // QUARTERS) for part in range(1, QUARTERS + 1)]

    def course(self, w0: Doubles, table: Mapping[str, Any] | None = None) -> SumCourse:
        made = TreeCourse(self, len(w0))
        if table is not None:
            made.restore(table)
        return made

    def answers(self, own: SearchedLists, w0: Doubles, memory: TrainingMemory) -> SumAnswers:
        return TreeAnswers(self, own, memory)

    def choose(self, total: Uint64s, trees: int) -> int:
        """Return the number of trees with the largest mean gain above its standard error, or 0."""
        told = total.view(np.int64)
        lists, gains, squares = int(told[0]), told[1 : 1 + QUARTERS] / ONE, told[1 + QUARTERS :] / ONE
        best, chosen = 0.0, 0
        for number, gain, square in zip(self.judged_numbers(trees), gains, squares, strict=True):
            mean = gain / max(lists, 1)
            variance = max(square - lists * mean * mean, 0.0) / max(lists - 1, 1)
            if lists >= 2 and mean > math.sqrt(variance / lists) and mean > best:
                best, chosen = mean, number
        return chosen


@dataclass(eq=False)
class TreeCourse(SumCourse):
    """Finished trees and the growing one, which is rebuilt from the sums of its levels after a restart."""

    training: TreeTraining
    n_features: int
    bins: Bins | None = None
    grown: list[Doubles] = field(default_factory=list)  # the parameters of each finished tree
    levels: list[Integers] = field(default_factory=list)  # summed histograms of the growing tree
    judging: bool = False
    _grower: TreeGrower | None = None
    _splits: list[tuple[NodeSplit, ...]] = field(default_factory=list)  # of each level of the growing tree

    @property
    def turn(self) -> int:
        depth = self.training.depth
        return 0 if self.bins is None else 1 + len(self.grown) * depth + len(self.levels)

    @property
    def request(self) -> SumRequest:
        newest = self.grown[-1] if self.grown else np.zeros(0)
        if self.bins is None:
            return _request(TreeHead("bins"))
        if self.judging:
            return _request(TreeHead("judge", len(self.grown)), newest)
        wanted = tuple(self.grower.task.wanted)  # also updates the splits
        head = TreeHead("level", len(self.grown), tuple(self._splits), wanted)
        if self.levels:
            return _request(head)
        if self.grown:
            return _request(head, newest)
        edges = np.concatenate(self.bins.edges).astype(np.float64)
        return _request(replace(head, edges=tuple(len(each) for each in self.bins.edges)), edges)

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
            self._grower, self._splits = TreeGrower(self.training.growth, self.bins), []
            for histograms in self.levels:
                self._splits.append(self._grower.accept(histograms).splits)
        return self._grower

    def advance(self, total: Uint64s) -> None:
        if self.bins is None:
            self._agree(total)
        elif self.judging:
            self._end(self.training.choose(total, len(self.grown)))
        else:
            self._grow(total)

    def _agree(self, total: Uint64s) -> None:
        """Choose bins from the summed counts, and end with no tree where there are too few lists."""
        counts = np.zeros((self.n_features, CELLS), dtype=np.int64)
        counts[:, FIRST : LAST + 1] = total[:-1].view(np.int64).reshape(self.n_features, -1)
        self.bins = agreed_bins(counts, self.training.bins)
        if int(total[-1]) < self.training.least_lists:
            self._end(0)

    def _grow(self, total: Uint64s) -> None:
        assert self.bins is not None
        grower = self.grower
        shape = (len(grower.task.wanted), self.n_features, self.bins.most, 3)
        histograms = total.view(np.int64).reshape(shape)
        self._splits.append(grower.accept(histograms).splits)
        self.levels.append(histograms)
        if not grower.finished:
            return
        grew = any(self._splits)
        if grew:
            self.grown.append(tree_parameters(columns_of([grower.tree()])))
        self.levels, self._grower = [], None
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

    def restore(self, table: Mapping[str, Any]) -> None:
        """Continue from a stored table."""
        edges = table["edges"]
        self.bins = None if edges is None else Bins(tuple(np.array(each, dtype=np.float32) for each in edges))
        self.grown = [np.frombuffer(bytes.fromhex(tree), dtype="<f8").astype(np.float64) for tree in table["grown"]]
        self.judging = table["judging"]
        for raw in table["levels"]:
            numbers = np.frombuffer(bytes.fromhex(raw), dtype="<i8").astype(np.int64)
            assert self.bins is not None
            self.levels.append(numbers.reshape(-1, self.n_features, self.bins.most, 3))


class TreeAnswers(SumAnswers):
    """A party's counts, histograms and gains; bins and finished trees are stored when they arrive."""

    def __init__(self, training: TreeTraining, own: SearchedLists, memory: TrainingMemory) -> None:
        self.training, self.own, self.memory = training, own, memory
        self._ranker, self._n = training.ranker_part, own.data.n_features
        numbers = np.arange(own.n_lists)
        self._held = numbers % training.folds == training.folds - 1
        self._at = (-1, -1)  # tree and level of `_rows`

    @cached_property
    def _lists(self) -> tuple[Any, Doubles, Integers]:
        """Features, gains and offsets of the training lists."""
        data = self.own.data
        kept = np.flatnonzero(~self._held)
        spans = [np.arange(data.offsets[q], data.offsets[q + 1]) for q in kept]
        rows = np.concatenate([*spans, np.zeros(0, dtype=np.int64)]).astype(np.int64)
        offsets = np.cumsum([0, *(len(span) for span in spans)]).astype(np.int64)
        features = np.ascontiguousarray(data.features[rows], dtype=np.float32)
        return features, np.exp2(data.labels[rows].astype(np.float64)) - 1.0, offsets

    def sums(self, request: SumRequest) -> Uint64s:
        try:
            head = decode(TreeHead, request.head)
        except BadInput:
            raise not_agreed() from None
        _check(request.judging == (head.step == "judge"))
        if head.step == "judge":
            _check(head == TreeHead("judge", head.trees) and 1 <= head.trees <= self.training.trees)
            found = self._gains(self._learned(head.trees, request.numbers), head.trees)
        elif head.step == "bins":
            _check(head == TreeHead("bins") and not request.numbers.size)
            found = self._counts()
        else:
            found = self._histograms(head, request.numbers)
        return found.view(np.uint64)

    def _counts(self) -> Integers:
        features, gains, offsets = self._lists
        inside = not features.size or bool(features.min() >= 0.0 and features.max() <= 1.0)
        require(inside, "trees.raw-features", "features of a list must be from 0 to 1")
        useful = [bool((gains[a:b] > 0.0).any()) for a, b in pairwise(offsets)]
        counts = cell_counts(features)[:, FIRST : LAST + 1]
        return np.concatenate([counts.ravel(), [sum(useful)]]).astype(np.int64)

    # ------------------------------------------------------------ a level

    def _histograms(self, head: TreeHead, numbers: Doubles) -> Integers:
        level, tree = len(head.splits), head.trees
        _check(level < self.training.depth and tree < self.training.trees)
        if level == 0 and tree == 0:
            self._keep_bins(head.edges, numbers)
        else:
            _check(not head.edges)
            if level == 0:
                self._learned(tree, numbers)
            else:
                _check(not numbers.size)
        levels = tuple(tuple(NodeSplit(*split) for split in splits) for splits in head.splits)
        open_nodes = self._open_nodes(levels)
        _check(len(set(head.wanted)) == len(head.wanted) and open_nodes.issuperset(head.wanted))
        rows = self._rows_at(tree, level, levels[:-1])
        self._at = (tree, level)
        return rows.histograms(LevelTask(levels[-1] if levels else (), head.wanted)).ravel()

    def _open_nodes(self, splits: tuple[tuple[NodeSplit, ...], ...]) -> set[int]:
        """Check the splits of each level, and return the nodes that are not split."""
        open_nodes, nodes, counts = {0}, 1, self._bins.counts
        for split in chain.from_iterable(splits):
            _check(split.node in open_nodes and [split.left, split.right] == [nodes, nodes + 1])
            _check(0 <= split.feature < self._n and 0 <= split.last_bin < counts[split.feature] - 1)
            open_nodes = (open_nodes - {split.node}) | {nodes, nodes + 1}
            nodes += 2
        return open_nodes

    def _rows_at(self, tree: int, level: int, levels: tuple[tuple[NodeSplit, ...], ...]) -> ClientRows:
        """Return the documents before a level of a tree, divided by the splits of the levels above."""
        if level > 0 and self._at == (tree, level - 1):
            return self._rows
        scored, size = self._at[0], self._ranker.numbers  # documents have the scores of so many trees
        if not 0 <= scored <= tree:
            self._rows.scores[:], scored = 0.0, 0
        self._add(self._trees[scored * size : tree * size], self._rows.scores)
        self._rows.begin()
        for splits in levels:
            self._rows.histograms(LevelTask(splits, ()))
        return self._rows

    @cached_property
    def _rows(self) -> ClientRows:
        features, gains, offsets = self._lists
        bins = self._bins
        return ClientRows(bins.place(features), self._n, bins.most, gains, offsets, self.training.gradients)

    def _add(self, theta: Doubles, scores: Doubles) -> None:
        ranker = Trees(self._ranker.leaves, len(theta) // self._ranker.numbers)
        if len(theta):
            add_tree_scores(*ranker.arrays(theta), self._lists[0], scores)

    # ------------------------------------------------------------ stored bins and trees

    @cached_property
    def _bins(self) -> Bins:
        raw = self.memory.fact(BINS)
        _check(raw is not None)
        assert raw is not None
        flat = np.frombuffer(raw, dtype="<f8")
        lengths = flat[: self._n].astype(np.int64)
        return Bins(tuple(np.split(flat[self._n :].astype(np.float32), np.cumsum(lengths)[:-1])))

    def _keep_bins(self, counts: tuple[int, ...], edges: Doubles) -> None:
        _check(len(counts) == self._n and sum(counts) == edges.size)
        _check(max(counts, default=0) < self.training.bins)
        parts = np.split(edges, np.cumsum(counts)[:-1])
        _check(all(bool((np.diff(part) > 0).all()) for part in parts))
        _check(bool((edges == edges.astype(np.float32)).all()))
        self.memory.set_fact(BINS, np.concatenate([counts, edges]).astype("<f8").tobytes())
        self.memory.set_fact(TREES, b"")
        self._at = (-1, -1)
        for name in ("_bins", "_rows"):
            self.__dict__.pop(name, None)

    @property
    def _trees(self) -> Doubles:
        return np.frombuffer(self.memory.fact(TREES) or b"", dtype="<f8").astype(np.float64)

    def _learned(self, trees: int, newest: Doubles) -> Doubles:
        """Store the newest tree, and return the first `trees` trees."""
        size, before = self._ranker.numbers, self._trees
        _check(newest.size == size and len(before) >= (trees - 1) * size)
        Trees(self._ranker.leaves, 1).check_size(newest, self._n)
        theta = np.concatenate([before[: (trees - 1) * size], newest])
        self.memory.set_fact(TREES, theta.astype("<f8").tobytes())
        return theta

    # ------------------------------------------------------------ held-out lists

    def _gains(self, theta: Doubles, trees: int) -> Integers:
        """Compute the number of held-out lists, and Σ g and Σ g² for each number of trees: g is the gain in nDCG@10."""
        size, counted = self._ranker.numbers, self._held & (self.own.ideal_top > 0.0)
        search = self.own.ndcg([np.zeros(size)], Trees(self._ranker.leaves, 1))[0][counted]
        told: list[int] = [int(counted.sum())]
        found = []
        for number in self.training.judged_numbers(trees):
            ranked = self.own.ndcg([theta[: number * size]], Trees(self._ranker.leaves, number))[0][counted]
            found.append(ranked - search)
        for power in (1, 2):
            told += [int(np.floor(gain**power * ONE + 0.5).astype(np.int64).sum()) for gain in found]
        return np.array(told, dtype=np.int64)


def _request(head: TreeHead, numbers: Doubles | None = None) -> SumRequest:
    found: dict[str, Any] = encode(head, defaults=False)
    return SumRequest(head.step == "judge", found, np.zeros(0) if numbers is None else numbers)


def _check(sound: bool) -> None:
    if not sound:
        raise not_agreed()
