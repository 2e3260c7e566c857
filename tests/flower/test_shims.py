"""Flower's two apps without Flower's processes: what a node sends when anything goes wrong, and the bridge to the grid."""

from __future__ import annotations

import socket
import tempfile
import threading
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs quorank[flower]")

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from quorank import frames
from quorank.flower import client as flower_client
from quorank.flower import server as flower_server
from quorank.flower.worker import SENT, SOCKET, serve


@pytest.fixture(autouse=True)
def identity() -> None:
    """Flower's messages bear the name of the run and node that make them."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 7, 3


def task(content: object = b"task") -> Message:
    message = Message(RecordDict({"quorank": ConfigRecord({"content": content})}), 7, "query")
    message.metadata.__dict__["_message_id"] = "m"
    return message


def parts_of(reply: Message) -> list[bytes]:
    assert not reply.has_error()
    assert list(reply.content) == ["quorank"] and list(reply.content["quorank"]) == ["content"]
    return frames.unpack(reply.content["quorank"]["content"])


def test_whatever_goes_wrong_on_a_node_one_word_leaves(monkeypatch, tmp_path) -> None:
    monkeypatch.delenv(SOCKET, raising=False)
    assert parts_of(flower_client.answer(task(), None)) == [b"failed"]
    monkeypatch.setenv(SOCKET, str(tmp_path / "secret" / "nobody.sock"))
    for wrong in (task(), task("text"), task([1, 2]), Message(RecordDict(), 7, "query")):
        wrong.metadata.__dict__["_message_id"] = "m"
        assert parts_of(flower_client.answer(wrong, None)) == [b"failed"]
    monkeypatch.setenv(SENT, str(tmp_path / "no such folder"))
    assert parts_of(flower_client.answer(task(), None)) == [b"failed"]


def test_a_task_goes_to_the_worker_and_what_leaves_is_written_down(monkeypatch, tmp_path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, ready = Path(folder) / "w.sock", threading.Event()
        threading.Thread(target=serve, args=(path, bytes.upper, ready.set), daemon=True).start()
        assert ready.wait(10)
        monkeypatch.setenv(SOCKET, str(path))
        monkeypatch.setenv(SENT, str(tmp_path))
        reply = flower_client.answer(task(), None)
    assert parts_of(reply) == [b"answer", b"TASK"]
    (note,) = tmp_path.iterdir()
    assert note.read_bytes() == reply.content["quorank"]["content"]


class FakeGrid:
    """As much of Flower's grid as the bridge uses."""

    def __init__(self) -> None:
        self.pushed: list[Message] = []
        self.replies: list[Message] = []

    def get_node_ids(self):
        return [5, 6]

    def push_messages(self, messages):
        first = len(self.pushed) + 1
        self.pushed += messages
        numbered = enumerate(messages, first)
        return [None if m.metadata.dst_node_id == 6 else f"flower-{number}" for number, m in numbered]

    def pull_messages(self, ids):
        found = [reply for reply in self.replies if reply.metadata.reply_to_message_id in ids]
        self.replies = []
        return found


def test_the_bridge_carries_both_ways_until_the_coordinator_leaves() -> None:
    grid, (ours, theirs) = FakeGrid(), socket.socketpair()
    ours.settimeout(10)
    thread = threading.Thread(target=flower_server.Bridge(grid, theirs).run)
    thread.start()

    def heard() -> list[bytes]:
        while (parts := frames.receive(ours))[0] == b"nodes":
            assert parts[1:] == [b"5", b"6"]
        return parts

    frames.send(ours, [b"push", b"t1", b"5", b"one"])
    frames.send(ours, [b"push", b"t2", b"6", b"two"])  # this one Flower does not take
    assert heard() == [b"failed", b"t2"]
    assert grid.pushed[0].content["quorank"]["content"] == b"one"
    assert grid.pushed[0].metadata.dst_node_id == 5
    grid.pushed[0].metadata.__dict__["_message_id"] = "flower-1"
    record = RecordDict({"quorank": ConfigRecord({"content": b"reply"})})
    grid.replies = [Message(record, reply_to=grid.pushed[0])]
    assert heard() == [b"answer", b"t1", b"reply"]
    ours.close()
    thread.join(10)
    assert not thread.is_alive()
