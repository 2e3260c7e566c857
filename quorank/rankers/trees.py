"""Tree ensemble, whose parameters are one flat vector θ like any ranker's.

With at most L leaves, each tree is 5·L − 4 numbers:

    feature (L − 1), threshold (L − 1), left (L − 1), right (L − 1), value (L)

A document goes left at a node where its feature is at most the threshold, a float32. A child c > 0 is node c, which is
always above its parent's number, and c ≤ 0 is leaf −c; so a tree of zeros is one leaf of value 0, and θ = 0 scores 0. A
missing feature (NaN) counts as 0, as in LETOR files, which leave such features out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from quorank.errors import require, require_range
from quorank.kernels.arrays import Doubles, Floats, Int32s
from quorank.kernels.compiled import kernel
from quorank.rankers.ranker import Ranker

MOST_TREES, MOST_LEAVES = 100_000, 4096


class TreeArrays(NamedTuple):
    """Trees of an ensemble in columns.

    Args:
        feature: (trees, L − 1) tested feature of each node.
        threshold: (trees, L − 1) largest value that goes left.
        left: (trees, L − 1) left child c: node c for c > 0, leaf −c for c ≤ 0.
        right: (trees, L − 1) right child.
        value: (trees, L) score of each leaf.
    """

    feature: Int32s
    threshold: Floats
    left: Int32s
    right: Int32s
    value: Doubles


@dataclass(frozen=True)
class Trees(Ranker):
    """Sum of regression trees, as grown by `lambdamart`: f(x) = Σ_t value of the leaf of tree t.

    Args:
        leaves: L, largest number of leaves of a tree, 2 to 4096.
        trees: T, number of trees; 0 stands for as many as the run grows.

    Raises:
        BadInput: `value.out-of-range` if a field is outside its range.

    >>> stump = np.array([0.0, 0.5, 0.0, -1.0, 10.0, 20.0])  # feature 0, threshold 0.5, leaves 0 and 1, their values
    >>> Trees(leaves=2, trees=1).score_features(stump, np.array([[0.2], [0.9]], dtype=np.float32))
    array([10., 20.])
    """

    kind: ClassVar[str] = "trees"
    grown: ClassVar[bool] = True

    leaves: int = 64
    trees: int = 0

    def __post_init__(self) -> None:
        require_range("leaves", self.leaves, least=2, most=MOST_LEAVES)
        require_range("trees", self.trees, least=0, most=MOST_TREES)

    def with_trees(self, trees: int) -> Trees:
        sentence = f"has {self.trees} trees, and the run grows {trees}; leave ranker.trees out"
        require(self.trees in (0, trees), "option.conflict", sentence, "trees")
        return Trees(self.leaves, trees)

    @property
    def tree_leaves(self) -> int:
        return self.leaves

    @property
    def numbers(self) -> int:
        """Number of parameters of a tree, 5·L − 4."""
        return 5 * self.leaves - 4

    def size(self, n_features: int) -> int:
        return self.trees * self.numbers

    def initial(self, n_features: int, seed: int) -> Doubles:
        return np.zeros(self.size(n_features))

    def check_size(self, theta: Doubles, n_features: int) -> None:
        super().check_size(theta, n_features)
        split = self.leaves - 1
        feature, threshold, left, right, _ = self._columns(theta)
        own = np.arange(split)
        sound = _whole(feature, 0, n_features - 1) and bool((threshold == threshold.astype(np.float32)).all())
        for child in (left, right):
            sound = sound and _whole(child, -split, split - 1) and bool(((child <= 0) | (child > own)).all())
        require(sound, "ranker.no-trees", "these parameters are no trees of this ranker")

    def arrays(self, theta: Doubles) -> TreeArrays:
        """Return the trees of θ, which `check_size` has accepted."""
        feature, threshold, left, right, value = self._columns(theta)
        tested = feature.astype(np.int32), threshold.astype(np.float32)
        return TreeArrays(*tested, left.astype(np.int32), right.astype(np.int32), np.ascontiguousarray(value))

    def _columns(self, theta: Doubles) -> list[Doubles]:
        """Return the numbers of all trees in the columns of `TreeArrays`."""
        trees = np.asarray(theta, dtype=np.float64).reshape(self.trees, self.numbers)
        return np.split(trees, (self.leaves - 1) * np.arange(1, 5), axis=1)

    def score_features(self, theta: Doubles, features: Floats) -> Doubles:
        n_features = features.shape[1]
        self.check_size(theta, n_features)
        trees, out = self.arrays(theta), np.zeros(len(features))
        add_tree_scores(*trees, np.ascontiguousarray(features, dtype=np.float32), out)
        return out


def _whole(values: Doubles, least: int, most: int) -> bool:
    return bool(((values == np.floor(values)) & (values >= least) & (values <= most)).all())


def tree_parameters(trees: TreeArrays) -> Doubles:
    """Return θ of trees in columns, the inverse of `Trees.arrays`.

    >>> stump = np.array([0.0, 0.5, 0.0, -1.0, 10.0, 20.0])
    >>> tree_parameters(Trees(leaves=2, trees=1).arrays(stump)).tolist() == stump.tolist()
    True
    """
    columns = (trees.feature, trees.threshold, trees.left, trees.right, trees.value)
    return np.concatenate([column.astype(np.float64) for column in columns], axis=1).ravel()


@kernel
def add_tree_scores(
    feature: Int32s, threshold: Floats, left: Int32s, right: Int32s, value: Doubles, features: Floats, out: Doubles
) -> None:
    """Add Σ_t value of the leaf of each row to `out` (rows,), in the order of the trees of `TreeArrays`."""
    for r in range(features.shape[0]):
        total = out[r]
        for t in range(feature.shape[0]):
            node = 0
            while True:
                x = features[r, feature[t, node]]
                if np.isnan(x):
                    x = np.float32(0.0)
                node = left[t, node] if x <= threshold[t, node] else right[t, node]
                if node <= 0:
                    break
            total += value[t, -node]
        out[r] = total
