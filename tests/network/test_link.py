"""A device's line: whole runs of devices come to the simulator's bits, in process and over a bad network."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from devices import CLIENTS, ROUNDS, coordinator_of, device_of, simulator_of, task_of, user_of

from quorank.certificates import node_keys
from quorank.device.leaving import leave, left
from quorank.device.link import Direct, Handed, take_part
from quorank.device.private_store import PrivateStore
from quorank.errors import BadInput
from quorank.federation import Federation
from quorank.federation.bundle import Bundle
from quorank.federation.coordinator import RoundLimits
from quorank.federation.declined import Declined
from quorank.federation.leaving import check_request, receipt_of, request_of
from quorank.federation.transport import BUSY, Failure, Memory
from quorank.flower.driver import Driver, Own
from quorank.privacy import ClippedGaussian

KEYS = node_keys()


def in_process(simulator) -> bytes:
    state = simulator.initial()
    for _ in range(simulator.rounds):
        state, _ = simulator.federation.round(state, simulator.gather(state))
    return state.theta.tobytes()


def others_of(simulator):
    return lambda task, clients: simulator.replies(task, np.array(clients)) if clients else ()


@pytest.mark.parametrize("privacy", [None, ClippedGaussian(epsilon=100.0, clip=0.1, noise_multiplier=1.0)], ids=str)
def test_one_device_among_simulated_clients(privacy, tiny_collection, tmp_path) -> None:
    more = {} if privacy is None else {"privacy": privacy}
    simulator = simulator_of(tiny_collection, Federation(CLIENTS, 3, **more))
    coordinator = coordinator_of(simulator)
    link = Direct(coordinator, 2, others_of(simulator))
    seen = []
    device = device_of(simulator, tmp_path, 2)
    assert take_part(device, link, user_of(simulator, 2), seen.append) == ROUNDS
    assert coordinator.done
    assert all(verdict.accepted for verdict in link.verdicts)
    assert coordinator.state.theta.tobytes() == in_process(simulator)
    assert [entry.round for entry in device.store.releases()] == [1, 2, 3, 4]
    assert all(isinstance(answer, bytes) for answer in seen)


def test_a_device_that_gives_nothing_is_asked_a_few_times(tiny_collection, tmp_path) -> None:
    simulator = simulator_of(tiny_collection)
    coordinator = coordinator_of(simulator)
    link, seen = Direct(coordinator, 2, others_of(simulator)), []
    assert take_part(device_of(simulator, tmp_path, 2), link, None, seen.append) == 0
    assert seen == [Declined("waiting")] * 3
    assert coordinator.state.round == 0
    link.close()


def test_a_round_that_can_do_without_it_goes_on(tiny_collection, tmp_path) -> None:
    simulator = simulator_of(tiny_collection)
    coordinator = coordinator_of(simulator, RoundLimits(enough=0.8))
    assert take_part(device_of(simulator, tmp_path, 2), Direct(coordinator, 2, others_of(simulator))) == 0
    assert coordinator.done


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
        reply = device.respond(content)
        return Failure(BUSY) if reply is None else reply

    names = {c: str(c) for c in range(CLIENTS)}
    network = Memory(answer, list(names.values()), loss=0.15, duplicates=0.2, delay=2, seed=1)
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    driver = Driver(network, Own(names), patience=3.0, pause=0.5, clock=lambda: now[0], sleep=sleep)
    coordinator = coordinator_of(simulator)
    while not coordinator.done:
        driver.round(coordinator)
    assert coordinator.state.theta.tobytes() == in_process(simulator)
    for device in devices.values():
        assert [entry.round for entry in device.store.releases()] == [1, 2, 3, 4]
        used = device.store.file.rows("SELECT count(*) FROM interactions WHERE release IS NOT NULL")
        assert used == [(3 * ROUNDS,)]


def test_a_line_that_is_handed_its_tasks(tiny_collection, tmp_path) -> None:
    simulator = simulator_of(tiny_collection)
    device, link, found = device_of(simulator, tmp_path), Handed(), []

    def engine() -> None:
        found.append(link.respond(task_of(simulator)))
        found.append(link.respond(b"nonsense"))
        link.close()

    thread = threading.Thread(target=engine)
    thread.start()
    assert take_part(device, link, user_of(simulator)) == 1
    thread.join(20)
    assert found == [device.store.release("run", 1).reply, None]
    with pytest.raises(BadInput, match="carries no requests to leave"):
        link.leave(b"")
    assert Handed(lambda request: request).leave(b"x") == b"x"


def bundle_of(simulator, client=2) -> Bundle:
    from devices import terms_of

    return Bundle("desk", "localhost:9092", "PEM", KEYS.private.decode(), terms_of(simulator, client))


def test_leaving_is_confirmed_then_everything_is_erased(tiny_collection, tmp_path) -> None:
    simulator = simulator_of(tiny_collection)
    coordinator, bundle = coordinator_of(simulator), bundle_of(simulator)
    link = Direct(coordinator, 2, others_of(simulator), {2: KEYS.public})
    device = device_of(simulator, tmp_path, 2)
    take_part(device, link, user_of(simulator, 2))
    asked = []

    def unreachable(request: bytes) -> bytes:
        asked.append(request)
        return b"later"

    with pytest.raises(BadInput, match="did not confirm"):
        leave(device.store, bundle.terms, bundle.key, unreachable, lambda n: bytes(n))
    assert device.answer(task_of(simulator)) == Declined("consent")  # it has withdrawn all the same
    assert len(device.store.releases()) == ROUNDS  # and lost nothing
    device.store.close()
    store = PrivateStore(tmp_path)

    def ask(request: bytes) -> bytes:
        asked.append(request)
        return link.leave(request)

    erased = leave(store, bundle.terms, bundle.key, ask, lambda n: b"\x01" * n)
    assert asked[0] == asked[1]  # the same request, however often it was sent
    assert [(one.run, one.client) for one in link.leavers] == [("run", 2)]
    assert [path.name for path in tmp_path.iterdir()] == ["left.json"]
    note = left(tmp_path)
    assert note["erased"]["files"] == list(erased.files)
    assert note["request"] == link.leavers[0].digest
    assert erased.traces > 3


def test_nobody_has_another_client_forgotten(tiny_collection) -> None:
    terms = bundle_of(simulator_of(tiny_collection)).terms
    request = request_of(terms, KEYS.private.decode(), 5.0, b"nonce")
    keys = {1: node_keys().public, 2: KEYS.public}
    assert check_request(request, "run", keys).client == 2
    for false, words in (
        (request.replace(b'"client": 2', b'"client": 1'), "not signed by the client"),
        (request.replace(b'"client": 2', b'"client": 3'), "not known"),
        (request.replace(b'"at": 5.0', b'"at": 6.0'), "not signed"),
        (request_of(terms, node_keys().private.decode(), 5.0, b""), "not signed"),
        (request[:-2], "not signed"),
        (request.partition(b"\n")[0], "not signed"),
        (b"", "malformed"),
        (b"[]\n", "malformed"),
        (b"{" * 4000, "malformed"),
        (request + b" " * 5000, "malformed"),
    ):
        with pytest.raises(BadInput, match=words):
            check_request(false, "run", keys)
    with pytest.raises(BadInput, match="another run"):
        check_request(request, "other", keys)
    assert receipt_of(request) != receipt_of(request + b" ")
    with pytest.raises(BadInput, match="key cannot be read"):
        request_of(terms, "no key", 0.0, b"")


def test_invitations_come_back_and_are_refused_when_damaged(tiny_collection, tmp_path) -> None:
    bundle = bundle_of(simulator_of(tiny_collection, Federation(CLIENTS, 3, privacy=ClippedGaussian(epsilon=50.0))))
    path = Path(tmp_path, "invitation.json")
    bundle.write(path)
    assert path.stat().st_mode & 0o777 == 0o600
    again = Bundle.read(path)
    assert again == bundle
    assert again.terms.setting == bundle.terms.setting
    text = path.read_text()
    for content, words in (
        ("", "not JSON"),
        ("[]", "not an invitation"),
        ("{}", "not an invitation"),
        (text.replace('"version": 1,\n "name"', '"version": 2,\n "name"'), "version 2"),
        (text.replace("localhost:9092", "localhost"), "not an address"),
        (text.replace('"key"', '"kay"'), "something is missing"),
        (text.replace('"rounds": 4', '"rounds": 0'), "rounds: must be at least 1"),
        (text.replace('"rounds": 4', '"rounds": "4"'), "missing or of the wrong kind"),
        (text.replace('"pdgd"', '"pdgt"'), "unknown learner"),
        (text.replace('"identities": {}', '"identities": {"x": "y"}'), "identities are damaged"),
    ):
        path.write_text(content)
        with pytest.raises(BadInput, match=words) as refusal:
            Bundle.read(path)
        assert str(path) in str(refusal.value)
        assert "PRIVATE" not in str(refusal.value)
    with pytest.raises(BadInput, match="cannot be read"):
        Bundle.read(tmp_path / "absent")
