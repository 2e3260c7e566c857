"""Flower's ServerApp and ClientApp of a run: both carry bytes between Flower and the run's process, over a Unix socket.

The ServerApp reports the nodes that are online and the answers that arrived, and gets messages to push in return. The
ClientApp hands each task to the simulated clients of the run's process and returns their answer. Only `flwr.app`,
`flwr.serverapp` and `flwr.clientapp` are used. A process of Flower starts for every task, so that imports stay few.
"""

from __future__ import annotations

import os
import time
from multiprocessing.connection import Client, Connection

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

SOCKET, NODE = "QUORANK_FLOWER_SOCKET", "QUORANK_FLOWER_NODE"
"""Environment variables: path of the run's socket, and name of the node that a process belongs to."""
RECORD, CONTENT = "quorank", "content"
"""Where a message of Flower holds its bytes."""
NODES_SECONDS = 1.0
"""Interval between two requests for the nodes that are online."""
FAILED = b""
"""Answer of a client that failed; a bundle of replies is never empty."""

server = ServerApp()
client = ClientApp()


def _message_content(message: Message) -> bytes:
    """Return the bytes of a message; FAILED if it holds something else."""
    try:
        content = message.content[RECORD][CONTENT]
    except Exception:  # an error of Flower's, whose text stays here
        return FAILED
    return content if isinstance(content, bytes) else FAILED


@client.query()
def answer_task(message: Message, context: Context) -> Message:
    """Answer one task. Flower would send an exception's text to the server, so none leaves this function."""
    content = FAILED
    try:
        with Client(os.environ[SOCKET]) as connection:
            connection.send((os.environ[NODE], context.node_id, _message_content(message)))
            content = connection.recv_bytes()
    except Exception:  # see above
        content = FAILED
    return Message(RecordDict({RECORD: ConfigRecord({CONTENT: content})}), reply_to=message)


@server.main()
def serve_grid(grid: Grid, context: Context) -> None:
    """Carry messages until the run's process closes its end."""
    with Client(os.environ[SOCKET]) as connection:
        connection.send(None)
        GridBridge(grid, connection).run()


class GridBridge:
    """Messages that are pushed to Flower's grid and not answered yet."""

    def __init__(self, grid: Grid, connection: Connection) -> None:
        self.grid, self.connection = grid, connection
        self._open: dict[str, str] = {}  # Flower's message id → the transport's
        self._answers: list[tuple[str, bytes]] = []
        self._nodes: list[int] = []
        self._looked = -NODES_SECONDS

    def run(self) -> None:
        """Exchange reports for orders until the connection ends."""
        while True:
            if time.monotonic() - self._looked >= NODES_SECONDS:
                self._looked, self._nodes = time.monotonic(), list(self.grid.get_node_ids())
            try:
                self.connection.send((self._nodes, self._answers))
                pushed, forgotten = self.connection.recv()
            except (OSError, EOFError):
                return
            self._answers = []
            self._open = {name: message for name, message in self._open.items() if message not in forgotten}
            self._push([order for order in pushed if order[0] not in forgotten])
            for answer in self.grid.pull_messages(list(self._open)) if self._open else ():
                message = self._open.pop(answer.metadata.reply_to_message_id, None)
                if message is not None:
                    self._answers.append((message, _message_content(answer)))

    def _push(self, orders: list[tuple[str, int, bytes]]) -> None:
        """Push messages in one call; those that Flower does not accept have failed."""
        if not orders:
            return
        records = [RecordDict({RECORD: ConfigRecord({CONTENT: content})}) for _, _, content in orders]
        messages = [Message(record, node, "query") for record, (_, node, _) in zip(records, orders, strict=True)]
        names = [*self.grid.push_messages(messages)]
        for (message, _, _), name in zip(orders, names + [None] * (len(orders) - len(names)), strict=True):
            if name:
                self._open[name] = message
            else:
                self._answers.append((message, FAILED))
