"""Calibrated rebuilding (thesis eq. 6.2) against a literal loop; what is kept, and how far rankings are apart."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from devices import simulation_of
from hypothesis import given
from hypothesis import strategies as st
from part_examples import EXAMPLES
from unlearning_cases import CLIENTS, B, kept_of, learned

from quorank.engines.process import Simulator
from quorank.federation import Add, Federation, Mean, Median, Momentum
from quorank.federation.attacks import Fang, SignFlip
from quorank.federation.unlearning.methods import (
    KeptRound,
    calibrated,
    clip_parameters,
    fresh_seed,
    momentum_over,
    rebuild,
    retrain,
)
from quorank.learning import PDGD, Evolution
from quorank.metrics.evaluator import intersection_distance, mean_distance, ranking_distances
from quorank.privacy import RandomisedResponse
from quorank.rankers import Linear

NUMBERS = st.floats(-1e3, 1e3).filter(lambda x: x == 0.0 or abs(x) > 1e-3)


@given(st.lists(NUMBERS, min_size=1, max_size=12), st.floats(0.0, 1e3))
def test_the_direction_is_the_new_update_s_and_the_length_the_kept_one_s(values, length) -> None:
    update = np.array(values)
    norm = math.sqrt(math.fsum(x * x for x in values))
    result = calibrated(update, norm, length)
    if norm == 0.0:
        assert not result.any()
    else:
        assert math.sqrt(math.fsum(x * x for x in result)) == pytest.approx(length, rel=1e-12)
        assert np.dot(result, update) == pytest.approx(length * norm, rel=1e-12, abs=1e-12)
        np.testing.assert_allclose(result, [length * x / norm for x in values], rtol=1e-12)


@pytest.mark.parametrize("leavers", [(0,), (2, 5), (0, 1, 2, 3, 4, 5, 6)], ids=str)
@pytest.mark.parametrize("rule", ["mean", "median"])
def test_a_rebuilding_is_the_literal_loop(tiny_collection, leavers, rule) -> None:
    """§6.1.2, steps 1 to 4, with nothing of the simulator but the clients' own learning."""
    simulation, kept, steps = simulation_of(tiny_collection), kept_of(), 3
    remaining = [c for c in range(CLIENTS) if c not in leavers]
    theta = np.linspace(-0.2, 0.3, simulation.parameters)
    momentum, expected = np.zeros(len(theta)), theta.copy()
    for j, entry in enumerate(kept):
        sent = []
        for client, new in zip(remaining, learned(simulation, expected, j, remaining, steps), strict=True):
            length = math.sqrt(sum(x * x for x in new))
            sent.append(entry.lengths[client] * new / length if length > 0 else 0.0 * new)
        combined = np.mean(sent, axis=0) if rule == "mean" else np.median(sent, axis=0)
        momentum = 0.9 * momentum + combined if rule == "median" else combined
        expected = expected + (0.5 * momentum if rule == "median" else momentum)
    aggregation, server = (Mean(), Add()) if rule == "mean" else (Median(), Momentum(step=0.5, beta=0.9))
    federation = Federation(CLIENTS, steps, aggregation=aggregation, server=server)
    simulator = Simulator(federation, simulation, rounds=len(kept), absent=leavers)
    result = rebuild(simulator, theta, kept)
    np.testing.assert_allclose(result.theta, expected, rtol=1e-9, atol=1e-12)
    assert not np.allclose(result.theta, theta, atol=0.1)
    assert (result.rounds, result.local_steps) == (len(kept), len(kept) * steps * len(remaining))


def test_retraining_with_momentum_is_the_run_without_the_leaver_from_zero(tiny_collection) -> None:
    """m ← β·m + u of each who stays, from m = 0; the leaver's is in none of it."""
    simulation, beta, remaining = simulation_of(tiny_collection), 0.8, range(1, CLIENTS)
    theta, carried = np.zeros(simulation.parameters), np.zeros((len(remaining), simulation.parameters))
    for round_ in range(5):
        carried = beta * carried + learned(simulation, theta, round_, remaining, B)
        theta = theta + carried.mean(axis=0)
    federation = Federation(CLIENTS, B, client_momentum=beta)
    found = retrain(Simulator(federation, simulation, rounds=5, absent=(0,)), np.zeros(len(theta)), 5)
    np.testing.assert_allclose(found.theta, theta, rtol=1e-9, atol=1e-12)


def test_a_fresh_rebuilding_with_momentum_sends_what_all_rounds_of_its_interval_would(tiny_collection) -> None:
    beta, every = 0.9, 4
    own, gain = momentum_over(beta, every)
    carried = longer = 0.0
    for round_ in range(3 * every):  # of a client that learns the same in every round
        carried = beta * carried + 1.0
        if round_ % every == every - 1:
            longer = own * longer + 1.0
            assert gain * longer == pytest.approx(carried, rel=1e-12)
    assert momentum_over(0.0, 10) == (0.0, 1.0) and momentum_over(beta, 1) == (beta, pytest.approx(1.0))
    simulation, remaining = simulation_of(tiny_collection), range(1, CLIENTS)
    theta, rows = np.zeros(simulation.parameters), np.zeros((len(remaining), simulation.parameters))
    for round_ in range(3):
        rows = own * rows + learned(simulation, theta, round_, remaining, B)
        theta = theta + every * gain * rows.mean(axis=0)
    federation = Federation(CLIENTS, B, client_momentum=own)
    simulator = Simulator(federation, simulation, rounds=3, absent=(0,))
    start, kept = np.zeros(len(theta)), kept_of(rounds=3)
    found = rebuild(simulator, start, kept, lengths="own", step_factor=float(every), gain=gain)
    np.testing.assert_allclose(found.theta, theta, rtol=1e-9, atol=1e-12)


def test_a_stretched_rebuilding_steps_further_and_hands_out_the_weighted_mean(tiny_collection) -> None:
    """θ_t = θ_{t−1} + s·mean; with γ = 1 the mean of θ_1 … θ_T weighs round t by about t: by 2t/(T(T + 1))."""
    simulation, kept, remaining = simulation_of(tiny_collection), kept_of(rounds=5), range(1, CLIENTS)
    theta, path = np.zeros(simulation.parameters), []
    for j, entry in enumerate(kept):
        new = learned(simulation, theta, j, remaining, 3)
        sent = [entry.lengths[c] * row / np.linalg.norm(row) for c, row in zip(remaining, new, strict=True)]
        theta = theta + 2.5 * np.mean(sent, axis=0)
        path.append(theta)
    for average, expected in (
        (None, path[-1]),
        (0.0, np.mean(path, axis=0)),
        (1.0, sum(t * theta for t, theta in enumerate(path, 1)) / 15),
    ):
        simulator = Simulator(Federation(CLIENTS, 3), simulation, rounds=5, absent=(0,))
        result = rebuild(simulator, np.zeros(len(theta)), kept, step_factor=2.5, average=average)
        np.testing.assert_allclose(result.theta, expected, rtol=1e-9, atol=1e-12)


def test_a_server_that_averages_is_left_to_do_so_and_rules_are_stretched_too(tiny_collection) -> None:
    simulation, kept, theta = simulation_of(tiny_collection), kept_of(), np.zeros(11)

    def rebuilt(federation: Federation, **how: float) -> np.ndarray:
        return rebuild(Simulator(federation, simulation, rounds=6, absent=(0,)), theta, kept, **how).theta

    averaging = Federation(CLIENTS, 3, server=Add(average=3.0))
    np.testing.assert_array_equal(rebuilt(averaging, average=1.0), rebuilt(averaging))
    np.testing.assert_allclose(rebuilt(averaging), rebuilt(Federation(CLIENTS, 3), average=3.0), rtol=1e-12)
    median = Federation(CLIENTS, 3, aggregation=Median())
    longer = replace(median, server=Add(step=4.0))
    np.testing.assert_allclose(rebuilt(median, step_factor=4.0), rebuilt(longer), rtol=1e-12)


def test_a_leaver_s_own_kept_updates_are_not_read(tiny_collection) -> None:
    simulation, kept = simulation_of(tiny_collection), kept_of()
    changed = [replace(k, lengths=np.where(k.clients == 2, 99.0, k.lengths)) for k in kept]
    without = [replace(k, clients=k.clients[k.clients != 2], lengths=k.lengths[k.clients != 2]) for k in kept]
    theta = np.zeros(simulation.parameters)
    results = [
        rebuild(Simulator(Federation(CLIENTS, 2), simulation, rounds=6, absent=(2,)), theta, k).theta.tobytes()
        for k in (kept, changed, without)
    ]
    assert len(set(results)) == 1
    other = rebuild(Simulator(Federation(CLIENTS, 2), simulation, rounds=6, absent=(3,)), theta, changed)
    assert other.theta.tobytes() != results[0]


@pytest.mark.parametrize("attack", [None, SignFlip(clients=2), Fang(clients=2)], ids=str)
def test_retraining_is_the_run_of_the_others_with_their_own_draws(tiny_collection, attack) -> None:
    """Attackers 0 and 1 leave: what is left is plain averaging over 2..7, who are still called 2..7."""
    simulation, remaining = simulation_of(tiny_collection), range(2, CLIENTS)
    expected = np.zeros(simulation.parameters)
    for t in range(5):
        expected = expected + learned(simulation, expected, t, remaining, B).mean(axis=0)
    simulator = Simulator(Federation(CLIENTS, B, attack=attack), simulation, rounds=5, absent=(0, 1))
    result = retrain(simulator, np.zeros(simulation.parameters), 5)
    np.testing.assert_allclose(result.theta, expected, rtol=1e-9, atol=1e-13)
    assert (result.rounds, result.local_steps) == (5, 5 * B * 6)


@pytest.mark.parametrize("privacy", EXAMPLES["privacies"], ids=str)
def test_looking_at_what_is_sent_changes_no_bit_and_sees_it_before_privacy(tiny_collection, privacy) -> None:
    simulation = simulation_of(tiny_collection)
    learner = Evolution() if isinstance(privacy, RandomisedResponse) else PDGD()
    federation = Federation(12, 4, learner, privacy=privacy)
    simulator = Simulator(federation, simulation, threads=2, chunk=5, rounds=3)
    state, seen = simulator.initial(), []
    plain = simulator.gather(state)
    shown = simulator.gather(state, sent=lambda clients, rows: seen.append((clients.copy(), rows.copy())))
    simulator.close()
    assert plain.total.tobytes() == shown.total.tobytes() and plain.weight == shown.weight
    ((clients, rows),) = seen
    assert clients.tolist() == list(range(12))
    if isinstance(learner, PDGD) and math.isinf(simulator.mechanism.bound):
        np.testing.assert_array_equal(rows, learned(simulation, state.theta, 0, range(12), 4))


def test_fresh_seeds_differ_by_request_and_not_by_order() -> None:
    seeds = [fresh_seed(1, "unlearning", c) for c in ((0,), (1,), (0, 1), (10,), (1, 0))]
    assert len(set(seeds)) == 4 and seeds[2] == seeds[4]
    assert fresh_seed(2, "unlearning", (0,)) != seeds[0] != fresh_seed(1, "retraining 0", (0,))


@given(st.permutations(range(9)), st.permutations(range(9)), st.integers(1, 9))
def test_the_distance_is_one_minus_the_average_overlap_of_sets(a, b, k) -> None:
    expected = 1 - sum(len(set(a[:d]) & set(b[:d])) / d for d in range(1, k + 1)) / k
    first, second = np.array(a[:k]), np.array(b[:k])
    assert intersection_distance(first, second) == pytest.approx(expected, abs=1e-12)
    assert intersection_distance(second, first) == pytest.approx(expected, abs=1e-12)


def test_distances_of_rankers_on_a_split(tiny_collection) -> None:
    test, random = tiny_collection.test, np.random.default_rng(1)
    one, other = random.normal(size=(2, 11))
    found = ranking_distances(Linear(), one, other, test, 10)
    for q in range(test.n_queries):
        x = np.asarray(test.padded[test.rows_of(q), :11], dtype=np.float64)
        a, b = (np.argsort(-(x @ theta), kind="stable")[:10].tolist() for theta in (one, other))
        overlap = [len(set(a[:d]) & set(b[:d])) / d for d in range(1, len(a) + 1)]
        assert found[q] == pytest.approx(1 - np.mean(overlap), abs=1e-9), q
    assert mean_distance(Linear(), one, other, [test, test]) == pytest.approx(found.mean())
    assert mean_distance(Linear(), one, 7.5 * one, [test]) == 0.0  # the length of θ does not rank


def test_updates_that_keep_their_own_length_are_the_run_in_longer_rounds(tiny_collection) -> None:
    """lengths = "own": θ_t = θ_{t−1} + s·mean of the new updates as they are; what was kept is not read."""
    simulation, remaining, theta = simulation_of(tiny_collection), range(1, CLIENTS), np.zeros(11)
    for t in range(4):
        theta = theta + 6.0 * learned(simulation, theta, t, remaining, 3).mean(axis=0)
    members = np.arange(CLIENTS)
    for lengths in (np.full(CLIENTS, np.nan), np.full(CLIENTS, 5.0)):
        kept, seen = [KeptRound(1 + j, members, lengths) for j in range(4)], []
        simulator = Simulator(Federation(CLIENTS, 3), simulation, rounds=4, absent=(0,))
        result = rebuild(
            simulator, np.zeros(11), kept, lambda t, x, seen=seen: seen.append((t, x)), step_factor=6.0, lengths="own"
        )
        np.testing.assert_allclose(result.theta, theta, rtol=1e-9, atol=1e-12)
        assert [t for t, _ in seen] == [1, 2, 3, 4] and np.array_equal(seen[-1][1], result.theta)
        assert result.participants.tolist() == [CLIENTS - 1] * 4 and not result.noise.any()


@given(st.lists(st.lists(NUMBERS, min_size=3, max_size=3), min_size=1, max_size=4), st.floats(0.1, 10.0))
def test_a_bound_on_parameters_holds_after_calibration_too(rows, bound) -> None:
    """FPDGD eq. 13: what a client would rank by has at most this norm, whatever length was kept."""
    updates, theta = np.array(rows), np.array([0.3, -0.2, 0.1])
    free = updates.copy()
    clip_parameters(updates, theta, math.inf)
    np.testing.assert_array_equal(updates, free)
    clip_parameters(updates, theta, bound)
    for row, before in zip(updates, free, strict=True):
        reached = theta + before
        norm = math.sqrt(math.fsum(x * x for x in reached))
        np.testing.assert_allclose(theta + row, reached * min(1.0, bound / norm), rtol=1e-9, atol=1e-9)
