"""Contract of every learner that moves a client's own parameters, plain NumPy ones included."""

from __future__ import annotations

import numpy as np
import pytest
from devices import state_after
from lists import Contrast, simulate
from sampling import sampled

from quorank.engines.process import Simulator
from quorank.federation import Adam, Add, Federation
from quorank.learning import DBGD, MGD, PDGD, Counterfactual, Evolution, PairRank, Simulation
from quorank.metrics.evaluator import Evaluator
from quorank.rankers import MLP, Linear
from quorank.users import Cascade

LISTS = [PDGD(), PDGD(window=2, share=0.5), Counterfactual(), PairRank(), Contrast()]
DUELS = [DBGD(gamma=0.1), MGD(alpha=0.1)]
RANKERS = [Linear(), MLP(hidden=3)]


@pytest.mark.parametrize(("learner", "ranker"), sampled([*LISTS, *DUELS], RANKERS), ids=str)
def test_an_update_depends_on_its_address_alone(tiny_collection, learner, ranker) -> None:
    """In any order and company, with any number of interactions of the others, whole groups without any among them."""
    simulation = Simulation(tiny_collection.train, ranker, Cascade("informational"), 3, seed=7)
    theta = np.random.default_rng(1).normal(size=simulation.parameters)
    clients = np.array([7, 1, 8, 0, 12, 3, 4, 40, 10, 11, 13, 14, 6, 5])
    counts = np.array([0, 3, 0, 0, 1, 2, 0, 5, 0, 0, 0, 0, 4, 1])
    rows = simulate(simulation, learner, theta, clients, counts)
    for row, client, count in zip(rows, clients, counts, strict=True):
        assert np.array_equal(simulate(simulation, learner, theta, [client], count)[0], row)
        assert count > 0 or not row.any()
    shuffled = np.random.default_rng(1).permutation(len(clients))
    assert np.array_equal(simulate(simulation, learner, theta, clients[shuffled], counts[shuffled]), rows[shuffled])
    assert not np.array_equal(simulate(simulation, learner, theta, clients, counts, round_=1), rows)


@pytest.mark.parametrize("learner", [*LISTS, *DUELS], ids=str)
def test_without_a_preference_nothing_is_learned(tiny_collection, learner) -> None:
    nobody, everybody = (Cascade(click=(p, p, p), stop=(0.0, 0.0, 0.0)) for p in (0.0, 1.0))
    for users in (nobody, everybody) if learner in LISTS and not learner.takes_any_list else (nobody,):
        simulation = Simulation(tiny_collection.train, Linear(), users, 3, seed=1)
        rows = simulate(simulation, learner, np.ones(simulation.parameters), range(20), 4)
        assert not rows[:, : simulation.parameters].any()
        assert bool(rows[:, -1].any()) == (users is everybody)
        assert np.all(rows[:, simulation.parameters] >= 0)


@pytest.mark.parametrize(("learner", "size"), sampled([*LISTS, *DUELS], [1e3, 1e6], times=2), ids=str)
def test_huge_parameters_give_finite_updates(tiny_collection, learner, size) -> None:
    simulation = Simulation(tiny_collection.train, RANKERS[size > 1e3], Cascade("informational"), 3, seed=1)
    theta = size * np.random.default_rng(1).normal(size=simulation.parameters)
    assert np.isfinite(simulate(simulation, learner, theta, np.arange(100), 4)).all()


@pytest.mark.parametrize(
    ("learner", "ranker", "server"),
    [
        *((learner, Linear(), Add()) for learner in (*LISTS, *DUELS)),
        (PDGD(), MLP(hidden=10), Add()),
        (Evolution(sigma=0.1), Linear(), Adam(step=0.1)),
        (Evolution(sigma=0.1, metric="ndcg"), Linear(), Adam(step=0.1)),
        (Evolution(sigma=0.3), MLP(hidden=10, start="zero"), Adam(step=0.1)),
    ],
    ids=str,
)
def test_learning_raises_ndcg(tiny_collection, learner, ranker, server) -> None:
    simulation = Simulation(tiny_collection.train, ranker, Cascade("perfect"), 3, seed=2)
    simulator = Simulator(Federation(clients=200, interactions=4, learner=learner, server=server), simulation)
    start, state = simulator.initial(), state_after(simulator, 40)
    before, after = Evaluator(tiny_collection.test, ranker).all_means([start.theta, state.theta])[0]
    assert after > before + 0.1
