"""Rounds of whoever comes over a store: K replies or the time end them, turns are kept, the fleet may grow."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from devices import simulator_of
from fleets import Fleet, enrolled, held_coordinator, sent

from quorank.engines.process import Simulator
from quorank.federation import Arrivals, Federation
from quorank.federation.reply import decode_task
from quorank.privacy import ClippedGaussian
from quorank.protocol.keys import MemberKey

PLANNED, ROUNDS = 6, 5
PART = Arrivals(enough=3, least=2, minutes=1.0, most=2, rest=1)


@pytest.fixture
def simulator(tiny_collection) -> Simulator:
    privacy = ClippedGaussian(noise_multiplier=0.5, clip=0.5)
    return simulator_of(tiny_collection, Federation(PLANNED, 3, participation=PART, privacy=privacy), rounds=ROUNDS)


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
    simulator, tmp_path
) -> None:
    """Twice as many as are enough want to reply all the time: what comes of it are the bits of those who were let in."""
    fleet = Fleet(tmp_path, simulator)
    enrolled(fleet.store, 9)
    for _ in range(ROUNDS):
        holder = fleet.holder()
        coordinator = held_coordinator(holder, simulator, enrolled=holder)
        assert holder.round(coordinator).participants == 3
        fleet.store.release()
    cohorts = came(fleet)
    assert [len(set(cohort)) for cohort in cohorts] == [3] * ROUNDS
    for member in range(9):
        rounds = [t for t, cohort in enumerate(cohorts) if member in cohort]
        assert len(rounds) <= 2 and all(b - a > 1 for a, b in itertools.pairwise(rounds))
        assert coordinator.state.turns.of(member) == (len(rounds), rounds[-1] if rounds else -1)
    codes = {outcome.code for _, outcome in fleet.outcomes}
    assert codes >= {"", "reply.round-full", "reply.resting", "reply.too-often"}
    assert coordinator.state.theta.tobytes() == replayed(simulator, cohorts)


def test_the_least_are_enough_when_the_time_is_over(simulator, tmp_path) -> None:
    fleet = Fleet(tmp_path, simulator)
    enrolled(fleet.store, 6)
    fleet.away = {0, 2, 3, 5}
    holder = fleet.holder()
    coordinator = held_coordinator(holder, simulator, enrolled=holder)
    before = fleet.now
    assert holder.round(coordinator).participants == 2
    assert 59.0 <= fleet.now - before < 70.0
    assert coordinator.state.theta.tobytes() == replayed(simulator, [[1, 4]])


def test_who_enrols_while_the_run_goes_is_in_it_and_who_is_revoked_is_not(simulator, tmp_path) -> None:
    """More than the file plans with: the number of members decides no bit."""
    fleet = Fleet(tmp_path, simulator)
    enrolled(fleet.store, 3)
    holder = fleet.holder()
    coordinator = held_coordinator(holder, simulator, enrolled=holder)
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
    assert coordinator.state.theta.tobytes() == replayed(simulator, came(fleet))
