"""The holder over a store in a folder: rounds to the bits of the run in process, whoever dies, leaves or lies."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from devices import killed, shoot, simulator_of, state_after
from fleets import SERVICE, Fleet, enrolled, held_coordinator, sent

from quorank.engines.process import Simulator
from quorank.errors import Interrupted
from quorank.federation import Arrivals, Federation, Poisson, Sampled
from quorank.federation.coordinator import Coordinator, RoundLimits
from quorank.federation.reply import decode_task, encode_reply
from quorank.federation.rules import Krum
from quorank.privacy import ClippedGaussian
from quorank.protocol.keys import MemberKey, is_signed, task_content
from quorank.service.holders.rounds import NOBODY, next_seconds
from quorank.service.store.sql_store import Finished, HolderLost, RepliesCame, open_store

CLIENTS, ROUNDS = 6, 3


@pytest.fixture
def simulator(tiny_collection) -> Simulator:
    return simulator_of(tiny_collection, Federation(CLIENTS, 3), rounds=ROUNDS)


@pytest.fixture
def fleet(tmp_path, simulator) -> Fleet:
    found = Fleet(tmp_path, simulator)
    enrolled(found.store, CLIENTS)
    return found


def played(fleet: Fleet, rounds: int = ROUNDS, limits: RoundLimits | None = None, **options) -> Coordinator:
    holder = fleet.holder(**options)
    coordinator = held_coordinator(holder, fleet.simulator, limits=limits or RoundLimits())
    for _ in range(rounds):
        holder.round(coordinator)
    fleet.store.release()
    return coordinator


@pytest.mark.parametrize(
    "federation",
    [
        Federation(CLIENTS, 3),
        Federation(CLIENTS, 3, participation=Sampled(4)),
        Federation(CLIENTS, 3, participation=Poisson(0.4)),
        Federation(CLIENTS, 3, participation=Arrivals(enough=4, least=2, most=2, rest=1)),
        Federation(CLIENTS, 3, aggregation=Krum(byzantine=1)),
        Federation(CLIENTS, 3, privacy=ClippedGaussian(noise_multiplier=0.5, clip=0.5)),
    ],
    ids=["full", "sampled", "poisson", "arrivals", "krum", "gaussian"],
)
def test_rounds_come_to_the_bits_of_the_run_in_process(federation, tiny_collection, tmp_path) -> None:
    simulator = simulator_of(tiny_collection, federation, rounds=ROUNDS)
    fleet = Fleet(tmp_path, simulator)
    enrolled(fleet.store, CLIENTS)
    fleet.together = 2
    coordinator = played(fleet)
    assert coordinator.state.theta.tobytes() == state_after(simulator).theta.tobytes()
    assert all(not outcome.code for _, outcome in fleet.outcomes)
    assert fleet.store.replies("run", 0) == [] and not fleet.store.replies("run", ROUNDS - 1)
    over = fleet.store.publication()
    assert over is not None and (over.kind, over.round) == ("over", ROUNDS)
    assert (decode_task(over.content).theta == coordinator.ranker).all()
    for one in (*fleet.published, over):
        assert is_signed(SERVICE.public, task_content(one.kind, one.content), one.signature)
        assert not is_signed(SERVICE.public, task_content("tuning", one.content), one.signature)


@pytest.mark.parametrize("moment", ["in a round", "before the checkpoint", "after it"])
def test_a_holder_that_is_killed_is_followed_to_the_same_bits(moment, fleet, simulator, monkeypatch) -> None:
    """Nothing accepted is lost and nothing counted twice; no member is asked for a reply again."""
    fleet.together = 2
    fleet.store.close()

    def work() -> None:
        again = Fleet(fleet.folder, simulator)
        again.together = 2
        publish = again.store.publish

        def dying(*values, **options):
            if moment == "before the checkpoint" and len(values) > 2:
                shoot()
            found = publish(*values, **options)
            if moment == "after it" and len(values) > 2 and values[0].round == 2:
                shoot()
            return found

        monkeypatch.setattr(again.store, "publish", dying)
        if moment == "in a round":
            again.then = lambda: len(again.outcomes) == CLIENTS + 2 and shoot()
        played(again)

    killed(work)
    after = Fleet(fleet.folder, simulator)
    committed = len(after.store.replies("run", 1)) + len(after.store.replies("run", 0))
    assert committed == {"in a round": 2, "before the checkpoint": CLIENTS, "after it": 0}[moment]
    done = {"in a round": 1, "before the checkpoint": 0, "after it": 2}[moment]
    coordinator = played(after, ROUNDS - done)
    assert coordinator.state.theta.tobytes() == state_after(simulator).theta.tobytes()
    assert len(after.outcomes) == CLIENTS * (ROUNDS - done) - committed
    assert [report.participants for report in coordinator.reports] == [CLIENTS] * ROUNDS


def test_a_reply_that_is_committed_before_the_round_ends_is_in_it(fleet, simulator) -> None:
    """The holder has looked, a worker commits, the holder ends the round: the reply was accepted, so it counts."""
    fleet.away = {5}
    holder = fleet.holder()
    coordinator = held_coordinator(holder, simulator, limits=RoundLimits(close_fraction=0.5, minimum_fraction=0.5))
    save, late = coordinator.storage.save, []

    def saving(saved) -> None:
        if not late:
            found = fleet.store.publication()
            task = decode_task(found.content)
            late.append(sent(fleet.store, 5, "reply", found.number, fleet.answer(5, task)))
        save(saved)

    coordinator.storage.save = saving
    assert holder.round(coordinator).participants == CLIENTS
    assert not late[0].code
    found = fleet.store.publication()
    assert not sent(fleet.store, 1, "reply", found.number, b"any").code
    with pytest.raises(RepliesCame):
        fleet.store.publish(found, {"mark": b"x"}, Finished("run", 1, 0))
    assert fleet.store.document("mark") is None and fleet.store.publication() == found


def test_two_holders_and_one_that_only_slept(fleet, simulator) -> None:
    first = fleet.holder()
    slow = held_coordinator(first, simulator)
    other = open_store(fleet.folder)
    assert other.hold() is None, "there is one holder at a time"
    first.round(slow)
    fleet.store.release()  # as if it had died
    second = Fleet(fleet.folder, simulator)
    coordinator = played(second, ROUNDS - 1)
    with pytest.raises(HolderLost):
        first.round(slow)
    assert slow.state.round == 1
    assert second.store.publication().kind == "over", "it has changed nothing"
    assert coordinator.state.theta.tobytes() == state_after(simulator).theta.tobytes()


def test_a_holder_that_lost_its_place_notices_while_it_waits(fleet, simulator) -> None:
    holder = fleet.holder()
    fleet.away = {0}

    def taken_over() -> None:
        if fleet.now > 1.0:
            fleet.store.database.execute("UPDATE service SET epoch = epoch + 1 WHERE id = 1")

    fleet.then = taken_over
    with pytest.raises(HolderLost):
        holder.round(held_coordinator(holder, simulator))


def test_who_is_waited_for(tmp_path, simulator) -> None:
    """Enrolled and admitted ones of the cohort; who enrols meanwhile is asked too, and nobody else is missed."""
    fleet = Fleet(tmp_path, simulator)
    enrolled(fleet.store, 3)  # of six clients
    assert played(fleet, 1).reports[0].participants == 3
    fleet.store.revoke("member-1")
    assert played(fleet, 1).reports[1].participants == 2
    fleet.away, codes = {0}, iter(range(3, 6))

    def enrol() -> None:
        if (number := next(codes, None)) is not None:
            fleet.store.invite(f"member-{number}", "device", bytes([number]) * 32, number)
            fleet.store.enrol(bytes([200 + number]) * 32, bytes([number]) * 32)
        elif fleet.now > 2.0:
            fleet.away = set()

    fleet.then = enrol
    assert played(fleet, 1).reports[2].participants == 5


def test_a_member_that_is_revoked_in_a_round_is_not_waited_for(fleet) -> None:
    fleet.away = {4}
    fleet.then = lambda: fleet.store.member(4).admitted and len(fleet.outcomes) == 5 and fleet.store.revoke("member-4")
    assert played(fleet, 1).reports[0].participants == 5


def test_noise_in_shares_is_never_incomplete(tmp_path, simulator) -> None:
    """With fewer than the noise counts on, the round waits: for who enrols, whatever the deadline says."""
    fleet = Fleet(tmp_path, simulator)
    enrolled(fleet.store, 4)
    rules = RoundLimits(deadline=1.0, minimum_replies=CLIENTS)
    with pytest.raises(Interrupted):
        played(fleet, 1, rules, stop=lambda: fleet.now > 9.0)
    assert len(fleet.store.replies("run", 0)) == 4
    fleet.store.release()
    assert fleet.store.hold() is not None


def test_the_deadline_goes_on_where_a_holder_dies(fleet, simulator, monkeypatch) -> None:
    fleet.away = {0, 1}
    rules = RoundLimits(deadline=100.0, minimum_fraction=0.5)
    first = fleet.holder(stop=lambda: fleet.now > 60.0)
    with pytest.raises(Interrupted):
        first.round(held_coordinator(first, simulator, limits=rules))
    fleet.store.release()
    opened = fleet.store.publication().opened
    monkeypatch.setattr(fleet.store.database, "now", lambda: opened + 60.0)
    began = fleet.now = 1000.0  # another process has another clock
    assert played(fleet, 1, rules).reports[0].participants == 4
    assert 40.0 <= fleet.now - began < 42.0


def test_what_cannot_count_is_counted_by_code_and_not_waited_for(fleet, simulator) -> None:
    fleet.lies = {
        0: lambda reply: encode_reply(replace(reply, client=1)),
        1: lambda reply: b"QRNK is all that it says",
        2: lambda reply: encode_reply(replace(reply, release=reply.release * np.nan)),
    }
    coordinator = played(fleet, 1)
    assert coordinator.reports[0].participants == 3
    assert coordinator.refused == {"reply.other-client": 1, "reply.malformed": 1, "reply.not-finite": 1}


def test_before_something_else_nobody_is_asked(fleet, simulator) -> None:
    holder = fleet.holder(busy=lambda: True)
    coordinator = held_coordinator(holder, simulator)
    holder.round(coordinator)
    found = fleet.store.publication()
    assert (found.round, found.asked) == (0, NOBODY)
    assert sent(fleet.store, 1, "reply", found.number, b"late").code == "reply.unasked"
    holder.busy = lambda: False
    holder.round(coordinator)
    assert fleet.store.publication().round == 2


def test_members_come_in_time_and_not_all_at_once() -> None:
    assert next_seconds(10, 3600.0) == 1.0
    assert next_seconds(10_000, 3600.0) == 50.0
    assert next_seconds(10_000, 60.0) == 15.0
    assert next_seconds(10**6, float("inf")) == 600.0


# ------------------------------------------------------------ rounds of whoever comes


COMING = 5  # rounds
PART = Arrivals(enough=3, least=2, minutes=1.0, most=2, rest=1)


@pytest.fixture
def arrivals(tiny_collection) -> Simulator:
    """A run whose rounds take whoever comes."""
    privacy = ClippedGaussian(noise_multiplier=0.5, clip=0.5)
    return simulator_of(tiny_collection, Federation(CLIENTS, 3, participation=PART, privacy=privacy), rounds=COMING)


def replayed(simulator: Simulator, cohorts: list[list[int]]) -> bytes:
    """The parameters after rounds of these clients, in process."""
    state = simulator.initial()
    for cohort in cohorts:
        state, _ = simulator.federation.round(state, simulator.gather(state, members=np.array(sorted(cohort))))
    return state.theta.tobytes()


def came(fleet: Fleet) -> list[list[int]]:
    """Whose replies were accepted, round by round of three."""
    members = [member for member, outcome in fleet.outcomes if not outcome.code]
    return [members[at : at + 3] for at in range(0, len(members), 3)]


def test_enough_end_a_round_and_each_member_keeps_its_turns_also_with_a_new_holder_in_every_round(
    arrivals, tmp_path
) -> None:
    """Twice as many as are enough want to reply all the time: what comes of it are the bits of those who were let in."""
    fleet = Fleet(tmp_path, arrivals)
    enrolled(fleet.store, 9)
    for _ in range(COMING):
        holder = fleet.holder()
        coordinator = held_coordinator(holder, arrivals, enrolled=holder)
        assert holder.round(coordinator).participants == 3
        fleet.store.release()
    cohorts = came(fleet)
    assert [len(set(cohort)) for cohort in cohorts] == [3] * COMING
    for member in range(9):
        rounds = [t for t, cohort in enumerate(cohorts) if member in cohort]
        assert len(rounds) <= 2 and all(b - a > 1 for a, b in itertools.pairwise(rounds))
        assert coordinator.state.turns.of(member) == (len(rounds), rounds[-1] if rounds else -1)
    codes = {outcome.code for _, outcome in fleet.outcomes}
    assert codes >= {"", "reply.round-full", "reply.resting", "reply.too-often"}
    assert coordinator.state.theta.tobytes() == replayed(arrivals, cohorts)


def test_the_least_are_enough_when_the_time_is_over(arrivals, tmp_path) -> None:
    fleet = Fleet(tmp_path, arrivals)
    enrolled(fleet.store, 6)
    fleet.away = {0, 2, 3, 5}
    holder = fleet.holder()
    coordinator = held_coordinator(holder, arrivals, enrolled=holder)
    before = fleet.now
    assert holder.round(coordinator).participants == 2
    assert 59.0 <= fleet.now - before < 70.0
    assert coordinator.state.theta.tobytes() == replayed(arrivals, [[1, 4]])


def test_who_enrols_while_the_run_goes_is_in_it_and_who_is_revoked_is_not(arrivals, tmp_path) -> None:
    """More than the file plans with: the number of members decides no bit."""
    fleet = Fleet(tmp_path, arrivals)
    enrolled(fleet.store, 3)
    holder = fleet.holder()
    coordinator = held_coordinator(holder, arrivals, enrolled=holder)
    holder.round(coordinator)
    for number in (40, 41, 42, 43):  # the first three rest
        fleet.store.invite(f"later-{number}", "device", bytes([number]) * 32, number)
        fleet.store.enrol(MemberKey(bytes([number]) * 32).public, bytes([number]) * 32)
    fleet.store.revoke("later-40")
    assert holder.round(coordinator).participants == 3
    assert came(fleet) == [[0, 1, 2], [41, 42, 43]]
    found = fleet.store.publication()
    assert found is not None
    reply = fleet.answer(41, decode_task(found.content))
    assert sent(fleet.store, 41, "reply", found.number, reply).code == "reply.resting"
    assert coordinator.state.turns.of(43) == (1, 1) and coordinator.state.turns.of(40) == (0, -1)
    assert coordinator.state.theta.tobytes() == replayed(arrivals, came(fleet))
