"""The load generator: its devices misbehave as often as told, and the coordinator comes to the right mean all the same."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from quorank import frames
from quorank.errors import BadInput
from quorank.federation import wire
from quorank.network.light_devices import Devices, DeviceTraffic
from quorank.network.load import coordinator_load, coordinator_of, driver_load, peak, resident

SMALL = DeviceTraffic(300, 12, 2, drop=0.05, twice=0.1, garbage=0.1, delay=3, enough=0.7, seed=3)


def task_of(traffic: DeviceTraffic, round_: int = 0) -> wire.Task:
    return wire.Task("run", round_, np.zeros(traffic.parameters))


def test_a_device_answers_a_task_always_in_the_same_way() -> None:
    first, second = Devices(SMALL), Devices(SMALL)
    sent = [first.reply(task_of(SMALL), client) for client in range(50)]
    assert sent == [second.reply(task_of(SMALL), client) for client in range(50)]
    assert sent != [first.reply(task_of(SMALL, 1), client) for client in range(50)]
    task = wire.Task("run", 0, np.zeros(12), {}, (4, 7))
    assert frames.unpack(first.answer("node-4", wire.encode_task(task))) == [sent[4], sent[7]]
    assert frames.unpack(first.answer("node-9", wire.encode_task(task_of(SMALL)))) == [sent[9]]


def test_the_mean_is_that_of_the_honest_and_the_rest_is_refused(tmp_path) -> None:
    coordinator, devices = coordinator_of(SMALL, tmp_path), Devices(SMALL)
    sent = [devices.reply(coordinator.plan(), client) for client in range(SMALL.devices)]
    verdicts = coordinator.receive_many(sent)
    honest = [verdict.accepted for verdict in verdicts]
    refused = SMALL.devices - sum(honest)
    spread = 4 * np.sqrt(SMALL.devices * 0.1 * 0.9)
    assert abs(refused - 0.1 * SMALL.devices) < spread
    assert len(coordinator.refused) == 4  # cut off, wrong shape, not a number, too long
    releases = [wire.decode_reply(content).release for content, good in zip(sent, honest, strict=True) if good]
    coordinator.advance()
    np.testing.assert_allclose(coordinator.state.theta, np.mean(releases, axis=0), atol=1e-14)


def test_every_reply_is_accepted_or_refused(tmp_path) -> None:
    found = coordinator_load(SMALL, tmp_path, together=64)
    assert found["accepted"] + sum(found["refused"].values()) == SMALL.devices * SMALL.rounds
    assert found["rounds_per_hour"] == pytest.approx(3600.0 / found["seconds_per_round"])
    record = 8 * (SMALL.parameters + 3) + 20  # numbers, and the journal's own
    assert found["journal_bytes"] > record * found["accepted"] / SMALL.rounds
    assert set(found["microseconds_per_reply"]) == {"check", "journal", "sum"}


def test_rounds_end_over_a_bad_network_and_what_came_twice_counts_once(tmp_path) -> None:
    found = driver_load(SMALL, tmp_path)
    assert SMALL.rounds * 0.7 * SMALL.devices <= found["accepted"] <= SMALL.rounds * SMALL.devices
    assert found["refused"]["reply.replayed"] > 0
    stages = found["seconds_by_stage"]
    assert found["gives_way_first"] in stages
    assert sum(stages.values()) == pytest.approx(found["seconds_per_round"] * SMALL.rounds, rel=1e-6)
    task, reply = len(wire.encode_task(wire.Task("run", 0, np.zeros(12), {}))), 8 * 15
    assert found["bytes_to_device"] >= 0.95 * task
    assert 0.7 * reply < found["bytes_from_device"] < 4 * (reply + 120)


def test_it_runs_alone_and_prints_json() -> None:
    command = [
        sys.executable,
        "-m",
        "quorank.network.load",
        "coordinator",
        '{"devices": 50, "rounds": 1, "together": 5}',
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    found = json.loads(done.stdout)
    assert (found["devices"], found["together"]) == (50, 5)


def test_memory_of_a_process_that_is_there_or_not() -> None:
    if sys.platform == "linux":
        assert 0 < resident() <= peak()
    assert resident(2**30) == 0


@pytest.mark.parametrize(
    "changes", [{"devices": 0}, {"drop": 0.6}, {"garbage": -0.1}, {"delay": -1}, {"enough": 0.99}, {"rounds": 0}]
)
def test_impossible_traffic_is_refused(changes) -> None:
    with pytest.raises(BadInput, match=next(iter(changes))):
        DeviceTraffic(**changes)


def test_light_devices_on_a_real_superlink() -> None:
    nodes = 3
    pytest.importorskip("flwr", reason="flwr is not installed")
    from quorank.network import flower_load

    traffic = DeviceTraffic(nodes, 12, 2, drop=0.0, twice=0.0, garbage=0.0, delay=0, enough=1.0)
    found = flower_load.superlink_load(traffic, seconds=120.0, idle=0.5)
    assert found["fault"] == ""
    assert (found["rounds_done"], found["accepted"]) == (2, 2 * nodes)
    assert not found["refused"]
    assert found["superlink_memory_bytes"] > 0
