"""Flower's ServerApp: a bridge between Flower's grid and the coordinator, which is another process on the same machine.

The app reports over a socket which nodes are there and what came back, and is answered with what the coordinator wants
sent (`transport` has both messages). The coordinator never waits for Flower; it answers when it looks, and so says how
often Flower is asked. When it closes the socket, the app is done. The grid's `push_messages` and `pull_messages` are all
that is used of Flower here.
"""

from __future__ import annotations

import os
import socket
import time

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from quorank.flower.app import CONTENT, RECORD
from quorank.flower.transport import FORGET, SOCKET
from quorank.flower.worker import FAILED
from quorank.protocol import frames

KIND = "query"
LOOK = 1.0
"""Seconds between two looks for nodes: each is a request, which the SuperLink answers from its database."""

app = ServerApp()


@app.main()
def bridge(grid: Grid, context: Context) -> None:
    """Carry messages until the coordinator closes the socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(os.environ[SOCKET])
        Bridge(grid, connection).run()


class Bridge:
    """Messages that are open at Flower."""

    def __init__(self, grid: Grid, connection: socket.socket) -> None:
        self.grid, self.connection = grid, connection
        self.tokens: dict[str, bytes] = {}  # Flower's name of a message → the coordinator's
        self.answers: list[bytes] = []
        self.nodes, self.looked = b"", -LOOK

    def run(self) -> None:
        """Report, do what is asked for, and look what has come, until the coordinator has gone."""
        while True:
            if time.monotonic() - self.looked >= LOOK:
                self.looked = time.monotonic()
                self.nodes = b" ".join(str(node).encode() for node in self.grid.get_node_ids())
            try:
                frames.send(self.connection, [self.nodes, *self.answers])
                orders = frames.receive(self.connection)
            except (OSError, EOFError):
                return
            self.answers = []
            self.obey([frames.unpack(order) for order in orders])
            for message in self.grid.pull_messages(list(self.tokens)) if self.tokens else ():
                self.arrived(message)

    def obey(self, orders: list[list[bytes]]) -> None:
        """Hand messages to Flower in one call; what it does not take has failed."""
        unwanted = {token for token, node, _ in orders if node == FORGET}
        self.tokens = {name: token for name, token in self.tokens.items() if token not in unwanted}
        pushes = [order for order in orders if order[0] not in unwanted]
        messages = [
            Message(RecordDict({RECORD: ConfigRecord({CONTENT: content})}), int(node), KIND)
            for _, node, content in pushes
        ]
        names = list(self.grid.push_messages(messages)) if messages else []
        for at, (token, _, _) in enumerate(pushes):
            if at < len(names) and names[at]:
                self.tokens[names[at]] = token
            else:
                self.answers.append(frames.pack([token, FAILED]))

    def arrived(self, message: Message) -> None:
        """Keep the answer for the next report."""
        token = self.tokens.pop(message.metadata.reply_to_message_id, None)
        if token is None:
            return
        try:
            content = message.content[RECORD][CONTENT]
            assert isinstance(content, bytes)
        except Exception:  # an error of Flower's, or nothing that our client app sends
            content = FAILED
        self.answers.append(frames.pack([token, content]))
