"""PDGD against algorithm 1 in plain Python: a client's update, and its mean over all rankings and clicks."""

from __future__ import annotations

import equations
import numpy as np
import pytest
from lists import Sampler, reference_update, simulate
from sampling import sampled

from quorank.learning import PDGD, Simulation
from quorank.rankers import MLP, Linear
from quorank.users import Cascade, PositionBased


def client_update(simulation, learner, theta, client, interactions, round_) -> np.ndarray:
    """Algorithm 1 as it is written, float64, on the lists of that address: an update and its statistics."""
    network = simulation.ranker.hidden, simulation.ranker.activation
    total = np.zeros_like(theta)

    def show(local, x, k, address):
        at = local if learner.step == "interaction" else theta
        scores = equations.score(at, x, *network).tolist()
        drawn = Sampler(scores, k, simulation.seed).draw(address["client"], address["interaction"], address["round_"])
        return list(drawn), scores

    def learn(local, x, shown, scores, clicked, address):
        at = local if learner.step == "interaction" else theta
        weights = equations.coefficients(shown, scores, clicked)
        gradient = sum(w * equations.score_gradient(at, x[d], *network) for w, d in zip(weights, shown, strict=True))
        total[:] += gradient
        return local + learner.eta * gradient if learner.step == "interaction" else theta + learner.eta * total

    return reference_update(simulation, theta, client, interactions, round_, show, learn)


USERS = [
    Cascade(preset="perfect"),
    Cascade(preset="navigational"),
    Cascade(preset="informational"),
    Cascade(preset="poison"),
    PositionBased(eta=0.5),
    PositionBased(eta=2.0, preset="informational"),
]


RANKERS = [Linear(), MLP(hidden=5), MLP(hidden=5, activation="sigmoid")]


@pytest.mark.parametrize(("users", "ranker", "step"), sampled(USERS, RANKERS, ["interaction", "batch"]), ids=str)
def test_an_update_is_algorithm_1(tiny_collection, users, ranker, step) -> None:
    simulation = Simulation(tiny_collection.train, ranker, users, tiny_collection.grades, seed=5)
    learner = PDGD(eta=0.3, step=step)
    theta = np.random.default_rng(1).normal(size=simulation.parameters)
    clients = [0, 3, 4, 17, 100_000]
    found = simulate(simulation, learner, theta, clients, 6, round_=9)
    expected = [client_update(simulation, learner, theta, client, 6, 9) for client in clients]
    np.testing.assert_allclose(found, expected, rtol=3e-4, atol=3e-6)
    assert np.abs(found[:, : simulation.parameters]).max(axis=1).min() > 0.01


def test_an_update_on_five_grades(tiny_graded) -> None:
    simulation = Simulation(
        tiny_graded.train, Linear(), Cascade(preset="navigational"), tiny_graded.grades, seed=6, k=7
    )
    assert simulation.grades == 5
    theta = np.random.default_rng(2).normal(size=simulation.parameters)
    found = simulate(simulation, PDGD(), theta, range(10), 5)
    expected = [client_update(simulation, PDGD(), theta, client, 5, 0) for client in range(10)]
    np.testing.assert_allclose(found, expected, rtol=3e-4, atol=3e-6)
