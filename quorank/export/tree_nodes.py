"""Trees as lists of nodes without unused room, as other systems hold them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from quorank.rankers.ranker_file import SavedRanker
from quorank.rankers.trees import TreeArrays, Trees


class TreeNodes(NamedTuple):
    """One tree: node n has the children left[n], right[n]; c ≥ 0 is a node, c < 0 leaf −c − 1. Without nodes: one leaf."""

    feature: list[int]
    threshold: list[float]  # float32; a document goes left where its feature is at most this
    left: list[int]
    right: list[int]
    value: list[float]  # of the leaves

    @property
    def zero_left(self) -> list[bool]:
        """Where a missing feature goes: as 0 does."""
        return [threshold >= 0.0 for threshold in self.threshold]


def trees_of(saved: SavedRanker) -> list[TreeNodes]:
    """Return the trees of a ranker."""
    assert saved.ranker.grown
    shape = Trees(saved.ranker.tree_leaves, saved.ranker.size(saved.n_features) // (5 * saved.ranker.tree_leaves - 4))
    arrays = shape.arrays(saved.theta)
    return [_nodes(arrays, tree) for tree in range(shape.trees)]


def _nodes(arrays: TreeArrays, tree: int) -> TreeNodes:
    feature, threshold, left, right = (column[tree].tolist() for column in arrays[:4])
    found = TreeNodes([], [], [], [], [])
    if left[0] == right[0] <= 0:
        found.value.append(float(arrays.value[tree, -left[0]]))
        return found
    waiting: list[tuple[int, list[int] | None, int]] = [(0, None, 0)]  # node, and where its own number goes
    while waiting:
        node, side, at = waiting.pop(0)
        number = len(found.feature)
        if side is not None:
            side[at] = number
        found.feature.append(feature[node])
        found.threshold.append(float(np.float32(threshold[node])))
        found.left.append(0)
        found.right.append(0)
        for child, own in ((left[node], found.left), (right[node], found.right)):
            if child > 0:
                waiting.append((child, own, number))
            else:
                own[number] = -len(found.value) - 1
                found.value.append(float(arrays.value[tree, -child]))
    return found
