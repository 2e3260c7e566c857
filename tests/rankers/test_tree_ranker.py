"""Scores of trees, and the parameters that hold them."""

from __future__ import annotations

import numpy as np
import pytest
from exported_rankers import some_trees
from refusals import refused

from quorank.rankers import Trees, scores
from quorank.rankers.trees import TreeArrays, tree_parameters

STUMP = TreeArrays(
    np.array([[1, 0, 0]], dtype=np.int32),
    np.array([[0.5, -1.0, 0.0]], dtype=np.float32),
    np.array([[1, -0, 0]], dtype=np.int32),
    np.array([[-2, -1, 0]], dtype=np.int32),
    np.array([[10.0, 20.0, 30.0, 0.0]]),
)
"""x1 ≤ 0.5: x0 ≤ −1: 10, else 20; else 30."""


def test_a_tree_scores_by_its_leaves() -> None:
    ranker, theta = Trees(leaves=4, trees=1), tree_parameters(STUMP)
    rows = [[-1.0, 0.5], [-0.9, 0.0], [-5.0, 0.6], [0.0, np.nan], [np.nan, 9.0]]
    assert ranker.score_features(theta, np.array(rows, dtype=np.float32)).tolist() == [10, 20, 30, 20, 30]
    assert scores(ranker, theta, rows).tolist() == [10, 20, 30, 20, 30]
    assert not Trees(leaves=4, trees=2).score_features(np.zeros(32), np.ones((3, 2), dtype=np.float32)).any()


def test_trees_add_up_and_unused_ones_score_nothing() -> None:
    ranker, theta = some_trees()
    features = np.random.default_rng(2).normal(size=(50, 4)).astype(np.float32)
    single = [Trees(8, 1).score_features(theta[36 * t : 36 * (t + 1)], features) for t in range(5)]
    assert ranker.score_features(theta, features) == pytest.approx(np.sum(single, axis=0))
    longer = np.concatenate([theta, np.zeros(36)])
    assert Trees(8, 6).score_features(longer, features).tolist() == ranker.score_features(theta, features).tolist()


@pytest.mark.parametrize(
    ("at", "value"),
    [(0, 2), (0, -1), (0, 0.5), (3, 0.1), (6, 3), (7, 1), (6, 1.5), (9, -4), (6, np.nan)],
    ids=["feature", "negative", "half", "threshold", "child", "loop", "no-number", "leaf", "nan"],
)
def test_parameters_that_are_no_trees_are_refused(at, value) -> None:
    theta = tree_parameters(STUMP)
    theta[at] = value
    with refused("ranker.no-trees"):
        Trees(leaves=4, trees=1).score_features(theta, np.zeros((1, 2), dtype=np.float32))
