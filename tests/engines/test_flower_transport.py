"""The coordinator's end of the socket to Flower's ServerApp, with the app's end played by the test."""

from __future__ import annotations

import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorank.flower.transport import FlowerTransport
from quorank.protocol import frames
from quorank.protocol.transport import FAILED, Arrival, Failure


@pytest.fixture
def transport() -> Iterator[FlowerTransport]:
    with tempfile.TemporaryDirectory() as folder:
        transport = FlowerTransport(Path(folder) / "c.sock", {"a": 11, "b": 22})
        yield transport
        transport.close()


def connect(transport: FlowerTransport) -> socket.socket:
    app = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    app.connect(str(transport.path))
    app.settimeout(10)
    assert transport.pull() == [] and transport.connected
    return app


def exchange(
    transport: FlowerTransport, app: socket.socket, nodes: bytes = b"", *answers: tuple[bytes, bytes]
) -> tuple[list[Arrival], list[list[bytes]]]:
    """Report, as the app does: what arrives at the coordinator, and the orders that it gives."""
    frames.send(app, [nodes, *map(frames.pack, answers)])
    arrived = transport.pull()
    return arrived, [frames.unpack(order) for order in frames.receive(app)]


def test_messages_go_by_number_and_come_back_by_name(transport) -> None:
    assert not transport.connected and transport.nodes() == []
    with connect(transport) as app:
        assert exchange(transport, app, b"22 99") == ([], [])
        assert transport.nodes() == ["b"]
        exchange(transport, app, b"22 11")
        assert sorted(transport.nodes()) == ["a", "b"]
        first, second = transport.push("a", b"one"), transport.push("b", b"two")
        orders = [[first.encode(), b"11", b"one"], [second.encode(), b"22", b"two"]]
        assert exchange(transport, app, b"22 11") == ([], orders)
        assert transport.pull() == []
        arrived, orders = exchange(transport, app, b"", (second.encode(), b"reply"), (first.encode(), b""))
        assert arrived == [Arrival(second, "b", b"reply"), Arrival(first, "a", Failure(FAILED))] and orders == []
        assert exchange(transport, app, b"", (second.encode(), b"again")) == ([], [])  # it was answered
        third = transport.push("a", b"three")
        transport.forget(third)
        transport.forget(third)
        assert exchange(transport, app)[1] == [[third.encode(), b"11", b"three"], [third.encode(), b"", b""]]
        assert exchange(transport, app, b"", (third.encode(), b"late")) == ([], [])


def test_an_app_that_ends_takes_the_nodes_with_it_and_none_takes_its_place(transport) -> None:
    with connect(transport) as app:
        exchange(transport, app, b"11")
        transport.push("a", b"task")
        assert transport.nodes() == ["a"]
        with pytest.raises(ConnectionRefusedError):
            connect(transport)
    assert transport.pull() == [] and not transport.connected and transport.nodes() == []
    with pytest.raises(ConnectionRefusedError):
        connect(transport)
    assert transport.pull() == []


@pytest.mark.parametrize("report", [[], [b"eleven"], [b"11", b"no bundle"], [b"11", frames.pack([b"1"])]])
def test_nonsense_from_the_app_ends_it(report, transport) -> None:
    with connect(transport) as app:
        frames.send(app, report)
        assert transport.pull() == [] and not transport.connected and transport.nodes() == []


def test_what_this_machine_knows_of_a_node_counts(transport) -> None:
    dead: set[str] = set()
    transport.alive = lambda name: name not in dead
    with connect(transport) as app:
        exchange(transport, app, b"11 22")
        assert len(transport.nodes()) == 2
        dead.add("a")
        assert transport.nodes() == ["b"]


def test_an_app_that_is_busy_with_flower_holds_nobody_up(transport) -> None:
    content = bytes(8_000_000)
    with connect(transport) as app:
        started = time.monotonic()
        message = transport.push("a", content)
        assert transport.pull() == []
        assert time.monotonic() - started < 2.0
        received: list[list[bytes]] = []

        def report() -> None:
            frames.send(app, [b"11"])
            received.extend(frames.unpack(order) for order in frames.receive(app))

        reader = threading.Thread(target=report)
        reader.start()
        while reader.is_alive():
            transport.pull()
        assert received == [[message.encode(), b"11", content]]
