"""The process on a node's machine that plays clients: it holds their data, and answers tasks on a socket beside it.

Engines start a new process for every task. That process is a thin shim which asks here (`ask`); what is expensive to
load stays loaded, and what is private stays in a process that talks to nobody but its own machine. Whatever goes wrong
is told to the log on this machine; what is answered then is a word that says nothing (`FAILED_WORD`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from quorank import frames

SOCKET = "QUORANK_WORKER"
"""The environment's variable that tells a shim where its worker listens."""

SENT = "QUORANK_SENT"
"""Where it names a folder, every byte that a node sends is also written there, for its owner to read."""

ANSWER_WORD, FAILED_WORD, BUSY_WORD = b"answer", b"failed", b"busy"

Respond = Callable[[bytes], bytes | None]
"""What clients answer to a task; None where they have nothing to give yet."""


def ask(path: str, task: bytes, patience: float = 3600.0) -> list[bytes]:
    """Ask the worker: [ANSWER_WORD, bundle of replies], [BUSY_WORD] or [FAILED_WORD]; it never raises."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(patience)
            connection.connect(path)
            frames.send(connection, [task])
            return frames.receive(connection)
    except Exception:  # whatever it says could hold a path or a query; it must not leave
        return [FAILED_WORD]


def serve(path: Path, respond: Respond, ready: Callable[[], None] | None = None) -> None:
    """Answer tasks on a socket until the process ends; several at once, each in a thread."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    path.unlink(missing_ok=True)
    before = os.umask(0o177)  # the socket is its owner's from the moment it appears
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    listener.listen(64)
    if ready is not None:
        ready()
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_respond, args=(connection, respond), daemon=True).start()


def _respond(connection: socket.socket, respond: Respond) -> None:
    with connection, contextlib.suppress(OSError, EOFError):
        try:
            (task,) = frames.receive(connection)
            answer = respond(task)
            parts = [BUSY_WORD] if answer is None else [ANSWER_WORD, answer]
        except EOFError:
            raise
        except Exception:
            logging.getLogger(__name__).exception("a task could not be answered")
            parts = [FAILED_WORD]
        frames.send(connection, parts)


def main(arguments: list[str]) -> None:
    """Play the simulated clients of a run: `worker RUN.toml FOLDER SOCKET`."""
    from quorank.experiments.simulated_clients import SimulatedClients

    file, folder, path = map(Path, arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    serve(path, SimulatedClients.of(file, folder).respond)


if __name__ == "__main__":
    main(sys.argv[1:])
