"""Runs the coordinator of a folder over its network, from start to stop.

`python -m quorank.network.service_run DIR [METRICS_PORT] [--exit-when-done]`
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
from quorank.service.home import LOG, Home
from quorank.service.observe import EventLog, turn_over
from quorank.service.service import Service, Tend

Line = tuple[Transport, Tend, Callable[[], bool]]
"""A network that is up: what carries messages, what keeps it alive, whether it is there."""

Connect = Callable[[Service, Callable[[], bool]], AbstractContextManager[Line]]
"""Brings up the network of a service, given whether it was asked to stop: Flower, or one of a test."""


@contextmanager
def flower(service: Service, stop: Callable[[], bool]) -> Iterator[Line]:
    """The engine of a deployment."""
    from quorank.network.service_network import ServiceNetwork

    coordinator = service.coordinator

    def give_up() -> None:
        if stop():
            raise Interrupted(coordinator.state.round, coordinator.rounds)

    with ServiceNetwork(service.home, service.log, service.admit, give_up) as network:
        yield network.transport, network.tend, lambda: network.transport.connected


@contextmanager
def _private_files() -> Iterator[None]:
    """Whatever this process and its children write is for its owner's eyes."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def run(
    home: Home, log: EventLog, metrics_port: int | None = None, connect: Connect = flower, *, stay: bool = False
) -> bool:
    """Be the coordinator of a folder until it is asked to stop, or its rounds are done; whether they are.

    With `stay` it is there for its devices after the last round too, so that they hear of the end and can leave.
    """
    with home.running(), _private_files(), interruptible() as asked:
        began = time.monotonic()
        service = Service(home, log, stay)
        state = service.coordinator.state
        log.write(
            "starting", round=state.round, rounds=service.coordinator.rounds,
            clients=home.experiment.federation.clients,
        )  # fmt: skip
        done = service.coordinator.done
        if state.round > 0:
            service.hand_out()  # it was killed between the checkpoint and this, perhaps
        try:
            if not done or stay:
                with monitor(metrics_port, lambda: service.figures) as port:
                    service.metrics_port = port
                    service.publish()
                    with connect(service, asked) as (transport, tend, connected):
                        log.write("ready", round=state.round, seconds=time.monotonic() - began)

                        def tended(tend: Tend = tend) -> None:
                            tend()
                            turn_over(home.path / LOG)

                        done = service.play(transport, tended, connected, asked)
        except Interrupted:
            done = False
        except NetworkDown as error:
            log.write("engine_failed", round=service.coordinator.state.round)
            raise BadInput("engine.failed", f"the engine does not stay up: {error}") from None
        except BaseException:
            log.write("engine_failed", round=service.coordinator.state.round)
            raise
        finally:
            service.state, service.figures.connected = "done" if done else "stopped", False
            service.metrics_port, service.gate, service.figures.present = None, None, []
            service.publish()
        reached, rounds = service.coordinator.state.round, service.coordinator.rounds
        seconds = time.monotonic() - began
        log.write("finished" if done and not stay else "stopped", round=reached, rounds=rounds, seconds=seconds)
        return done


def main(arguments: list[str]) -> None:
    stay = "--exit-when-done" not in arguments
    folder, *rest = [word for word in arguments if not word.startswith("--")]
    home, port = Home.open(Path(folder)), int(rest[0]) if rest else None
    try:
        run(home, EventLog(sys.stderr), port, stay=stay)
    except BadInput as error:
        print(f"quorank: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main(sys.argv[1:])
