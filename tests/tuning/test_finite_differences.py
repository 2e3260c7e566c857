"""Finite differences against slopes that are known in closed form."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from quorank.tuning.loss import differences, ends, places


def slopes(loss, theta, reach, lower=-np.inf, upper=np.inf) -> np.ndarray:
    below, above = ends(theta, reach, lower, upper)
    return differences(np.atleast_2d(loss(places(theta, below, above))), below, above)


def test_places_move_one_parameter_each() -> None:
    rows = places(np.array([1.0, 2.0]), np.array([0.5, 1.5]), np.array([1.5, 2.5]))
    assert rows.tolist() == [[1.5, 2.0], [1.0, 2.5], [0.5, 2.0], [1.0, 1.5], [1.0, 2.0]]


@given(st.lists(st.floats(-100.0, 100.0), min_size=1, max_size=6), st.integers(0, 2**32))
def test_a_quadratic_has_exact_central_differences(at: list[float], seed: int) -> None:
    """(f(x + ε) − f(x − ε))/2ε = f'(x) for ½xᵀAx + bᵀx, whatever ε is; several losses at once."""
    theta, random = np.array(at), np.random.default_rng(seed)
    a, b = random.normal(size=(len(at), len(at))), random.normal(size=len(at))
    found = slopes(
        lambda rows: np.stack([0.5 * np.einsum("mi,ij,mj->m", rows, a, rows) + rows @ b, rows[:, 0]]),
        theta,
        np.full(len(at), 0.25),
    )
    assert np.allclose(found, [0.5 * (a + a.T) @ theta + b, np.eye(len(at))[0]], atol=1e-8)


@given(st.floats(-1.0, 1.0), st.floats(0.01, 2.0))
def test_a_kink_gives_a_subgradient(at: float, reach: float) -> None:
    slope = slopes(lambda rows: np.maximum(0.0, rows[:, 0]), np.array([at]), np.array([reach]))[0, 0]
    assert slope == pytest.approx(float(at > 0), abs=1e-9) if abs(at) >= reach else -1e-9 <= slope <= 1.0 + 1e-9


def test_at_a_bound_the_difference_is_one_sided() -> None:
    lower, upper = np.array([0.0, 0.0, 5.0]), np.array([10.0, 1.0, 5.0])
    below, above = ends(np.array([0.0, 1.0, 5.0]), np.ones(3), lower, upper)
    assert (below.tolist(), above.tolist()) == ([0.0, 0.0, 5.0], [1.0, 1.0, 5.0])
    weights = np.array([3.0, -2.0, 7.0])
    found = slopes(lambda rows: rows @ weights, np.array([0.0, 1.0, 5.0]), np.ones(3), lower, upper)
    assert np.allclose(found, [[3.0, -2.0, 0.0]])  # the last cannot be moved at all
    with refused("finite-differences.bad-distance"):
        ends(np.zeros(2), np.array([0.1, 0.0]), np.zeros(2), np.ones(2))
