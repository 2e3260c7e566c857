"""The coordinator's end of the socket to Flower's ServerApp, with the app's end played by the test."""

from __future__ import annotations

import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorank import frames
from quorank.federation.drivers.transport import BUSY, FAILED, LOST, Arrival, Failure
from quorank.flower.transport import FlowerTransport


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
    assert transport.connected
    return app


def answer(*parts: bytes) -> bytes:
    return frames.pack(parts)


def test_messages_go_by_number_and_come_back_by_name(transport) -> None:
    assert not transport.connected and transport.nodes() == []
    with connect(transport) as app:
        frames.send(app, [b"nodes", b"22", b"99"])
        assert transport.nodes() == ["b"]
        frames.send(app, [b"nodes", b"22", b"11"])
        assert sorted(transport.nodes()) == ["a", "b"]
        first, second = transport.push("a", b"one"), transport.push("b", b"two")
        assert frames.receive(app) == [b"push", first.encode(), b"11", b"one"]
        assert frames.receive(app) == [b"push", second.encode(), b"22", b"two"]
        assert transport.pull() == []
        frames.send(app, [b"answer", second.encode(), answer(b"answer", b"reply")])
        frames.send(app, [b"failed", first.encode()])
        assert transport.pull() == [Arrival(second, "b", b"reply"), Arrival(first, "a", Failure(FAILED))]
        frames.send(app, [b"answer", second.encode(), answer(b"answer", b"again")])
        assert transport.pull() == []  # it was answered


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (answer(b"busy"), BUSY),
        (answer(b"failed"), FAILED),
        (answer(b"answer", b"two", b"parts"), FAILED),
        (answer(), FAILED),
        (b"", FAILED),
        (b"/somewhere/query.txt", FAILED),
    ],
)
def test_what_is_no_answer_is_one_of_three_sentences(content, expected, transport) -> None:
    with connect(transport) as app:
        message = transport.push("a", b"task")
        frames.send(app, [b"answer", message.encode(), content])
        assert transport.pull() == [Arrival(message, "a", Failure(expected))]


def test_what_an_app_carried_is_lost_with_it(transport) -> None:
    with connect(transport) as app:
        frames.send(app, [b"nodes", b"11"])
        message = transport.push("a", b"task")
        assert transport.nodes() == ["a"]
    assert transport.nodes() == []
    assert transport.pull() == [Arrival(message, "a", Failure(LOST))]
    lost = transport.push("a", b"task")  # while there is none
    assert transport.pull() == [Arrival(lost, "a", Failure(LOST))]
    with connect(transport) as app:
        frames.send(app, [b"nodes", b"11"])
        assert transport.nodes() == ["a"]
        message = transport.push("a", b"task")
        with connect(transport) as successor:  # while the old one hangs
            assert transport.pull() == [Arrival(message, "a", Failure(LOST))]
            message = transport.push("b", b"task")
            assert frames.receive(successor)[1] == message.encode()
            transport.forget(message)
            assert frames.receive(successor) == [b"forget", message.encode()]


def test_nonsense_from_the_app_ends_that_app_only(transport) -> None:
    with connect(transport) as app:
        app.sendall(b"\xff" * 64)
        assert not transport.connected
    with connect(transport) as app:
        frames.send(app, [b"nodes", b"11"])
        assert transport.nodes() == ["a"]


def test_what_this_machine_knows_of_a_node_counts(transport) -> None:
    dead: set[str] = set()
    transport.alive = lambda name: name not in dead
    with connect(transport) as app:
        frames.send(app, [b"nodes", b"11", b"22"])
        assert len(transport.nodes()) == 2
        dead.add("a")
        assert transport.nodes() == ["b"]


def test_an_app_that_does_not_read_holds_nobody_up(transport) -> None:
    content = bytes(8_000_000)
    with connect(transport) as app:
        started = time.monotonic()
        message = transport.push("a", content)
        assert transport.pull() == []
        assert time.monotonic() - started < 2.0
        received: list[list[bytes]] = []
        reader = threading.Thread(target=lambda: received.append(frames.receive(app)))
        reader.start()
        while reader.is_alive():
            transport.pull()
        assert received == [[b"push", message.encode(), b"11", content]]
