"""A device's line over Flower: what it says, how it is kept alive, and two devices with real stores on a real network."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from devices import device_of, simulator_of, task_of, terms_of, user_of
from flower_runs import TOKEN, running
from outside import Outside

from quorank import frames
from quorank.certificates import node_keys
from quorank.device.device import Device
from quorank.device.link import take_part
from quorank.device.private_store import PrivateStore
from quorank.device.rehearsal import JoinRehearsal
from quorank.errors import BadInput
from quorank.federation import notices
from quorank.federation.bundle import Bundle
from quorank.federation.coordinator import Coordinator, RoundLimits
from quorank.federation.leaving import receipt_of
from quorank.flower import app as flower_app
from quorank.flower import worker
from quorank.flower.driver import Driver, Own
from quorank.network import flower_device
from quorank.network.flower_device import ENGINE, EXECUTOR, NODE, FlowerLink, connect

KEYS = node_keys()
IDLE = "import time; time.sleep(600)"


def bundle_of(simulator, **more) -> Bundle:
    return Bundle("desk", "localhost:9092", "PEM", KEYS.private.decode(), terms_of(simulator, 0), **more)


@pytest.fixture
def link(tiny_collection, tmp_path) -> FlowerLink:
    """A line without an engine."""
    return FlowerLink(bundle_of(simulator_of(tiny_collection)), tmp_path / ENGINE)


@pytest.fixture
def opened(link, monkeypatch):
    """Opens a line whose engine is two processes that do what a test says."""

    def open_(node: str = IDLE, executor: str = IDLE) -> FlowerLink:
        words = [sys.executable, "-S", "-c"]
        monkeypatch.setattr(flower_app.Commands, "supernode", lambda *_: [*words, node])
        monkeypatch.setattr(flower_app.Commands, "node_executor", lambda *_: [*words, executor])
        monkeypatch.setattr(flower_device, "reachable", lambda address: True)
        link.open()
        return link

    yield open_
    monkeypatch.setattr(flower_device, "LINGER_SECONDS", 0.0)
    link.close()


def until(condition, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_notices_are_answered_by_the_line_itself(link) -> None:
    heard = frames.pack([notices.HEARD])
    assert link.respond(notices.GREETING) == heard
    assert link.respond(notices.OVER) == heard
    assert list(link.tasks()) == []  # all is over
    assert link.pinned is None
    link.close()
    assert link.respond(b"anything") is None


def test_a_request_to_leave_is_the_answer_to_whatever_comes_until_it_is_confirmed(link) -> None:
    request, found = b'{"at": 1}\nsignature', []
    thread = threading.Thread(target=lambda: found.append(link.leave(request)))
    thread.start()
    until(lambda: link._request is not None)
    for content in (notices.GREETING, b"a task", notices.OVER):
        assert link.respond(content) == frames.pack([request])
    assert link.respond(receipt_of(request)) == frames.pack([notices.HEARD])
    thread.join(20)
    assert found == [receipt_of(request)]
    assert link.respond(b"a task") is None  # the line is closed


def test_a_request_that_nobody_confirms(link, monkeypatch) -> None:
    monkeypatch.setattr(flower_device, "LEAVE_SECONDS", 0.1)
    with pytest.raises(BadInput, match="nothing was erased"):
        link.leave(b"{}")


def test_a_task_goes_through_the_socket_to_the_device_and_back(opened, tiny_collection, tmp_path) -> None:
    link, simulator = opened(), simulator_of(tiny_collection)
    device, found = device_of(simulator, tmp_path / "device"), []
    path = str(next(Path(link._sockets.name).iterdir()))
    assert Path(path).stat().st_mode & 0o777 == 0o600

    def engine() -> None:
        found.append(worker.ask(path, task_of(simulator)))
        found.append(worker.ask(path, b"nonsense"))
        found.append(worker.ask(path, notices.OVER))

    thread = threading.Thread(target=engine)
    thread.start()
    assert take_part(device, link, user_of(simulator)) == 1
    thread.join(20)
    release = device.store.release("run", 1).reply
    answer, declined, over = found
    assert answer == [worker.ANSWER_WORD, frames.pack([release])]
    assert declined == [worker.BUSY_WORD]
    assert over == [worker.ANSWER_WORD, frames.pack([notices.HEARD])]


def test_the_key_is_its_owner_s_and_goes_with_the_line(opened) -> None:
    link = opened()
    until(lambda: link._running())
    modes = {path.name: path.stat().st_mode & 0o777 for path in link.folder.iterdir() if path.is_file()}
    assert {modes[name] for name in ("ca.pem", "node.key", "secret")} == {0o600}
    assert link.folder.stat().st_mode & 0o777 == 0o700
    processes = [child.process for child in link.processes.children.values()]
    link.close()
    link.close()
    assert not link.folder.exists()
    assert all(process.poll() is not None for process in processes)


def test_the_engine_is_started_when_somebody_answers_at_the_address(opened, link, monkeypatch) -> None:
    monkeypatch.setattr(flower_device, "PROBE_SECONDS", 0.05)
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    real = flower_device.reachable
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        link.bundle = replace(link.bundle, address=address)
        assert not real(address)
        words = [sys.executable, "-S", "-c", IDLE]
        monkeypatch.setattr(flower_app.Commands, "supernode", lambda *_: words)
        monkeypatch.setattr(flower_app.Commands, "node_executor", lambda *_: words)
        link.open()
        time.sleep(0.5)
        assert not link.processes.children, "neither the node nor its executor"
        listener.listen()
        until(link._running, 5.0)
        monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example.org:3128")
        assert real("127.0.0.1:1"), "only the proxy could tell"


def test_a_folder_by_a_relative_name(tiny_collection, tmp_path, monkeypatch) -> None:
    """The engine's processes work in a folder of their own, so what they are told must not depend on where they are."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "desk").mkdir()
    monkeypatch.setattr(flower_device, "reachable", lambda address: True)
    told = []

    def supernode(commands, key, port):
        told.extend([key, commands.certificate, commands.secret])
        program = f"import os, sys, time; os.path.isfile({str(key)!r}) or sys.exit(9); time.sleep(600)"
        return [sys.executable, "-S", "-c", program]

    monkeypatch.setattr(flower_app.Commands, "supernode", supernode)
    monkeypatch.setattr(flower_app.Commands, "node_executor", lambda *_: [sys.executable, "-S", "-c", IDLE])
    monkeypatch.setattr(flower_app, "check_installed", lambda: None)
    link = flower_device.connect(bundle_of(simulator_of(tiny_collection)), Path("desk"))
    try:
        until(link._running)
        assert all(path.is_absolute() and path.is_file() for path in told)
        monkeypatch.chdir("/")
        assert all(path.is_file() for path in told)
    finally:
        monkeypatch.setattr(flower_device, "LINGER_SECONDS", 0.0)
        link.close()
    assert not (tmp_path / "desk" / ENGINE).exists()


def test_a_long_log_begins_anew_once_nothing_is_being_sent(opened, monkeypatch) -> None:
    monkeypatch.setattr(flower_device, "LONGEST_LOG", 1000)
    link = opened()
    until(link._running)
    log = link.folder / "node.log"
    with log.open("ab") as stream:
        stream.write(2000 * b"x" + b"Received successfully")
    time.sleep(0.8)
    assert log.stat().st_size > 2000, "an answer is on its way"
    with log.open("ab") as stream:
        stream.write(b"Sent successfully")
    until(lambda: log.stat().st_size == 0)


def test_whatever_ends_is_started_again_and_waits_longer_each_time(opened, monkeypatch) -> None:
    monkeypatch.setattr(flower_device, "SHORTEST_WAIT", 0.05)
    monkeypatch.setattr(flower_device, "LONGEST_WAIT", 0.15)
    monkeypatch.setattr(flower_device, "LOOK_SECONDS", 0.01)
    link = opened(executor="")
    until(lambda: link._running() or link._waits.get(EXECUTOR, 0.0) == 0.15)
    until(lambda: link._waits.get(EXECUTOR, 0.0) == 0.15)
    first = link.processes.children[NODE].process
    first.kill()
    until(lambda: link.processes.children[NODE].process is not first)
    assert link._fault is None


def test_a_node_that_is_refused_again_and_again_gives_up_with_a_sentence(opened, monkeypatch) -> None:
    monkeypatch.setattr(flower_device, "SHORTEST_WAIT", 0.01)
    monkeypatch.setattr(flower_device, "REFUSED_SECONDS", 0.3)
    monkeypatch.setattr(flower_device, "LOOK_SECONDS", 0.01)
    link = opened("print('Exit Code: 305', flush=True); raise SystemExit(1)")
    with pytest.raises(BadInput, match="does not let this device in") as refusal:
        list(link.tasks())
    assert "ask for a new invitation" in str(refusal.value)
    with pytest.raises(BadInput, match="does not let this device in"):
        link.leave(b"{}")


def test_a_node_that_only_cannot_reach_anyone_goes_on(opened, monkeypatch) -> None:
    monkeypatch.setattr(flower_device, "SHORTEST_WAIT", 0.01)
    monkeypatch.setattr(flower_device, "LONGEST_WAIT", 0.02)
    monkeypatch.setattr(flower_device, "REFUSED_SECONDS", 0.1)
    monkeypatch.setattr(flower_device, "LOOK_SECONDS", 0.01)
    link = opened("raise SystemExit(1)")
    seen = set()
    until(lambda: seen.add(child := link.processes.children.get(NODE)) or child is None or len(seen) > 5)
    until(lambda: seen.add(link.processes.children.get(NODE)) or len(seen) > 5)
    assert link._fault is None


def test_closing_waits_until_the_answer_is_sent(opened) -> None:
    received = "print('Received successfully', flush=True); import time; time.sleep(4)"
    link = opened(f"{received}; print('Sent successfully', flush=True); {IDLE}")
    until(link._unsettled)
    began = time.monotonic()
    link.close()
    assert 1.0 < time.monotonic() - began < 15.0


def test_a_node_that_waits_for_what_does_not_come_is_started_again(opened, monkeypatch) -> None:
    monkeypatch.setattr(flower_device, "STUCK_SECONDS", 0.3)
    monkeypatch.setattr(flower_device, "SHORTEST_WAIT", 0.01)
    monkeypatch.setattr(flower_device, "LOOK_SECONDS", 0.02)
    link = opened(f"print('Received successfully', flush=True); {IDLE}")
    until(lambda: NODE in link.processes.children)
    first = link.processes.children[NODE]
    until(lambda: link.processes.children.get(NODE) not in (None, first))
    assert not first.running


# on a real network

FILE = """\
[data]
source = "synthetic:mq2007"
[federation]
clients = 2
interactions = 3
rounds = 2
"""
HARD = 200.0  # seconds; 83 were taken on two cores with a load of 14


def test_two_devices_one_is_restarted_and_nothing_is_lost_or_counted_twice(tmp_path, monkeypatch) -> None:
    """Device 0 is a thread of this process, device 1 a process that is ended once its first release is stored."""
    pytest.importorskip("flwr", reason="needs quorank[network]")
    token = uuid.uuid4().hex
    monkeypatch.setenv(TOKEN, token)
    file, home = tmp_path / "small.toml", tmp_path / "coordinator"
    file.write_text(FILE)
    home.mkdir()
    rehearsals = [JoinRehearsal(file, client) for client in range(2)]
    simulator = rehearsals[0].simulator

    def made() -> Coordinator:
        return Coordinator(
            simulator.federation, simulator.mechanism, simulator.initial(), 2, "run", 1, RoundLimits(), home
        )

    def joined(bundle: Path) -> subprocess.Popen[bytes]:
        words = ["join", "--data", str(tmp_path / "1"), "--bundle", str(bundle), "--consent", "on"]
        words += ["--simulate", str(file), "--client", "1"]
        root = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
        with (tmp_path / "1.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "quorank.cli.main", *words],
                env={**os.environ, "PYTHONPATH": root},
                stderr=log,
                stdout=log,
                cwd=tmp_path,
            )

    begun, restarted = time.monotonic(), False
    with Outside(2) as network, PrivateStore(tmp_path / "0") as store:
        invitations = [
            network.invitation(name, replace(rehearsals[client].terms, run="run"))
            for client, name in enumerate(network.names)
        ]
        invitations[1].write(tmp_path / "1.json")
        process = joined(tmp_path / "1.json")
        with store.transaction():
            store.set_consent(True, 0.0)
        link = connect(invitations[0], tmp_path / "0")
        device = Device(store, invitations[0].terms, seed=rehearsals[0].experiment.seed)
        thread = threading.Thread(target=take_part, args=(device, link, rehearsals[0].user))
        thread.start()

        def tend() -> None:
            nonlocal process, restarted
            network.tend()
            said = (tmp_path / "1.log").read_text()
            assert time.monotonic() - begun < HARD, said
            if not restarted and "sent" in said:
                restarted = True
                process.send_signal(signal.SIGINT)
                assert process.wait(60) == 130
                process = joined(tmp_path / "1.json")

        try:
            for round_ in range(2):
                coordinator = made()  # it starts again too
                assert coordinator.state.round == round_
                names = Own(dict(enumerate(network.names)))
                Driver(network.transport, names, tend=tend, pause=1.0, patience=20.0).round(coordinator)
        finally:
            process.send_signal(signal.SIGINT)
            link.close()
            thread.join(60)
            process.wait(60)
        assert process.returncode == 130
    assert restarted
    assert running(token) == []
    state = simulator.initial()
    for _ in range(2):
        state, _ = simulator.federation.round(state, simulator.gather(state))
    assert coordinator.state.theta.tobytes() == state.theta.tobytes()
    assert [report.participants for report in coordinator.reports] == [2, 2]
    assert coordinator.refused == {}
    for client in range(2):
        folder = tmp_path / str(client)
        assert not (folder / ENGINE).exists()
        with PrivateStore(folder) as store:
            assert [release.round for release in store.releases()] == [1, 2]
            assert store.waiting() == 0
            assert store.file.rows("SELECT count(*) FROM interactions") == [(2 * 3,)]


def test_without_flower_there_is_a_sentence(tiny_collection, tmp_path, monkeypatch) -> None:
    import importlib.metadata

    def absent(_: str) -> str:
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(importlib.metadata, "version", absent)
    with pytest.raises(BadInput, match=r"install quorank\[network\]"):
        connect(bundle_of(simulator_of(tiny_collection)), tmp_path)
    assert json.dumps([path.name for path in tmp_path.iterdir()]) == "[]"
