"""Trees over raw features as lists of nodes without unused room, as other systems hold them.

A fixed normalisation x' = (x − low) / (high − low) is folded into the thresholds: it never falls in x, so x' ≤ t is x
≤ u, where u is the largest float32 whose x' is at most t. That is found by bisection and is exact, rounding included.
A node that all documents leave on one side is left out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from quorank.data.normalisation import Normalisation
from quorank.kernels.arrays import Floats
from quorank.rankers.ranker_file import SavedRanker
from quorank.rankers.trees import TreeArrays, Trees

_LARGEST = np.finfo(np.float32).max


class TreeNodes(NamedTuple):
    """One tree: node n has the children left[n], right[n]; c ≥ 0 is a node, c < 0 leaf −c − 1. Without nodes: one leaf."""

    feature: list[int]
    threshold: list[float]  # float32; a document goes left where its feature is at most this
    left: list[int]
    right: list[int]
    missing_left: list[bool]  # where a document without the feature goes
    value: list[float]  # of the leaves

    @property
    def depth(self) -> int:
        """Nodes on the longest way to a leaf."""
        deepest = [0] * len(self.feature)
        for node in range(len(self.feature) - 1, -1, -1):
            below = [deepest[child] for child in (self.left[node], self.right[node]) if child >= 0]
            deepest[node] = 1 + max(below, default=0)
        return deepest[0] if deepest else 0


def trees_of(saved: SavedRanker, normalisation: Normalisation) -> list[TreeNodes]:
    """Return the trees of a ranker over features that `normalisation` prepares row by row."""
    assert saved.ranker.grown
    shape = Trees(saved.ranker.tree_leaves, saved.ranker.size(saved.n_features) // (5 * saved.ranker.tree_leaves - 4))
    arrays = shape.arrays(saved.theta)
    found = [_nodes(arrays, tree, normalisation, saved) for tree in range(shape.trees)]
    return found or [TreeNodes([], [], [], [], [], [0.0])]


def _nodes(arrays: TreeArrays, tree: int, normalisation: Normalisation, saved: SavedRanker) -> TreeNodes:
    feature, left, right = (column[tree].tolist() for column in (arrays.feature, arrays.left, arrays.right))
    above = arrays.threshold[tree]
    raw, side = _raw_thresholds(arrays.feature[tree], above, normalisation, saved.n_features)
    missing = _scaled(
        np.full(len(feature), saved.missing, np.float32), arrays.feature[tree], normalisation, saved.n_features
    )
    missing_left = (missing <= above).tolist()
    found = TreeNodes([], [], [], [], [], [])

    def decided(child: int) -> int:
        """The child behind nodes that decide nothing; the root is node 0, and so never the child of another."""
        while child > 0 and side[child]:
            child = left[child] if side[child] < 0 else right[child]
        return int(child)

    first = side[0] or (-1 if left[0] == right[0] <= 0 else 0)  # a tree of one leaf has two equal children
    root = decided(left[0] if first < 0 else right[0]) if first else 0
    if first and root <= 0:
        found.value.append(float(arrays.value[tree, -root]))
        return found
    waiting: list[tuple[int, list[int] | None, int]] = [(root, None, 0)]  # node, and where its own number goes
    while waiting:
        node, owner, at = waiting.pop(0)
        number = len(found.feature)
        if owner is not None:
            owner[at] = number
        found.feature.append(feature[node])
        found.threshold.append(float(raw[node]))
        found.missing_left.append(missing_left[node])
        found.left.append(0)
        found.right.append(0)
        for child, own in ((decided(left[node]), found.left), (decided(right[node]), found.right)):
            if child > 0:
                waiting.append((child, own, number))
            else:
                own[number] = -len(found.value) - 1
                found.value.append(float(arrays.value[tree, -child]))
    return found


def _raw_thresholds(
    feature: Floats, threshold: Floats, normalisation: Normalisation, n_features: int
) -> tuple[Floats, list[int]]:
    """(nodes,) thresholds of raw features; and where a node sends every document: −1 left, 1 right, 0 it decides."""

    def goes_left(key: np.ndarray) -> np.ndarray:
        return _scaled(_of_key(key), feature, normalisation, n_features) <= threshold

    most = _keys(np.array([_LARGEST], dtype=np.float32))[0]
    low, high = np.full(len(threshold), -most), np.full(len(threshold), most)
    always, never = goes_left(high), ~goes_left(low)
    while (low < high).any():
        middle = (low + high + 1) >> 1
        left = goes_left(middle)
        low, high = np.where(left, middle, low), np.where(left, high, middle - 1)
    return _of_key(low), np.where(always, -1, np.where(never, 1, 0)).tolist()


def _scaled(values: Floats, feature: Floats, normalisation: Normalisation, n_features: int) -> Floats:
    """What a normalisation makes of one value of a feature each."""
    if not normalisation.low:
        return values
    low, high = (np.array(constants)[feature] for constants in (normalisation.low, normalisation.high))
    with np.errstate(all="ignore"):
        return np.where(high > low, (values.astype(np.float64) - low) / (high - low), 0.0).astype(np.float32)


def _keys(values: Floats) -> np.ndarray:
    """Whole numbers in the order of float32 numbers, neighbours by one."""
    bits = values.view(np.int32).astype(np.int64)
    return np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)


def _of_key(keys: np.ndarray) -> Floats:
    bits = np.where(keys < 0, -keys | 0x80000000, keys)
    return bits.astype(np.uint32).view(np.float32)
