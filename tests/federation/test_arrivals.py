"""Who takes part: sampled cohorts, and whoever comes, in a simulation and at a coordinator, to the same bits."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from chance import assert_follows
from devices import MemoryStorage, coordinator_of, simulator_of, state_after
from hypothesis import given
from hypothesis import strategies as st
from refusals import accepts, refused

from quorank.engines.process import Simulator
from quorank.errors import BadInput
from quorank.federation import Arrivals, Federation, Poisson, Sampled
from quorank.federation.coordinator import Coordinator, RoundLimits
from quorank.federation.participation import TurnsTaken
from quorank.federation.reply import decode_task, encode_reply, encode_task
from quorank.federation.rules import Median
from quorank.kernels.draws import Purpose, uniforms
from quorank.privacy import ClippedGaussian, NoPrivacy, Signs
from quorank.privacy.accounting import Turns

CLIENTS, ROUNDS = 14, 6


def played(part: Arrivals, clients: int, rounds: int, seed: int = 1) -> list[list[int]]:
    """The cohorts of a simulated run, until nobody may come any more."""
    taken, cohorts = TurnsTaken.none(clients), []
    for round_ in range(rounds):
        try:
            members = part.members(clients, round_, seed, taken)
        except BadInput as error:
            assert error.code == "participation.nobody-left"
            break
        taken = taken.after(members, round_)
        cohorts.append(members.tolist())
    return cohorts


# ---------------------------------------------------------------- who comes


@given(
    st.integers(5, 40), st.integers(1, 12), st.integers(1, 12), st.none() | st.integers(1, 4), st.integers(0, 3),
    st.sampled_from([0.01, 0.3, 5.0]), st.integers(0, 2**40),
)  # fmt: skip
def test_limits_hold_in_every_simulated_run(clients, enough, least, most, rest, rate, seed) -> None:
    part = Arrivals(enough, min(least, enough), most=most, rest=rest, rate=rate, period=4.0)
    cohorts = played(part, clients, 12, seed)
    for cohort in cohorts:
        assert part.least <= len(cohort) <= enough
        assert cohort == sorted(set(cohort)) and cohort[0] >= 0 and cohort[-1] < clients
    for client in range(clients):
        rounds = [t for t, cohort in enumerate(cohorts) if client in cohort]
        assert most is None or len(rounds) <= most
        assert all(later - earlier > rest for earlier, later in itertools.pairwise(rounds))


@pytest.mark.parametrize("round_", [0, 3, 11])
def test_those_who_come_first_are_taken(round_) -> None:
    """As many as are enough, or come in time, or the least, for whom the round waits: by their times alone."""
    for enough, rate in ((5, 3.0), (200, 0.2), (200, 1e-4)):
        part = Arrivals(enough=enough, least=4, rate=rate, most=3, rest=2)
        taken = TurnsTaken.none(200).after(np.arange(0, 200, 3), max(round_ - 1, 0))
        times = part.arrival_times(200, round_, 9)
        order = sorted((times[c], c) for c in range(200) if c % 3)
        count = min(enough, max(4, sum(time <= 1.0 for time, _ in order)))
        assert part.members(200, round_, 9, taken).tolist() == sorted(c for _, c in order[:count])
        assert count == {5: 5}.get(enough, count) and (rate > 1e-4 or count == 4)


def test_clients_come_by_day_more_than_by_night() -> None:
    """With one rate for all, a client comes in time with chance 1 − exp(−rate·(1 + amplitude·cos(2π·round/period)))."""
    part = Arrivals(enough=8000, least=1, rate=0.5, spread=0.0, amplitude=0.8, period=8.0, zones=0.0)
    for round_, day in ((0, 1.8), (2, 1.0), (4, 0.2), (12, 0.2), (16, 1.8)):
        came = np.zeros(8000, dtype=int)
        came[part.members(8000, round_, 5)] = 1
        chance = 1.0 - math.exp(-0.5 * day)
        assert_follows(came.tolist(), {1: chance, 0: 1.0 - chance})


def schedules(clients: int, rounds: int, least: int, turns: Turns) -> bool:
    """Whether some choice of `least` clients a round keeps the limits of each, by trying all."""

    def go(round_: int, rows: tuple[tuple[int, int], ...]) -> bool:
        if round_ == rounds:
            return True
        free = [c for c, (times, last) in enumerate(rows) if accepts(turns.check, times, last, round_)]
        for chosen in itertools.combinations(free, least):
            after = tuple((n + 1, round_) if c in chosen else (n, last) for c, (n, last) in enumerate(rows))
            if go(round_ + 1, after):
                return True
        return False

    return go(0, ((0, -1),) * clients)


def test_a_run_that_nobody_could_play_to_its_end_is_refused_and_no_other() -> None:
    found = {True: 0, False: 0}
    for clients, rounds, least, most, rest in itertools.product((1, 2, 3), (1, 2, 4), (1, 2), (None, 1, 2), (0, 1, 2)):
        part = Arrivals(enough=2, least=least, most=most, rest=rest)
        try:
            part.check(clients, rounds)
            possible = True
        except BadInput as error:
            assert error.code == "participation.too-few-clients" and error.where in ("most", "rest")
            possible = False
        assert possible == schedules(clients, rounds, least, part.turns), (clients, rounds, part)
        found[possible] += 1
    assert min(found.values()) > 20


# ---------------------------------------------------------------- what is remembered


@given(st.lists(st.sets(st.integers(0, 9)), max_size=6), st.none() | st.integers(1, 3), st.integers(0, 3))
def test_arrays_of_turns_say_what_the_rule_says_of_each_client(cohorts, most, rest) -> None:
    turns, taken, histories = Turns(most, rest), TurnsTaken.none(2), [list[int]() for _ in range(10)]
    for round_, cohort in enumerate(cohorts):
        taken = taken.after(np.array(sorted(cohort), dtype=np.int64), round_)
        for client in cohort:
            histories[client].append(round_)
    now = len(cohorts)
    expected = [accepts(turns.check, len(rounds), rounds[-1] if rounds else -1, now) for rounds in histories]
    assert taken.allowed(turns, now).tolist() == expected[: len(taken.times)]
    assert [accepts(turns.check, *taken.of(client), now) for client in range(10)] == expected


# ---------------------------------------------------------------- the coordinator


PART = Arrivals(enough=6, least=2, minutes=2.0, most=4, rest=1, rate=0.6, period=4.0)
FEDERATIONS = {
    "plain": Federation(CLIENTS, 3, participation=PART),
    "gaussian": Federation(CLIENTS, 3, participation=PART, privacy=ClippedGaussian(epsilon=100.0, clip=0.1)),
    "quantile": Federation(
        CLIENTS, 3, participation=PART, privacy=ClippedGaussian(epsilon=100.0, clip=0.1, quantile=0.5)
    ),
    "signs": Federation(CLIENTS, 3, participation=PART, privacy=Signs()),
    "median": Federation(CLIENTS, 3, participation=PART, aggregation=Median()),
}


def sent_by(simulator, coordinator, clients) -> list[bytes]:
    task = decode_task(encode_task(coordinator.plan()))
    return [encode_reply(reply) for reply in simulator.replies(task, np.array(sorted(clients)))]


def same(a, b) -> bool:
    memory = (a.theta, a.turns.times, a.turns.last), (b.theta, b.turns.times, b.turns.last)
    return [x.tobytes() for x in memory[0]] == [x.tobytes() for x in memory[1]] and a.round == b.round


@pytest.mark.parametrize("name", FEDERATIONS)
def test_a_coordinator_comes_to_the_simulator_s_bits_and_so_does_one_that_was_killed(name, tiny_collection) -> None:
    """Driven as a run on a network is: those are asked whom the simulator draws. Or open: the same clients come."""
    simulator, threaded = (
        simulator_of(tiny_collection, FEDERATIONS[name], None, ROUNDS, threads) for threads in (1, 3)
    )
    expected = state_after(simulator)
    assert expected.turns.times.max() > 1 and same(state_after(threaded), expected)
    threaded.close()
    for enrolled in (None, range(CLIENTS)):
        order, late, storage = np.random.default_rng(0), [0.0], MemoryStorage()
        coordinator = coordinator_of(simulator, enrolled=enrolled, clock=lambda late=late: late[0], storage=storage)
        while not coordinator.done:
            come = simulator.members(coordinator.state.round, coordinator.state.turns)
            sent = sent_by(simulator, coordinator, come)
            assert coordinator.cohort == (frozenset(come.tolist()) if enrolled is None else frozenset())
            for at in order.permutation(len(sent)):
                assert not coordinator.is_complete()
                assert coordinator.receive(sent[at]).accepted
            late[0] += 121.0  # the round's two minutes are over
            assert coordinator.is_complete()
            coordinator.advance()
            coordinator = replace(coordinator, reports=[])  # a new process, that finds the checkpoint
        assert same(coordinator.state, expected)
        assert not coordinator.refused


def small(collection, part=PART, privacy=None, **options) -> tuple[Simulator, Coordinator]:
    federation = Federation(CLIENTS, 3, participation=part, privacy=privacy or NoPrivacy())
    simulator = simulator_of(collection, federation, rounds=ROUNDS)
    return simulator, coordinator_of(simulator, enrolled=options.pop("enrolled", range(CLIENTS)), **options)


def codes(verdicts) -> list[str]:
    return [verdict.code for verdict in verdicts]


def test_a_round_takes_so_many_and_no_more_also_of_those_that_came_together(tiny_collection) -> None:
    simulator, coordinator = small(tiny_collection, privacy=ClippedGaussian(epsilon=100.0, clip=0.1))
    sent = sent_by(simulator, coordinator, range(CLIENTS))
    found = [coordinator.receive(reply) for reply in (*sent[:4], sent[2], *sent[4:9], sent[0])]
    assert codes(found) == ["", "", "", "", "reply.replayed", "", "", *["reply.round-full"] * 3, "reply.replayed"]
    assert codes([coordinator.receive(sent[12])]) == ["reply.round-full"]
    report = coordinator.advance()
    assert report.participants == 6 and coordinator.refused == {"reply.replayed": 2, "reply.round-full": 4}
    assert coordinator.state.turns.times.tolist() == [1] * 6 + [0] * 8


def test_fewer_than_enough_end_a_round_when_its_time_is_over_and_the_least_have_come(tiny_collection) -> None:
    clock = [0.0]
    simulator, coordinator = small(tiny_collection, clock=lambda: clock[0])
    first, second = sent_by(simulator, coordinator, [3, 9])
    assert coordinator.receive(first).accepted
    clock[0] = 119.0
    assert coordinator.receive(second).accepted and not coordinator.is_complete()
    clock[0] = 120.0
    assert coordinator.is_complete() and coordinator.advance().participants == 2
    (alone,) = sent_by(simulator, coordinator, [4])
    clock[0] = 500.0
    assert coordinator.receive(alone).accepted and not coordinator.is_complete(), "one is fewer than the least"
    sooner = small(tiny_collection, clock=lambda: clock[0], limits=RoundLimits(deadline=10.0))[1]
    sooner.plan()
    assert sooner.receive(first).accepted and sooner.receive(second).accepted
    clock[0] += 10.0
    assert sooner.is_complete(), "an operator may end rounds sooner"


def test_a_client_rests_and_takes_part_no_oftener_than_it_may(tiny_collection) -> None:
    part = replace(PART, enough=2, least=1, most=2, rest=2)
    storage, seen = MemoryStorage(), []
    simulator, coordinator = small(tiny_collection, part, storage=storage)
    while not coordinator.done:
        others = 2 + coordinator.state.round
        eager, other = sent_by(simulator, coordinator, [1, others])
        seen.append(coordinator.receive(eager).code)
        coordinator.receive(other)
        if not coordinator.is_complete():  # the eager one was refused: another comes
            (third,) = sent_by(simulator, coordinator, [others + 6])
            assert coordinator.receive(third).accepted
        coordinator.advance()
        coordinator = coordinator_of(simulator, storage=storage, enrolled=range(CLIENTS))  # all of it is stored
    assert seen == ["", "reply.resting", "reply.resting", "", "reply.too-often", "reply.too-often"]
    assert coordinator.state.turns.of(1) == (2, 3)


def test_the_fleet_may_grow_and_whoever_is_not_enrolled_is_refused(tiny_collection) -> None:
    enrolled = {0, 1, 2}
    simulator, coordinator = small(tiny_collection, replace(PART, enough=2), enrolled=enrolled)
    first, stranger = sent_by(simulator, coordinator, [0, 5000])
    assert codes(map(coordinator.receive, (first, stranger))) == ["", "reply.not-in-cohort"]
    enrolled.add(5000)
    assert coordinator.receive(stranger).accepted
    coordinator.advance()
    assert coordinator.state.turns.of(5000) == (1, 0) and coordinator.state.turns.of(4999) == (0, -1)
    (again,) = sent_by(simulator, coordinator, [5000])
    assert coordinator.receive(again).code == "reply.resting"


def test_a_checkpoint_with_turns_that_were_not_taken_is_refused(tiny_collection) -> None:
    storage = MemoryStorage()
    simulator, coordinator = small(tiny_collection, storage=storage)
    assert all(coordinator.receive(reply).accepted for reply in sent_by(simulator, coordinator, range(6)))
    coordinator.advance()
    saved = storage.load()
    taken = saved.state.turns
    assert taken.times.sum() == 6
    for turns in (
        TurnsTaken(taken.times[:-1], taken.last),
        TurnsTaken(taken.times - 1, taken.last),
        TurnsTaken(taken.times, taken.last + 1),
        TurnsTaken(taken.times + 1, taken.last),
        None,
    ):
        storage.save(saved._replace(state=replace(saved.state, turns=turns)))
        with refused("file.damaged"):
            coordinator_of(simulator, storage=storage, enrolled=range(CLIENTS))


@given(st.integers(1, 200), st.data(), st.integers(0, 10**6), st.integers(0, 2**40))
def test_a_cohort_is_sorted_unique_and_of_its_size(clients, data, round_, seed) -> None:
    cohort = data.draw(st.integers(1, clients))
    part = Sampled(cohort=cohort)
    members = part.members(clients, round_, seed)
    assert part.size(clients) == cohort == len(members)
    assert members.dtype == np.int64
    assert members.tolist() == sorted(set(members.tolist()))
    assert members[0] >= 0
    assert members[-1] < clients


@pytest.mark.parametrize("cohort", [1, 2, 3])
def test_every_set_is_alike(cohort) -> None:
    sets = list(itertools.combinations(range(5), cohort))
    drawn = [tuple(Sampled(cohort=cohort).members(5, round_, 1).tolist()) for round_ in range(20_000)]
    assert_follows(drawn, dict.fromkeys(sets, 1 / len(sets)))


@pytest.mark.parametrize(("clients", "cohort"), [(1, 1), (7, 3), (16, 16), (17, 16), (500, 1), (500, 20), (500, 499)])
def test_a_cohort_has_the_smallest_draws(clients, cohort) -> None:
    """The same clients as by sorting everybody's own draw, which is not done."""
    for round_ in range(3):
        each = [uniforms(9, Purpose.PARTICIPATION, 1, round_=round_, client=c)[0] for c in range(clients)]
        expected = sorted(np.argsort(each, kind="stable")[:cohort].tolist())
        assert Sampled(cohort=cohort).members(clients, round_, 9).tolist() == expected
        rate = Poisson(rate=cohort / clients)
        assert rate.members(clients, round_, 9).tolist() == np.flatnonzero(np.array(each) < cohort / clients).tolist()
