"""Loaded rankers score raw arrays to the bits of the kernels, without loading them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from refusals import refused
from sampling import sampled

import quorank
from quorank.data.normalisation import FixedRange, RawFeatures, WithinQuery, normalize_queries, query_ranges_scaled
from quorank.data.ranking import RankingData
from quorank.rankers import MLP, Linear, Trees, array_scoring, scores
from quorank.rankers.array_scoring import scored_arrays
from quorank.rankers.ranker_file import SavedRanker
from quorank.rankers.trees import TreeArrays, tree_parameters

RANDOM = np.random.default_rng(7)


def array_scores(ranker, theta, features):
    return scored_arrays(ranker, theta, features, 0.0, RawFeatures())


def data(n: int, queries: int = 30, scale: float = 1e6) -> RankingData:
    offsets = np.cumsum([0, *RANDOM.integers(1, 60, size=queries)])
    features = (RANDOM.normal(size=(offsets[-1], n)) * scale).astype(np.float32)
    features[RANDOM.random(features.shape) < 0.3] = 0.0
    return RankingData.from_arrays(features, np.zeros(offsets[-1], dtype=int), offsets)


def a_tree(n: int) -> tuple[Trees, np.ndarray]:
    """Two trees with three leaves each."""
    feature = np.array([[0, 1, 0], [1, 0, 0]], np.int32) % n
    threshold = np.array([[0.0, 1.5, 0], [-2.5, 0.0, 0]], np.float32)
    left, right = np.array([[1, 0, 0], [0, -1, 0]], np.int32), np.array([[-2, -1, 0], [1, -2, 0]], np.int32)
    value = np.array([[0.1, -0.7, 3.3, 0], [1.0, 0.3, -9.1, 0]])
    return Trees(4, 2), tree_parameters(TreeArrays(feature, threshold, left, right, value))


@pytest.mark.parametrize(
    ("n", "ranker"), sampled([1, 7, 8, 46, 136], [Linear(), MLP(1), MLP(13), MLP(64, activation="sigmoid")], times=2)
)
def test_scores_are_those_of_the_kernels_bit_for_bit(n: int, ranker, monkeypatch) -> None:
    monkeypatch.setattr(array_scoring, "FEW", 1 << 30)  # interpreted
    lists = data(n, 5, scale=3.0)
    theta = RANDOM.normal(size=ranker.size(n))
    found = array_scores(ranker, theta, lists.features)
    assert found.dtype == np.float32 and found.tobytes() == scores(ranker, theta, lists).tobytes()


def test_trees_are_scored_in_double_by_either_way(monkeypatch) -> None:
    ranker, theta = a_tree(5)
    lists = data(5, 4, scale=2.0)
    compiled = array_scores(ranker, theta, lists.features)
    monkeypatch.setattr(array_scoring, "FEW", 1 << 30)
    interpreted = array_scores(ranker, theta, lists.features)
    assert compiled.dtype == np.float64 and compiled.tobytes() == interpreted.tobytes()
    assert len(np.unique(compiled)) > 4


@pytest.mark.parametrize("n", [1, 9])
def test_pieces_of_lists_are_normalised_as_one(n: int) -> None:
    lists = data(n, 2000)
    found = query_ranges_scaled(np.ascontiguousarray(lists.features), lists.offsets[:-1])
    assert found.tobytes() == np.ascontiguousarray(normalize_queries(lists).features).tobytes()


@pytest.mark.parametrize("ranker", [Linear(), MLP(3)])
def test_a_loaded_ranker_prepares_raw_features(ranker, tmp_path: Path) -> None:
    lists = data(5)
    theta = RANDOM.normal(size=ranker.size(5))
    expected = scores(ranker, theta, normalize_queries(lists))
    path = SavedRanker(ranker, 5, theta).save(tmp_path / "r.json")
    loaded = quorank.Ranker.load(path)
    sizes = np.diff(lists.offsets)
    ids = np.repeat([f"q{i}" for i in range(len(sizes))], sizes)
    for group in (sizes, sizes.tolist(), ids, ids.tolist(), np.repeat(np.arange(len(sizes))[::-1], sizes)):
        assert loaded.score(lists.features, group).tobytes() == expected.tobytes()
    mixed = RANDOM.permutation(lists.n_rows)
    assert loaded.score(lists.features[mixed], ids[mixed]).tobytes() == expected[mixed].tobytes()
    with refused("features.no-group", "group"):
        loaded.score(lists.features)
    for group in (sizes[:-1], [[1]], [0.5, lists.n_rows - 0.5]):
        with refused("ranking-data.length", "group"):
            loaded.score(lists.features, group)


def test_missing_features_are_filled_before_they_are_normalised() -> None:
    theta = np.array([1.0, 10.0])
    rows = [[np.nan, 5.0], [4.0, np.nan]]
    fixed = SavedRanker(Linear(), 2, theta, FixedRange((2.0, 0.0), (4.0, 10.0)), missing=3.0)
    assert fixed.score(rows).tolist() == [(3 - 2) / 2 + 10 * 0.5, 1.0 + 10 * np.float32(0.3)]
    assert SavedRanker(Linear(), 2, theta, RawFeatures(), missing=-1.0).score(rows).tolist() == [49.0, -6.0]
    within = SavedRanker(Linear(), 2, theta, WithinQuery(), missing=5.0)
    assert within.score(rows, [2]).tolist() == [1.0, 0.0]  # 5 and 4; 5 and 5
    given = np.array(rows, dtype=np.float32)
    fixed.score(given)
    assert np.isnan(given).sum() == 2  # what was given stays as it was


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_tables_are_read_by_the_names_of_their_columns(library: str) -> None:
    frames = pytest.importorskip(library)
    saved = SavedRanker(Linear(), 3, np.array([1.0, 10.0, 100.0]), FixedRange((0.0,) * 3, (1.0,) * 3), ("a", "b", "c"))
    columns = {"c": [1.0, None, 3.0], "qid": ["x", "x", "y"], "a": [1, 2, 3], "b": [0.5, 0.5, 0.5]}
    frame = frames.DataFrame(columns)
    assert saved.score(frame).tolist() == [106.0, 7.0, 308.0]
    within = SavedRanker(Linear(), 3, saved.theta, WithinQuery(), saved.feature_names)
    assert within.score(frame).tolist() == [100.0, 1.0, 0.0]
    with refused("features.missing-columns", "columns"):
        saved.score(frames.DataFrame({"a": [1.0], "b": [1.0]}))
    with refused("features.further-columns", "columns"):
        saved.score(frames.DataFrame(columns | {"d": [1, 2, 3]}))
    with refused("features.not-numbers", "column 'a'"):
        saved.score(frames.DataFrame(columns | {"a": ["x", "y", "z"]}))
    wrong = {
        "ranker.features-differ": ([[1.0, 2.0]], [1.0, 2.0, 3.0]),
        "features.not-numbers": ([[1.0], [2.0, 3.0]], [["a", "b", "c"]]),
        "features.not-finite": ([[1.0, np.inf, 0.0]], [[1e300, 1.0, 0.0]]),
    }
    for code, arrays in wrong.items():
        for features in arrays:
            with refused(code):
                saved.score(features)
