"""Flower as a transport: the coordinator's end of the socket to Flower's ServerApp (`flower_server`).

It needs nothing of Flower itself. Flower names nodes by numbers that it draws; who a number is was learned when the
node's key was registered, and the coordinator knows the names only.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from quorank import frames
from quorank.errors import BadInput
from quorank.federation.drivers.transport import BUSY, FAILED, LOST, Arrival, Failure

_ANSWER, _BUSY = b"answer", b"busy"


@dataclass(eq=False)
class FlowerTransport:
    """Listens for the ServerApp; a new one may take the place of one that died, and what was on its way is lost then."""

    path: Path  # of the socket
    ids: dict[str, int] = field(default_factory=dict)  # a node's name → Flower's number for it
    alive: Callable[[str], bool] | None = None  # what this machine knows sooner than Flower does
    _connection: socket.socket | None = field(default=None, init=False)
    _incoming: frames.Incoming = field(default_factory=frames.Incoming, init=False)
    _outgoing: bytearray = field(default_factory=bytearray, init=False)
    _online: frozenset[int] = field(default_factory=frozenset, init=False)
    _open: dict[str, str] = field(default_factory=dict, init=False)  # message → node
    _arrivals: list[Arrival] = field(default_factory=list, init=False)
    _count: int = field(default=0, init=False)
    _generation: str = field(default_factory=lambda: os.urandom(4).hex(), init=False)

    def __post_init__(self) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.path.unlink(missing_ok=True)
        self._listener.bind(str(self.path))
        self.path.chmod(0o600)
        self._listener.listen(1)
        self._listener.setblocking(False)

    @property
    def connected(self) -> bool:
        """Whether a ServerApp is there."""
        self._look()
        return self._connection is not None

    def nodes(self) -> Sequence[str]:
        self._look()
        return [
            name
            for name, number in self.ids.items()
            if number in self._online and (self.alive is None or self.alive(name))
        ]

    def push(self, node: str, content: bytes) -> str:
        self._count += 1
        message = f"{self._generation}-{self._count}"
        self._open[message] = node
        self._write([b"push", message.encode(), str(self.ids[node]).encode(), content])
        return message

    def pull(self) -> list[Arrival]:
        self._look()
        found, self._arrivals = self._arrivals, []
        return found

    def forget(self, message: str) -> None:
        if self._open.pop(message, None) is not None:
            self._write([b"forget", message.encode()])

    def close(self) -> None:
        """The ServerApp sees the end of the socket and ends with it."""
        self._leave()
        self._listener.close()
        self.path.unlink(missing_ok=True)

    def _write(self, parts: Sequence[bytes]) -> None:
        """Put this in the queue to the ServerApp, which may be slow to read while Flower is away."""
        if self._connection is None:
            self._lose()
            return
        self._outgoing += frames.framed(parts)
        self._flush()

    def _flush(self) -> None:
        while self._outgoing and self._connection is not None:
            try:
                done = self._connection.send(self._outgoing[: 1 << 20])
                del self._outgoing[:done]
            except BlockingIOError:
                return
            except OSError:
                self._leave()

    def _leave(self) -> None:
        """The ServerApp is gone, and with it all that it carried."""
        if self._connection is not None:
            self._connection.close()
        self._connection, self._online = None, frozenset()
        self._incoming, self._outgoing = frames.Incoming(), bytearray()
        self._lose()

    def _lose(self) -> None:
        self._arrivals += [Arrival(message, node, Failure(LOST)) for message, node in self._open.items()]
        self._open.clear()

    def _look(self) -> None:
        """Take in what is in the socket now."""
        try:
            connection, _ = self._listener.accept()
            self._leave()
            connection.setblocking(False)
            self._connection = connection
        except BlockingIOError:
            pass
        self._flush()
        while self._connection is not None:
            try:
                content = self._connection.recv(1 << 20)
                bundles = self._incoming.add(content)
            except BlockingIOError:
                return
            except (OSError, BadInput):
                content, bundles = b"", []
            for bundle in bundles:
                self._heard(bundle)
            if not content:
                self._leave()

    def _heard(self, bundle: list[bytes]) -> None:
        word, *rest = bundle
        if word == b"nodes":
            self._online = frozenset(int(number) for number in rest)
            return
        message = rest[0].decode()
        node = self._open.pop(message, None)
        if node is not None:
            self._arrivals.append(Arrival(message, node, _content(word, rest[1:])))


def _content(word: bytes, rest: list[bytes]) -> bytes | Failure:
    """What a node's shim sent: an answer, or one of its words."""
    if word != _ANSWER or not rest:
        return Failure(FAILED)
    try:
        kind, *parts = frames.unpack(rest[0])
    except (BadInput, ValueError):
        return Failure(FAILED)
    if kind == _ANSWER and len(parts) == 1:
        return parts[0]
    return Failure(BUSY if kind == _BUSY else FAILED)
