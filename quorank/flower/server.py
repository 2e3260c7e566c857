"""Flower's ServerApp: a bridge between Flower's grid and the coordinator, which is another process on the same machine.

The coordinator writes pushes to a socket, and reads from it which nodes are there and what came back; it never waits for
Flower. When the coordinator closes the socket, the app is done; when this app is killed, another one takes its place.
The grid's `push_messages` and `pull_messages` are all that is used of Flower here.

On the socket, to the app: `push TOKEN NODE CONTENT`, `forget TOKEN`; from the app: `nodes ID…`, `answer TOKEN CONTENT`,
`failed TOKEN`. A token is the coordinator's own name for a message.
"""

from __future__ import annotations

import os
import select
import socket
import time
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from quorank import frames

SOCKET = "QUORANK_COORDINATOR"
"""The environment's variable that tells the app where the coordinator listens."""

PUSH, FORGET, NODES, ANSWER, FAILED = b"push", b"forget", b"nodes", b"answer", b"failed"
RECORD, CONTENT, KIND = "quorank", "content", "query"
POLL, LONGEST, LOOK = 0.2, 0.5, 1.0
"""Seconds between two looks for answers, at first and after none have come for a while, and for nodes: each look is a
request, which the SuperLink answers from its database."""

app = ServerApp()


@app.main()
def bridge(grid: Grid, context: Context) -> None:
    """Carry messages until the coordinator closes the socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(os.environ[SOCKET])
        Bridge(grid, connection).run()


class Bridge:
    """Both sides' open messages."""

    def __init__(self, grid: Grid, connection: socket.socket) -> None:
        self.grid, self.connection = grid, connection
        self.incoming = frames.Incoming()
        self.tokens: dict[str, bytes] = {}  # Flower's name of a message → the coordinator's
        self.looked, self.wait = -LOOK, POLL

    def run(self) -> None:
        while self.commands():
            if time.monotonic() - self.looked >= LOOK:
                self.looked = time.monotonic()
                nodes = [str(node).encode() for node in self.grid.get_node_ids()]
                frames.send(self.connection, [NODES, *nodes])
            found = list(self.grid.pull_messages(list(self.tokens))) if self.tokens else []
            for message in found:
                self.arrived(message)
            self.wait = POLL if found else min(1.25 * self.wait, LONGEST)

    def commands(self) -> bool:
        """Do what the coordinator asked for since the last look; False when it has gone."""
        ready, _, _ = select.select([self.connection], [], [], self.wait)
        if not ready:
            return True
        content = self.connection.recv(1 << 20)
        pushes: dict[bytes, tuple[int, bytes]] = {}
        for word, token, *rest in self.incoming.add(content):
            if word == PUSH:
                pushes[token] = int(rest[0]), rest[1]
            elif word == FORGET:
                pushes.pop(token, None)
                self.tokens = {name: own for name, own in self.tokens.items() if own != token}
        if pushes:
            self.push(pushes)
        return bool(content)

    def push(self, pushes: dict[bytes, tuple[int, bytes]]) -> None:
        """Hand messages to Flower in one call; what it does not take has failed."""
        messages = [
            Message(RecordDict({RECORD: ConfigRecord({CONTENT: content})}), node, KIND)
            for node, content in pushes.values()
        ]
        names: list[Any] = list(self.grid.push_messages(messages))
        self.wait = POLL
        for at, token in enumerate(pushes):
            if at < len(names) and names[at]:
                self.tokens[names[at]] = token
            else:
                frames.send(self.connection, [FAILED, token])

    def arrived(self, message: Message) -> None:
        token = self.tokens.pop(message.metadata.reply_to_message_id, None)
        if token is None:
            return
        try:
            content = message.content[RECORD][CONTENT]
            assert isinstance(content, bytes)
            parts = [ANSWER, token, content]
        except Exception:  # an error of Flower's, or nothing that our client app sends
            parts = [FAILED, token]
        frames.send(self.connection, parts)
