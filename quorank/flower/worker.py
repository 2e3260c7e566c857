"""The process that plays the clients of an experiment for all nodes: it holds their data, and answers tasks on a socket.

Flower starts a new process for every task. That process is a thin shim which asks here (`ask`); what is expensive to load
stays loaded. Whatever goes wrong is told to this process's log; what is answered then is nothing (`FAILED`).
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

from quorank.protocol import frames

SOCKET = "QUORANK_WORKER"
"""The environment's variable that tells a shim where the worker listens."""

FAILED = b""
"""In the place of an answer: no bundle of replies is empty."""


def listening(path: Path) -> socket.socket:
    """A socket that is its owner's from the moment it appears."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    listener.listen(64)
    return listener


def ask(path: str, task: bytes, patience: float = 3600.0) -> bytes:
    """The worker's answer to a task, or FAILED; it never raises."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(patience)
            connection.connect(path)
            frames.send(connection, [task])
            (answer,) = frames.receive(connection)
            return answer
    except Exception:  # whatever it says could hold a path or a query; it must not leave
        return FAILED


def serve(listener: socket.socket, respond: Callable[[bytes], bytes]) -> None:
    """Answer tasks on a socket until the process ends; several at once, each in a thread."""
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_respond, args=(connection, respond), daemon=True).start()


def _respond(connection: socket.socket, respond: Callable[[bytes], bytes]) -> None:
    with connection, contextlib.suppress(OSError, EOFError):
        (task,) = frames.receive(connection)
        try:
            answer = respond(task)
        except Exception:
            logging.getLogger(__name__).exception("a task could not be answered")
            answer = FAILED
        frames.send(connection, [answer])


def main() -> None:
    """Play the simulated clients of a run: `worker RUN.toml SOCKET`."""
    from quorank.experiments.simulated_clients import SimulatedClients

    run, path = map(Path, sys.argv[1:])
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    clients = SimulatedClients.of(run, run.parent)
    serve(listening(path), clients.respond)


if __name__ == "__main__":
    main()
