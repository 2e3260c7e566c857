"""Scores and gradients of rankers against float64 NumPy, and the parameters that hold trees."""

from __future__ import annotations

import equations
import numpy as np
import pytest
from exported_rankers import some_trees
from refusals import refused
from sampling import sampled

from quorank.data.ranking import LANES, pad
from quorank.rankers import MLP, Linear, Trees, scores
from quorank.rankers.scoring import add_gradients, pack, packed_size, score_rows, width_of
from quorank.rankers.trees import TreeArrays, tree_parameters

RANKERS = [Linear(), *(MLP(hidden=hidden) for hidden in (1, 3, 8, 10, 17, 64))]
RANKERS += [MLP(hidden=hidden, activation="sigmoid") for hidden in (1, 3, 10, 64)]
WIDTHS = [1, 2, 7, 8, 9, 11, 46, 136]
EPSILON = 2.0**-24  # half a unit in the last place of a float32 near 1


def some(ranker, n_features, rows=23, seed=0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng([seed, n_features, ranker.hidden])
    theta = random.normal(size=ranker.size(n_features))
    return theta, random.normal(size=(rows, n_features)).astype(np.float32)


def packed_for(ranker, theta, n_features, stride) -> np.ndarray:
    packed = np.zeros(packed_size(ranker.layer, stride), dtype=np.float32)
    pack(theta, ranker.layer, n_features, stride, packed)
    return packed


def rounding(theta, x, hidden) -> np.ndarray:
    """What float32 may lose: a few roundings of every term of the sum."""
    n_features = x.shape[1]
    if hidden == 0:
        return (n_features + 3) * EPSILON * (np.abs(x) @ np.abs(theta))
    w, b, v = equations.unpack(theta, n_features, hidden)
    inner = np.abs(x) @ np.abs(w).T + np.abs(b)
    return (n_features + hidden + 6) * EPSILON * ((inner + 1) @ np.abs(v))


@pytest.mark.parametrize(("ranker", "n_features"), sampled(RANKERS, WIDTHS, times=2), ids=str)
def test_scores_equal_numpy(ranker, n_features) -> None:
    theta, x = some(ranker, n_features)
    assert theta.shape == (ranker.size(n_features),)
    exact = equations.score(theta, x.astype(np.float64), ranker.hidden, ranker.activation)
    found = scores(ranker, theta, x)
    assert found.dtype == np.float32
    assert np.all(np.abs(found - exact) <= rounding(theta, x, ranker.hidden))
    assert np.std(exact) > 0.01


@pytest.mark.parametrize(("ranker", "n_features"), sampled(RANKERS, [1, 7, 8, 11], times=2), ids=str)
def test_padding_changes_no_bit(ranker, n_features) -> None:
    """A wider row of zeros, and features that are zero with any parameter, add nothing."""
    theta, x = some(ranker, n_features)
    narrow = pad(x)
    wide = np.zeros((len(x), narrow.shape[1] + 3 * LANES), dtype=np.float32)
    wide[:, :n_features] = x
    found = []
    for padded in (narrow, wide):
        out = np.empty(len(x), dtype=np.float32)
        packed = packed_for(ranker, theta, n_features, padded.shape[1])
        score_rows(packed, ranker.layer, padded, 0, len(x), out, np.zeros(width_of(ranker.layer), dtype=np.float32))
        found.append(out)
    assert np.array_equal(*found)


@pytest.mark.parametrize(("ranker", "n_features"), sampled(RANKERS, [1, 7, 8, 11], times=2), ids=str)
def test_gradient_equals_finite_differences(ranker, n_features) -> None:
    theta, x = some(ranker, n_features, rows=6, seed=1)
    padded = pad(x)
    packed = packed_for(ranker, theta, n_features, padded.shape[1])
    activation = np.zeros(width_of(ranker.layer), dtype=np.float32)
    at = packed_point(theta)
    moved = 0
    for row in range(len(x)):
        features = x[row].astype(np.float64)
        numeric = np.empty_like(theta)
        step = 1e-5  # with relu f is piecewise linear in each coordinate: a central difference is exact off the kinks
        for j in range(len(theta)):
            up, down = at.copy(), at.copy()
            up[j] += step
            down[j] -= step
            f = [equations.score(t, features[None, :], ranker.hidden, ranker.activation)[0] for t in (up, down)]
            numeric[j] = (f[0] - f[1]) / (2 * step)
        gradient = np.full_like(theta, 0.5)
        one, amount = np.array([row]), np.array([-2.0])
        add_gradients(gradient, packed, ranker.layer, n_features, padded, 0, one, amount, 1, activation)
        np.testing.assert_allclose((gradient - 0.5) / -2.0, numeric, rtol=1e-4, atol=1e-5)
        exact = equations.score_gradient(at, features, ranker.hidden, ranker.activation)
        np.testing.assert_allclose(exact, numeric, rtol=1e-6, atol=1e-7)
        moved += bool(np.abs(numeric).max() > 0.01)
    assert moved >= 3
    amounts = np.linspace(-1.0, 2.0, len(x))  # several documents at once are taken four at a time
    for count in range(1, len(x) + 1):
        together, documents = np.zeros_like(theta), np.arange(len(x))[::-1][:count].copy()
        add_gradients(together, packed, ranker.layer, n_features, padded, 0, documents, amounts, count, activation)
        rows = x[documents].astype(np.float64)
        each = [equations.score_gradient(at, row, ranker.hidden, ranker.activation) for row in rows]
        np.testing.assert_allclose(together, amounts[:count] @ np.array(each), rtol=1e-3, atol=1e-5)


def packed_point(theta) -> np.ndarray:
    """The parameters as scoring sees them: rounded to float32."""
    return theta.astype(np.float32).astype(np.float64)


def test_hidden_layer_starts_as_it_says() -> None:
    """W ~ N(0, 1/features), b = 0, v ~ N(0, 1/hidden); from zero on request."""
    n_features, hidden = 100, 400
    ranker = MLP(hidden=hidden)
    w, b, v = equations.unpack(ranker.initial(n_features, 3), n_features, hidden)
    assert ranker.size(n_features) == hidden * n_features + 2 * hidden
    assert w.std() * np.sqrt(n_features) == pytest.approx(1, abs=4 / np.sqrt(2 * w.size))
    assert v.std() * np.sqrt(hidden) == pytest.approx(1, abs=4 / np.sqrt(2 * v.size))
    assert not b.any()
    assert not np.array_equal(ranker.initial(n_features, 3), ranker.initial(n_features, 4))
    assert np.array_equal(ranker.initial(n_features, 3), ranker.initial(n_features, 3))
    assert not MLP(hidden=10, start="zero").initial(n_features, 3).any()
    assert len(MLP(hidden=10, start="zero").initial(n_features, 3)) == 10 * n_features + 20


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
