"""Flower's executor of a node, with tasks that start in a moment: a process that has Flower loaded splits off each one.

Flower's own starts a new interpreter for every task, which spends more than a second of processor time on imports before
it carries a few hundred bytes. Here a process loads the same modules once, waits (`_nursery`), and forks for each task; the
child does what Flower's `flwr-clientapp` does and ends. It is forked before the executor begins, has one thread and no open
connection, and ends with the executor. Whatever is not a ClientApp is started as Flower starts it.

`python -m quorank.network.flower_executor` takes the arguments of `flower-superexec`.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import traceback
from contextlib import suppress
from typing import Any

from flwr.supercore.cli.flower_superexec import flower_superexec
from flwr.supercore.constant import TaskType
from flwr.supercore.superexec import run_superexec
from flwr.supercore.superexec.executor import LaunchResult
from flwr.supercore.superexec.executor.subprocess_executor import SubprocessExecutor
from flwr.supercore.superexec.executor.types import ExecutionSpec
from flwr.supercore.tls import validate_and_resolve_root_certificates
from flwr.supernode.runtime.run_clientapp import run_clientapp

from quorank.network import flower_client

LARGEST = 1 << 16  # bytes of an order
REST = 1.0
"""Seconds after which the nursery sees to children that have ended, at the latest."""

_FIELDS = ("runtime_api_address", "token", "insecure", "root_certificates_path", "parent_pid")
_LOADED = flower_client.app
"""Named so that the app is loaded before the first task."""


class ForkingExecutor(SubprocessExecutor):  # type: ignore[misc]  # Flower is not typed here
    """Hands ClientApps to the nursery."""

    def __init__(self, nursery: socket.socket) -> None:
        super().__init__()
        self._nursery = nursery

    def launch(self, spec: ExecutionSpec) -> LaunchResult:
        if spec.task_type != TaskType.CLIENT_APP or spec.runtime_dependency_install:
            return super().launch(spec)
        order = {name: getattr(spec, name) for name in _FIELDS}
        try:
            self._nursery.send(json.dumps(order).encode())
        except OSError:
            return super().launch(spec)
        return LaunchResult.accepted()


def _nursery(orders: socket.socket) -> None:
    """Fork a child for every order until the executor has gone."""
    orders.settimeout(REST)
    while True:
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        try:
            order = orders.recv(LARGEST)
        except TimeoutError:
            continue
        if not order:
            return
        if os.fork() == 0:
            orders.close()
            _run(json.loads(order))


def _run(order: dict[str, Any]) -> None:
    """What `flwr-clientapp` does; the process ends here."""
    code = 1
    try:
        certificates = validate_and_resolve_root_certificates(
            order["root_certificates_path"], order["insecure"]
        )
        run_clientapp(
            runtime_api_address=order["runtime_api_address"],
            token=order["token"],
            insecure=order["insecure"],
            certificates=certificates,
            parent_pid=order["parent_pid"],
            runtime_dependency_install=False,
        )
    except SystemExit as end:  # the way in which Flower ends a task
        code = end.code if isinstance(end.code, int) else 1
    except Exception:
        traceback.print_exc()  # into the log of this machine
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """Split off the nursery, then be Flower's executor; where a system has no such sockets, without a nursery."""
    sys.argv[0] = "flower-superexec"
    try:
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    except (AttributeError, OSError):
        flower_superexec()
        return
    if os.fork() == 0:
        here.close()
        with suppress(KeyboardInterrupt):
            _nursery(there)
        os._exit(0)
    there.close()
    run_superexec.get_executor = lambda *given, **named: ForkingExecutor(here)
    flower_superexec()


if __name__ == "__main__":
    main()
