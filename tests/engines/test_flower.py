"""The Flower engine without Flower's processes: its two apps, its transport, and processes that end with the run."""

from __future__ import annotations

import importlib.metadata
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from multiprocessing.connection import Client
from pathlib import Path

import pytest
from real_services import is_alive, until

pytest.importorskip("flwr", reason="needs quorank[flower]")

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from quorank.engines import flower_apps
from quorank.engines.flower import NODE, SOCKET, FlowerNetwork, FlowerTransport, NetworkDown, flower, free_ports
from quorank.errors import BadInput
from quorank.protocol.transport import FAILED, Arrival, Failure


def test_the_package_must_be_there_and_of_a_known_version(monkeypatch) -> None:
    def absent(_):
        raise importlib.metadata.PackageNotFoundError

    for nodes in (0, 101):
        with pytest.raises(BadInput, match="--nodes: must be at least 1 and at most 100"):
            flower(nodes)
    monkeypatch.setattr(importlib.metadata, "version", absent)
    with pytest.raises(BadInput, match=r"not installed; install quorank\[flower\]"):
        flower(2)
    for version in ("1.40.2", "1.43.0", "2.0"):
        monkeypatch.setattr(importlib.metadata, "version", lambda _, v=version: v)
        with pytest.raises(BadInput, match=r"works with flwr>=1\.41,<1\.43"):
            flower(2)


def answered(task: bytes) -> bytes:
    if task == b"bad":
        raise OSError(2, "No such file", "/somewhere/secret query.txt")
    return task.upper()


@pytest.fixture
def transport() -> Iterator[FlowerTransport]:
    with tempfile.TemporaryDirectory() as folder:
        transport = FlowerTransport(Path(folder) / "run.sock", answered, lambda name: name != "dead")
        yield transport
        transport.close()


def task(content: object = b"task") -> Message:
    message = Message(RecordDict({"quorank": ConfigRecord({"content": content})}), 7, "query")
    message.metadata.__dict__["_message_id"] = "m"
    return message


class NodeContext:
    node_id = 7


def test_a_client_app_returns_the_run_s_answer_and_no_text_of_an_error(transport, monkeypatch, caplog) -> None:
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 7, 3  # Flower names messages by them
    nowhere = Message(RecordDict(), 7, "query")
    nowhere.metadata.__dict__["_message_id"] = "m"

    def content_of(message: Message) -> bytes:
        reply = flower_apps.answer_task(message, NodeContext())
        assert not reply.has_error() and list(reply.content["quorank"]) == ["content"]
        found: bytes = reply.content["quorank"]["content"]
        return found

    monkeypatch.delenv(SOCKET, raising=False)
    assert content_of(task()) == b""
    monkeypatch.setenv(SOCKET, str(transport.path))
    monkeypatch.setenv(NODE, "node-3")
    assert content_of(task()) == b"TASK"
    assert content_of(task(b"bad")) == b"" and "secret query" in caplog.text  # the log of the run's process
    assert [content_of(wrong) for wrong in (task("text"), task([1, 2]), nowhere)] == [b"", b"", b""]


def test_messages_go_to_nodes_and_answers_come_back_once(transport) -> None:
    assert not transport.connected and transport.nodes() == []

    def report(nodes, *answers) -> tuple[list[Arrival], tuple[list[tuple[str, int, bytes]], set[str]]]:
        app.send((nodes, list(answers)))
        arrived: list[Arrival] = []
        until(lambda: arrived.extend(transport.pull()) or app.poll())
        return arrived, app.recv()

    with Client(str(transport.path)) as app:
        app.send(None)
        until(lambda: transport.pull() == [] and transport.connected)
        assert report([22, 99]) == ([], ([], set()))
        assert transport.nodes() == ["22", "99"]
        first, second = transport.push([("22", b"one"), ("99", b"two")])
        assert report([22, 99])[1] == ([(first, 22, b"one"), (second, 99, b"two")], set())
        assert report([22], (second, b"reply"), (first, b""))[0] == [
            Arrival(second, "99", b"reply"),
            Arrival(first, "22", Failure(FAILED)),
        ]
        assert report([22], (second, b"again"))[0] == []
        (third,) = transport.push([("22", b"three")])
        transport.forget([third])
        transport.forget([third])
        assert report([22])[1] == ([(third, 22, b"three")], {third})
        assert report([22], (third, b"late"))[0] == []
        with Client(str(transport.path)) as node:  # a task tells which processes a node has
            node.send(("dead", 22, b""))
            assert node.recv_bytes() == b""
        assert transport.nodes() == []
    until(lambda: transport.pull() == [] and not transport.connected)


PARENT = """
import os, sys, time
from pathlib import Path
from quorank.engines.flower import ProcessGroup
group = ProcessGroup(Path(sys.argv[1]))
grandchild = "import subprocess, sys; p = subprocess.Popen(['sleep', '600']); print(p.pid, flush=True); p.wait()"
group.start("one", [sys.executable, "-c", grandchild], dict(os.environ))
group.start("two", ["sleep", "600"], dict(os.environ))
print(*(child.pid for child in group.children.values()), flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_children_and_grandchildren_end_with_their_parent(number, tmp_path) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(folder)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert parent.stdout is not None
    children = [int(word) for word in parent.stdout.readline().split()]
    log = folder / "one.log"
    until(lambda: log.exists() and log.read_text().strip() != "")
    family = [*children, int(log.read_text())]
    assert len(family) == 3 and all(map(is_alive, family))
    parent.send_signal(number)
    parent.communicate(timeout=20)
    until(lambda: not any(map(is_alive, family)) and not folder.exists())


def test_a_network_goes_on_without_a_node_and_not_without_its_single_parts(tmp_path) -> None:
    with FlowerNetwork(2, answered) as network:

        def end(name: str) -> None:
            network.processes.children[name].kill()
            network.processes.children[name].wait()

        def start(name: str) -> None:
            code = f"import time; print({name!r}, 'says this', flush=True); time.sleep(600)"
            network.processes.start(name, [sys.executable, "-c", code], dict(os.environ))
            until(lambda: network.processes.last_line(name) == f"{name} says this")

        for name in ("superlink", "executor", "node-0", "node-0-executor", "node-1", "node-1-executor"):
            start(name)
        with pytest.raises(NetworkDown, match="ServerApp ended"):
            network.check()
        with Client(str(network.transport.path)) as app:
            app.send(None)
            until(lambda: network.transport.connected)
            end("node-0-executor")
            network.check()
            assert not network.is_alive("node-0") and network.is_alive("node-1")
            end("executor")
            with pytest.raises(NetworkDown, match="executor ended; its last message: executor says this"):
                network.check()
            start("executor")
            end("node-1")
            with pytest.raises(NetworkDown, match="no node is left"):
                network.check()
        family = [child.pid for child in network.processes.children.values()]
    until(lambda: not any(map(is_alive, family)))
    assert not network.folder.exists()


def test_ports_are_free_and_differ() -> None:
    ports = free_ports(5)
    assert len(set(ports)) == 5
    for port in ports:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
