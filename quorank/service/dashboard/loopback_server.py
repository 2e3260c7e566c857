"""Granian on an open socket, and pages on this machine only: a thread that serves a bound loopback socket.

The socket is open before its address is shown, so no other process can take the port and receive the token in the address.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from granian import _granian
from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.server.embed import Server

from quorank.errors import BadInput

BACKLOG = 1024  # length of the accept queue
HEADER_BYTES = 16_384
HEADER_MILLISECONDS = 10_000  # timeout of headers, and of idle connections
_GOODBYE_SECONDS = 2.0


class SocketServer(Server):
    """Granian in this process, on an open listening socket; `options` are Granian's."""

    def __init__(self, app: Any, descriptor: int, backlog: int = BACKLOG, **options: Any) -> None:
        http = HTTP1Settings(header_read_timeout=HEADER_MILLISECONDS, keep_alive=True, max_buffer_size=HEADER_BYTES)
        super().__init__(
            app,
            interface=Interfaces.ASGINL,
            http=HTTPModes.http1,
            websockets=False,
            backlog=backlog,
            http1_settings=http,
            **options,
        )
        self._descriptor = descriptor

    def _init_shared_socket(self) -> None:
        holder: Any = _granian.SocketHolder  # embedded servers open their own socket by default
        self._ssp, self._shd = None, holder(self._descriptor, False, self.backlog)


def loopback_socket(port: int) -> socket.socket:
    """Bind a port of the loopback interface; 0: any free one."""
    try:
        return socket.create_server(("127.0.0.1", port), backlog=BACKLOG)
    except OSError as error:
        sentence = f"cannot be used ({os.strerror(error.errno or 0)}); choose another"
        raise BadInput("port.unusable", sentence, f"--port {port}") from None


@contextmanager
def served(app: Any, bound: socket.socket) -> Iterator[int]:
    """Serve an ASGI application on a bound socket within the context; yields the port."""
    number = int(bound.getsockname()[1])
    logging.getLogger("_granian").setLevel(logging.ERROR)
    server, loop = SocketServer(app, bound.detach(), log_enabled=False), asyncio.new_event_loop()

    def serve() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(server.serve())

    thread = threading.Thread(target=serve, daemon=True, name="loopback pages")
    thread.start()
    try:
        yield number
    finally:
        with suppress(RuntimeError):  # the loop has ended already
            loop.call_soon_threadsafe(server.stop)
        thread.join(_GOODBYE_SECONDS)
