"""FedRemove and projected gradient ascent against their equations."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from devices import simulation_of
from unlearning_cases import CLIENTS, B, kept_of, learned, played

from benchmarks.unlearning_strategies import ascend, projected, reaggregate, reference_ranker
from quorank.engines.process import Simulator
from quorank.errors import BadInput
from quorank.federation import Federation, Median, Momentum
from quorank.federation.attacks import SignFlip
from quorank.privacy import ClippedGaussian


def test_fedremove_of_nobody_is_the_run_itself(tiny_collection) -> None:
    for parts in ({}, {"aggregation": Median(), "server": Momentum(step=0.5)}, {"attack": SignFlip(clients=2)}):
        simulation = simulation_of(tiny_collection)
        theta, kept = played(simulation, 6, **parts)
        simulator = Simulator(Federation(CLIENTS, B, **parts), simulation, rounds=6)
        result = reaggregate(simulator, np.zeros(len(theta)), kept)
        assert result.theta.tobytes() == theta.tobytes() and (result.rounds, result.local_steps) == (6, 0)


def test_fedremove_adds_up_what_the_others_had_sent(tiny_collection) -> None:
    """θ_0 + Σ_t s·mean over i ≠ c* of ΔM_{i,t}; a leaver's own updates are not read."""
    simulation = simulation_of(tiny_collection)
    _, kept = played(simulation, 5)
    start = np.linspace(0.0, 0.5, simulation.parameters)
    expected = start + sum(2.0 * np.delete(entry.updates, (1, 6), axis=0).mean(axis=0) for entry in kept)
    for leaver in (1, 6):
        kept[2].updates[leaver] = 1e6
    simulator = Simulator(Federation(CLIENTS, B), simulation, rounds=5, absent=(1, 6))
    result = reaggregate(simulator, start, kept, step_factor=2.0)
    np.testing.assert_allclose(result.theta, expected, rtol=1e-9, atol=1e-12)
    with pytest.raises(BadInput, match="no kept updates"):
        reaggregate(simulator, start, kept_of())


def test_what_fedremove_sends_again_goes_through_privacy(tiny_collection) -> None:
    """A kept update of a thousand times the clip counts for one clip, and every round has noise of its own."""
    simulation, clip = simulation_of(tiny_collection), 0.01
    _, kept = played(simulation, 4)
    privacy = ClippedGaussian(clip=clip, noise_multiplier=1.0)
    simulator = Simulator(Federation(CLIENTS, B, privacy=privacy), simulation, rounds=4, absent=(0,))
    result = reaggregate(simulator, np.zeros(simulation.parameters), kept)
    assert (result.participants == CLIENTS - 1).all() and (result.noise > 0.0).all()
    np.testing.assert_allclose(result.sensitivity, clip, rtol=1e-6)
    assert np.linalg.norm(result.theta) < 4 * (clip + 5 * clip * simulation.parameters**0.5)
    with pytest.raises(BadInput, match="privacy is planned for 4 rounds"):
        reaggregate(replace(simulator), np.zeros(simulation.parameters), [*kept, *kept])


def test_the_reference_is_the_mean_of_the_others_local_rankers() -> None:
    """Halimi et al.: w_ref = (N·w^T − w_i)/(N − 1) for one leaver and equal weights."""
    before, updates = np.array([1.0, -1.0]), np.array([[0.3, 0.0], [0.0, 0.6], [-0.9, 0.3]])
    after = before + updates.mean(axis=0)
    leaving = np.array([False, False, True])
    expected = (3 * after - (before + updates[2])) / 2
    np.testing.assert_allclose(reference_ranker(after, updates, np.ones(3), leaving), expected, rtol=1e-12)
    weights = np.array([1.0, 3.0, 5.0])
    after = before + weights @ updates / 9.0
    expected = before + (1.0 * updates[0] + 3.0 * updates[1]) / 4.0
    np.testing.assert_allclose(reference_ranker(after, updates, weights, leaving), expected, rtol=1e-12)


def test_a_point_outside_of_the_ball_comes_back_to_its_surface() -> None:
    centre = np.array([1.0, 1.0])
    np.testing.assert_allclose(projected(np.array([4.0, 5.0]), centre, 2.0), [1.0 + 2 * 0.6, 1.0 + 2 * 0.8])
    inside = np.array([1.5, 1.0])
    assert projected(inside, centre, 2.0) is inside and projected(centre, centre, 0.0) is centre


@pytest.mark.parametrize("radius", [0.05, math.inf])
def test_ascent_is_the_literal_loop(tiny_collection, radius) -> None:
    """θ ← P(θ − mean of the leavers' updates from θ), from the reference; nobody else interacts."""
    simulation, leavers = simulation_of(tiny_collection), [2, 5]
    reference = np.linspace(-0.2, 0.3, simulation.parameters)
    expected = reference
    for t in range(4):
        expected = expected - learned(simulation, expected, t, leavers, 3).mean(axis=0)
        length = np.linalg.norm(expected - reference)
        expected = expected if length <= radius else reference + radius * (expected - reference) / length
    simulator = Simulator(Federation(CLIENTS, 3), simulation, rounds=4)
    theta, steps = ascend(simulator, reference, radius, 4, np.array(leavers))
    np.testing.assert_allclose(theta, expected, rtol=1e-9, atol=1e-12)
    assert steps == 4 * 3 * 2 and np.linalg.norm(theta - reference) > 0.04
