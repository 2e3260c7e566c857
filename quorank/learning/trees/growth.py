"""Growth of one tree from summed histograms, level by level: the server's side, which sees sums only.

A split of a node with sums G, H into left and right gains

    G_l²/(H_l + λ) + G_r²/(H_r + λ) − G²/(H + λ)

and a leaf has the value −η·G/(H + λ) (Burges 2010; Friedman 2001). All nodes of a level are split at once: one message
requests the histograms of a level. Of two children the smaller one's histogram is requested; the other's is the parent's
minus it. Where fewer leaves are left than a level could make, the splits that gain most are made. Of equal gains the lower
feature wins, then the higher threshold, as in LightGBM. With 2^depth leaves this is the tree that LightGBM grows leaf by
leaf with `max_depth`, since all splits that gain are made in the end.

All sums are integers in 1/UNIT, so that equal data give equal trees, bit for bit.

Random splits are drawn independently of the data, and one release of leaf sums serves a whole batch of trees (Maddock et
al. 2022, "Federated boosted decision trees with differential privacy": random splits, batched updates): such splits cost no
privacy, and the sums are few. All nodes of a level have the same feature and threshold, so that the D comparisons of a
document are the bits of its leaf. A client sends Σ G and WEIGHT·Σ H of its documents in each of the batch·2^D leaves; H
weighs less because it errs less: it has the same sign for all clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from quorank.errors import require
from quorank.kernels.arrays import Bytes, Doubles, Floats, Int32s, Integers
from quorank.kernels.compiled import kernel
from quorank.kernels.draws import Purpose, uniforms
from quorank.learning.trees.bins import TOGETHER, Bins
from quorank.rankers.trees import TreeArrays

UNIT = 2.0**24
"""G and H are integers in 1/UNIT: as fine as float32 numbers about 1, which LightGBM has."""
SUM_G, SUM_H, COUNT = 0, 1, 2
"""Last index of a histogram."""


class LambdaRule(NamedTuple):
    """Settings of LambdaRank gradients."""

    sigmoid: float  # σ
    truncation: int
    norm: bool


class GrowthRule(NamedTuple):
    """Conditions of a split, and the settings of leaf values."""

    depth: int  # levels of splits at most
    leaves: int  # at most
    least_data: int  # documents of a leaf
    least_hessian: float  # H of a leaf
    ridge: float  # λ
    least_gain: float  # that a split must exceed
    eta: float  # η


class TreePlan(NamedTuple):
    """Settings of a learner that grows trees, as its clients and its server need them."""

    gradients: LambdaRule
    growth: GrowthRule
    bins: int  # of a feature, at most
    random: bool  # splits are drawn at random, independently of the data
    batch: int  # trees of a round
    propensities: Doubles | None  # (k,) of the ranks of logged lists; None: clients have labels
    temperature: float  # of logged lists
    least_lists: int
    quantile_releases: int  # that bins are agreed from, where there is noise; 0: bins are a grid


class NodeSplit(NamedTuple):
    """A node's split: bins up to `last_bin` of a feature go left."""

    node: int
    feature: int
    last_bin: int
    left: int  # the children's numbers
    right: int


class LevelTask(NamedTuple):
    """Task of one level: the splits of the level above, and the nodes whose histograms are requested."""

    splits: tuple[NodeSplit, ...]
    wanted: tuple[int, ...]


class GrownTree(NamedTuple):
    """A tree in the ranker's columns, and the node of each leaf as clients know it."""

    feature: Int32s
    threshold: Floats
    left: Int32s
    right: Int32s
    value: Doubles
    leaf_nodes: tuple[int, ...]


def columns_of(trees: Sequence[GrownTree]) -> TreeArrays:
    """Return grown trees in the ranker's columns."""
    return TreeArrays(*(np.array([getattr(tree, name) for tree in trees]) for name in TreeArrays._fields))


@dataclass(eq=False)
class TreeGrower:
    """Growing tree."""

    rule: GrowthRule
    bins: Bins
    task: LevelTask = field(default=LevelTask((), (0,)), init=False)
    _splits: list[NodeSplit] = field(default_factory=list, init=False)
    _sums: list[tuple[int, int, int]] = field(default_factory=lambda: [(0, 0, 0)], init=False)  # by node
    _held: dict[int, Integers] = field(default_factory=dict, init=False)  # histograms of the nodes of the last level
    _depth: int = field(default=0, init=False)

    @property
    def finished(self) -> bool:
        """No more histograms are requested."""
        return not self.task.wanted

    def accept(self, histograms: Integers, pool: Executor | None = None, threads: int = 1) -> LevelTask:
        """Take the summed histograms (wanted, features, bins, 3) of a level; return the next task."""
        open_nodes = self._opened(histograms)
        if self._depth == 0:
            root = histograms[0, 0].sum(axis=0)
            self._sums[0] = int(root[SUM_G]), int(root[SUM_H]), int(root[COUNT])
        found = best_splits(self.rule, [open_nodes[node] for node in open_nodes], self.bins.counts, pool, threads)
        room = self.rule.leaves - len(self._splits) - 1
        by_gain = sorted((-gain, node, at) for at, (node, gain) in enumerate(zip(open_nodes, found.gain, strict=True)))
        chosen = sorted((node, at) for cost, node, at in by_gain[: max(room, 0)] if cost < 0.0)
        splits = []
        for node, at in chosen:
            left, right = len(self._sums), len(self._sums) + 1
            g, h, n = (int(number) for number in found.left[at])
            all_g, all_h, all_n = self._sums[node]
            self._sums += [(g, h, n), (all_g - g, all_h - h, all_n - n)]
            splits.append(NodeSplit(node, int(found.feature[at]), int(found.bin[at]), left, right))
        self._splits += splits
        self._depth += 1
        self._held = {split.node: open_nodes[split.node] for split in splits}
        grows = self._depth < self.rule.depth and len(self._splits) + 1 < self.rule.leaves
        wanted = tuple(self._smaller(split) for split in splits) if grows else ()
        self.task = LevelTask(tuple(splits), wanted)
        return self.task

    def _smaller(self, split: NodeSplit) -> int:
        return split.left if self._sums[split.left][COUNT] <= self._sums[split.right][COUNT] else split.right

    def _opened(self, histograms: Integers) -> dict[int, Integers]:
        """The histogram of each node of this level, those that were not sent by subtraction."""
        if self._depth == 0:
            return {0: histograms[0]}
        found = {}
        for split, own in zip(self.task.splits, histograms, strict=True):
            small = self._smaller(split)
            other = split.right if small == split.left else split.left
            found[small], found[other] = own, self._held[split.node] - own
        return {node: found[node] for node in sorted(found)}

    def tree(self) -> GrownTree:
        """Return the finished tree."""
        rule, splits = self.rule, self._splits
        inner = {split.node: at for at, split in enumerate(splits)}
        leaves = [node for node in range(len(self._sums)) if node not in inner]
        of_leaf = {node: at for at, node in enumerate(leaves)}
        space = rule.leaves - 1
        feature, left, right = (np.zeros(space, dtype=np.int32) for _ in range(3))
        threshold, value = np.zeros(space, dtype=np.float32), np.zeros(rule.leaves)
        for at, split in enumerate(splits):
            feature[at], threshold[at] = split.feature, self.bins.edges[split.feature][split.last_bin]
            for side, child in ((left, split.left), (right, split.right)):
                side[at] = inner[child] if child in inner else -of_leaf[child]
        for at, node in enumerate(leaves):
            g, h, _ = self._sums[node]
            value[at] = leaf_value(g, h, rule)
        if not splits:
            value[0] = 0.0  # one leaf for all ranks nothing
        return GrownTree(feature, threshold, left, right, value, tuple(leaves))


def leaf_value(g: float, h: float, rule: GrowthRule) -> float:
    """−η·G/(H + λ) of integer sums in 1/UNIT; 0 where H + λ is 0."""
    below = h / UNIT + rule.ridge
    return -rule.eta * (g / UNIT) / below if below > 0.0 else 0.0


class BestSplits(NamedTuple):
    """Best split of each node; a gain of 0 means no split."""

    gain: Doubles  # (nodes,)
    feature: Integers
    bin: Integers
    left: Integers  # (nodes, 3) sums of the left child


def best_splits(
    rule: GrowthRule, histograms: Sequence[Integers], counts: Int32s, pool: Executor | None = None, threads: int = 1
) -> BestSplits:
    """Return the best split of each histogram (features, bins, 3), over all features with `counts` bins each."""
    nodes, n = len(histograms), len(counts)
    parts = threads if pool is not None else 1
    found = [_nothing(nodes) for _ in range(parts)]
    edges = np.linspace(0, n, parts + 1).astype(int).tolist()

    def search(part: int) -> None:
        for node, histogram in enumerate(histograms):
            best_split(rule, histogram, counts, edges[part], edges[part + 1], node, *found[part])

    if pool is None:
        search(0)
    else:
        list(pool.map(search, range(parts)))
    best = found[0]
    for other in found[1:]:  # of higher features: only a larger gain wins
        better = other.gain > best.gain
        best = BestSplits(
            np.where(better, other.gain, best.gain),
            np.where(better, other.feature, best.feature),
            np.where(better, other.bin, best.bin),
            np.where(better[:, None], other.left, best.left),
        )
    return best


def _nothing(nodes: int) -> BestSplits:
    whole = np.int64
    return BestSplits(np.zeros(nodes), np.zeros(nodes, whole), np.zeros(nodes, whole), np.zeros((nodes, 3), whole))


@kernel
def best_split(
    rule: GrowthRule,
    histogram: Integers,
    counts: Int32s,
    first: int,
    last: int,
    node: int,
    best: Doubles,
    feature: Integers,
    bin_: Integers,
    left: Integers,
) -> None:
    """best[node], feature[node], bin_[node], left[node] of the split of features first … last − 1 that gains most."""
    g, h, n = np.int64(0), np.int64(0), np.int64(0)
    for b in range(histogram.shape[1]):
        g += histogram[0, b, SUM_G]
        h += histogram[0, b, SUM_H]
        n += histogram[0, b, COUNT]
    total, below = g / UNIT, h / UNIT + rule.ridge
    if below <= 0.0:
        return
    before = total * total / below + rule.least_gain
    for f in range(first, last):
        g_right, h_right, n_right = np.int64(0), np.int64(0), np.int64(0)
        for b in range(counts[f] - 1, 0, -1):
            g_right += histogram[f, b, SUM_G]
            h_right += histogram[f, b, SUM_H]
            n_right += histogram[f, b, COUNT]
            weight_right = h_right / UNIT
            if n_right < max(rule.least_data, 1) or weight_right < rule.least_hessian:
                continue
            weight_left = (h - h_right) / UNIT
            if n - n_right < max(rule.least_data, 1) or weight_left < rule.least_hessian:
                break
            pull_left, pull_right = (g - g_right) / UNIT, g_right / UNIT
            if weight_left + rule.ridge <= 0.0 or weight_right + rule.ridge <= 0.0:
                continue
            after = pull_left * pull_left / (weight_left + rule.ridge)
            after += pull_right * pull_right / (weight_right + rule.ridge)
            if after - before > best[node]:
                best[node] = after - before
                feature[node], bin_[node] = f, b - 1
                left[node, SUM_G], left[node, SUM_H], left[node, COUNT] = g - g_right, h - h_right, n - n_right


WEIGHT = 0.25
"""Of H in a release, relative to G."""


class DrawnSplits(NamedTuple):
    """The splits of a batch of trees: a feature and the last bin that goes left, for each level."""

    features: Int32s  # (trees, depth)
    last_bins: Int32s  # (trees, depth)


def draw_splits(seed: int, round_: int, batch: int, depth: int, bins: Bins) -> DrawnSplits:
    """Draw the splits of a round's trees: different features of a tree, and any edge of each."""
    usable = np.flatnonzero(bins.counts > 1)
    sentence = f"random trees of depth {depth} need as many features that differ between documents; lower depth"
    require(len(usable) >= depth, "trees.too-few-features", sentence, "learner.depth")
    features, last = np.zeros((batch, depth), dtype=np.int32), np.zeros((batch, depth), dtype=np.int32)
    for tree in range(batch):
        drawn, left = uniforms(seed, Purpose.SPLITS, 2 * depth, round_=round_, client=tree), usable.tolist()
        for level in range(depth):
            feature = left.pop(int(drawn[2 * level] * len(left)))
            features[tree, level] = feature
            last[tree, level] = int(drawn[2 * level + 1] * (bins.counts[feature] - 1))
    return DrawnSplits(features, last)


@kernel
def _leaf_of(bins: Bytes, features: Int32s, last_bins: Int32s, tree: int, row: int) -> int:
    """Return the leaf of a document in a drawn tree."""
    leaf = 0
    for level in range(features.shape[1]):
        f = features[tree, level]
        leaf = 2 * leaf + (1 if bins[f // TOGETHER, row, f % TOGETHER] > last_bins[tree, level] else 0)
    return leaf


@kernel
def fill_leaf_sums(
    bins: Bytes,
    features: Int32s,
    last_bins: Int32s,
    offsets: Integers,
    owners: Integers,
    gradients: Integers,
    hessians: Integers,
    first: int,
    last: int,
    out: Integers,
) -> None:
    """out[owner of list, tree, 0 or 1, leaf] += G, H of the documents of lists first … last − 1, in 1/UNIT."""
    for q in range(first, last):
        owner = owners[q]
        for row in range(offsets[q], offsets[q + 1]):
            g, h = gradients[row], hessians[row]
            for tree in range(features.shape[0]):
                leaf = _leaf_of(bins, features, last_bins, tree, row)
                out[owner, tree, 0, leaf] += g
                out[owner, tree, 1, leaf] += h


@kernel
def add_drawn_values(bins: Bytes, features: Int32s, last_bins: Int32s, values: Doubles, scores: Doubles) -> None:
    """scores[row] += Σ over trees of the value of its leaf, the trees in their order."""
    for row in range(len(scores)):
        total = scores[row]
        for tree in range(features.shape[0]):
            leaf = _leaf_of(bins, features, last_bins, tree, row)
            total += values[tree, leaf]
        scores[row] = total


def drawn_values(sums: Doubles, eta: float, ridge: float) -> Doubles:
    """(trees, leaves) −η·G/(max(H, 0) + λ) from sums (trees, 2, leaves), noisy or not; 0 where that is divided by 0."""
    below = np.maximum(sums[:, 1], 0.0) + ridge
    return np.where(below > 0.0, -eta * sums[:, 0] / np.where(below > 0.0, below, 1.0), 0.0)


def drawn_trees(splits: DrawnSplits, values: Doubles, bins: Bins, leaves: int) -> list[GrownTree]:
    """Return the trees of a batch in the ranker's columns, padded to `leaves` each."""
    depth, found = splits.features.shape[1], []
    inner = (1 << depth) - 1
    for tree in range(len(values)):
        feature, left, right = (np.zeros(leaves - 1, dtype=np.int32) for _ in range(3))
        threshold, value = np.zeros(leaves - 1, dtype=np.float32), np.zeros(leaves)
        for node in range(inner):  # as in a heap: node n has the children 2n + 1 and 2n + 2
            level = (node + 1).bit_length() - 1
            of = int(splits.features[tree, level])
            feature[node], threshold[node] = of, bins.edges[of][splits.last_bins[tree, level]]
            for side, child in ((left, 2 * node + 1), (right, 2 * node + 2)):
                side[node] = child if child < inner else inner - child
        value[: inner + 1] = values[tree]
        found.append(GrownTree(feature, threshold, left, right, value, ()))
    return found


def release_rows(sums: Integers) -> Doubles:
    """(clients, numbers) release of the leaf sums (clients, trees, 2, leaves): G, and H times WEIGHT."""
    scaled = sums / UNIT
    scaled[:, :, 1] *= WEIGHT
    return np.ascontiguousarray(scaled.reshape(len(sums), -1), dtype=np.float64)


def sums_of_release(total: Doubles, trees: int) -> Doubles:
    """(trees, 2, leaves) leaf sums of a release."""
    sums = total.reshape(trees, 2, -1).copy()
    sums[:, 1] /= WEIGHT
    return sums
