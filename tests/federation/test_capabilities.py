"""What parts say of themselves is true, and combinations are refused by that alone."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from part_examples import EXAMPLES
from refusals import refused as refuses

from quorank.data.partition import Clicks, Quantity
from quorank.engines.process import Simulator
from quorank.errors import BadInput
from quorank.experiments.experiment import Experiment
from quorank.federation import Arrivals, Federation, Poisson, Sampled, State
from quorank.federation.attacks import SignFlip
from quorank.federation.rules import Krum, Mixing
from quorank.kernels.arrays import Doubles
from quorank.learning import PDGD, Evolution, Simulation
from quorank.learning.exploration import FREE
from quorank.privacy import ClippedGaussian, PublishedLaplace, SecureSum, Setting
from quorank.rankers import MLP, Linear
from quorank.users import Cascade


def ids(part: object) -> str:
    return str(part)


def some_updates(seed: int = 1, clients: int = 11) -> Doubles:
    return np.random.default_rng(seed).normal(size=(clients, 4))


@pytest.mark.parametrize("rule", EXAMPLES["aggregations"], ids=ids)
def test_a_rule_sees_what_it_says_that_it_needs(rule) -> None:
    updates, weights = some_updates(), np.ones(11)
    if rule.needs_single_updates:
        with pytest.raises(NotImplementedError):
            rule.combine(updates.sum(axis=0), 11.0)
        outlier = updates.copy()
        outlier[:, 0], outlier[0, 0] = 0.0, updates[:, 0].sum()  # the same sum, all of it by one client
        assert not np.allclose(rule.combine_all(updates, weights), rule.combine_all(outlier, weights))
    else:
        with pytest.raises(NotImplementedError):
            rule.combine_all(updates, weights)
        combined = rule.combine(updates.sum(axis=0), 11.0)
        if rule.divides_sums:
            assert combined.tolist() == (updates.sum(axis=0) / 11.0).tolist()


@pytest.mark.parametrize("learner", EXAMPLES["learners"], ids=ids)
def test_a_learner_is_what_it_says(learner, tiny_collection) -> None:
    if learner.grows_trees:
        assert learner.tree_plan(8, 3).batch == learner.trees_per_round >= 1
        simulation = Simulation(tiny_collection.train, Linear(), Cascade(), 3, 1)
        with refuses("lambdamart.no-updates", "learner"):
            Simulator(Federation(clients=6, learner=learner), simulation).gather(
                State(0, np.zeros(simulation.parameters), {})
            )
        return
    assert learner.trees_per_round == 0
    simulator = Simulator(
        Federation(clients=6, learner=learner),
        Simulation(tiny_collection.train, MLP(hidden=3, start="zero"), Cascade(), 3, 1),
    )
    flat = simulator.gather(simulator.initial())
    assert learner.needs_gradient == (not flat.total.any())
    assert learner.sends_metric == (learner.metric in ("maxrr", "ndcg"))
    assert (learner.pdgd_eta is not None) == (type(learner) is PDGD and learner.dial == FREE)


@pytest.mark.parametrize("privacy", EXAMPLES["privacies"], ids=ids)
def test_a_privacy_is_what_it_says(privacy) -> None:
    setting = Setting(100, 100, 5, "full", 4, 4)
    mechanism = privacy.mechanism(setting, 1)
    updates = 1e-3 * some_updates(clients=100)
    rows, clients = updates.copy(), np.arange(100)
    mechanism.release(rows, np.zeros(4), 0, clients, mechanism.start())
    whole = bool(np.all(rows == np.rint(rows)))
    unit = mechanism.unit_of(mechanism.start())
    assert (unit != 1.0) == whole, "what has a unit is in whole numbers, and nothing else is"
    assert whole or not privacy.hides_single_updates, "what is masked are whole numbers"
    longest = privacy.longest_update
    if longest is not None and not privacy.needs_client_parameters and not privacy.hides_single_updates:
        huge = 1e6 * updates
        mechanism.release(huge, np.zeros(4), 0, clients, mechanism.start())
        assert np.linalg.norm(huge, axis=1).max() <= longest * unit * (1.0 + (1e-12 if unit == 1.0 else 0.0))
    statement = mechanism.statement()
    assert privacy.protects_messages == (statement is not None and statement.get("model") == "local")
    if privacy.protects_metric:
        with pytest.raises(BadInput):
            replace(privacy, p=0.2).check_values(5)


@pytest.mark.parametrize("server", EXAMPLES["servers"], ids=ids)
def test_a_server_follows_the_recursion_that_it_states(server) -> None:
    theta, memory = np.arange(4.0), server.start(4)
    recursion = server.recursion(4, memory)
    for t in range(5):
        update = some_updates(t)[0]
        expected = None
        if recursion is not None:
            momentum = recursion.beta * recursion.momentum + update
            expected, recursion = theta + recursion.step * momentum, recursion._replace(momentum=momentum)
        theta, memory = server.advance(theta, update, memory)
        assert expected is None or theta.tolist() == expected.tolist()


COMBINATIONS = itertools.product(
    [PDGD(), Evolution()],
    EXAMPLES["privacies"],
    EXAMPLES["aggregations"],
    EXAMPLES["personalisations"],
    [EXAMPLES["participations"][0], EXAMPLES["participations"][2], Poisson(0.9), Arrivals(enough=25, least=9, most=3)],
)


def test_every_combination_is_decided_by_what_the_parts_say() -> None:
    """All learners × privacies × rules × personalisations × participations: built, or refused for a stated reason."""
    built = refused = 0
    for learner, privacy, rule, personal, participation in COMBINATIONS:
        single = rule.needs_single_updates
        nonsense = (
            (privacy.protects_metric and not learner.sends_metric)
            or (privacy.needs_client_parameters and not learner.learns_on_client)
            or (privacy.noise_on_sums and single)
            or (privacy.hides_single_updates and single)
            or (personal.keeps_parameters and not learner.learns_on_client)
            or (rule.history > 0.0 and not participation.everyone)
            or (privacy.needs_equal_shares and not participation.fixed_size)
            or (privacy.hides_single_updates and participation.open_arrivals)
        )
        try:
            rule.check(participation.fewest(30))
        except BadInput:
            nonsense = True
        try:
            Federation(30, 4, learner, participation, rule, privacy=privacy, personal=personal)
            built += 1
            assert not nonsense
        except BadInput as error:
            refused += 1
            assert nonsense
            assert error.code.partition(".")[0] in ("privacy", "aggregation", "personal", "option")
    assert built > 100
    assert refused > 100


def test_noise_in_equal_shares_is_refused_where_shares_may_miss_or_differ(tiny_collection) -> None:
    privacy, simulation = (
        PublishedLaplace(),
        Simulation(tiny_collection.train, Linear(), Cascade(), tiny_collection.grades, 1),
    )
    with refuses("option.conflict", "privacy"):
        Federation(20, 2, privacy=privacy, participation=Poisson(0.5))
    with refuses("option.conflict", "privacy"):
        privacy.mechanism(Setting(20, 10, 5, "poisson"), 1)
    Federation(20, 2, privacy=privacy, participation=Poisson(1.0))  # which is everyone
    with refuses("option.conflict", "interactions"):
        Simulator(Federation(3, 2, privacy=privacy), simulation, interactions=np.array([1, 2, 3]))
    Simulator(Federation(3, 2, privacy=privacy), simulation, interactions=np.array([2, 2, 2]))
    sampled = Federation(20, 2, privacy=privacy, participation=Sampled(10))
    with refuses("option.conflict", "privacy"):
        Simulator(sampled, simulation, absent=(3,))
    for partition in (Quantity(), Clicks(quantity=(1, 4))):
        with refuses("option.conflict", "partition"):
            Experiment(federation=Federation(20, 2, privacy=privacy), partition=partition)
        Experiment(federation=Federation(20, 2, privacy=privacy), partition=replace(partition, iid=True))
        Experiment(federation=Federation(20, 2, privacy=ClippedGaussian()), partition=partition)


@pytest.mark.parametrize("privacy", [PublishedLaplace(), SecureSum(), ClippedGaussian(sum="secure")], ids=ids)
def test_what_counts_on_a_known_cohort_is_refused_where_a_round_takes_whoever_comes(privacy, tiny_collection) -> None:
    simulation = Simulation(tiny_collection.train, Linear(), Cascade(), tiny_collection.grades, 1)
    with refuses("option.conflict", "privacy"):
        Simulator(Federation(20, 2, participation=Arrivals(10, 5), privacy=privacy), simulation, rounds=4).mechanism  # noqa: B018
    with refuses("option.conflict", "privacy"):
        privacy.mechanism(Setting(20, 10, 4, "arrivals"), 1)


def test_as_many_as_there_are_is_not_everyone_where_a_round_takes_whoever_comes() -> None:
    """K clients may come of K, and fewer do: nothing may count on all of them."""
    federation = Federation(20, 2, participation=Arrivals(enough=20, least=5, most=3))
    assert not federation.everyone and federation.setting(9, 1).participation == "arrivals"
    with refuses("aggregation.history-of-sampled"):
        replace(federation, aggregation=Mixing(byzantine=1, history=0.9))
    with refuses("aggregation.too-many-malicious"):
        replace(federation, aggregation=Krum(byzantine=3))
    with refuses("attack.too-many-clients"):
        replace(federation, attack=SignFlip(clients=3))
