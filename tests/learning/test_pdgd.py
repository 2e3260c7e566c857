"""PDGD against algorithm 1 in plain Python: a client's update, and its mean over all rankings and clicks."""

from __future__ import annotations

import equations
import numpy as np
import pytest
from chance import assert_mean
from lists import Sampler, one_query, reference_update, simulate
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


@pytest.mark.parametrize(("users", "gap"), sampled(USERS[:3], [-3.0, 0.0, 3.0], times=2), ids=str)
def test_the_more_relevant_of_two_documents_gains(users, gap) -> None:
    """Sign of E[eq. 5] for two documents x (label 2) and y (label 0), P = P(x first) = 1/(1 + e^−gap).

    ρ is P(other order), the slope is P(1 − P), and only one-sided clicks make a pair (always compared: it
    reaches one past the last click). So, with c_R(d) the probability that d alone is clicked in order R,
    E = P(1−P)·[P(1−P)(c_xy(x) − c_xy(y)) + (1−P)P(c_yx(x) − c_yx(y))]. Both orders weigh the same, which
    removes the position bias, and E > 0 as soon as c_xy(x) + c_yx(x) > c_xy(y) + c_yx(y).
    """
    theta = np.array([gap, 0.0])
    p = 1 / (1 + np.exp(-gap))
    tables = users.tables(3, 2)
    alone = {}
    for labels in ((2, 0), (0, 2)):
        patterns = equations.click_patterns(labels, tables.examine, tables.click, tables.stop)
        alone[labels] = patterns.get((True, False), 0.0), patterns.get((False, True), 0.0)
    difference = alone[2, 0][0] - alone[2, 0][1] + alone[0, 2][1] - alone[0, 2][0]
    exact = (p * (1 - p)) ** 2 * difference
    assert exact > 0
    rows = simulate(one_query((2, 0), users, 2), PDGD(eta=1.0), theta, np.arange(100_000), 1)
    assert_mean(rows[:, :2], [exact, -exact])
    assert rows[:, 0].mean() > 4 * rows[:, 0].std() / np.sqrt(len(rows))
