"""Finite differences against slopes that are known in closed form."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorank.errors import BadInput
from quorank.learning.finite_differences import ends, gradients, places

numbers = st.floats(-100.0, 100.0)


def test_places_move_one_parameter_each() -> None:
    rows = places(np.array([1.0, 2.0]), np.array([0.5, 1.5]), np.array([1.5, 2.5]))
    assert rows.tolist() == [[1.5, 2.0], [1.0, 2.5], [0.5, 2.0], [1.0, 1.5], [1.0, 2.0]]


@given(st.lists(numbers, min_size=1, max_size=6), st.integers(0, 2**32))
def test_a_quadratic_has_exact_central_differences(at: list[float], seed: int) -> None:
    """(f(x + ε) − f(x − ε))/2ε = f'(x) for ½xᵀAx + bᵀx, whatever ε is."""
    theta = np.array(at)
    random = np.random.default_rng(seed)
    a, b = random.normal(size=(len(at), len(at))), random.normal(size=len(at))
    slope, value = gradients(
        lambda rows: 0.5 * np.einsum("mi,ij,mj->m", rows, a, rows) + rows @ b, theta, np.full(len(at), 0.25)
    )
    assert np.allclose(slope[0], 0.5 * (a + a.T) @ theta + b, atol=1e-8)
    assert value[0] == pytest.approx(0.5 * theta @ a @ theta + b @ theta, abs=1e-8)


def test_many_losses_take_one_call() -> None:
    calls = []

    def loss(rows: np.ndarray) -> np.ndarray:
        calls.append(rows.shape)
        return np.stack([np.abs(rows).sum(axis=1), (rows**2).sum(axis=1), rows[:, 0]]).T

    slope, value = gradients(loss, np.array([2.0, -3.0]), np.array([0.1, 0.1]))
    assert calls == [(5, 2)]
    assert np.allclose(slope, [[1.0, -1.0], [4.0, -6.0], [1.0, 0.0]])
    assert value.tolist() == [5.0, 13.0, 2.0]


@given(st.floats(-1.0, 1.0), st.floats(0.01, 2.0))
def test_a_kink_gives_a_subgradient(at: float, reach: float) -> None:
    slope, _ = gradients(lambda rows: np.maximum(0.0, rows[:, 0]), np.array([at]), np.array([reach]))
    if abs(at) >= reach:
        assert slope[0, 0] == pytest.approx(float(at > 0), abs=1e-9)
    assert -1e-9 <= slope[0, 0] <= 1.0 + 1e-9


def test_at_a_bound_the_difference_is_one_sided() -> None:
    seen = []

    def loss(rows: np.ndarray) -> np.ndarray:
        seen.append(rows)
        return 3.0 * rows[:, 0] - 2.0 * rows[:, 1] + 7.0 * rows[:, 2]

    lower, upper = np.array([0.0, 0.0, 5.0]), np.array([10.0, 1.0, 5.0])
    slope, _ = gradients(loss, np.array([0.0, 1.0, 5.0]), np.ones(3), lower, upper)
    assert np.all(seen[0] >= lower) and np.all(seen[0] <= upper)
    assert np.allclose(slope, [[3.0, -2.0, 0.0]])  # the last cannot be moved at all


def test_refusals() -> None:
    with pytest.raises(BadInput, match="distance above 0"):
        ends(np.zeros(2), np.array([0.1, 0.0]))
    with pytest.raises(BadInput, match="as many rows"):
        gradients(lambda rows: rows[0], np.zeros(2), np.ones(2))
