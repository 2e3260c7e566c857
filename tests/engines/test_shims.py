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

from quorank.flower import client as flower_client
from quorank.flower import server as flower_server
from quorank.flower.worker import SOCKET, listening, serve
from quorank.protocol import frames


@pytest.fixture(autouse=True)
def identity() -> None:
    """Flower's messages bear the name of the run and node that make them."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 7, 3


def task(content: object = b"task") -> Message:
    message = Message(RecordDict({"quorank": ConfigRecord({"content": content})}), 7, "query")
    message.metadata.__dict__["_message_id"] = "m"
    return message


def content_of(reply: Message) -> bytes:
    assert not reply.has_error()
    assert list(reply.content) == ["quorank"] and list(reply.content["quorank"]) == ["content"]
    found: bytes = reply.content["quorank"]["content"]
    return found


def test_whatever_goes_wrong_on_a_node_nothing_leaves(monkeypatch, tmp_path) -> None:
    monkeypatch.delenv(SOCKET, raising=False)
    assert content_of(flower_client.answer(task(), None)) == b""
    monkeypatch.setenv(SOCKET, str(tmp_path / "secret" / "nobody.sock"))
    for wrong in (task(), task("text"), task([1, 2]), Message(RecordDict(), 7, "query")):
        wrong.metadata.__dict__["_message_id"] = "m"
        assert content_of(flower_client.answer(wrong, None)) == b""


def test_a_task_goes_to_the_worker_and_its_answer_back(monkeypatch) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "w.sock"
        threading.Thread(target=serve, args=(listening(path), bytes.upper), daemon=True).start()
        monkeypatch.setenv(SOCKET, str(path))
        assert content_of(flower_client.answer(task(), None)) == b"TASK"


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

    def exchange(*orders: tuple[bytes, bytes, bytes]) -> list[list[bytes]]:
        """Take a report in, give orders, and return the answers."""
        nodes, *answers = frames.receive(ours)
        assert nodes == b"5 6"
        frames.send(ours, [frames.pack(order) for order in orders])
        return [frames.unpack(answer) for answer in answers]

    def replied(number: int, content: object) -> Message:
        grid.pushed[number].metadata.__dict__["_message_id"] = f"flower-{number + 1}"
        record = RecordDict({"quorank": ConfigRecord({"content": content})})
        return Message(record, reply_to=grid.pushed[number])

    assert exchange((b"t1", b"5", b"one"), (b"t2", b"6", b"two"), (b"t3", b"5", b""), (b"t3", b"", b"")) == []
    assert exchange() == [[b"t2", b""]]  # this one Flower did not take, and the third was taken back
    assert [message.content["quorank"]["content"] for message in grid.pushed] == [b"one", b"two"]
    assert grid.pushed[0].metadata.dst_node_id == 5
    exchange((b"t4", b"5", b"four"), (b"t5", b"5", b"five"))
    exchange((b"t5", b"", b""))  # not wanted any more
    exchange()
    grid.replies = [replied(0, b"reply"), replied(2, "text"), replied(3, b"late")]
    answers = []
    while len(answers) < 2:
        answers += exchange()
    assert answers == [[b"t1", b"reply"], [b"t4", b""]]
    assert exchange() == []
    ours.close()
    thread.join(10)
    assert not thread.is_alive()
