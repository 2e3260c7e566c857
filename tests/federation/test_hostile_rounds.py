"""Rounds with attackers, robust rules and personal rankers: the same bits however they are played, and refusals."""

from __future__ import annotations

import numpy as np
import pytest
from devices import simulation_of, state_after
from lists import simulate
from sampling import sampled
from test_simulator import assert_contract, parts_of

from quorank.engines.process import Simulator
from quorank.federation import Federation, LocalOffset, Median, Momentum, OutputLayer, Sampled
from quorank.learning import PDGD
from quorank.privacy import ClippedGaussian
from quorank.rankers import MLP, Linear


@pytest.mark.parametrize(
    ("attack", "aggregation"), sampled(parts_of("attacks"), parts_of("aggregations"), times=2), ids=str
)
def test_bits_with_attacks_and_robust_rules(tiny_collection, aggregation, attack) -> None:
    assert_contract(Federation(12, 2, aggregation=aggregation, attack=attack), simulation_of(tiny_collection))


@pytest.mark.parametrize("personal", parts_of("personalisations"), ids=str)
@pytest.mark.parametrize("participation", [None, Sampled(cohort=7)], ids=str)
def test_bits_with_personal_rankers(tiny_collection, personal, participation) -> None:
    options = {} if participation is None else {"participation": participation}
    ranker = MLP(hidden=4) if isinstance(personal, OutputLayer) else Linear()
    federation = Federation(20, 2, personal=personal, **options)
    assert_contract(federation, simulation_of(tiny_collection, ranker))


@pytest.mark.parametrize("options", [{}, {"participation": Sampled(cohort=7)}, {"personal": LocalOffset()}], ids=str)
def test_bits_with_momentum_of_clients(tiny_collection, options) -> None:
    assert_contract(Federation(20, 2, client_momentum=0.8, **options), simulation_of(tiny_collection))


def test_momentum_of_clients_is_what_each_sends_and_carries_on(tiny_collection) -> None:
    """m ← β·m + u for those who take part; m is sent. The others' m stays."""
    simulation = simulation_of(tiny_collection)
    federation = Federation(9, 3, client_momentum=0.7, participation=Sampled(cohort=4), aggregation=Median())
    simulator = Simulator(federation, simulation, rounds=4)
    state, own = simulator.initial(), np.zeros((9, simulation.parameters))
    for round_ in range(4):
        members = simulator.members(round_)
        fresh = simulate(simulation, PDGD(), state.theta, members, 3, round_)[:, : simulation.parameters]
        own[members] = 0.7 * own[members] + fresh
        gathered = simulator.gather(state)
        np.testing.assert_allclose(gathered.updates, own[members], rtol=1e-12)
        state, _ = federation.round(state, gathered)
        np.testing.assert_allclose(state.carried, own, rtol=1e-12)


def test_without_privacy_momentum_of_all_clients_is_momentum_of_the_server(tiny_collection) -> None:
    """The mean of β·m + u over all clients is β times the mean of m, plus that of u: equal but for the rounding."""
    simulation, thetas = simulation_of(tiny_collection), []
    for federation in (Federation(8, 2, client_momentum=0.9), Federation(8, 2, server=Momentum(step=1.0, beta=0.9))):
        thetas.append(state_after(Simulator(federation, simulation, rounds=5)).theta)
    np.testing.assert_allclose(*thetas, rtol=1e-9)


def test_with_momentum_every_release_is_still_within_the_clip(tiny_collection) -> None:
    """What ε counts on: however much a client carries on, it moves the sum of a round by at most the clip."""
    federation = Federation(6, 4, client_momentum=0.95, privacy=ClippedGaussian(epsilon=100.0, clip=0.01))
    simulator = Simulator(federation, simulation_of(tiny_collection), rounds=5)
    state, sent = simulator.initial(), []

    class Watched:
        def __getattr__(self, name: str):
            return getattr(mechanism, name)

        def release(self, rows, *more):
            before = np.linalg.norm(rows, axis=1)
            found = mechanism.release(rows, *more)
            sent.append((before, np.linalg.norm(rows, axis=1) / mechanism.unit_of(more[-1])))
            return found

    mechanism = simulator.mechanism
    simulator.__dict__["mechanism"] = Watched()
    for _ in range(5):
        state, _ = federation.round(state, simulator.gather(state))
    assert max(before.max() for before, _ in sent) > 0.02
    assert max(after.max() for _, after in sent) <= 0.01 * (1 + 1e-9)


def test_a_client_keeps_its_own_part_and_sends_the_rest(tiny_collection) -> None:
    """v ← (1 − decay)·v + rate·u, θ ← θ + mean of u, and the client ranks by θ + v."""
    simulation = simulation_of(tiny_collection)
    federation = Federation(5, 3, personal=LocalOffset(rate=0.5, decay=0.2))
    simulator = Simulator(federation, simulation)
    state = simulator.initial()
    theta, own = state.theta, np.zeros((5, simulation.parameters))
    for round_ in range(3):
        rows = np.array(
            [simulate(simulation, PDGD(), theta + own[c], [c], 3, round_)[0, : simulation.parameters] for c in range(5)]
        )
        state, _ = federation.round(state, simulator.gather(state))
        own, theta = 0.8 * own + 0.5 * rows, theta + rows.mean(axis=0)
        np.testing.assert_allclose(state.personal, own, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(state.theta, theta, rtol=1e-9, atol=1e-12)


def test_an_output_layer_never_leaves_its_client(tiny_collection) -> None:
    ranker = MLP(hidden=3)
    simulation = simulation_of(tiny_collection, ranker)
    federation = Federation(6, 4, personal=OutputLayer())
    simulator = Simulator(federation, simulation)
    first, state = simulator.initial(), state_after(simulator, 3)
    assert np.array_equal(state.theta[-3:], first.theta[-3:])
    assert not np.array_equal(state.theta[:-3], first.theta[:-3])
    assert not state.personal[:, :-3].any() and state.personal[:, -3:].any()
