"""Intake worker: Granian with the application of `intake`, on a listening socket of the supervisor.

All workers accept from the same socket, so connections that wait in its queue survive the end of a worker, and workers are
replaced without a refused connection. `python -m quorank.service.intake.worker DIR SOCKET PIPE`
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

from quorank.errors import BadInput
from quorank.kernels.process import raise_file_limit
from quorank.service.home import Home
from quorank.service.intake.intake import Intake
from quorank.service.intake.limits import ConnectionGuard, stop_accepting

BACKLOG = 4096  # length of the accept queue
CONNECTIONS = 4096  # maximum number of connections of a worker, file limit permitting
DRAIN_SECONDS = 3.0  # seconds for open connections to finish when a worker ends
START_SECONDS = 0.05  # seconds from the start of the server to its first answer


async def serve(home: Home, descriptor: int, ready: int) -> None:
    """Serve until SIGTERM and finish open requests; `ready` is a pipe that reports the start."""
    from granian.log import LogLevels

    from quorank.service.dashboard.loopback_server import SocketServer

    intake, (certificate, key), hard = Intake(home), home.tls or (None, None), raise_file_limit()
    most = CONNECTIONS if hard == resource.RLIM_INFINITY else min(CONNECTIONS, max(64, hard - 200))
    options = {"backpressure": most, "log_level": LogLevels.critical, "ssl_cert": certificate, "ssl_key": key}
    server = SocketServer(intake, descriptor, BACKLOG, **options)
    guard, loop = ConnectionGuard(home.settings.port), asyncio.get_running_loop()

    async def drain() -> None:
        """Stop accepting, finish open connections, and end."""
        if sys.platform == "linux":
            stop_accepting(descriptor)
            end = loop.time() + DRAIN_SECONDS
            while loop.time() < end and guard.connections():
                await asyncio.sleep(0.05)
        server.stop()  # type: ignore[no-untyped-call]

    draining: list[asyncio.Task[None]] = []  # a reference, or it would be collected

    def stop() -> None:
        intake.stopping = True
        draining.append(loop.create_task(drain()))

    def report_ready() -> None:
        os.write(ready, b"1")
        os.close(ready)

    if not home.settings.behind_proxy:
        guard.start()
    loop.add_signal_handler(signal.SIGTERM, stop)
    loop.call_later(START_SECONDS, report_ready)
    try:
        await server.serve()
    finally:
        intake.close()
        await intake.writer.stop()


def main() -> None:
    """Serve a folder on an inherited socket."""
    folder, (descriptor, ready) = Path(sys.argv[1]), map(int, sys.argv[2:4])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # handled by the parent
    for one in (descriptor, ready):
        os.set_inheritable(one, False)
    try:
        import uvloop

        run: Any = uvloop.run
    except ImportError:
        run = asyncio.run
    try:
        run(serve(Home.open(folder), descriptor, ready))
    except (BadInput, OSError) as error:  # the supervisor tries again
        print(f"quorank: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
