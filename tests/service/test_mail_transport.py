"""Secure sums by mailbox: letters, answers, members that leave in the middle, and a holder that takes over."""

from __future__ import annotations

import numpy as np
import pytest
from devices import simulator_of, state_after, terms_of
from fleets import Fleet, enrolled, held_coordinator, sent

from quorank.engines.process import Simulator
from quorank.engines.simulated_clients import SimulatedClients
from quorank.errors import Interrupted
from quorank.federation import Federation
from quorank.federation.coordinator import RoundLimits
from quorank.federation.reply import decode_task
from quorank.privacy import SecureSum
from quorank.protocol import frames
from quorank.protocol.keys import SIGNATURE, MemberKey, open_letter
from quorank.protocol.messages import leaving_request
from quorank.protocol.secure_round import SecureMember, open_envelope, parse_opening
from quorank.protocol.transport import BUSY, Failure
from quorank.service.holders.devices import LeavingDesk

CLIENTS, ROUNDS, LIMITS = 8, 3, RoundLimits(deadline=60.0)


class SecureFleet(Fleet):
    """Members with their enrolment keys as identities; each looks into its mailbox between two looks of the holder."""

    def __init__(self, folder, simulator: Simulator) -> None:
        super().__init__(folder, simulator)
        self.keys = enrolled(self.store, CLIENTS)
        self.rounds: dict[int, SecureMember] = {}
        self.quiet: dict[int, int] = {}  # member → the exchange from which it is silent, or says that it has left
        self.leaves: set[int] = set()

    def step(self, seconds: float) -> None:
        self.now += seconds
        for member in self.members():
            letter = self.store.letter(member)
            if letter is not None:
                answer = self.secure_answer(member, letter.content[SIGNATURE:])
                if answer is not None:
                    assert not sent(self.store, member, "mail", letter.id, answer).code
        self.then()

    def secure_answer(self, member: int, content: bytes) -> bytes | None:
        phase, _ = open_envelope(content)
        if phase >= self.quiet.get(member, 9):
            return b"" if member in self.leaves else None
        begins = parse_opening(content)
        if begins is not None:
            (reply,) = self.simulator.replies(decode_task(begins[1]), np.array([member]))
            words = reply.release.astype(np.int64).astype(np.uint32)
            mechanism, identity = self.simulator.mechanism, MemberKey(self.keys[member].secret)
            self.rounds[member] = SecureMember(
                member, begins[0], lambda: words, identity, mechanism.signed_by, agreed=mechanism.plan
            )
        return self.rounds[member].answer(content)


@pytest.fixture
def fleet(tiny_collection, tmp_path, request) -> SecureFleet:
    privacy = SecureSum(clip=0.05, dropouts=getattr(request, "param", 0.3))
    return SecureFleet(tmp_path, simulator_of(tiny_collection, Federation(CLIENTS, 3, privacy=privacy), rounds=ROUNDS))


whole = pytest.mark.parametrize("fleet", [0.0], indirect=True)
"""In process nobody leaves by lot."""


@whole
def test_secure_rounds_come_to_the_bits_of_the_run_in_process(fleet) -> None:
    holder = fleet.holder()
    coordinator = held_coordinator(holder, fleet.simulator, limits=LIMITS)
    kinds = []
    fleet.then = lambda: kinds.append(fleet.store.publication().kind)
    for _ in range(ROUNDS):
        holder.round(coordinator)
    assert coordinator.state.theta.tobytes() == state_after(fleet.simulator).theta.tobytes()
    assert set(kinds) == {"secure"} and fleet.store.publication().kind == "over"
    found = fleet.store.publication()
    assert all(fleet.store.letter(member) is None for member in range(CLIENTS)), "no letter is left behind"
    assert sent(fleet.store, 0, "reply", found.number, b"x").code == "reply.no-open-round"


@pytest.mark.parametrize("said", [True, False])
def test_who_leaves_in_the_middle_is_left_out(said, fleet) -> None:
    fleet.quiet, fleet.leaves = {4: 4}, {4} if said else set()
    holder = fleet.holder()
    coordinator = held_coordinator(holder, fleet.simulator, limits=LIMITS)
    began = fleet.now
    assert holder.round(coordinator).participants == CLIENTS
    assert (fleet.now - began < 30.0) == said, "who says so is not waited for"
    fleet.quiet = {4: 1}
    assert holder.round(coordinator).participants == CLIENTS - 1


def test_a_member_of_no_sum_is_let_go_at_once_and_others_by_a_rebuilding(fleet) -> None:
    fleet.quiet = {4: 1, 5: 3, 6: 4}  # before its keys, before its masked input, after it
    holder = fleet.holder()
    coordinator = held_coordinator(holder, fleet.simulator, limits=LIMITS)
    assert holder.round(coordinator).participants == CLIENTS - 2
    assert holder.contributors({4, 5, 6, 7}) == {6, 7}
    theta = coordinator.state.theta.tobytes()
    desk = LeavingDesk(coordinator, fleet.simulator.initial().theta, holder=holder)
    for client in (4, 5, 6):
        request = leaving_request(terms_of(fleet.simulator, client), fleet.keys[client], 5.0, bytes(16))
        assert not sent(fleet.store, client, "leave", 0, request).code
    desk.look()
    desk.read_requests()
    assert [fleet.store.leaving(client)[1] is not None for client in (4, 5, 6)] == [True, True, False]
    assert [leaver.client for leaver in desk.pending] == [6] and coordinator.state.theta.tobytes() == theta


def test_identities_are_those_of_the_enrolment(fleet) -> None:
    fleet.keys[2] = fleet.keys[2].create()
    holder = fleet.holder()
    coordinator = held_coordinator(holder, fleet.simulator, limits=LIMITS)
    assert holder.round(coordinator).participants == CLIENTS - 1
    assert set(coordinator.refused) == {"secure-sum.identity"}


def test_a_round_that_was_begun_is_given_up_by_who_takes_over(fleet) -> None:
    """Members take part in a round once; the letters of the one who died are gone."""
    looks = []
    first = fleet.holder(stop=lambda: looks.append(1) or len(looks) > 3)
    with pytest.raises(Interrupted):
        first.round(held_coordinator(first, fleet.simulator, limits=LIMITS))
    fleet.store.release()
    second = fleet.holder()
    coordinator = held_coordinator(second, fleet.simulator, limits=LIMITS)
    assert second.round(coordinator).participants == 0
    assert second.round(coordinator).participants == CLIENTS
    assert coordinator.state.round == 2


def test_a_round_waits_for_as_many_as_a_sum_needs(fleet) -> None:
    for number in range(5):
        fleet.store.revoke(f"member-{number}")
    holder = fleet.holder(stop=lambda: fleet.now > 5.0)
    coordinator = held_coordinator(holder, fleet.simulator, limits=LIMITS)
    assert fleet.simulator.mechanism.signed_by == 5
    with pytest.raises(Interrupted):
        holder.round(coordinator)
    assert fleet.store.letter(7) is None, "nobody was asked"


def test_letters(fleet) -> None:
    holder = fleet.holder()
    mail = holder.driver.transport
    assert list(mail.nodes()) == [str(number) for number in range(CLIENTS)]
    first, second, third = mail.push([(node, f"to {node}".encode()) for node in "012"])
    mail.forget([second])
    assert mail.pull() == [] and fleet.store.letter(1) is None
    letter = fleet.store.letter(0)
    assert open_letter(holder.key.public, 0, letter.content) == b"to 0"
    sent(fleet.store, 0, "mail", letter.id, b"from 0")
    sent(fleet.store, 2, "mail", fleet.store.letter(2).id, b"")
    arrivals = {arrival.id: arrival for arrival in mail.pull()}
    assert frames.unpack(arrivals[first].content) == [b"from 0"] and arrivals[first].node == "0"
    assert arrivals[third].content == Failure(BUSY)
    assert mail.pull() == []
    (fourth,) = mail.push([("3", b"to 3")])
    mail.forget([fourth])
    assert sent(fleet.store, 3, "mail", int(fourth), b"late").code == "mail.unknown"
    mail.push([("4", b"to 4")])
    assert fleet.store.letter(4) is not None and fleet.holder().driver
    assert fleet.store.letter(4) is None, "letters of an earlier holder are deleted"


@whole
def test_simulated_members_answer_in_bundles_and_begin_again(fleet) -> None:
    simulator = fleet.simulator
    members = SimulatedClients(simulator)
    fleet.secure_answer = lambda member, content: members.respond(content)
    stops = []
    holder = fleet.holder(simulated=True, stop=lambda: stops.append(1) or len(stops) == 3)
    with pytest.raises(Interrupted):
        holder.round(held_coordinator(holder, fleet.simulator, limits=LIMITS))
    fleet.store.release()
    holder = fleet.holder(simulated=True)
    coordinator = held_coordinator(holder, fleet.simulator, limits=LIMITS)
    for _ in range(ROUNDS):
        assert holder.round(coordinator).participants == CLIENTS
    assert coordinator.state.theta.tobytes() == state_after(simulator).theta.tobytes()
