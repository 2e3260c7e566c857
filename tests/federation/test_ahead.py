"""Rounds that are played ahead: the same bits as one by one, whatever comes of what was foretold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from devices import simulation_of
from part_examples import EXAMPLES

from quorank.engines.process import Simulator
from quorank.errors import BadInput
from quorank.federation import Add, Federation, Momentum
from quorank.learning import PDGD
from quorank.rankers import MLP, Linear

SERVERS = [Add(), Add(step=7.0, average=2.0), Add(step=7.0, average=-0.5, among=(0.0,)), Momentum(step=3.0, beta=0.8)]


def played(simulator, rounds) -> list[tuple]:
    """Every round's state and report, as bytes and numbers that can be compared."""
    state, found = simulator.initial(), []
    for _ in range(rounds):
        state, report = simulator.federation.round(state, simulator.gather(state))
        memory = {name: value.tobytes() for name, value in state.memory.items()}
        found.append((state.round, state.theta.tobytes(), memory, repr(report)))
    return found


@pytest.mark.parametrize("ranker", [Linear(), MLP(hidden=5)], ids=str)
@pytest.mark.parametrize("server", SERVERS, ids=str)
@pytest.mark.parametrize("learner", [PDGD(), PDGD(eta=0.3, step="batch", proximal=0.5)], ids=str)
def test_the_same_bits_as_one_by_one(tiny_collection, ranker, server, learner) -> None:
    simulation = simulation_of(tiny_collection, ranker)
    federation = Federation(10, 3, learner, server=server)
    expected = played(Simulator(federation, simulation, chunk=1, rounds=40), 40)
    assert played(Simulator(federation, simulation, rounds=40), 40) == expected


@pytest.mark.parametrize("absent", [(), (0, 3, 9), tuple(range(1, 10))], ids=str)
def test_clients_that_differ_and_clients_that_have_left(tiny_collection, absent) -> None:
    simulation, federation = simulation_of(tiny_collection), Federation(10, 3, server=Momentum())
    interactions = np.arange(10) % 4
    one = Simulator(federation, simulation, chunk=1, interactions=interactions, absent=absent)
    assert played(one, 20) == played(replace(one, chunk=None), 20)


@pytest.mark.parametrize("server", EXAMPLES["servers"], ids=str)
def test_a_state_that_was_not_foretold_is_played_as_if_nothing_had_been(tiny_collection, server) -> None:
    """Elsewhere, later, again, back: while rounds are foretold, every other one is what it is when played alone."""
    simulation, federation = simulation_of(tiny_collection), Federation(10, 2, server=server)
    states = [Simulator(federation, simulation).initial()]

    def same(simulator, state) -> bool:
        found, alone = (s.gather(state) for s in (simulator, Simulator(federation, simulation, chunk=1)))
        assert repr(found._replace(total=None)) == repr(alone._replace(total=None))
        return found.total.tobytes() == alone.total.tobytes()

    for _ in range(12):
        states.append(federation.round(states[-1], Simulator(federation, simulation).gather(states[-1]))[0])
    now = states[12]
    for other in (replace(now, theta=2.0 * now.theta), replace(now, round=40), states[11], states[3]):
        simulator = Simulator(federation, simulation)
        for state in states[:12]:
            simulator.gather(state)
        assert same(simulator, other)
        assert same(simulator, now)
        assert same(simulator, now)
        assert same(simulator, replace(now, round=13))


@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_what_cannot_be_summed_is_refused_in_its_round(tiny_collection) -> None:
    """θ grows until it is infinite: the same sentence, and as many rounds before it, as one by one."""
    simulation = simulation_of(tiny_collection)
    federation = Federation(10, 3, server=Momentum(beta=0.99))
    ends = []
    for chunk in (1, None):
        simulator = Simulator(federation, simulation, chunk=chunk)
        state = simulator.initial()
        state.memory["momentum"][:] = 1e307
        with pytest.raises(BadInput) as refused:
            while state.round < 2000:
                state, _ = federation.round(state, simulator.gather(state))
        ends.append((state.round, state.theta.tobytes(), str(refused.value)))
    assert ends[0] == ends[1]
    assert ends[0][0] > 10


@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_who_looks_at_single_updates_sees_them_and_may_change_them(tiny_collection, factor) -> None:
    """As runs do that keep the updates of some rounds for unlearning."""
    simulation, federation = simulation_of(tiny_collection), Federation(10, 2, server=Momentum())
    ends = []
    for chunk in (1, None):
        simulator, shown = Simulator(federation, simulation, chunk=chunk, rounds=30), []

        def look(clients, rows, shown=shown) -> None:
            shown.append((clients.tobytes(), rows.tobytes()))
            rows *= factor

        state = simulator.initial()
        for t in range(30):
            gathered = simulator.gather(state, sent=look if t % 5 == 2 else None)
            assert (gathered.updates is not None) == (t % 5 == 2)
            state, _ = federation.round(state, gathered)
        ends.append((state.theta.tobytes(), shown))
    assert ends[0] == ends[1]
    assert len(ends[0][1]) == 6
