"""Secure rounds over a transport: the in-process bytes where all stay, and an honest end where too many leave."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from devices import (
    CLIENTS,
    Answering,
    ListedMembers,
    MemoryStorage,
    Ticks,
    coordinator_of,
    device_of,
    simulator_of,
    user_of,
)
from memory_transport import MemoryTransport

from quorank.engines.driver import ANSWER_SECONDS, Driver, several, single
from quorank.engines.engine import SharedNodes
from quorank.engines.simulated_clients import SimulatedClients
from quorank.errors import BadInput, Interrupted
from quorank.federation import Federation, Sampled
from quorank.federation.coordinator import Coordinator, RoundLimits
from quorank.federation.rules import Median
from quorank.member.private_store import PrivateStore
from quorank.privacy import ClippedGaussian, SecureSum
from quorank.protocol import frames
from quorank.protocol.messages import Declined
from quorank.protocol.secure_round import AGREEMENT, KEYS, MASKED, SHARES, UNMASKING, open_envelope
from quorank.protocol.transport import BUSY, FAILED, Failure, MemberNodes

NAMES = ("node-0", "node-1", "node-2")
PRIVACIES = {
    "no noise": SecureSum(clip=0.05),
    "noise": ClippedGaussian(epsilon=500.0, clip=0.05, sum="secure", noise_multiplier=0.5),
}


def driver_of(network, assignment, **options) -> Driver:
    ticks = Ticks()
    options.setdefault("patience", 3.0)
    return Driver(network, assignment, clock=ticks, sleep=ticks.sleep, **options)


def in_process(simulator):
    """All that a round leaves: parameters and reports."""
    coordinator = coordinator_of(simulator)
    while not coordinator.done:
        coordinator.close(simulator.gather(coordinator.state))
    return coordinator.state.theta.tobytes(), coordinator.reports


def answering(simulator, tmp_path):
    clients = SimulatedClients(simulator)

    def answer(node: str, content: bytes) -> bytes | Failure:
        try:
            return clients.respond(content)
        except BadInput:
            return Failure(FAILED)

    return answer


@pytest.mark.parametrize("bad", [False, True], ids=["good network", "bad network"])
@pytest.mark.parametrize("sampled", [False, True], ids=["all", "sampled"])
@pytest.mark.parametrize("privacy", [*PRIVACIES, "groups"])
def test_simulated_nodes_come_to_the_in_process_bytes(privacy, sampled, bad, tiny_collection, tmp_path) -> None:
    """Also sums in groups under a rule over their means."""
    more = {"participation": Sampled(7)} if sampled else {}
    if privacy == "groups":
        groups = replace(PRIVACIES["noise"], groups=3)
        federation = Federation(9, 3, privacy=groups, aggregation=Median(), **more)
    else:
        federation = Federation(8, 3, privacy=PRIVACIES[privacy], **more)
    simulator = simulator_of(tiny_collection, federation)
    trouble = {"loss": 0.2, "duplicates": 0.3, "delay": 2} if bad else {}
    network = MemoryTransport(answering(simulator, tmp_path), NAMES, **trouble)
    coordinator = coordinator_of(simulator)
    driver = driver_of(network, SharedNodes(NAMES), strikes=50)
    while not coordinator.done:
        driver.round(coordinator)
    theta, reports = in_process(simulator_of(tiny_collection, federation))
    assert coordinator.state.theta.tobytes() == theta
    assert coordinator.reports == reports
    assert reports[0].online_ndcg > 0.0


def test_a_sum_beyond_the_bound_is_dropped_and_counted(tiny_collection, tmp_path) -> None:
    simulator = simulator_of(tiny_collection, Federation(6, 3, privacy=PRIVACIES["noise"]))
    honest = simulator.replies

    def replies(*given):
        found = honest(*given)
        lie = np.full(len(given[0].theta), 2.0**30)
        return [replace(reply, release=lie) if reply.client == 2 else reply for reply in found]

    simulator.replies = replies
    coordinator = coordinator_of(simulator)
    before = coordinator.state.theta.tobytes()
    report = driver_of(MemoryTransport(answering(simulator, tmp_path), NAMES), SharedNodes(NAMES)).round(coordinator)
    assert coordinator.state.theta.tobytes() == before and report.update_norm == 0.0
    assert coordinator.refused == {"secure-sum.out-of-bounds": 1}
    assert report.participants == 6 and report.noise > 0.0  # it was opened, so it counts as a release


def test_a_node_s_clients_are_played_by_others_and_a_worker_that_was_killed_begins_again(
    tiny_collection, tmp_path
) -> None:
    """Keys are in a worker's memory: when it dies in the middle of a round, all exchanges are done again."""
    simulator = simulator_of(tiny_collection, Federation(6, 3, privacy=PRIVACIES["noise"]))
    workers = [answering(simulator, tmp_path)]
    died, asked = [], []

    def answer(node: str, content: bytes) -> bytes | Failure:
        phase = open_envelope(single(content)[0][1])[0]
        asked.append((node, phase))
        if phase == MASKED and not died:
            died.append(node)
            workers.append(answering(simulator, tmp_path))
            network.leave("node-1")
        return workers[-1](node, content)

    network = MemoryTransport(answer, NAMES)
    coordinator = coordinator_of(simulator)
    driver = driver_of(network, SharedNodes(NAMES))
    while not coordinator.done:
        driver.round(coordinator)
    assert died
    first = asked.index(("node-0", MASKED))
    assert ("node-0", KEYS) in asked[first:]
    assert all(node != "node-1" for node, _ in asked[first + 3 :])
    assert coordinator.state.theta.tobytes() == in_process(simulator)[0]


def devices_of(simulator, tmp_path):
    clients = range(simulator.federation.clients)
    listed = ListedMembers()
    return {c: Answering(device_of(simulator, tmp_path / str(c), c), listed) for c in clients}


def respond(answering_, simulator, client: int, content: bytes) -> bytes | Failure:
    """A device whose user searches when it is asked."""
    answer = answering_.answer(content)
    while answer == Declined("waiting"):
        user_of(simulator, client)(answering_.device)
        answer = answering_.answer(content)
    return Failure(BUSY) if isinstance(answer, Declined) else frames.pack([answer])


def devices_network(simulator, devices, gone=None):
    """`gone` says from which (round, phase) on a device is heard of no more."""
    gone, rounds, seen = gone or {}, dict.fromkeys(devices, -1), []

    def answer(name: str, content: bytes) -> bytes | Failure:
        client, (phase, _) = int(name), open_envelope(content)
        rounds[client] += phase == KEYS and (client, rounds[client], phase) != tuple(seen[-1:])
        seen.append((client, rounds[client], phase))
        if (rounds[client], phase) >= gone.get(client, (99, 99)):
            network.leave(name)
            return Failure(FAILED)
        return respond(devices[client], simulator, client, content)

    network = MemoryTransport(answer, [str(c) for c in devices])
    return network


def test_devices_in_secure_rounds(tiny_collection, tmp_path) -> None:
    """The sum is that of the devices' own numbers: without noise that of the simulator, up to the rounding of each."""
    federation = Federation(CLIENTS, 3, privacy=PRIVACIES["no noise"])
    simulator = simulator_of(tiny_collection, federation)
    devices = devices_of(simulator, tmp_path)
    coordinator = coordinator_of(simulator)
    driver = driver_of(devices_network(simulator, devices), MemberNodes(), members=devices[0].listed.head)
    state = simulator.initial()
    report = driver.round(coordinator)
    _, expected = federation.round(state, simulator.gather(state))
    theta = federation.round(state, simulator.gather(state))[0].theta
    assert np.abs(coordinator.state.theta - theta).max() <= 1.0 / simulator.mechanism.unit_of({})  # mean of roundings
    assert (report.participants, report.interactions) == (CLIENTS, CLIENTS * 3)
    assert (report.online_ndcg, report.clicks) == (0.0, 0.0)  # devices tell nothing of their users
    assert report.noise == expected.noise == 0.0
    assert driver.round(coordinator).participants == CLIENTS
    for answering_ in devices.values():
        store: PrivateStore = answering_.device.store
        assert [release.round for release in store.releases()] == [1, 2]
    assert coordinator.refused == {}


@pytest.mark.parametrize("phase", [SHARES, MASKED, AGREEMENT, UNMASKING])
def test_a_device_that_leaves_is_left_out_after_the_deadline(phase, tiny_collection, tmp_path) -> None:
    federation = Federation(8, 3, privacy=SecureSum(clip=0.05, dropouts=0.3))
    simulator = simulator_of(tiny_collection, federation)
    devices = devices_of(simulator, tmp_path)
    coordinator = coordinator_of(simulator)
    driver = driver_of(
        devices_network(simulator, devices, {3: (0, phase)}), MemberNodes(), members=devices[0].listed.head
    )
    report = driver.round(coordinator)
    assert report.participants == (8 if phase > MASKED else 7)
    assert driver.clock() >= ANSWER_SECONDS
    assert coordinator.state.round == 1


def test_too_few_are_no_sum_and_the_ranker_stays(tiny_collection, tmp_path) -> None:
    simulator = simulator_of(tiny_collection, Federation(8, 3, privacy=SecureSum(clip=0.05, dropouts=0.3)))
    devices = devices_of(simulator, tmp_path)
    coordinator = coordinator_of(simulator)
    gone = dict.fromkeys(range(4), (0, MASKED))
    driver = driver_of(devices_network(simulator, devices, gone), MemberNodes(), members=devices[0].listed.head)
    before = coordinator.state.theta.tobytes()
    report = driver.round(coordinator)
    assert (report.participants, report.sensitivity, report.update_norm) == (0, 0.0, 0.0)
    assert coordinator.state.theta.tobytes() == before
    assert coordinator.state.round == 1


def test_the_first_exchange_waits_for_people_and_ends_by_the_rules(tiny_collection, tmp_path) -> None:
    """Devices 6 and 7 never have anything to give; two thirds are enough after the deadline, and `least` is always."""
    federation = Federation(8, 3, privacy=SecureSum(clip=0.05, dropouts=0.3))
    simulator = simulator_of(tiny_collection, federation)
    devices, idle = devices_of(simulator, tmp_path), {6, 7}

    def answer(name: str, content: bytes) -> bytes | Failure:
        client = int(name)
        return Failure(BUSY) if client in idle else respond(devices[client], simulator, client, content)

    network = MemoryTransport(answer, [str(c) for c in devices])
    coordinator = coordinator_of(simulator, limits=RoundLimits(deadline=60.0))
    driver = driver_of(network, MemberNodes(), members=devices[0].listed.head)
    assert driver.round(coordinator).participants == 6
    assert 60.0 <= driver.clock() < 70.0
    idle.update({4, 5})  # four of eight are fewer than a sum is made of: the deadline is passed, and nothing happens
    coordinator.clock = driver.clock
    end = driver.clock() + 600.0
    driver.stop = lambda: driver.clock() > end
    with pytest.raises(Interrupted):
        driver.round(coordinator)
    assert coordinator.state.round == 1


def test_a_round_that_was_begun_before_a_kill_is_given_up(tiny_collection, tmp_path) -> None:
    """Its devices would refuse to begin it again, since each takes part in a round once."""
    simulator = simulator_of(tiny_collection, Federation(CLIENTS, 3, privacy=PRIVACIES["no noise"]))
    devices = devices_of(simulator, tmp_path / "devices")
    storage = MemoryStorage()

    def made() -> Coordinator:
        return coordinator_of(simulator, storage=storage, clock=Ticks())

    asked = []

    def shot() -> bool:
        asked.append(1)
        return len(asked) > 3

    network = devices_network(simulator, devices)
    with pytest.raises(Interrupted):  # in place of the kill: nothing was written since the round began
        driver_of(network, MemberNodes(), stop=shot).round(made())
    assert storage.begun == 0
    coordinator = made()
    driver = driver_of(network, MemberNodes(), members=devices[0].listed.head)
    assert driver.round(coordinator).participants == 0
    assert driver.round(coordinator).participants == CLIENTS


def test_bundles_of_messages() -> None:
    assert single(several({3: b"ab", 5: b"c"})) == [(3, b"ab"), (5, b"c")]
    for damaged in (b"", b"QSCB", b"QSCB" + frames.pack([b"abcd"]), several({3: b"ab"})[:-1]):
        with pytest.raises(BadInput):
            single(damaged)
