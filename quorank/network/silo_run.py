"""Runs a group's coordinator over its network, from start to stop.

`python -m quorank.network.silo_run DIR [METRICS_PORT]`
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from quorank.errors import BadInput, Interrupted
from quorank.federation.transport import Transport
from quorank.flower.network import NetworkDown
from quorank.process import interruptible
from quorank.service.flower_figures import monitor
from quorank.service.observe import EventLog
from quorank.service.silo_home import SiloHome
from quorank.service.silo_service import SiloService

Line = tuple[Transport, Callable[[], None], Callable[[], bool]]
"""A network that is up: what carries messages, what keeps it alive, whether it is there."""

Connect = Callable[[SiloService, Callable[[], bool]], AbstractContextManager[Line]]
"""Brings up the network of a service, given whether it was asked to stop: Flower, or one of a test."""


@contextmanager
def flower(service: SiloService, stop: Callable[[], bool]) -> Iterator[Line]:
    """The engine of a deployment."""
    from quorank.network.service_network import ServiceNetwork

    def give_up() -> None:
        if stop():
            raise Interrupted(*service.turns)

    with ServiceNetwork(service.home, service.log, service.admit, give_up) as network:
        yield network.transport, network.tend, lambda: network.transport.connected


def run(home: SiloHome, log: EventLog, metrics_port: int | None = None, connect: Connect = flower) -> bool:
    """Be the coordinator of a folder until its session is done or it is asked to stop; whether it is done."""
    before = os.umask(0o077)  # whatever this process and its children write is for its owner's eyes
    try:
        with home.running(), interruptible() as asked:
            return _run(home, log, metrics_port, connect, asked)
    finally:
        os.umask(before)


def _run(home: SiloHome, log: EventLog, metrics_port: int | None, connect: Connect, asked: Callable[[], bool]) -> bool:
    began = time.monotonic()
    service = SiloService(home, log)
    turns, planned = service.turns
    log.write("starting", round=turns, rounds=planned, clients=len(home.group.parties))
    done = service.server.done
    if done:
        service.hand_out()  # it was killed between the last answer and this, perhaps
    try:
        if not done:
            with monitor(metrics_port, lambda: service.figures) as port:
                service.metrics_port = port
                service.publish()
                with connect(service, asked) as (transport, tend, connected):
                    log.write("ready", round=turns, seconds=time.monotonic() - began)
                    done = service.play(transport, tend, connected, asked)
    except Interrupted:
        done = False
    except NetworkDown as error:
        log.write("engine_failed", round=service.turns[0])
        raise BadInput("engine.failed", f"the engine does not stay up: {error}") from None
    except BaseException:
        log.write("engine_failed", round=service.turns[0])
        raise
    finally:
        service.state, service.figures.connected = "done" if done else "stopped", False
        service.metrics_port, service.gate, service.figures.present = None, None, []
        service.publish()
        service.server.close()
    seconds = time.monotonic() - began
    log.write("finished" if done else "stopped", round=service.turns[0], rounds=planned, seconds=seconds)
    return done


def main(arguments: list[str]) -> None:
    home = SiloHome.open(Path(arguments[0]))
    port = int(arguments[1]) if arguments[1:] else None
    try:
        run(home, EventLog(sys.stderr), port)
    except BadInput as error:
        print(f"quorank: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main(sys.argv[1:])
