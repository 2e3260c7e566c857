"""The projection against independent solvers, and the promise that no constraint ever breaks."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from scipy import stats
from scipy.integrate import quad
from scipy.optimize import isotonic_regression

from quorank.errors import BadInput
from quorank.federation.server_optimisers import Adam, Add, Momentum
from quorank.tuning.coordinator import Rprop, TuningCoordinator, TuningSettings, Updates
from quorank.tuning.heuristics.constraints import interpolate_steps, project, random_weights, violations
from quorank.tuning.heuristics.frecency import DECAY_FRECENCY, FIREFOX, FRECENCY
from quorank.tuning.heuristics.heuristic import Heuristic, Order, Weight
from quorank.tuning.rules import Count, GradientRelease, ImmediateGuard, SignRelease


def linear(rows: np.ndarray, items: Any) -> np.ndarray:
    """A score that is Σ w_k x_k; items have a column `x`."""
    return np.asarray(rows @ items.x.T)


def chain(size: int, *, lower: float = -10.0, upper: float = 10.0, step: float = 100.0, by: float = 0.0) -> Heuristic:
    """w0 ≥ w1 + by ≥ …, with wide steps."""
    start = [upper - k * max(by, 0.0) for k in range(size)]
    return Heuristic(
        "chain",
        tuple(Weight(f"w{k}", start[k], lower, upper, step) for k in range(size)),
        tuple(Order(f"w{k}", f"w{k + 1}", by) for k in range(size - 1)),
        linear,
    )


SHIPPED = {heuristic.name: heuristic for heuristic in (FRECENCY, FIREFOX, DECAY_FRECENCY)}
TREE = Heuristic(
    "tree",
    (
        Weight("a", 3.0, 0.0, 4.0, 2.0), Weight("b", 2.0, 0.0, 9.0, 1.0),
        Weight("c", 1.0, -1.0, 2.5, 0.5), Weight("d", 0.0, -3.0, 3.0, 2.0),
    ),
    (Order("a", "b", 0.5), Order("a", "c"), Order("b", "d", 0.25), Order("c", "d")),
    linear,
)  # fmt: skip


def every_face(heuristic: Heuristic, wanted: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """The projection by trying every set of constraints as equalities: the nearest of all feasible solutions."""
    d, unit = len(wanted), heuristic.steps(wanted)
    rows = [(row, bound) for row, bound in zip(np.eye(d), lower, strict=True)]
    rows += [(-row, -bound) for row, bound in zip(np.eye(d), upper, strict=True)]
    for greater, smaller, by in heuristic.gaps:
        row = np.zeros(d)
        row[greater], row[smaller] = 1.0, -1.0
        rows.append((row, by))
    matrix, limit = np.array([r for r, _ in rows]), np.array([b for _, b in rows])
    best, nearest = np.inf, wanted
    metric = np.diag(unit**2)
    for size in range(d + 1):
        for active in itertools.combinations(range(len(rows)), size):
            a, b = matrix[list(active)], limit[list(active)]
            x = wanted + metric @ a.T @ np.linalg.pinv(a @ metric @ a.T) @ (b - a @ wanted) if size else wanted
            distance = float((((x - wanted) / unit) ** 2).sum())
            if np.all(matrix @ x >= limit - 1e-9) and distance < best:
                best, nearest = distance, x
    return nearest


@given(st.lists(st.floats(-8.0, 8.0), min_size=2, max_size=12))
def test_a_chain_alone_is_isotonic_regression(values: list[float]) -> None:
    wanted = np.array(values)
    expected = isotonic_regression(wanted, increasing=False).x
    assert np.allclose(project(chain(len(values)), wanted), expected, atol=1e-9)


@given(st.lists(st.floats(-6.0, 8.0), min_size=4, max_size=4))
@hypothesis_settings(max_examples=12)
def test_the_step_of_an_iteration_is_part_of_the_projection(values: list[float]) -> None:
    wanted, before = np.array(values), TREE.shipped
    lower = np.maximum(TREE.lower, before - TREE.steps(before))
    upper = np.minimum(TREE.upper, before + TREE.steps(before))
    moved = project(TREE, wanted, before)
    assert np.allclose(moved, every_face(TREE, wanted, lower, upper), atol=1e-7)
    assert violations(TREE, moved, before) == []


@pytest.mark.parametrize("name", SHIPPED)
@given(data=st.data())
@hypothesis_settings(max_examples=25)
def test_a_projection_is_allowed_and_leaves_what_is_allowed(name: str, data: st.DataObject) -> None:
    heuristic = SHIPPED[name]
    d = len(heuristic.weights)
    wanted = np.array(data.draw(st.lists(st.floats(-1e6, 1e6), min_size=d, max_size=d)))
    before = random_weights(heuristic, data.draw(st.integers(0, 2**64 - 1)))
    assert violations(heuristic, before) == []
    moved = project(heuristic, wanted, before)
    assert violations(heuristic, moved, before) == []
    assert np.array_equal(project(heuristic, moved, before), moved)
    assert np.array_equal(project(heuristic, moved), moved)


@pytest.mark.parametrize(
    "optimiser",
    [Rprop(), Rprop(initial=5.0, most=50.0, alpha=3.0), Adam(step=2.0), Add(step=10.0), Momentum(step=3.0)],
    ids=str,
)
@pytest.mark.parametrize("name", SHIPPED)
@given(data=st.data())
@hypothesis_settings(max_examples=5)
def test_no_constraint_breaks_under_any_gradients_and_any_optimiser(
    name: str, optimiser: Rprop | Adam | Add | Momentum, data: st.DataObject
) -> None:
    heuristic = SHIPPED[name]
    d = len(heuristic.weights)
    release = data.draw(st.sampled_from([GradientRelease(), SignRelease()]))
    parts = {"optimiser": optimiser, "closing": Count(1), "release": release, "guard": ImmediateGuard()}
    protocol = TuningCoordinator(heuristic, TuningSettings(**parts, sure=0.0))
    state = protocol.start(random_weights(heuristic, data.draw(st.integers(0, 2**64 - 1))))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    for _ in range(12):
        slopes = random.standard_cauchy((3, d)) * 10.0 ** random.integers(-6, 7, (3, d))
        slopes[random.random((3, d)) < 0.2] = 0.0
        state = protocol.receive(state, Updates(release.apply(slopes), np.zeros(3)))
        assert state.estimate.count == 3
        before = state.weights
        state, _ = protocol.advance(state, 0.0)
        assert violations(heuristic, state.weights, before) == []


def test_violations_are_named() -> None:
    weights = TREE.shipped + np.array([-2.0, 0.0, 3.0, 0.0])
    said = "; ".join(violations(TREE, weights, TREE.shipped))
    assert "b = 2 is above a = 1 − 0.5" in said
    assert "c = 4 is outside -1 … 2.5" in said and "c moved from 1 to 4, more than 0.5" in said


def test_random_weights_are_even_over_what_is_allowed() -> None:
    """Of two weights in order, even over the triangle, the greater has the distribution x² and the smaller 1 − (1 − x)²."""
    two = chain(2, lower=0.0, upper=1.0)
    many = np.array([random_weights(two, seed) for seed in range(400)])
    assert len(np.unique(many, axis=0)) == 400
    assert stats.kstest(many[:, 0], lambda x: x**2).pvalue > 1e-3
    assert stats.kstest(many[:, 1], lambda x: 1 - (1 - x) ** 2).pvalue > 1e-3


@given(st.floats(0.0, 300.0), st.floats(0.0, 300.0), st.floats(0.0, 1.0))
def test_a_share_of_the_way_is_a_share_of_the_iterations(one: float, other: float, u: float) -> None:
    """Walked in small parts of max(step, share·w), from the least to the value and from there to the most."""
    weight = Weight("w", 1.0, 0.0, 300.0, 2.0, share=0.1)
    low, high = sorted((one, other))
    value = interpolate_steps(weight, low, high, u)
    assert low <= value <= high

    def walk(begin: float, end: float) -> float:
        return quad(lambda w: 1.0 / max(2.0, 0.1 * w), begin, end, points=[20.0], limit=200)[0]

    assert walk(low, value) == pytest.approx(u * walk(low, high), abs=1e-6)


def test_a_share_widens_steps_and_reach() -> None:
    weights = (Weight("a", 4.0, 1.0, 100.0, 0.5, reach=0.5, share=0.2), Weight("b", 1.0, 0.0, 9.0, 1.0))
    heuristic = Heuristic("h", weights, (), linear)
    at = np.array([50.0, 2.0])
    assert heuristic.steps(at).tolist() == [10.0, 1.0] and heuristic.steps(np.array([1.0, 2.0]))[0] == 0.5
    assert heuristic.reach(at) == pytest.approx([10.0, 0.01])
    assert project(heuristic, np.array([0.0, 2.0]), at).tolist() == [40.0, 2.0]
    assert "more than 10" in violations(heuristic, np.array([61.0, 2.0]), at)[0]
    with pytest.raises(BadInput, match="share: must be"):
        Weight("a", 1.0, 0.0, 2.0, 1.0, share=1.0)


def test_refusals() -> None:
    with pytest.raises(BadInput, match="lower ≤ shipped ≤ upper"):
        Weight("a", 2.0, 0.0, 1.0, 1.0)
    with pytest.raises(BadInput, match="unknown weight 'z'"):
        Heuristic("h", (Weight("a", 0.0, 0.0, 1.0, 1.0),), (Order("a", "z"),), linear)
    two = (Weight("a", 0.0, 0.0, 1.0, 1.0), Weight("b", 0.5, 0.0, 1.0, 1.0))
    with pytest.raises(BadInput, match="shipped b is above a"):
        Heuristic("h", two, (Order("a", "b"),), linear)
    with pytest.raises(BadInput, match="its orders form a cycle"):
        Heuristic("h", two, (Order("a", "b", 0.6), Order("b", "a", 0.6)), linear)
    with pytest.raises(BadInput, match="same name"):
        Heuristic("h", (two[0], two[0]), (), linear)
    with pytest.raises(BadInput, match="must start from weights that are allowed"):
        project(FRECENCY, FRECENCY.shipped, FRECENCY.shipped[::-1])
    with pytest.raises(BadInput, match="all finite"):
        project(FRECENCY, np.full(9, np.nan))
    with pytest.raises(BadInput, match="a value is missing for b"):
        Heuristic("h", two, (), linear).vector({"a": 1.0})
