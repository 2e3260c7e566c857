"""The socket of a device: programs of any language share it; whatever they say, they get a code."""

from __future__ import annotations

import json
import socket

import numpy as np
import pytest
from devices import ANY, SEED, coordinator_of, simulator_of, terms_of
from refusals import refused
from small_service import SmallService

from quorank.federation import Federation
from quorank.member import Client, local_socket
from quorank.member.local_socket import SOCKET, LocalSocket, call

pytestmark = pytest.mark.slow
ROWS = np.random.default_rng(1).normal(size=(12, 11)).tolist()


@pytest.fixture
def service(tiny_collection, tmp_path):
    simulator = simulator_of(tiny_collection, Federation(1, 3))
    coordinator = coordinator_of(simulator)
    with SmallService(terms_of(simulator, 0, run=coordinator.run), coordinator).running(tmp_path) as made:
        yield made


@pytest.fixture
def client(service, tmp_path):
    with Client.open(tmp_path / "device", service.invitation(tmp_path / "i.json"), seed=SEED, policy=ANY) as made:
        yield made


class Caller:
    """A program at the other end."""

    def __init__(self, folder) -> None:
        self.connection = socket.socket(socket.AF_UNIX)
        self.connection.settimeout(20)
        self.connection.connect(str(folder / SOCKET))
        self.lines = self.connection.makefile("rb")

    def raw(self, line: bytes):
        self.connection.sendall(line)
        found = self.lines.readline()
        return json.loads(found) if found else None

    def __call__(self, name, **values):
        return self.raw(json.dumps({"v": 1, "id": 7, "call": name, **values}).encode() + b"\n")


def test_all_calls(client, service) -> None:
    woken = []
    with LocalSocket(client, lambda: woken.append(1)):
        path = client.folder / SOCKET
        assert path.stat().st_mode & 0o777 == 0o600
        ask = Caller(client.folder)
        assert ask("sync")["sync"]["outcome"] == "consent"
        for _ in range(3):
            shown = ask("rank", features=ROWS)
            assert shown["ok"] and shown["id"] == 7 and sorted(shown["order"])[0] >= 0 and len(shown["order"]) == 10
            assert ask("record", list=shown["list"], clicks=[True] + [False] * 9, query="q") == {
                "v": 1,
                "id": 7,
                "ok": True,
            }
        assert ask("consent", given=True)["ok"] and woken
        status = ask("status")["status"]
        assert status["waiting"] == 3 and status["consent"] is True
        assert ask("sync")["sync"]["outcome"] == "sent"
        assert ask("sync")["sync"]["outcome"] == "early"
        assert [entry["round"] for entry in ask("log")["log"]["releases"]] == [1]
        assert call(client.folder, "status")["status"]["releases"] == 1
        with refused("clicks.shape"):
            call(client.folder, "record", list=call(client.folder, "rank", features=ROWS)["list"], clicks=[True])
        assert ask("leave")["sync"]["outcome"] == "leaving"
        service.gone.add(0)
        assert ask("leave")["sync"]["outcome"] == "left"
        assert ask("rank", features=ROWS)["code"] == "device.closed"
    assert not path.exists() and call(client.folder, "status") is None


def test_lines_that_are_wrong_get_a_code(client, monkeypatch) -> None:
    monkeypatch.setattr(local_socket, "LONGEST_LINE", 20_000)
    with LocalSocket(client):
        ask = Caller(client.folder)
        for line, code in (
            (b"\n", "socket.malformed"),
            (b"[1]\n", "socket.malformed"),
            (b"\xff\xfe\n", "socket.malformed"),
            (b"[" * 9000 + b"\n", "socket.malformed"),
            (b'{"v": 2, "call": "status"}\n', "socket.version"),
            (b'{"v": 1, "call": "__init__"}\n', "socket.unknown-call"),
            (b'{"v": 1, "call": "close"}\n', "socket.unknown-call"),
            (b'{"v": 1, "call": ["status"]}\n', "socket.unknown-call"),
            (b'{"v": 1, "id": {}, "call": "status"}\n', "socket.malformed"),
            (b'{"v": 1, "call": "rank"}\n', "socket.malformed"),
            (b'{"v": 1, "call": "rank", "features": []}\n', "features.shape"),
            (b'{"v": 1, "call": "rank", "features": [[1, 2], [3]]}\n', "features.shape"),
            (b'{"v": 1, "call": "rank", "features": [[1, NaN]]}\n', "socket.malformed"),
            (b'{"v": 1, "call": "rank", "features": [["x"]]}\n', "socket.malformed"),
            (b'{"v": 1, "call": "rank", "features": [[1e300' + b", 0" * 10 + b"]]}\n", "features.not-finite"),
            (b'{"v": 1, "call": "record", "list": "x", "clicks": []}\n', "list.unknown"),
            (b'{"v": 1, "call": "record", "list": "x", "clicks": [2]}\n', "socket.malformed"),
            (b'{"v": 1, "call": "consent", "given": "yes"}\n', "socket.malformed"),
        ):
            found = ask.raw(line)
            assert (found["ok"], found["code"]) == (False, code), (line[:60], found)
        shown = ask("rank", features=ROWS)
        clicks = [False] * 10
        assert ask("record", list=shown["list"], clicks=clicks)["ok"]
        assert ask("record", list=shown["list"], clicks=clicks)["code"] == "list.unknown"  # once
        assert ask.raw(b"x" * 20_001)["code"] == "socket.too-long"
        assert ask.lines.readline() == b""
        cut = Caller(client.folder)
        cut.connection.sendall(b'{"v": 1, "call": "status"}')
        cut.connection.shutdown(socket.SHUT_WR)
        assert json.loads(cut.lines.readline())["code"] == "socket.too-long"


def test_connections_lists_and_idle_time_are_bounded(client, monkeypatch) -> None:
    monkeypatch.setattr(local_socket, "MOST_CONNECTIONS", 3)
    monkeypatch.setattr(local_socket, "MOST_LISTS", 2)
    monkeypatch.setattr(local_socket, "IDLE_SECONDS", 0.5)
    with LocalSocket(client) as serving:
        callers = [Caller(client.folder) for _ in range(3)]
        names = [callers[0]("rank", features=ROWS)["list"] for _ in range(3)]
        assert callers[0]("record", list=names[0], clicks=[False] * 10)["code"] == "list.unknown"
        assert callers[0]("record", list=names[1], clicks=[False] * 10)["ok"]
        assert json.loads(Caller(client.folder).lines.readline())["code"] == "socket.full"
        assert callers[1].lines.readline() == b""  # it said nothing for too long
        while len(serving.server.open) > 2:
            pass
        assert Caller(client.folder)("status")["ok"]


def test_a_folder_with_a_long_name(service, tmp_path) -> None:
    folder = tmp_path / ("x" * 120) / "device"
    folder.parent.mkdir()
    with Client.open(folder, service.invitation(tmp_path / "i.json"), policy=ANY) as client, LocalSocket(client):
        assert call(folder, "status")["status"]["waiting"] == 0
    assert [path.name for path in folder.parent.iterdir()] == ["device"]
