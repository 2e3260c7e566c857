"""Flower as a transport: the coordinator's end of the socket to Flower's ServerApp (`server`).

It needs nothing of Flower itself. Flower names nodes by numbers that it draws; who a number is was learned when the
node's key was registered, and the coordinator knows the names only.

The app sends reports: the numbers of the nodes that are there, then an answer `TOKEN CONTENT` for each message that has
one. Each report is answered with orders `TOKEN NODE CONTENT`. A token is the coordinator's own name for a message.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from quorank.errors import BadInput
from quorank.flower.worker import listening
from quorank.protocol import frames
from quorank.protocol.transport import FAILED, Arrival, Failure

SOCKET = "QUORANK_COORDINATOR"
"""The environment's variable that tells the app where the coordinator listens."""

FORGET = b""
"""In the place of an order's node: the answer to this message is not wanted any more."""

SECONDS = 60.0
"""An app that has begun to send or to read ends it within so long, or is taken for dead."""


@dataclass(eq=False)
class FlowerTransport:
    """Listens for one ServerApp. What it carried is lost with it, and no other takes its place."""

    path: Path  # of the socket
    ids: dict[str, int] = field(default_factory=dict)  # a node's name → Flower's number for it
    alive: Callable[[str], bool] = lambda name: True  # what this machine knows sooner than Flower does
    _connection: socket.socket | None = field(default=None, init=False)
    _online: frozenset[int] = field(default_factory=frozenset, init=False)
    _orders: list[bytes] = field(default_factory=list, init=False)
    _open: dict[str, str] = field(default_factory=dict, init=False)  # message → node
    _count: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._listener = listening(self.path)

    @property
    def connected(self) -> bool:
        """Whether a ServerApp is there, as of the last `pull`."""
        return self._connection is not None

    def nodes(self) -> Sequence[str]:
        return [name for name, number in self.ids.items() if number in self._online and self.alive(name)]

    def push(self, node: str, content: bytes) -> str:
        self._count += 1
        message = str(self._count)
        self._open[message] = node
        self._order(message, str(self.ids[node]).encode(), content)
        return message

    def forget(self, message: str) -> None:
        if self._open.pop(message, None) is not None:
            self._order(message, FORGET, b"")

    def _order(self, message: str, node: bytes, content: bytes) -> None:
        self._orders.append(frames.pack([message.encode(), node, content]))

    def pull(self) -> list[Arrival]:
        if self._connection is None and _is_ready(self._listener):
            self._connection, _ = self._listener.accept()
            self._connection.settimeout(SECONDS)
            self._listener.close()
        if self._connection is None or not _is_ready(self._connection):
            return []
        try:
            return self._answer(self._connection)
        except (OSError, EOFError, BadInput, ValueError):
            self.close()
            return []

    def _answer(self, connection: socket.socket) -> list[Arrival]:
        """Take a report in and give the orders out, which the app waits for."""
        nodes, *answers = frames.receive(connection)
        self._online = frozenset(map(int, nodes.split()))
        frames.send(connection, self._orders)
        self._orders = []
        found = []
        for answer in answers:
            token, content = frames.unpack(answer)
            node = self._open.pop(token.decode(), None)
            if node is not None:
                found.append(Arrival(token.decode(), node, content or Failure(FAILED)))
        return found

    def close(self) -> None:
        """The ServerApp sees the end of the socket and ends with it."""
        if self._connection is not None:
            self._connection.close()
        self._connection, self._online = None, frozenset()
        self._listener.close()


def _is_ready(connection: socket.socket) -> bool:
    return connection.fileno() >= 0 and bool(select.select([connection], [], [], 0.0)[0])
