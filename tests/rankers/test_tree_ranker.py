"""Scores of trees, the parameters that hold them, and the models of other systems that are written from them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from refusals import refused

from quorank.export import TARGETS, target_of
from quorank.rankers import Linear, Trees, scores
from quorank.rankers.ranker_file import SavedRanker, read_ranker
from quorank.rankers.trees import TreeArrays, tree_parameters

STUMP = TreeArrays(
    np.array([[1, 0, 0]], dtype=np.int32),
    np.array([[0.5, -1.0, 0.0]], dtype=np.float32),
    np.array([[1, -0, 0]], dtype=np.int32),
    np.array([[-2, -1, 0]], dtype=np.int32),
    np.array([[10.0, 20.0, 30.0, 0.0]]),
)
"""x1 ≤ 0.5: x0 ≤ −1: 10, else 20; else 30."""


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


def saved(ranker, theta, features: int = 4) -> SavedRanker:
    return SavedRanker(ranker, features, "query", theta)


def foreign_rows() -> np.ndarray:
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(400, 4)).astype(np.float32)
    rows[rng.random(rows.shape) < 0.2] = np.nan
    rows[:100, 1] = some_thresholds(rows[:100, 1])
    return rows


def some_thresholds(like: np.ndarray) -> np.ndarray:
    """Numbers that lie exactly on thresholds, where ≤ and < differ."""
    ranker, theta = some_trees()
    return np.resize(ranker.arrays(theta).threshold.ravel(), like.shape)


def test_lightgbm_reads_the_text_model(tmp_path: Path) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    ranker, theta = some_trees()
    for name, content in target_of("lightgbm").files(saved(ranker, theta)).items():
        (tmp_path / name).write_bytes(content)
    model = lightgbm.Booster(model_file=tmp_path / "model.txt")
    rows = foreign_rows()
    assert model.num_trees() == 5
    assert model.predict(rows).tolist() == ranker.score_features(theta, rows).tolist()


def test_xgboost_reads_the_json_model(tmp_path: Path) -> None:
    xgboost = pytest.importorskip("xgboost", reason="pip install xgboost, which is large")
    ranker, theta = some_trees()
    for name, content in target_of("xgboost").files(saved(ranker, theta)).items():
        (tmp_path / name).write_bytes(content)
    model, rows = xgboost.Booster(model_file=tmp_path / "model.json"), foreign_rows()
    assert model.predict(xgboost.DMatrix(rows)) == pytest.approx(ranker.score_features(theta, rows), abs=1e-5)


def test_the_json_model_means_the_same_walked_by_hand() -> None:
    """x < t at every node, missing by `default_left`: as XGBoost's documentation says, without XGBoost."""
    ranker, theta = some_trees()
    model = json.loads(target_of("xgboost").files(saved(ranker, theta))["model.json"])
    trees, rows = model["learner"]["gradient_booster"]["model"]["trees"], foreign_rows()
    for row, expected in zip(rows, ranker.score_features(theta, rows), strict=True):
        total = 0.0
        for tree in trees:
            node = 0
            while tree["left_children"][node] != -1:
                x, t = row[tree["split_indices"][node]], np.float32(tree["split_conditions"][node])
                left = tree["default_left"][node] if np.isnan(x) else x < t
                node = tree["left_children" if left else "right_children"][node]
            total += tree["split_conditions"][node]
        assert total == pytest.approx(expected, abs=1e-5)


def test_targets_take_the_rankers_that_they_can_hold() -> None:
    with refused("export.unknown-target", "--to"):
        target_of("lightbgm")
    for target in TARGETS.values():
        with refused("export.wrong-ranker", "here"):
            target.check(saved(Linear(), np.zeros(4)), "here")


def test_a_ranker_file_of_damaged_trees_is_refused(tmp_path: Path) -> None:
    _, theta = some_trees()
    table = {"kind": "trees", "leaves": 8, "trees": 5}
    content = {"format": "quorank-ranker/1", "ranker": table, "n_features": 4, "normalize": "query"}
    (tmp_path / "ranker.json").write_text(json.dumps(content | {"parameters": theta.tolist()}))
    assert read_ranker(tmp_path).theta.tolist() == theta.tolist()
    theta[0] = 4
    (tmp_path / "ranker.json").write_text(json.dumps(content | {"parameters": theta.tolist()}))
    with refused("ranker-file.damaged"):
        read_ranker(tmp_path)
