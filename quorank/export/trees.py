"""Trees over raw features as columns of nodes: made from a ranker, or read from a file and walked.

A fixed normalisation x' = (x − low) / (high − low) is folded into the thresholds: it is monotone in x, so x' ≤ t is x ≤ u,
where u is the largest float32 whose x' is at most t. Bisection finds u exactly, rounding included. A node that sends all
documents to one side is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from quorank.data.normalisation import Normalisation
from quorank.kernels.arrays import Floats
from quorank.rankers.ranker_file import SavedRanker
from quorank.rankers.trees import TreeArrays, Trees


@dataclass
class NodeTree:
    """Tree: node n is a split whose two children have higher numbers, or a leaf (feature −1) with a value.

    In trees made from a ranker, splits come first and leaves follow.
    """

    feature: list[int] = field(default_factory=list)
    threshold: list[float] = field(default_factory=list)  # float32, left where x ≤ threshold; of a leaf, its value
    left: list[int] = field(default_factory=list)
    right: list[int] = field(default_factory=list)
    missing_left: list[bool] = field(default_factory=list)  # direction of a document without the feature

    def add(self, feature: int, threshold: float, missing_left: bool = False) -> int:
        """Add a node without children and return its number."""
        self.feature.append(feature)
        self.threshold.append(threshold)
        self.left.append(-1)
        self.right.append(-1)
        self.missing_left.append(missing_left)
        return len(self.feature) - 1

    @property
    def splits(self) -> int:
        """Number of splits."""
        return sum(feature >= 0 for feature in self.feature)

    @property
    def leaf_values(self) -> list[float]:
        """Values of the leaves, in their order."""
        return [value for feature, value in zip(self.feature, self.threshold, strict=True) if feature < 0]

    @property
    def next_above(self) -> Floats:
        """The next float32 above each threshold: x < that number is the same as x ≤ threshold."""
        return np.nextafter(np.array(self.threshold, dtype=np.float32), np.float32(np.inf))

    @property
    def depth(self) -> int:
        """Splits on the longest path to a leaf."""
        return int(self.fold(lambda leaf: 0, lambda node, left, right: 1 + max(left, right)))

    def fold(self, of_leaf: Callable[[int], Any], of_split: Callable[[int, Any, Any], Any]) -> Any:
        """Build a nested value from the leaves up, without recursion: `of_split(node, left value, right value)`."""
        built: list[Any] = [None] * len(self.feature)
        for node in range(len(self.feature) - 1, -1, -1):
            if self.feature[node] < 0:
                built[node] = of_leaf(node)
            else:
                built[node] = of_split(node, built[self.left[node]], built[self.right[node]])
        return built[0]


# ------------------------------------------------------------ trees of a ranker


def trees_of(saved: SavedRanker) -> list[NodeTree]:
    """Return the trees of a ranker over features without its fixed normalisation."""
    assert saved.ranker.grown
    shape = Trees(saved.ranker.tree_leaves, saved.ranker.size(saved.n_features) // (5 * saved.ranker.tree_leaves - 4))
    arrays = shape.arrays(saved.theta)
    trees = [_raw_tree(arrays, tree, saved.normalisation, saved.missing) for tree in range(shape.trees)]
    return trees or [NodeTree([-1], [0.0], [-1], [-1], [False])]


def _raw_tree(arrays: TreeArrays, number: int, normalisation: Normalisation, missing: float) -> NodeTree:
    feature, left, right = (column[number].tolist() for column in (arrays.feature, arrays.left, arrays.right))
    limits = arrays.threshold[number]
    raw, side = _raw_thresholds(arrays.feature[number], limits, normalisation)
    filled = np.full(len(feature), missing, np.float32)
    missing_left = (_normalise(filled, arrays.feature[number], normalisation) <= limits).tolist()
    values = [float(value) for value in arrays.value[number]]

    def deciding(child: int) -> int:
        """Skip nodes that send all documents to one side; a child c > 0 is a node, c ≤ 0 the leaf −c."""
        while child > 0 and side[child]:
            child = left[child] if side[child] < 0 else right[child]
        return int(child)

    first = side[0] or (-1 if left[0] == right[0] <= 0 else 0)  # a tree of one leaf has two equal children
    root = deciding(left[0] if first < 0 else right[0]) if first else 0
    if first and root <= 0:
        return NodeTree([-1], [values[-root]], [-1], [-1], [False])
    order, children = [root], []  # splits breadth first; the two children of each
    for node in order:
        children.append((deciding(left[node]), deciding(right[node])))
        order += [child for child in children[-1] if child > 0]
    tree = NodeTree()
    for node in order:
        tree.add(feature[node], float(raw[node]), missing_left[node])
    numbers = {node: at for at, node in enumerate(order)}
    for at, pair in enumerate(children):
        tree.left[at], tree.right[at] = (
            numbers[child] if child > 0 else tree.add(-1, values[-child]) for child in pair
        )
    return tree


def _raw_thresholds(feature: Floats, threshold: Floats, normalisation: Normalisation) -> tuple[Floats, list[int]]:
    """Return thresholds of raw features, and the side that gets all documents: −1 left, 1 right, 0 neither."""

    def goes_left(key: np.ndarray) -> np.ndarray:
        return _normalise(_from_key(key), feature, normalisation) <= threshold

    most = int(np.finfo(np.float32).max.view(np.int32))
    low, high = np.full(len(threshold), -most), np.full(len(threshold), most)
    always, never = goes_left(high), ~goes_left(low)
    while (low < high).any():
        middle = (low + high + 1) >> 1
        left = goes_left(middle)
        low, high = np.where(left, middle, low), np.where(left, high, middle - 1)
    return _from_key(low), np.where(always, -1, np.where(never, 1, 0)).tolist()


def _normalise(values: Floats, feature: Floats, normalisation: Normalisation) -> Floats:
    """Normalise one value of each listed feature."""
    if not normalisation.low:
        return values
    low, high = (np.array(constants)[feature] for constants in (normalisation.low, normalisation.high))
    with np.errstate(all="ignore"):
        return np.where(high > low, (values.astype(np.float64) - low) / (high - low), 0.0).astype(np.float32)


def _from_key(keys: np.ndarray) -> Floats:
    """Map integers to float32 numbers in the same order, neighbours to neighbours."""
    bits = np.where(keys < 0, -keys | 0x80000000, keys)
    return bits.astype(np.uint32).view(np.float32)


# ------------------------------------------------------------ trees of a file


def read_nested(root: Any, read: Callable[[Any], tuple[int, float, tuple[Any, ...]]]) -> NodeTree:
    """Read a tree whose nodes contain each other, without recursion.

    `read` returns a split's feature, threshold, and (left, right) child; of a leaf −1, its value and ().
    """
    tree = NodeTree()
    waiting: list[tuple[Any, int, bool]] = [(root, -1, False)]
    while waiting:
        node, parent, is_left = waiting.pop()
        feature, threshold, children = read(node)
        number = tree.add(feature, threshold)
        if children:
            waiting += [(children[1], number, False), (children[0], number, True)]
        if parent >= 0:
            (tree.left if is_left else tree.right)[parent] = number
    return tree


def sum_of_trees(
    trees: list[NodeTree],
    features: Any,
    goes_left: Callable[[Any, Any], Any],
    kind: type = np.float32,
    weights: Sequence[Any] = (),
) -> Any:
    """Compute (rows,) Σ weight · leaf, tree by tree in a type; `goes_left(x, threshold)` decides for features present."""
    rows = np.arange(len(features))
    total: Any = np.zeros(len(features), dtype=kind)
    for tree, weight in zip(trees, weights or [kind(1.0)] * len(trees), strict=True):
        feature, left, right = (np.array(column) for column in (tree.feature, tree.left, tree.right))
        threshold: Any = np.array(tree.threshold, dtype=kind)
        missing = np.array(tree.missing_left)
        node = np.zeros(len(features), dtype=np.int64)
        walking = rows if feature[0] >= 0 else rows[:0]
        while len(walking):
            at = node[walking]
            x = features[walking, feature[at]]
            to_left = np.where(np.isnan(x), missing[at], goes_left(x, threshold[at]))
            node[walking] = np.where(to_left, left[at], right[at])
            walking = walking[feature[node[walking]] >= 0]
        with np.errstate(all="ignore"):
            total = (total + threshold[node] * weight).astype(kind)
    return total
