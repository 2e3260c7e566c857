"""Server optimisers against their recurrences, written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from part_examples import EXAMPLES

from quorank.errors import BadInput
from quorank.federation import Adam, Add, Federation, Momentum
from quorank.federation.rounds import CohortSum
from quorank.federation.server_optimisers import soft_threshold
from quorank.privacy import ClippedGaussian

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


@pytest.mark.parametrize("gamma", [-1.0, -0.5, 0.0, 3.0])
def test_the_means_weigh_rounds_by_a_power_of_their_number(gamma) -> None:
    """Handed out after round t: Σ_s s^γ·θ_s / Σ_s s^γ over s ≤ t, written out; for γ = 0 that is the plain mean."""
    server, theta = Add(step=0.3, average=gamma, among=(1.5,)), np.array([0.5, -1.0, 0.0, 2.0])
    memory, path = server.start(4), []
    assert server.choices(theta, memory) == {}, "before the first round there is no choice"
    for update in UPDATES:
        theta, memory = server.advance(theta, update, memory)
        path.append(theta)
        choices = server.choices(theta, memory)
        assert list(choices) == [gamma, 1.5, math.inf]
        for power, found in choices.items():
            weights = [float(s) ** power if power < math.inf else s == len(path) for s in range(1, len(path) + 1)]
            expected = sum(w * one for w, one in zip(weights, path, strict=True)) / sum(weights)
            np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)
        assert np.array_equal(memory["average"], choices[gamma])
    np.testing.assert_allclose(path, run(Add(step=0.3)), rtol=1e-15)  # θ itself goes on as without
    alone = Add(step=0.3, average=gamma)
    assert alone.choices(theta, alone.advance(theta, UPDATES[0], alone.start(4))[1]) == {}, "one ranker is no choice"
    if gamma == 0.0:
        np.testing.assert_allclose(memory["average"], np.mean(path, axis=0), rtol=1e-12)


def test_the_threshold_moves_towards_zero_and_no_farther() -> None:
    found = soft_threshold(np.array([3.0, -3.0, 0.5, -0.5, 0.0]), 1.0)
    assert found.tolist() == [3.0 - 1.0, -(3.0 - 1.0), 0.0, 0.0, 0.0]
    given = np.array([0.25, -7.0])
    assert soft_threshold(given, 0.0).tolist() == given.tolist()


@pytest.mark.parametrize("gamma", [-0.5, 0.0, 3.0])
def test_the_noise_of_a_mean_is_that_of_all_that_went_into_it(gamma) -> None:
    """Noise σ_r of round r is in θ_r, θ_{r+1}, …: it counts (Σ_{s ≥ r} weight of θ_s)·step·σ_r in a mean."""
    server = Add(step=0.3, average=gamma, among=(1.0,), shrink=0.7)
    plain = Add(step=0.3, average=gamma, among=(1.0,))
    memory, beside, sigmas = server.start(4), plain.start(4), np.random.default_rng(6).random(50)
    first = theta = np.array([0.5, -1.0, 0.0, 2.0])
    for t, (update, sigma) in enumerate(zip(UPDATES, sigmas, strict=True), 1):
        after, memory = server.advance(theta, update, server.with_noise(memory, sigma))
        theta, beside = plain.advance(theta, update, plain.with_noise(beside, sigma))
        assert after.tolist() == theta.tolist(), "θ itself goes on as without"
        choices, raw = server.choices(theta, memory), plain.choices(theta, beside)
        for power, found in choices.items():
            weights = np.array([float(s) ** power if power < math.inf else s == t for s in range(1, t + 1)])
            tails = np.cumsum(weights[::-1])[::-1] / weights.sum()
            deviation = 0.3 * math.sqrt(((tails * sigmas[:t]) ** 2).sum())
            expected = first + soft_threshold(raw[power] - first, 0.7 * deviation)
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
        assert np.array_equal(memory["average"], choices[gamma])


def test_a_pull_is_the_ascent_of_a_penalised_gain() -> None:
    """θ ← θ + s·(u − ρ·(θ − θ_first)); for a constant u it comes to θ_first + u/ρ by 1 − (1 − s·ρ)^t of the way."""
    first, update = np.array([0.5, -1.0, 0.0, 2.0]), np.array([1.0, -2.0, 0.0, 0.1])
    path = run(Add(step=0.3, pull=0.5), [update] * 40)
    expected = [first + update / 0.5 * (1.0 - (1.0 - 0.3 * 0.5) ** t) for t in range(1, 41)]
    np.testing.assert_allclose(path, expected, rtol=1e-12)
    assert run(Add(step=0.3, average=0.0, shrink=1.0, pull=0.5), [update] * 40)[-1].tolist() == path[-1].tolist()
    assert Add(pull=0.5).recursion(4, Add(pull=0.5).start(4)) is None
    for options in ({"pull": -0.1}, {"step": 2.0, "pull": 0.5}, {"pull": math.nan}):
        with pytest.raises(BadInput):
            Add(**options)


def test_a_round_tells_the_server_the_noise_on_its_mean_update() -> None:
    federation = Federation(10, server=Add(step=2.0, average=1.0, shrink=1.0), privacy=ClippedGaussian(1.0))
    gathered = CohortSum(np.array([5.0, 0.1]), 10.0, 10, 40, 0.0, 0.0, 0.0, {}, 0.05, noise=3.0)
    state, _ = federation.round(federation.start(np.zeros(2)), gathered)
    assert state.memory["noise"][0] == pytest.approx(2.0 * 3.0 / 10.0)
    expected = [2.0 * 0.5 - 0.6, 0.0]
    assert federation.ranker(state).tolist() == pytest.approx(expected), "0.02 drowns in noise of 0.6"


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
