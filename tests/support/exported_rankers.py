"""Rankers of each kind and normalisation, for tests of what is written from them."""

from __future__ import annotations

import numpy as np

from quorank.data.normalisation import FixedRange, Normalisation, RawFeatures, WithinQuery
from quorank.export.exported_ranker import ExportedRanker
from quorank.rankers import MLP, Linear, Ranker, Trees
from quorank.rankers.ranker_file import SavedRanker
from quorank.rankers.trees import TreeArrays, tree_parameters

FEATURES = 6
NAMES = ("BM25 of title", "BM25 of body", "clicks", "f4", "age in days", "|length|")


def some_trees(trees: int = 5, leaves: int = 8, features: int = 4, seed: int = 1) -> tuple[Trees, np.ndarray]:
    """Random trees of random shapes, some of one leaf."""
    rng = np.random.default_rng(seed)
    arrays = TreeArrays(
        rng.integers(0, features, (trees, leaves - 1)).astype(np.int32),
        rng.normal(size=(trees, leaves - 1)).astype(np.float32),
        np.zeros((trees, leaves - 1), dtype=np.int32),
        np.zeros((trees, leaves - 1), dtype=np.int32),
        rng.normal(size=(trees, leaves)),
    )
    for t in range(trees - 1):
        open_ = [(0, side) for side in ("left", "right")]
        for node in range(1, int(rng.integers(1, leaves))):
            parent, side = open_.pop(int(rng.integers(len(open_))))
            getattr(arrays, side)[t, parent] = node
            open_ += [(node, "left"), (node, "right")]
        for leaf, (parent, side) in enumerate(open_):
            getattr(arrays, side)[t, parent] = -leaf
    return Trees(leaves, trees), tree_parameters(arrays)


def fixed_range(features: int = FEATURES) -> FixedRange:
    """Constants that float32 holds, negative ones among them, and one feature whose low and high are equal."""
    low = np.linspace(-3.0, 40.0, features).astype(np.float32).astype(float)
    high = (low + np.linspace(0.5, 900.0, features)).astype(np.float32).astype(float)
    high[1] = low[1]
    return FixedRange(tuple(low.tolist()), tuple(high.tolist()))


def normalisations() -> dict[str, Normalisation]:
    """One of each kind."""
    return {"none": RawFeatures(), "fixed": fixed_range(), "query": WithinQuery()}


def rankers() -> dict[str, tuple[Ranker, np.ndarray]]:
    """One of each kind, with parameters."""
    rng = np.random.default_rng(4)
    network = (FEATURES + 2) * 5
    return {
        "linear": (Linear(), rng.normal(size=FEATURES)),
        "relu": (MLP(5), rng.normal(size=network)),
        "sigmoid": (MLP(5, activation="sigmoid"), rng.normal(size=network)),
        "trees": some_trees(features=FEATURES),
    }


def saved_ranker(kind: str, normalisation: str = "none", missing: float = 0.0) -> SavedRanker:
    """A ranker with all that its file says."""
    ranker, theta = rankers()[kind]
    return SavedRanker(ranker, FEATURES, theta, normalisations()[normalisation], NAMES, missing)


def exported_ranker(
    kind: str, normalisation: str = "none", missing: float = 0.0, prenormalised: bool = False
) -> ExportedRanker:
    return ExportedRanker(saved_ranker(kind, normalisation, missing), prenormalised)
