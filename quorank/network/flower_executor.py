"""Flower's executor, with tasks that start in a moment: a process that has Flower loaded splits off each one.

Flower's own starts a new interpreter for every task, which spends more than a second of processor time on imports before
it carries a few hundred bytes. Here a nursery is forked before the executor begins and ends with it. What it does not know,
and what wants packages to be installed, is started as Flower starts it.

`python -m quorank.network.flower_executor APP` takes the arguments of `flower-superexec` behind the app's name.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
from collections.abc import Collection
from contextlib import suppress

from flwr.supercore.cli.flower_superexec import flower_superexec
from flwr.supercore.constant import TASK_TYPE_TO_COMMAND
from flwr.supercore.superexec import run_superexec
from flwr.supercore.superexec.executor import LaunchResult
from flwr.supercore.superexec.executor.subprocess_executor import SubprocessExecutor
from flwr.supercore.superexec.executor.types import ExecutionSpec

from quorank.network import nursery
from quorank.network.flower_app import POLL_VARIABLE

with suppress(ImportError):
    importlib.import_module("httpcore")  # or every process that is split off loads it with its first request

APPS = {"client": "flwr-clientapp", "server": "flwr-serverapp"}
"""What Flower starts for a task, by the app that it runs; the app is `quorank.network.flower_…`."""


class ForkingExecutor(SubprocessExecutor):  # type: ignore[misc]  # Flower is not typed here
    """Hands tasks of known kinds to the nursery."""

    def __init__(self, orders: socket.socket, known: Collection[str]) -> None:
        super().__init__()
        self._orders, self._known = orders, known

    def launch(self, spec: ExecutionSpec) -> LaunchResult:
        name = TASK_TYPE_TO_COMMAND[spec.task_type]
        if name not in self._known or spec.runtime_dependency_install:
            return super().launch(spec)
        words = ["--runtime-api-address", spec.runtime_api_address, "--token", spec.token]
        if spec.insecure:
            words.append("--insecure")
        elif spec.root_certificates_path is not None:
            words += ["--root-certificates", spec.root_certificates_path]
        if spec.parent_pid is not None:
            words += ["--parent-pid", str(spec.parent_pid)]
        try:
            order = {"name": name, "words": words, "quiet": spec.suppress_output}
            self._orders.send(json.dumps(order).encode())
        except OSError:
            return super().launch(spec)
        return LaunchResult.accepted()


def main() -> None:
    """Split off the nursery, then be Flower's executor; where a system has no such sockets, without a nursery."""
    app = sys.argv.pop(1)
    sys.argv[0] = "flower-superexec"
    if app == "server":
        os.environ.pop(POLL_VARIABLE, None)
    try:
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    except (AttributeError, OSError):
        flower_superexec()
        return
    if os.fork() == 0:
        here.close()
        with suppress(KeyboardInterrupt):
            entries = nursery.load([APPS[app]])
            importlib.import_module(f"quorank.network.flower_{app}")
            nursery.serve(there, entries)
        os._exit(0)
    there.close()
    run_superexec.get_executor = lambda *given, **named: ForkingExecutor(here, {APPS[app]})
    flower_superexec()


if __name__ == "__main__":
    main()
