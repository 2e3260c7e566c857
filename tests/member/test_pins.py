"""Identities in secure sums: who is met first is pinned, and nobody else is taken in that client's place later."""

from __future__ import annotations

import logging

import pytest
from devices import Answering, Ticks, coordinator_of, device_of, simulator_of, user_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from memory_transport import MemoryTransport

from quorank.engines.driver import Driver
from quorank.errors import BadInput
from quorank.federation import Federation
from quorank.federation.coordinator import RoundLimits
from quorank.member.device_answers import ClientPins
from quorank.member.private_store import PrivateStore
from quorank.privacy import SecureSum
from quorank.protocol import frames
from quorank.protocol.messages import Declined
from quorank.protocol.secure_round import IDENTITY, SHARES, claims_bytes, claims_from, envelope, open_envelope
from quorank.protocol.transport import BUSY, Failure, MemberNodes

CLIENTS, MEMBERS = 4, 8


def key(number: int) -> bytes:
    return number.to_bytes(IDENTITY, "big")


@pytest.fixture
def store(tmp_path):
    with PrivateStore(tmp_path / "device") as opened_:
        yield opened_


CLAIMS = {0: key(10), 1: key(11), 2: key(12), 3: key(13)}


def pins_of(store, given=None) -> ClientPins:
    return ClientPins(store, named(given or {}), CLIENTS)


def named(keys):
    return {f"{client}": key for client, key in keys.items()}


def accepted(pins: ClientPins, claims, least: int = 3) -> bool:
    try:
        return pins.accept(0, key(10), least, claims) == claims
    except BadInput:
        return False


def test_who_is_met_first_is_pinned_and_stays_so(store, tmp_path, caplog) -> None:
    pins = pins_of(store)
    assert accepted(pins, {c: CLAIMS[c] for c in (0, 1)}, least=2) and pins.known.keys() == {"0", "1"}
    assert accepted(pins, CLAIMS)
    assert pins_of(store).known == named(CLAIMS), "it is in the private file"
    with caplog.at_level(logging.WARNING):
        assert not accepted(pins, CLAIMS | {2: key(99)})
    assert "clients 2 have another identity than before" in caplog.text
    assert key(99).hex() not in caplog.text
    assert pins.known == named(CLAIMS), "the false one was not taken"
    assert accepted(pins, CLAIMS)


@pytest.mark.parametrize(
    ("claims", "sentence"),
    [
        ({}, "names no members of the sum"),
        ({1: key(11), 2: key(12)}, "another identity"),
        (CLAIMS | {0: key(77)}, "another identity"),
        ({0: key(10), 1: key(11), CLIENTS: key(14)}, "more clients than the run has"),
        ({0: key(10), 1: key(11), 2: key(11)}, "one identity for several"),
    ],
)
def test_claims_that_are_refused(store, claims, sentence) -> None:
    with pytest.raises(BadInput, match=sentence):
        pins_of(store).accept(0, key(10), 3, claims)
    assert pins_of(store).known == {}


def test_a_sum_of_which_two_lists_could_be_signed_is_refused(store) -> None:
    assert not accepted(pins_of(store), CLAIMS, least=2)
    assert accepted(pins_of(store), CLAIMS, least=3)


def test_what_an_invitation_pins_needs_no_first_use(store) -> None:
    pins = pins_of(store, {2: key(12)})
    assert not accepted(pins, CLAIMS | {2: key(99)})
    assert accepted(pins, CLAIMS)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.integers(0, 2**32 - 1), st.binary(min_size=IDENTITY, max_size=IDENTITY), max_size=6))
def test_claims_come_back_as_they_were(claims) -> None:
    raw = claims_bytes(claims)
    assert claims_from(raw) == claims
    for false in (raw + b"x", raw[:-1] if raw else b"x", raw + raw if raw else b"y"):
        with pytest.raises(BadInput):
            claims_from(false)


# in rounds


class Network:
    """Devices of a small run with secure sums; `swap` puts another in a client's place, by the coordinator's hand."""

    def __init__(self, collection, folder) -> None:
        federation = Federation(MEMBERS, 3, privacy=SecureSum(clip=0.05, dropouts=0.3))
        self.simulator, self.folder = simulator_of(collection, federation), folder
        self.devices = {c: self.device(c, folder / str(c)) for c in range(MEMBERS)}
        self.coordinator = coordinator_of(self.simulator, limits=RoundLimits(minimum_fraction=0.5, deadline=60.0))
        self.names = {c: f"{c}" for c in range(MEMBERS)}
        self.memory = MemoryTransport(self.answer, list(self.names.values()))
        self.alter = lambda client, content: content
        ticks = Ticks()
        self.driver = Driver(self.memory, MemberNodes(), clock=ticks, sleep=ticks.sleep, patience=9.0)

    def device(self, client: int, folder) -> Answering:
        return Answering(device_of(self.simulator, folder, client))

    def answer(self, name: str, content: bytes) -> bytes | Failure:
        client = int(name.rpartition("-")[2])
        asked, answering = self.alter(client, content), self.devices[client]
        answer = answering.answer(asked)
        while answer == Declined("waiting"):
            user_of(self.simulator, client)(answering.device)
            answer = answering.answer(asked)
        return Failure(BUSY) if isinstance(answer, Declined) else frames.pack([answer])


@pytest.fixture
def network(tiny_collection, tmp_path) -> Network:
    return Network(tiny_collection, tmp_path)


def public(answering: Answering) -> bytes:
    return answering.key.public


def test_identities_are_pinned(network) -> None:
    for _ in range(2):
        assert network.driver.round(network.coordinator).participants == MEMBERS
    everyone = {client: public(device) for client, device in network.devices.items()}
    for device in network.devices.values():
        assert device.pins.known == named(everyone)


def test_the_coordinator_takes_no_other_identity_than_the_enrolled_one(network) -> None:
    enrolled = {client: public(device) for client, device in network.devices.items()}
    network.driver.known = lambda: enrolled
    network.driver.round(network.coordinator)
    network.devices[2] = network.device(2, network.folder / "another")
    assert network.driver.round(network.coordinator).participants == MEMBERS - 1
    assert set(network.coordinator.refused) == {"secure-sum.identity"}


def test_devices_refuse_a_coordinator_that_puts_its_own_in_a_client_s_place(network) -> None:
    """Its round has no sum, so it learns nothing; with the true client the next one has."""
    network.driver.round(network.coordinator)
    before, true = network.coordinator.state.theta.copy(), network.devices[2]
    network.devices[2] = network.device(2, network.folder / "another")  # it holds this one's keys
    report = network.driver.round(network.coordinator)
    assert report.participants == 0 and (network.coordinator.state.theta == before).all()
    network.devices[2] = true
    assert network.driver.round(network.coordinator).participants == MEMBERS


@pytest.mark.parametrize("lie", ["nothing", "others", "unsigned"])
def test_devices_refuse_false_claims(lie, network) -> None:
    network.driver.round(network.coordinator)
    before = network.coordinator.state.theta.copy()

    def alter(client: int, content: bytes) -> bytes:
        phase, parts = open_envelope(content)
        if phase != SHARES or client == 3:
            return content
        claims = claims_from(parts[1])
        if lie == "nothing":
            return envelope(SHARES, [parts[0], b"", *parts[2:]])
        if lie == "others":
            return envelope(SHARES, [parts[0], claims_bytes(claims | {3: key(5)}), *parts[2:]])
        return envelope(SHARES, [parts[0], parts[1], *(part[:-1] + bytes([part[-1] ^ 1]) for part in parts[2:])])

    network.alter = alter
    assert network.driver.round(network.coordinator).participants == 0
    assert (network.coordinator.state.theta == before).all()
