"""Walk through the trees of an exported model: the tables that readers fill, and the leaves that rows fall into."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from quorank.errors import require

MOST_NODES, MOST_TREES = 1 << 14, 100_000
"""Nodes of a tree, leaves among them, and trees of a model."""


@dataclass
class ParsedTree:
    """One tree of a file: node n is a split with two children of higher numbers, or a leaf (feature −1) with a value."""

    feature: list[int] = field(default_factory=list)
    threshold: list[float] = field(default_factory=list)  # or the value, of a leaf
    left: list[int] = field(default_factory=list)
    right: list[int] = field(default_factory=list)
    missing_left: list[bool] = field(default_factory=list)

    def add(self, feature: int, threshold: float, missing_left: bool = False) -> int:
        """Add a node and return its number; its children are set when they have theirs."""
        self.feature.append(feature)
        self.threshold.append(threshold)
        self.left.append(-1)
        self.right.append(-1)
        self.missing_left.append(missing_left)
        return len(self.feature) - 1


def nested_tree(root: object, read: Callable[[object], tuple[int, float, tuple[object, ...]]], file: str) -> ParsedTree:
    """Return a tree whose nodes hold each other, without going down by recursion.

    `read` gives of a node its feature, threshold, and left and right child; of a leaf −1, its value and no children.
    """
    tree = ParsedTree()
    waiting: list[tuple[object, int, bool]] = [(root, -1, False)]
    while waiting:
        node, parent, is_left = waiting.pop()
        feature, threshold, children = read(node)
        number = tree.add(feature, threshold)
        if children:
            waiting += [(children[1], number, False), (children[0], number, True)]
        if parent >= 0:
            (tree.left if is_left else tree.right)[parent] = number
        require(number < MOST_NODES, "export.damaged", "holds a tree of too many nodes", file)
    return tree


def check_trees(trees: list[ParsedTree], n_features: int, file: str) -> list[ParsedTree]:
    """Return the trees, each of which must have nodes, children behind their parents, and features that there are."""
    require(0 < len(trees) <= MOST_TREES, "export.damaged", f"holds {len(trees):,} trees", file)
    for number, tree in enumerate(trees, 1):
        size = len(tree.feature)
        sound = 0 < size <= MOST_NODES
        for node in range(size):
            split = tree.feature[node] >= 0
            children = (tree.left[node], tree.right[node])
            sound = sound and (not split or all(node < child < size for child in children))
            sound = sound and tree.feature[node] < n_features
        require(sound, "export.damaged", f"tree {number} has no sound nodes", file)
    return trees


def leaf_values(
    trees: list[ParsedTree], features: Any, goes_left: Callable[[Any, Any], Any], kind: type = np.float32
) -> Iterator[Any]:
    """Yield (rows,) the value of each row's leaf, tree by tree; `goes_left(x, threshold)` decides where x is there."""
    rows = np.arange(len(features))
    for tree in trees:
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
        yield threshold[node]


def summed(values: Iterator[Any], rows: int, kind: type) -> Any:
    """(rows,) the sum of what trees say, one after the other."""
    total: Any = np.zeros(rows, dtype=kind)
    with np.errstate(all="ignore"):
        for value in values:
            total = total + value
    return total
