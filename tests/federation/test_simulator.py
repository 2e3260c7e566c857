"""The simulator: the same bits for any threads, chunks and restarts; and what a round is made of."""

from __future__ import annotations

import pickle
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest
from devices import simulation_of
from lists import simulate
from part_examples import EXAMPLES
from sampling import sampled

from quorank.engines.process import Simulator
from quorank.errors import BadInput
from quorank.experiments.progress import Progress
from quorank.federation import Add, Federation, Full, Momentum, Sampled, State
from quorank.federation.attacks import SignFlip
from quorank.learning import DBGD, MGD, PDGD, Counterfactual, Evolution, PairRank
from quorank.privacy import ClippedGaussian, PublishedLaplace, RandomisedResponse, Signs
from quorank.rankers import MLP, Linear

FEW, MANY = 30, 120  # the default cohort is 100


def play(simulator, state, rounds) -> list[State]:
    states = [state]
    for _ in range(rounds):
        states.append(simulator.federation.round(states[-1], simulator.gather(states[-1]))[0])
    simulator.close()
    return states


def same(a: State, b: State) -> bool:
    """Equal bit by bit."""
    return pickle.dumps(plain(a)) == pickle.dumps(plain(b))


def plain(value: Any) -> Any:
    """Arrays as bytes, dataclasses and tables as lists."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if is_dataclass(value):
        return [plain(getattr(value, field.name)) for field in fields(value)]
    if isinstance(value, dict):
        return [(key, plain(item)) for key, item in sorted(value.items())]
    return value


def assert_contract(federation, simulation) -> None:
    """Threads, chunks, more threads than clients, and a restart from a saved middle state change no bit."""
    reference = Simulator(federation, simulation, rounds=3)
    states = play(reference, reference.initial(), 3)
    assert np.isfinite(states[-1].theta).all()
    assert len({state.theta.tobytes() for state in states}) > 2
    for threads, chunk in [(2, None), (1, 1), (2, 7), (federation.clients + 3, None)]:
        other = Simulator(federation, simulation, threads, chunk, rounds=3)
        assert same(play(other, other.initial(), 3)[-1], states[-1]), f"threads = {threads}, chunk = {chunk}"
    half = states[2]
    saved = pickle.dumps([getattr(half, field.name) for field in fields(half)])
    resumed = play(Simulator(federation, simulation, rounds=3), State(*pickle.loads(saved)), 1)
    assert same(resumed[-1], states[-1])


def parts_of(key: str) -> list[Any]:
    """All parts of a family that a round of updates can play."""
    return [part for part in EXAMPLES[key] if not getattr(part, "grows_trees", False)]


@pytest.mark.parametrize(
    ("participation", "server", "learner"),
    sampled(parts_of("participations"), parts_of("servers"), parts_of("learners"), times=2),
    ids=str,
)
def test_bits_do_not_depend_on_how_a_run_is_played(tiny_collection, learner, server, participation) -> None:
    if isinstance(learner, PDGD) and learner.eta < 1e-9:
        learner = PDGD(step=learner.step)  # an update below 2^-53 is lost in the sum, and nothing would move
    clients = FEW if participation.size(FEW) <= FEW else MANY
    federation = Federation(clients, 2, learner, participation, server=server)
    assert_contract(federation, simulation_of(tiny_collection))


@pytest.mark.parametrize(
    ("learner", "server", "participation", "ranker", "clients"),
    sampled(
        parts_of("learners"), parts_of("servers"), [Full(), Sampled(cohort=1)], [Linear(), MLP(hidden=3)], [1, 5, 30],
        times=2,
    ),
    ids=str,
)  # fmt: skip
def test_rounds_that_are_closed_together_have_the_bits_and_metrics_of_single_ones(
    tiny_graded, learner, server, participation, ranker, clients
) -> None:
    federation = Federation(clients, 2, learner, participation, server=server)
    assert_closed_together(federation, simulation_of(tiny_graded, ranker))


@pytest.mark.parametrize("server", [Add(), Add(step=0.5), Add(average=0.0), Momentum(step=0.3)], ids=str)
@pytest.mark.parametrize("clients", [1, 3])
def test_small_cohorts_are_closed_together_by_these_servers(tiny_collection, server, clients) -> None:
    together = assert_closed_together(Federation(clients, 1, server=server), simulation_of(tiny_collection))
    assert (together < 20) == (server != Add(average=0.0))


@pytest.mark.parametrize(
    ("learner", "are_together"),
    [(PDGD(step="batch"), True), (PDGD(temperature=0.5), True), (DBGD(), True), (MGD(candidates=3), True),
     (Counterfactual(), True), (PairRank(), False), (Evolution(), False)], ids=str,
)  # fmt: skip
def test_rounds_of_these_learners_are_closed_together(tiny_collection, learner, are_together) -> None:
    together = assert_closed_together(Federation(2, 2, learner), simulation_of(tiny_collection))
    assert (together < 20) == are_together


def assert_closed_together(federation, simulation, rounds: int = 60) -> int:
    """Return the number of calls for the second half of the rounds, of up to 1, 2, 3, … rounds each."""
    alone, together = (Simulator(federation, simulation, rounds=rounds) for _ in range(2))
    expected, found = Progress.empty(rounds), Progress.empty(rounds)
    state = alone.initial()
    for _ in range(rounds):
        members = alone.members(state.round, state.turns)  # a cohort of its own is always played by itself
        members = np.arange(federation.clients) if members is None else members
        gathered = alone.gather(state, members=members)
        state, report = federation.round(state, gathered)
        expected.record(report)
    played, calls = together.initial(), 0
    while played.round < rounds:
        calls += played.round >= rounds // 2
        played, reports = together.play(played, min(1 + calls, rounds - played.round))
        found.record(reports)
        assert found.done == played.round
    assert same(played, state)
    assert (found.interactions, found.per_round) == (expected.interactions, expected.per_round)
    for name, values in expected.values.items():
        assert found.values[name].tobytes() == values.tobytes(), name
    return calls


def test_a_round_is_closed_with_others_only_if_it_begins_where_the_one_before_ends(tiny_collection) -> None:
    """A θ or m that is not the predicted one is played from again."""
    federation, simulation = Federation(2, 1, server=Momentum()), simulation_of(tiny_collection)
    simulator = Simulator(federation, simulation, rounds=60)
    state = simulator.initial()
    while state.round < 40:
        state, _ = simulator.play(state, 3)
    for other in (
        replace(state, theta=state.theta + 1.0),
        replace(state, memory={"momentum": state.memory["momentum"] + 1.0}),
        replace(state, round=7),
    ):
        fresh = Simulator(federation, simulation, rounds=60)
        expected, found = other, other
        for _ in range(6):
            expected = federation.round(expected, fresh.gather(expected))[0]
        while found.round < other.round + 6:
            found, _ = simulator.play(found, other.round + 6 - found.round)
        assert same(found, expected)


@pytest.mark.parametrize(
    ("ranker", "privacy", "learner"),
    sampled([Linear(), MLP(hidden=5)], parts_of("privacies"), parts_of("learners"), times=3),
    ids=str,
)
def test_bits_with_privacy_and_with_a_hidden_layer(tiny_graded, privacy, learner, ranker) -> None:
    if isinstance(learner, PDGD) and learner.eta < 1e-9:
        learner = PDGD(step=learner.step)
    try:
        federation = Federation(20, 2, learner, Sampled(cohort=8), privacy=privacy)
    except BadInput:
        needs = {RandomisedResponse: Evolution, PublishedLaplace: PDGD}[type(privacy)]
        assert not isinstance(learner, needs)
        return
    assert_contract(federation, simulation_of(tiny_graded, ranker))


@pytest.mark.parametrize("privacy", [ClippedGaussian(noise_multiplier=1.0, clip=1e-4), Signs()], ids=str)
def test_an_over_long_release_is_refused_by_name_before_it_reaches_the_sum(
    tiny_collection, privacy, monkeypatch
) -> None:
    """An attacker that sends more than the mechanism lets a client send."""
    federation = Federation(20, 2, privacy=privacy, attack=SignFlip(clients=2))
    simulator = Simulator(federation, simulation_of(tiny_collection), rounds=2)
    state = simulator.initial()
    longer = np.zeros((2, simulator.simulation.parameters))
    longer[1] = 5.0 * simulator.mechanism.unit_of(state.private)
    monkeypatch.setattr(SignFlip, "lie", lambda *_: longer)
    with pytest.raises(BadInput, match=r"the update of client 1 has norm .* longer than the clip"):
        simulator.gather(state)


def test_no_round_is_played_beyond_those_that_privacy_was_planned_for(tiny_collection) -> None:
    simulator = Simulator(
        Federation(20, 2, privacy=ClippedGaussian(noise_multiplier=1.0)), simulation_of(tiny_collection), rounds=2
    )
    states = play(simulator, simulator.initial(), 2)
    with pytest.raises(BadInput, match="planned for 2 rounds, and they are done"):
        simulator.gather(states[-1])


@pytest.mark.parametrize("learner", [PDGD(), PDGD(step="batch"), Evolution(sigma=0.1)], ids=str)
@pytest.mark.parametrize("participation", [Full(), Sampled(cohort=4)], ids=str)
def test_a_round_is_the_mean_of_its_cohort(tiny_collection, learner, participation) -> None:
    simulation = simulation_of(tiny_collection)
    federation = Federation(10, 4, learner, participation)
    simulator = Simulator(federation, simulation)
    state = State(6, np.linspace(-1, 1, simulation.parameters), {})
    members = participation.members(10, 6, simulation.seed)
    clients = np.arange(10) if members is None else members
    rows = simulate(simulation, learner, state.theta, clients, 4, 6)
    after, report = federation.round(state, simulator.gather(state))
    size = simulation.parameters
    np.testing.assert_allclose(after.theta - state.theta, rows[:, :size].mean(axis=0), rtol=1e-12, atol=1e-14)
    measured = rows[:, size:].sum(axis=0) / (4 * len(clients))
    np.testing.assert_allclose([report.online_ndcg, report.online_maxrr, report.clicks], measured, rtol=1e-13)
    assert report.interactions == 4 * len(clients)
    assert report.round == 7


def test_federated_averaging_with_one_client_is_centralised_pdgd(tiny_collection) -> None:
    """One client, B updates a round: the same as local PDGD that goes on from its own parameters."""
    simulation = simulation_of(tiny_collection)
    simulator = Simulator(Federation(clients=1, interactions=5, server=Add()), simulation)
    states = play(simulator, simulator.initial(), 6)
    theta = np.zeros(simulation.parameters)
    for round_ in range(6):
        theta = theta + simulate(simulation, PDGD(), theta, [0], 5, round_)[0, : len(theta)]
        np.testing.assert_allclose(states[round_ + 1].theta, theta, rtol=1e-9, atol=1e-12)
    assert np.abs(theta).max() > 0.01
