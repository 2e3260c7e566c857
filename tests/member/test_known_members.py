"""Members of secure sums: the list of the service, what it cannot change any more, and whom an owner asks for."""

from __future__ import annotations

import logging

import pytest
from devices import Answering, ListedMembers, Ticks, coordinator_of, device_of, simulator_of, user_of
from hypothesis import given
from hypothesis import strategies as st
from memory_transport import MemoryTransport

from quorank.engines.driver import Driver
from quorank.errors import BadInput
from quorank.federation import Federation
from quorank.federation.coordinator import RoundLimits
from quorank.member.known_members import KnownMembers
from quorank.member.membership import Pins
from quorank.member.policy import Policy, set_policy
from quorank.member.private_store import PrivateStore
from quorank.privacy import SecureSum
from quorank.protocol import frames
from quorank.protocol.keys import MemberKey
from quorank.protocol.member_list import Head, attestation
from quorank.protocol.messages import Declined
from quorank.protocol.transport import BUSY, Failure, MemberNodes

MEMBERS, SERVICE = 8, bytes(range(32))


def key(number: int) -> bytes:
    return number.to_bytes(32, "big")


KEYS = {client: key(10 + client) for client in range(MEMBERS)}


@pytest.fixture
def store(tmp_path):
    with PrivateStore(tmp_path / "device") as opened_:
        yield opened_


def known_of(store, pinned=None, attester: bytes = b"") -> KnownMembers:
    pins = Pins(store)
    pins.pin({f"{client}": found for client, found in (pinned or {}).items()})
    return KnownMembers(store, pins, SERVICE, attester)


def listed_of(keys=None) -> ListedMembers:
    listed = ListedMembers()
    for client, found in (KEYS if keys is None else keys).items():
        listed.add(client, found)
    return listed


def updated(known: KnownMembers, listed: ListedMembers, size: int | None = None) -> Head:
    head = Head.from_bytes(listed.head(size))
    known.update(head, listed.page)
    return head


def test_the_list_grows_by_pages_and_is_kept(store) -> None:
    known, listed = known_of(store), listed_of()
    assert known.list is None
    half = updated(known, listed, 4)
    assert len(known.list) == 4 and known.list.key(3) == KEYS[3] and known.list.key(4) is None
    full = updated(known, listed)
    for one in (known, known_of(store)):
        assert one.list.head == full and one.list.starts_with(half)
        assert one.at(half).identities(1, KEYS[1], 2, [0, 1, 2, 3]) == {c: KEYS[c] for c in range(4)}
        assert one.at(full).identities(1, KEYS[1], 2, [7, 1]) == {7: KEYS[7], 1: KEYS[1]}
        with pytest.raises(BadInput, match="not listed"):  # it was listed after the head of this sum
            one.at(half).identities(1, KEYS[1], 2, [1, 7])


@given(st.integers(0, MEMBERS - 1), st.sampled_from(["key", "number", "order", "removed", "added"]))
def test_an_entry_that_is_known_can_not_be_changed(client, change) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder, PrivateStore(folder) as store:
        known = known_of(store)
        before = updated(known, listed_of())
        changed = list(KEYS.items())
        if change == "key":
            changed[client] = client, key(99)
        elif change == "number":
            changed[client] = 77, KEYS[client]
        elif change == "order":
            changed[client], changed[client - 1] = changed[client - 1], changed[client]
        elif change == "removed":
            del changed[client]
        else:
            changed.insert(client, (77, key(99)))
        other = ListedMembers()
        for number, found in [*changed, *((100 + more, key(200 + more)) for more in range(3))]:
            other.add(number, found)
        with pytest.raises(BadInput, match="another list of members than before"):
            updated(known, other)
        with pytest.raises(BadInput, match="another list of members than before"):
            known.at(Head.from_bytes(other.head(MEMBERS)))
        assert known.list.head == known_of(store).list.head == before


def test_a_page_that_does_not_lead_to_the_signed_head_is_not_stored(store) -> None:
    known, listed = known_of(store), listed_of()
    head = Head.from_bytes(listed.head())
    for false in (
        lambda first: (listed.start, b""),
        lambda first: (listed.start, listed.page(first)[1][:-1]),
        lambda first: (listed.start, listed_of({c: key(50 + c) for c in KEYS}).page(first)[1]),
        lambda first: (listed.start, b"".join(listed.entries[:1] * 3)),
        lambda first: (b"short", listed.page(first)[1]),
        lambda first: (b"another start...", listed.page(first)[1]),
    ):
        with pytest.raises(BadInput):
            known.update(head, false)
        assert known.list is None
    known.update(head, listed.page)
    assert known.list.head == head


def test_a_list_that_begins_anew_is_taken_unless_a_number_has_another_key(store) -> None:
    """Where the service has lost its newest entries, and its operator has said so."""
    known = known_of(store)
    updated(known, listed_of())
    anew = listed_of({c: KEYS[c] for c in range(5)} | {20 + c: key(60 + c) for c in range(6)})
    anew.start = b"restored service"
    head = updated(known, anew)
    assert known.list.head == known_of(store).list.head == head and known.list.key(7) is None
    false = listed_of({c: KEYS[c] for c in range(4)} | {4: key(99)} | {40 + c: key(90 + c) for c in range(9)})
    false.start = b"another restored"
    with pytest.raises(BadInput, match="another list of members"):
        updated(known, false)
    assert known.list.head == head


@pytest.mark.parametrize(
    ("mine", "own", "roster", "sentence"),
    [
        (0, KEYS[0], [0, 1, 77], "clients that are not listed"),
        (0, key(77), [0, 1, 2], "another key for this device"),
        (0, KEYS[0], [1, 2, 3], "another key for this device"),
        (0, KEYS[0], [0, 1, 6], "clients 6 have another key than the pinned one"),
    ],
)
def test_rosters_that_are_refused(store, caplog, mine, own, roster, sentence) -> None:
    known = known_of(store, {5: KEYS[5], 6: key(66)})
    head = updated(known, listed_of())
    with caplog.at_level(logging.WARNING), pytest.raises(BadInput, match=sentence):
        known.at(head).identities(mine, own, 2, roster)
    assert sentence in caplog.text and key(66).hex() not in caplog.text


def test_a_policy_asks_for_members_that_the_owner_has_pinned(store) -> None:
    """Whoever controls the service can list as many as it likes, but it has no key that the owner has compared."""
    set_policy(store, Policy(known=2))
    known = known_of(store, {0: KEYS[0], 3: KEYS[3], 4: KEYS[4]})
    members = known.at(updated(known, listed_of()))
    assert len(members.identities(0, KEYS[0], 2, [0, 1, 3, 4])) == 4
    for roster in ([0, 1, 2, 3], [0, 5, 6, 7, 4]):
        with pytest.raises(BadInput, match="would have 1 members that the owner has pinned, and the policy asks for 2"):
            members.identities(0, KEYS[0], 2, roster)
    members.check_known(0, [0, 3, 4])
    with pytest.raises(BadInput, match="the policy asks for 2"):
        members.check_known(0, [0, 1, 2, 4])


def test_an_attester_vouches_for_each_member(store) -> None:
    attester, listed = MemberKey.create(), ListedMembers()
    for client, found in KEYS.items():
        by = MemberKey.create() if client == 6 else attester
        of = (bytes(32), found) if client == 7 else (SERVICE, KEYS[0]) if client == 5 else (SERVICE, found)
        listed.add(client, found, attestation(by, *of))
    known = known_of(store, attester=attester.public)
    members = known.at(updated(known, listed))
    assert len(members.identities(0, KEYS[0], 2, [0, 1, 2, 3, 4])) == 5
    for client in (5, 6, 7):  # of another member, by another, for another service
        with pytest.raises(BadInput, match=rf"not vouched for the clients \[{client}\]"):
            members.identities(0, KEYS[0], 2, [0, 1, client])


# in rounds


class Network:
    """Devices of a small run with secure sums."""

    def __init__(self, collection, folder) -> None:
        federation = Federation(MEMBERS, 3, privacy=SecureSum(clip=0.05, dropouts=0.3))
        self.simulator, self.folder, self.listed = simulator_of(collection, federation), folder, ListedMembers()
        self.devices = {c: self.device(c, folder / str(c), self.listed) for c in range(MEMBERS)}
        self.coordinator = coordinator_of(self.simulator, limits=RoundLimits(minimum_fraction=0.5, deadline=60.0))
        self.names = {c: f"{c}" for c in range(MEMBERS)}
        self.memory = MemoryTransport(self.answer, list(self.names.values()))
        ticks = Ticks()
        self.driver = Driver(
            self.memory, MemberNodes(), clock=ticks, sleep=ticks.sleep, patience=9.0, members=self.listed.head
        )

    def device(self, client: int, folder, listed=None) -> Answering:
        return Answering(device_of(self.simulator, folder, client), listed)

    def answer(self, name: str, content: bytes) -> bytes | Failure:
        client = int(name.rpartition("-")[2])
        answering = self.devices[client]
        answer = answering.answer(content)
        while answer == Declined("waiting"):
            user_of(self.simulator, client)(answering.device)
            answer = answering.answer(content)
        return Failure(BUSY) if isinstance(answer, Declined) else frames.pack([answer])


@pytest.fixture
def network(tiny_collection, tmp_path) -> Network:
    return Network(tiny_collection, tmp_path)


def test_members_that_enrol_later_are_summed_with(network) -> None:
    assert network.driver.round(network.coordinator).participants == MEMBERS
    network.listed.add(99, key(99))
    assert network.driver.round(network.coordinator).participants == MEMBERS
    for device in network.devices.values():
        assert len(device.members.list) == MEMBERS + 1 and device.members.list.key(99) == key(99)


def test_the_coordinator_takes_no_other_identity_than_the_enrolled_one(network) -> None:
    enrolled = {client: device.key.public for client, device in network.devices.items()}
    network.driver.known = lambda: enrolled
    network.driver.round(network.coordinator)
    network.devices[2] = network.device(2, network.folder / "another")
    network.devices[2].listed = network.listed
    assert network.driver.round(network.coordinator).participants == MEMBERS - 1
    assert set(network.coordinator.refused) == {"secure-sum.identity"}


def test_devices_refuse_a_coordinator_that_puts_its_own_in_a_client_s_place(network) -> None:
    """Its round has no sum, so it learns nothing; with the true client the next one has."""
    network.driver.round(network.coordinator)
    before, true = network.coordinator.state.theta.copy(), network.devices[2]
    network.devices[2] = network.device(2, network.folder / "another")  # it holds this one's keys
    network.devices[2].listed = network.listed
    report = network.driver.round(network.coordinator)
    assert report.participants == 0 and (network.coordinator.state.theta == before).all()
    network.devices[2] = true
    assert network.driver.round(network.coordinator).participants == MEMBERS
