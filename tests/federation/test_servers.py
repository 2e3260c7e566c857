"""Server optimisers against their recurrences, written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from part_examples import EXAMPLES

from quorank.federation import Adam, Add, Directions, Momentum

UPDATES = np.random.default_rng(1).normal(size=(50, 4)) * [1.0, 1e-4, 100.0, 0.0]


def run(server, updates=UPDATES) -> list[np.ndarray]:
    theta, path = np.array([0.5, -1.0, 0.0, 2.0]), []
    memory = server.start(4)
    for update in updates:
        theta, memory = server.advance(theta, update, memory)
        path.append(theta)
    return path


def test_add() -> None:
    expected = np.array([0.5, -1.0, 0.0, 2.0]) + 0.3 * np.cumsum(UPDATES, axis=0)
    np.testing.assert_allclose(run(Add(step=0.3)), expected, rtol=1e-12)
    once, _ = Add().advance(np.array([1.0]), np.array([0.25]), {})
    assert once.tolist() == [1.25]


@pytest.mark.parametrize("gamma", [0.0, 1.0, 3.0])
def test_the_average_weights_rounds_by_a_power_of_their_number(gamma) -> None:
    """Round s of t weighs (γ + 1)/(s + γ)·Π_{i > s} (i − 1)/(i + γ), written out; for γ = 0 that is the plain mean."""
    server, theta = Add(step=0.3, average=gamma), np.array([0.5, -1.0, 0.0, 2.0])
    memory, path = server.start(4), []
    for t, update in enumerate(UPDATES, 1):
        theta, memory = server.advance(theta, update, memory)
        path.append(theta)
        weights = np.array(
            [
                (gamma + 1) / (s + gamma) * math.prod((i - 1) / (i + gamma) for i in range(s + 1, t + 1))
                for s in range(1, t + 1)
            ]
        )
        assert weights.sum() == pytest.approx(1.0)
        np.testing.assert_allclose(memory["average"], weights @ np.array(path), rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(path, run(Add(step=0.3)), rtol=1e-15)  # θ itself goes on as without
    if gamma == 0.0:
        np.testing.assert_allclose(memory["average"], np.mean(path, axis=0), rtol=1e-12)


@pytest.mark.parametrize("gamma", [-1.0, -0.4, 0.0, 2.0])
def test_directions_count_by_a_power_of_their_round_whatever_the_length_of_theta(gamma) -> None:
    """Handed out after round t: ‖θ_t‖·m/‖m‖ with m = Σ_s s^γ·θ_s/‖θ_s‖ over s ≤ t, written out."""
    server, theta = Directions(step=0.3, average=gamma, among=(1.5,)), np.array([0.5, -1.0, 0.0, 2.0])
    memory, path = server.start(4), []
    assert server.choices(theta, memory) == {}, "before the first round there is no choice"
    for update in UPDATES:
        theta, memory = server.advance(theta, update, memory)
        path.append(theta)
        choices = server.choices(theta, memory)
        assert list(choices) == [gamma, 1.5, math.inf]
        for power, found in choices.items():
            mean = sum(s**power * one / math.dist(one, [0] * 4) for s, one in enumerate(path, 1) if power < math.inf)
            expected = theta if power == math.inf else mean * (np.linalg.norm(theta) / np.linalg.norm(mean))
            np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)
        assert np.array_equal(memory["average"], choices[gamma])
    np.testing.assert_allclose(path, run(Add(step=0.3)), rtol=1e-15)  # θ itself goes on as without


def test_directions_where_theta_is_nothing_or_turns_round() -> None:
    server, nothing = Directions(step=1.0, average=0.0, among=()), np.zeros(2)
    theta, memory = server.advance(nothing, nothing, server.start(2))
    assert memory["average"].tolist() == [0.0, 0.0]
    theta, memory = server.advance(theta, np.array([3.0, 0.0]), memory)
    assert memory["average"].tolist() == [3.0, 0.0], "a round without a direction turns nothing"
    theta, memory = server.advance(theta, np.array([-5.0, 0.0]), memory)
    assert memory["average"].tolist() == theta.tolist() == [-2.0, 0.0], "1 − 1 is no direction: θ itself"
    assert server.choices(theta, memory) == {}, "without `among` there is no choice"


def test_momentum() -> None:
    """m_t = β m_(t−1) + u_t = Σ_s β^(t−s) u_s; θ_t = θ_(t−1) + step·m_t."""
    theta = np.array([0.5, -1.0, 0.0, 2.0])
    for t, found in enumerate(run(Momentum(step=0.5, beta=0.8))):
        theta = theta + 0.5 * sum(0.8 ** (t - s) * UPDATES[s] for s in range(t + 1))
        np.testing.assert_allclose(found, theta, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("server", [Adam(), Adam(step=0.1, beta1=0.5, beta2=0.9, tiny=1e-3)], ids=str)
def test_adam(server) -> None:
    """Kingma and Ba 2015, algorithm 1, coordinate by coordinate, uphill."""
    path = run(server)
    for j in range(4):
        theta, m, v = [0.5, -1.0, 0.0, 2.0][j], 0.0, 0.0
        for t, found in enumerate(path, 1):
            g = float(UPDATES[t - 1, j])
            m = server.beta1 * m + (1 - server.beta1) * g
            v = server.beta2 * v + (1 - server.beta2) * g * g
            m_hat, v_hat = m / (1 - server.beta1**t), v / (1 - server.beta2**t)
            theta += server.step * m_hat / (math.sqrt(v_hat) + server.tiny)
            assert found[j] == pytest.approx(theta, rel=1e-11, abs=1e-13)


def test_adam_s_first_step_has_its_step_s_length() -> None:
    """With both corrections m̂ = g and √v̂ = |g|, whatever the size of g."""
    (first,) = run(Adam(step=0.01), np.array([[3.0, -1e-3, 1e5, 0.0]]))
    np.testing.assert_allclose(first - [0.5, -1.0, 0.0, 2.0], [0.01, -0.01, 0.01, 0.0], rtol=1e-4)


@pytest.mark.parametrize("server", EXAMPLES["servers"], ids=str)
def test_servers_change_nothing_that_they_are_given(server) -> None:
    """Pure steps on explicit state: the old state can be continued again."""
    theta, update = np.linspace(-1, 1, 4), np.array([0.1, -0.2, 0.0, 3.0])
    _, memory = server.advance(theta, update, server.start(4))
    kept = {name: values.copy() for name, values in memory.items()}
    first = server.advance(theta, update, memory)
    second = server.advance(theta, update, memory)
    assert np.array_equal(first[0], second[0])
    assert all(np.array_equal(memory[name], kept[name]) for name in kept)
    assert np.array_equal(theta, np.linspace(-1, 1, 4))
    assert update.tolist() == [0.1, -0.2, 0.0, 3.0]
    assert first[1].keys() == memory.keys()


@pytest.mark.parametrize("server", EXAMPLES["servers"], ids=str)
def test_a_step_goes_uphill(server) -> None:
    update = np.array([0.5, -2.0, 0.0, 1e-3])
    theta, _ = server.advance(np.zeros(4), update, server.start(4))
    assert np.array_equal(np.sign(theta), np.sign(update))
