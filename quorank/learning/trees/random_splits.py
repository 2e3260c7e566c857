"""Trees with random splits, drawn independently of the data: one release of leaf sums for a whole batch of trees.

A tree of depth D has the same feature and threshold at all nodes of a level, so that the D comparisons of a document are
the bits of its leaf. A client sends Σ G and WEIGHT·Σ H of its documents in each of the batch·2^D leaves. Splits that do not
depend on data cost no privacy, and the sums are few (Maddock et al. 2022, "Federated boosted decision trees with
differential privacy": random splits, batched updates). H weighs less than G in the release since it errs less: it has
the same sign for all clients.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from quorank.errors import require
from quorank.kernels.arrays import Bytes, Doubles, Int32s, Integers
from quorank.kernels.compiled import kernel
from quorank.kernels.draws import Purpose, uniforms
from quorank.learning.trees.bins import TOGETHER, Bins
from quorank.learning.trees.growth import UNIT, GrownTree

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
    depth = features.shape[1]
    for q in range(first, last):
        owner = owners[q]
        for row in range(offsets[q], offsets[q + 1]):
            g, h = gradients[row], hessians[row]
            for tree in range(features.shape[0]):
                leaf = 0
                for level in range(depth):
                    f = features[tree, level]
                    leaf = 2 * leaf + (1 if bins[f // TOGETHER, row, f % TOGETHER] > last_bins[tree, level] else 0)
                out[owner, tree, 0, leaf] += g
                out[owner, tree, 1, leaf] += h


@kernel
def add_drawn_values(bins: Bytes, features: Int32s, last_bins: Int32s, values: Doubles, scores: Doubles) -> None:
    """scores[row] += Σ over trees of the value of its leaf, the trees in their order."""
    depth = features.shape[1]
    for row in range(len(scores)):
        total = scores[row]
        for tree in range(features.shape[0]):
            leaf = 0
            for level in range(depth):
                f = features[tree, level]
                leaf = 2 * leaf + (1 if bins[f // TOGETHER, row, f % TOGETHER] > last_bins[tree, level] else 0)
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
