"""A device's line: whole runs of devices come to the simulator's bits, in process and over a bad network."""

from __future__ import annotations

import numpy as np
import pytest
from devices import CLIENTS, ROUNDS, Ticks, coordinator_of, device_of, simulator_of, state_after, terms_of, user_of
from memory_transport import MemoryTransport
from refusals import refused

from quorank.engines.driver import Driver
from quorank.errors import BadInput
from quorank.federation import Federation
from quorank.member import Client
from quorank.privacy import ClippedGaussian
from quorank.protocol import frames
from quorank.protocol.invitation import Invitation
from quorank.protocol.keys import MemberKey
from quorank.protocol.messages import (
    Declined,
    check_leaving_request,
    is_leaving_receipt,
    leaving_receipt,
    leaving_request,
)
from quorank.protocol.terms import Terms
from quorank.protocol.transport import BUSY, Failure, MemberNodes


def test_devices_over_a_bad_network_with_restarts(tiny_collection, tmp_path) -> None:
    """Messages are lost, late and doubled, and devices are restarted at random: the same bits, nothing used twice."""
    simulator = simulator_of(tiny_collection)
    devices = {c: device_of(simulator, tmp_path / str(c), c) for c in range(CLIENTS)}
    random = np.random.default_rng(0)

    def answer(name: str, content: bytes) -> bytes | Failure:
        client = int(name)
        if random.random() < 0.2:
            devices[client].store.close()
            devices[client] = device_of(simulator, tmp_path / name, client)
        device = devices[client]
        if device.answer(content) == Declined("waiting"):
            user_of(simulator, client)(device)  # its user searches once between two tasks
        reply = device.answer(content)
        return Failure(BUSY) if isinstance(reply, Declined) else frames.pack([reply])

    names = {c: str(c) for c in range(CLIENTS)}
    network = MemoryTransport(answer, list(names.values()), loss=0.15, duplicates=0.2, delay=2, seed=1)
    ticks = Ticks()
    driver = Driver(network, MemberNodes(), patience=3.0, pause=0.5, clock=ticks, sleep=ticks.sleep)
    coordinator = coordinator_of(simulator)
    while not coordinator.done:
        driver.round(coordinator)
    assert coordinator.state.theta.tobytes() == state_after(simulator).theta.tobytes()
    for device in devices.values():
        assert [entry.round for entry in device.store.releases()] == [1, 2, 3, 4]
        used = device.store.rows("SELECT count(*) FROM interactions WHERE release IS NOT NULL")
        assert used == [(3 * ROUNDS,)]


def test_nobody_has_another_client_forgotten(tiny_collection) -> None:
    terms, key, other = terms_of(simulator_of(tiny_collection), 2), MemberKey.create(), MemberKey.create()
    request = leaving_request(terms, key, 5.0, b"nonce")
    keys = {1: other.public, 2: key.public}
    assert check_leaving_request(request, "run", keys).client == 2
    for false, words in (
        (request.replace(b'"client": 2', b'"client": 1'), "not signed by the client"),
        (request.replace(b'"client": 2', b'"client": 3'), "unknown client"),
        (request.replace(b'"at": 5.0', b'"at": 6.0'), "not signed"),
        (leaving_request(terms, other, 5.0, b""), "not signed"),
        (request[:-2], "not signed"),
        (request.partition(b"\n")[0], "not signed"),
        *((content, "damaged") for content in (b"", b"[]\n", b"{" * 4000, b"[" * 4000)),
        (request.replace(b"5.0", b"1" + b"0" * 400), "too long|malformed|damaged"),
        (request + b" " * 5000, "malformed"),
    ):
        with pytest.raises(BadInput, match=words):
            check_leaving_request(false, "run", keys)
    with pytest.raises(BadInput, match="another run"):
        check_leaving_request(request, "other", keys)
    receipt = leaving_receipt(other, request).decode()
    assert is_leaving_receipt(other.public, request, receipt)
    assert not is_leaving_receipt(other.public, request + b" ", receipt)


def test_invitations_come_back_and_are_refused_when_damaged(tiny_collection, tmp_path) -> None:
    terms = terms_of(simulator_of(tiny_collection, Federation(CLIENTS, 3, privacy=ClippedGaussian(epsilon=50.0))), 2)
    key = MemberKey.create().public
    invitation = Invitation(
        "desk", "https://host:9092", key, terms.table(), bytes(32), certificate="PEM", identities={"1": key}
    )
    path = tmp_path / "invitation.json"
    invitation.write(path)
    assert path.stat().st_mode & 0o777 == 0o600
    again = Invitation.read(path)
    assert again == invitation and Terms.read(again.terms) == terms
    text = path.read_text()
    for content, code in (
        ("", "invitation.not-json"),
        ("[]", "invitation.not-one"),
        ("{}", "invitation.not-one"),
        (text.replace('"version": 2,\n "kind"', '"version": 1,\n "kind"'), "invitation.version"),
        (text.replace('"version": 2,\n "kind"', '"version": 3,\n "kind"'), "invitation.version"),
        (text.replace("https://host:9092", "http://host:9092"), "address.malformed"),
        (text.replace("https://host:9092", "file:///etc/passwd"), "address.malformed"),
        (text.replace('"service"', '"servile"'), "invitation.damaged"),
        (text.replace('"code"', '"cod"'), "invitation.damaged"),
        (text.replace(key.hex(), "x"), "invitation.damaged"),
        (text.replace('"rounds": 4', '"rounds": 0'), "value.out-of-range"),
        (text.replace('"rounds": 4', '"rounds": "4"'), "terms.malformed"),
        (text.replace('"pdgd"', '"pdgt"'), "part.unknown-kind"),
    ):
        path.write_text(content)
        with refused(code):
            Client.open(tmp_path / "device", path)
    with refused("file.unreadable"):
        Invitation.read(tmp_path / "absent")
