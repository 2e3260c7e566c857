"""Secure sums over the wire: the in-process sum, whoever leaves; no server gets a smaller sum, or invents clients."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from devices import CLIENTS, Answering, ListedMembers, device_of, search, simulator_of, task_of, user_of
from hypothesis import given, settings
from hypothesis import strategies as st

from quorank.engines.driver import gathered_of
from quorank.errors import BadInput
from quorank.federation import Federation
from quorank.federation.coordinator import Verdict
from quorank.federation.reply import Task, decode_task
from quorank.privacy import ClippedGaussian
from quorank.privacy.secure_sum.client import SecureClient
from quorank.privacy.secure_sum.graph import neighbours_for
from quorank.privacy.secure_sum.messages import AdvertiseKeys, UnmaskReply, UnmaskRequest
from quorank.privacy.secure_sum.server import RoundFailed
from quorank.protocol import frames, secure_round
from quorank.protocol.keys import MemberKey
from quorank.protocol.messages import Declined
from quorank.protocol.secure_identity import GuardedClient, SignedKeys, pack_clients, signed_content
from quorank.protocol.secure_round import (
    AGREEMENT,
    KEYS,
    MASKED,
    SHARES,
    UNMASKING,
    SecureMember,
    SecureRound,
    SecureRounds,
    envelope,
    occasion_of,
    open_envelope,
)

SESSION, LENGTH = b"sixteen bytes ok", 7
TASK = Task("run", 2, np.zeros(LENGTH))
OCCASION, OTHER = occasion_of(SESSION, TASK), occasion_of(SESSION, replace(TASK, round=9))
IDENTITIES = {client: MemberKey(struct.pack("<8I", *[client + 1] * 8)) for client in range(80)}


def pinned_of(clients) -> dict[int, bytes]:
    return {client: IDENTITIES[client].public for client in clients}


def vectors_of(clients) -> dict[int, np.ndarray]:
    matrix = np.random.default_rng(4).integers(0, 2**32, (len(clients), LENGTH), dtype=np.uint32)
    return dict(zip(clients, matrix, strict=True))


class FixedMembers(dict[int, bytes]):
    """Identities that are known beforehand."""

    def identities(self, mine: int, own: bytes, least: int, clients: Sequence[int]) -> dict[int, bytes]:
        return dict(self)

    def check_known(self, mine: int, clients: Sequence[int]) -> None:
        """Accept all."""


def members_of(vectors, least, pinned, agreed=None) -> dict[int, SecureMember]:
    known = None if pinned is None else FixedMembers(pinned)
    return {
        client: SecureMember(
            client, OCCASION, lambda v=vector: v, IDENTITIES[client], least, members=known, agreed=agreed
        )
        for client, vector in vectors.items()
    }


def played(round_: SecureRound, members, gone=None, through=secure_round.OVER):
    """Play all phases; `gone` says in which phase a client is heard of no more."""
    gone = gone or {}
    while not round_.done and round_.phase < through:
        for client, task in round_.tasks().items():
            if gone.get(client, 99) > round_.phase:
                assert round_.receive(client, members[client].answer(task)).accepted
        round_.advance()
    return round_


def round_of(clients, least, known=None, **options) -> SecureRound:
    return SecureRound(TASK, SESSION, clients, least, known=known, **options)


@settings(max_examples=12)
@given(n=st.integers(3, 9), data=st.data())
def test_the_sum_is_that_of_the_survivors_whoever_leaves(n, data) -> None:
    clients = sorted(data.draw(st.sets(st.integers(0, 79), min_size=n, max_size=n)))
    least = n // 2 + 1
    leaving = data.draw(st.dictionaries(st.sampled_from(clients), st.sampled_from([KEYS, SHARES, MASKED]), max_size=n))
    late = data.draw(st.dictionaries(st.sampled_from(clients), st.sampled_from([AGREEMENT, UNMASKING]), max_size=n))
    gone = late | leaving
    vectors, pinned = vectors_of(clients), pinned_of(clients)
    plan = neighbours_for(n)
    round_ = round_of(clients, least, pinned, neighbourhood=plan)
    try:
        played(round_, members_of(vectors, least, pinned, plan), gone)
    except RoundFailed:
        assert n - len(gone) < max(least, plan.threshold)
        assert round_.total is None
        return
    inside = [client for client in clients if gone.get(client, 99) > MASKED]
    assert round_.server.survivors == tuple(inside)
    assert len(inside) >= least
    expected = np.sum([vectors[client] for client in inside], axis=0, dtype=np.uint32)
    assert np.array_equal(round_.total, expected)


def test_a_false_share_over_the_wire_is_left_out_and_its_holder_named() -> None:
    clients = list(range(6))
    vectors, pinned = vectors_of(clients), pinned_of(clients)
    members = members_of(vectors, 6, pinned)
    round_ = played(round_of(clients, 6, pinned), members, through=UNMASKING)
    for client, task in round_.tasks().items():
        reply = members[client].answer(task)
        if client == 2:
            told = UnmaskReply.from_bytes(open_envelope(reply)[1][0])
            false = replace(told, seeds=tuple((owner, bytes(32)) for owner, _ in told.seeds))
            reply = envelope(UNMASKING, [false.to_bytes()])
        assert round_.receive(client, reply).accepted
    round_.advance()
    assert np.array_equal(round_.total, np.sum(list(vectors.values()), axis=0, dtype=np.uint32))
    assert round_.server.liars == {2: "secure-sum.false-share"}


def test_groups_are_summed_side_by_side_and_one_that_fails_stops_no_other() -> None:
    groups = [[0, 3, 5], [1, 2, 4]]
    vectors = vectors_of(range(6))
    members = members_of(vectors, 3, None)

    def rounds() -> SecureRounds:
        return SecureRounds([round_of(group, 3) for group in groups])

    both = rounds()
    assert both.waiting == frozenset(range(6)) and not both.has_enough_replies
    assert not both.receive(77, b"").accepted
    while not both.done:
        for client, task in both.tasks().items():
            assert both.receive(client, members[client].answer(task)).accepted
        assert both.has_enough_replies
        both.advance()
    for group, one in zip(groups, both.rounds, strict=True):
        assert np.array_equal(one.total, np.sum([vectors[c] for c in group], axis=0, dtype=np.uint32))
    members, one = members_of(vectors, 3, None), rounds()
    while not one.done:
        for client, task in one.tasks().items():
            if client != 4 or one.phase < MASKED:
                one.receive(client, members[client].answer(task))
        one.advance()
    assert one.failed == [one.rounds[1]] and one.rounds[1].total is None and one.rounds[0].total is not None
    none = rounds()
    with pytest.raises(RoundFailed, match="0 clients sent keys"):
        none.advance()


def of_a_sum(verdict: Verdict) -> bool:
    return verdict.code.startswith("secure-sum.")


def test_false_late_and_repeated_replies_change_nothing() -> None:
    clients = list(range(4))
    vectors, pinned = vectors_of(clients), pinned_of(clients)
    members = members_of(vectors, 3, pinned)
    round_ = round_of(clients, 3, pinned)
    replies = {}
    while not round_.done:
        phase, tasks = round_.phase, round_.tasks()
        for client, task in tasks.items():
            for content, words in (
                (b"", "malformed"),
                (b"QSEC" + bytes(40), "malformed"),
                (envelope(phase % 5 + 1, [b""]), "not of the phase"),
                (envelope(phase, []), "malformed"),
                (envelope(phase, [b"x"]), ""),
            ):
                verdict = round_.receive(client, content)
                assert not verdict.accepted
                assert words in verdict.reason
                assert of_a_sum(verdict) or verdict.code == "bundle.malformed", verdict
            replies[client] = members[client].answer(task)
            assert members[client].answer(task) == replies[client]  # lost and asked again: the same bytes
            other = clients[client - 1]
            for someone in (other, 99):
                verdict = round_.receive(someone, replies[client])
                assert not verdict.accepted
                assert of_a_sum(verdict), verdict
            assert round_.receive(client, replies[client]).accepted
            assert "already" in round_.receive(client, replies[client]).reason
        round_.advance()
    assert np.array_equal(round_.total, np.sum(list(vectors.values()), axis=0, dtype=np.uint32))
    assert not round_.receive(0, replies[0]).accepted


def test_too_few_end_the_round() -> None:
    clients = list(range(5))
    played(round_of(clients, 4), members_of(vectors_of(clients), 4, None), {0: MASKED})
    for gone in ({0: MASKED, 1: MASKED}, {0: AGREEMENT, 1: AGREEMENT}):
        failing = round_of(clients, 4)
        with pytest.raises(RoundFailed, match="it takes 4"):
            played(failing, members_of(vectors_of(clients), 4, None), gone)
        assert failing.done
        assert failing.total is None


def until(phase, clients, least, pinned):
    """A round that stands at the beginning of a phase, and its members."""
    members = members_of(vectors_of(clients), least, pinned)
    return played(round_of(clients, least, pinned), members, through=phase), members


def refused(member: SecureMember, task: bytes, match: str) -> None:
    with pytest.raises(BadInput, match=match):
        member.answer(task)
    with pytest.raises(BadInput, match="has left the round"):  # nor anything else: it cannot be asked in another way
        member.answer(envelope(member.phase, [b"other"]))


def test_a_client_refuses_a_sum_over_fewer_than_agreed() -> None:
    clients = list(range(6))
    for listed, match in (
        ((0, 1, 2, 3), "4 survivors, and it is summed with at least 5"),
        ((1, 2, 3, 4, 5), "without itself"),
        ((0, 0, 1, 2, 3, 4), "not in order"),
        ((5, 4, 3, 2, 1, 0), "not in order"),
        ((0, 1, 2, 3, 4, 77), "survivors who have not shared"),
    ):
        _, members = until(AGREEMENT, clients, 5, pinned_of(clients))
        refused(members[0], envelope(AGREEMENT, [pack_clients(listed)]), match)


def test_a_client_unmasks_only_the_list_that_enough_have_signed() -> None:
    clients = list(range(6))
    for attack in (
        "other list",
        "few signatures",
        "false signatures",
        "signatures of another round",
        "signatures of another list",
    ):
        round_, members = until(AGREEMENT, clients, 5, pinned_of(clients))
        everyone, five = pack_clients(range(6)), pack_clients(range(5))
        for client, member in members.items():  # the server lies: half of them see another list
            shown = five if attack == "signatures of another list" and client in (1, 2, 3, 4) else everyone
            content = member.answer(envelope(AGREEMENT, [shown]))
            round_.receive(client, content)
        signatures = {
            c: open_envelope(members[c].answer(envelope(AGREEMENT, [five if c in (1, 2, 3, 4) else everyone])))[1][0]
            for c in (clients if attack == "signatures of another list" else [])
        } or dict(round_._signatures)
        request = UnmaskRequest(2, OCCASION.tag, 0, (0, 1, 2, 3, 4, 5), ())
        match = "the signatures of 4 clients"
        if attack == "other list":
            request = UnmaskRequest(2, OCCASION.tag, 0, (0, 1, 2, 3, 4), (5,))
            match = "another list than it has signed"
        elif attack == "few signatures":
            signatures = {c: signatures[c] for c in (0, 1, 2, 3)}
        elif attack == "signatures of another round":
            before = occasion_of(SESSION, replace(TASK, round=1))
            signatures = {
                c: IDENTITIES[c].sign(signed_content(b"quorank secure sum: survivors", before, c, everyone))
                for c in clients
            }
            match = "the signatures of 0 clients"
        elif attack == "false signatures":
            signatures = dict.fromkeys(clients, signatures[0])
            match = "the signatures of 1 clients"
        else:
            match = "the signatures of 2 clients"
        parts = [request.to_bytes(), *(struct.pack("<I64s", *pair) for pair in signatures.items())]
        refused(members[0], envelope(UNMASKING, parts), match)


def test_a_client_signs_one_list() -> None:
    clients = list(range(6))
    fresh = GuardedClient(SecureClient(0, OCCASION), IDENTITIES[0], 4)
    with pytest.raises(BadInput, match="not told who has shared"):
        fresh.agree([0, 1, 2, 3, 4])
    _, members = until(AGREEMENT, clients, 4, pinned_of(clients))
    client = members[0].client
    with pytest.raises(BadInput, match="no list of survivors"):
        client.unmask(UnmaskRequest(2, OCCASION.tag, 0, tuple(clients), ()), {})
    client.agree([0, 1, 2, 3, 4])
    with pytest.raises(BadInput, match="a second list"):
        client.agree(clients)
    with pytest.raises(BadInput, match="fewer than 2"):
        GuardedClient(SecureClient(0, OCCASION), IDENTITIES[0], 1)


@pytest.mark.parametrize("lie", ["invented client", "swapped key", "other occasion", "unsigned", "another's signature"])
def test_a_server_that_invents_clients_or_keys_is_refused(lie) -> None:
    clients = list(range(5))
    round_, members = until(SHARES, clients, 3, pinned_of(clients))
    keys, *signed = open_envelope(round_.tasks()[0])[1]
    evil = SecureClient(4, OTHER if lie == "other occasion" else OCCASION)
    forged = SignedKeys(evil.advertise(), bytes(64))
    by_client = {SignedKeys.from_bytes(raw).keys.client: SignedKeys.from_bytes(raw) for raw in signed}
    if lie == "other occasion":
        signature = IDENTITIES[4].sign(signed_content(b"quorank secure sum: keys", OTHER, 4, forged.keys.to_bytes()))
        fake = AdvertiseKeys(2, OCCASION.tag, 4, forged.keys.channel_key, forged.keys.mask_key)
        forged = SignedKeys(fake, signature)
    elif lie == "another's signature":
        content = forged.keys.to_bytes()
        forged = SignedKeys(
            forged.keys, IDENTITIES[3].sign(signed_content(b"quorank secure sum: keys", OCCASION, 4, content))
        )
    listed = secure_round.KeyList.from_bytes(keys)
    if lie == "swapped key":
        by_client_new = by_client
    else:
        by_client_new = by_client | {4: forged}
    shown = forged.keys if lie != "unsigned" else by_client[4].keys
    pair = shown.channel_key + shown.mask_key
    if lie == "invented client":
        stranger = SecureClient(70, OCCASION).advertise()
        by_client_new = by_client | {70: SignedKeys(stranger, IDENTITIES[70].sign(
            signed_content(b"quorank secure sum: keys", OCCASION, 70, stranger.to_bytes())))}  # fmt: skip
        strange = stranger.channel_key + stranger.mask_key
        neighbours = tuple((c if c != 4 else 70, k if c != 4 else strange) for c, k in listed.neighbours)
    else:
        neighbours = tuple((c, pair if c == 4 else k) for c, k in listed.neighbours)
    false = replace(listed, neighbours=neighbours)
    parts = [false.to_bytes(), *(one.to_bytes() for one in by_client_new.values())]
    who = 70 if lie == "invented client" else 4
    refused(members[0], envelope(SHARES, parts), rf"keys of \[{who}\] that are not signed by them")


def test_the_server_leaves_out_whose_keys_are_not_signed() -> None:
    clients = list(range(4))
    round_ = round_of(clients, 3, pinned_of(clients))
    stranger = SecureMember(0, OCCASION, lambda: np.zeros(LENGTH, np.uint32), IDENTITIES[50], 3)
    answer = stranger.answer(round_.tasks()[0])
    assert round_.receive(0, answer).code == "secure-sum.identity"
    signed, _ = open_envelope(answer)[1]
    for parts, code in (([signed, IDENTITIES[0].public], "unsigned"), ([signed], "malformed")):
        assert round_.receive(0, envelope(KEYS, parts)).code == f"secure-sum.{code}"


def test_the_server_counts_no_false_signature_under_the_survivors() -> None:
    clients = list(range(4))
    round_, members = until(AGREEMENT, clients, 3, None)
    true = {client: members[client].answer(task) for client, task in round_.tasks().items()}
    for false in (true[1], envelope(AGREEMENT, [bytes(64)])):
        assert round_.receive(0, false).code == "secure-sum.agreement"
    assert all(round_.receive(client, content).accepted for client, content in true.items())


def secure_federation(**options) -> Federation:
    privacy = ClippedGaussian(epsilon=1e4, clip=0.3, sum="secure", noise_multiplier=0.2, **options)
    return Federation(CLIENTS, 3, privacy=privacy)


def devices_of(simulator, tmp_path, pinned=True) -> dict[int, Answering]:
    listed = ListedMembers()
    found = {c: Answering(device_of(simulator, tmp_path / str(c), c), listed) for c in range(CLIENTS)}
    if pinned:
        pins = {client: device.key.public for client, device in found.items()}
        for device in found.values():
            device.pinned = pins
    return found


def test_devices_in_a_secure_round_one_of_them_restarted(tiny_collection, tmp_path) -> None:
    simulator = simulator_of(tiny_collection, secure_federation())
    mechanism, least = simulator.mechanism, simulator.mechanism.signed_by
    assert least == CLIENTS  # the noise rests on all shares where nobody is expected to leave
    devices = devices_of(simulator, tmp_path)
    pins, task = devices[0].pinned, decode_task(task_of(simulator))
    listed = devices[0].listed
    options = {"known": pins, "neighbourhood": mechanism.plan, "members": listed.head()}
    round_ = SecureRound(task, SESSION, range(CLIENTS), least, **options)
    for client, device in devices.items():
        assert device.answer(round_.tasks()[client]) == Declined("waiting")
        search(device.device, user_of(simulator, client), 3)
    assert devices[0].device.answer(task_of(simulator)) == Declined("secure")
    first = round_.tasks()[0]
    assert isinstance(devices[0].answer(first), bytes)
    identity = devices[0].key.public
    devices[0].device.store.close()  # killed after its keys left: it is out of this round
    devices[0] = Answering(device_of(simulator, tmp_path / "0", 0))
    devices[0].listed = listed
    assert devices[0].key.public == identity
    assert devices[0].answer(first) == Declined("old")
    for client in range(1, CLIENTS):
        assert round_.receive(client, devices[client].answer(round_.tasks()[client])).accepted
    round_.advance()  # the others are asked to go on without it: fewer than were agreed
    for client, content in round_.tasks().items():
        assert devices[client].answer(content) == Declined("unmasking")
    assert [device.device.store.waiting() for device in devices.values()] == [3] * CLIENTS

    round_ = SecureRound(replace(task, round=1), SESSION, range(CLIENTS), least, **options)
    play_devices(round_, devices)
    assert round_.server.survivors == tuple(range(CLIENTS))
    opened_sum = mechanism.judge(round_.total, CLIENTS, CLIENTS)
    gathered = gathered_of(mechanism, simulator.initial(), [opened_sum], 3 * CLIENTS)
    plain = simulator_of(tiny_collection)
    updates = [reply.release for reply in plain.replies(task, np.arange(CLIENTS))]
    clipped = sum(update * min(1.0, 0.3 / np.linalg.norm(update)) for update in updates)
    noise = gathered.total - clipped
    assert 0.01 * gathered.noise < np.abs(noise).max() < 6 * gathered.noise
    for device in devices.values():
        (entry,) = device.device.store.releases()
        assert (entry.round, entry.reply, entry.interactions) == (2, None, 3)
        assert "no single update" in entry.privacy["standing"]
        assert device.device.store.waiting() == 0
        assert device.answer(envelope(UNMASKING, [b""])) == Declined("unmasking")


def play_devices(round_: SecureRound, devices) -> None:
    while not round_.done:
        for client, content in round_.tasks().items():
            if client in devices:
                reply = devices[client].answer(content)
                assert isinstance(reply, bytes), (client, round_.phase, reply)
                assert round_.receive(client, reply).accepted
        round_.advance()


def test_consent_withdrawn_in_the_middle_of_a_secure_round(tiny_collection, tmp_path) -> None:
    simulator = simulator_of(tiny_collection, secure_federation())
    device = Answering(device_of(simulator, tmp_path))
    task = decode_task(task_of(simulator))
    round_ = SecureRound(task, SESSION, [0, 1], 2, members=device.listed.head())
    first = round_.tasks()[0]
    assert device.answer(first) == Declined("waiting")
    search(device.device, user_of(simulator), 3)
    assert isinstance(device.answer(first), bytes)
    with device.device.store.transaction():
        device.device.store.set_consent(False, 9.0)
    assert device.answer(envelope(SHARES, [b""])) == Declined("consent")
    assert device.answer(envelope(SHARES, [b""])) == Declined("secure")
    assert device.answer_secure(b"nonsense", device.published) == Declined("malformed")
    assert device.answer(b"QSEC\x02" + first[5:]) == Declined("version")  # of the version before: it says what to do
    assert device.device.store.waiting() == 3


def test_messages_hold_nothing_of_the_input() -> None:
    """What a client sends in all phases holds none of its numbers: those of the masked input are hidden."""
    clients = list(range(4))
    vectors = {c: np.full(LENGTH, 0x01020304 + c, dtype=np.uint32) for c in clients}
    members, round_ = members_of(vectors, 3, None), round_of(clients, 3)
    sent = b""
    while not round_.done:
        for client, task in round_.tasks().items():
            reply = members[client].answer(task)
            sent += reply if client == 0 else b""
            round_.receive(client, reply)
        round_.advance()
    assert vectors[0][:1].tobytes() not in sent
    signed, identity = frames.unpack(sent[6 : 6 + 12 + 156 + 32])  # the first message: keys under a signature
    assert identity == IDENTITIES[0].public and SignedKeys.from_bytes(signed).is_genuine({0: identity}, OCCASION)
