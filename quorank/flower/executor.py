"""Flower's executor, with tasks that start in a moment: a process that has Flower loaded splits off each one.

Flower's own starts a new interpreter for every task, which spends more than a second of processor time on imports before
it carries a few hundred bytes. Here a nursery is forked before the executor begins and ends with it.

An executor runs Quorank's own app and nothing else: that of a node (a device, a party, one of an experiment) its ClientApp,
the coordinator's the ServerApp. Tasks of other kinds and the installation of packages are refused here, other apps by the
process of the task (`flower_own_client`, `flower_own_server`). Nothing is left to Flower's executor.

`python -m quorank.flower.executor APP` takes the arguments of `flower-superexec` behind the app's name.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import subprocess
import sys
from contextlib import suppress

from flwr.supercore.cli.flower_superexec import flower_superexec
from flwr.supercore.constant import TaskType
from flwr.supercore.superexec import run_superexec
from flwr.supercore.superexec.executor import LaunchResult
from flwr.supercore.superexec.executor.subprocess_executor import SubprocessExecutor
from flwr.supercore.superexec.executor.types import ExecutionSpec

from quorank.flower import nursery
from quorank.flower.app import CLIENT_PROCESS, POLL_VARIABLE, SERVER_PROCESS

with suppress(ImportError):
    importlib.import_module("httpcore")  # or every process that is split off loads it with its first request

KINDS = {"client": (TaskType.CLIENT_APP, CLIENT_PROCESS), "server": (TaskType.SERVER_APP, SERVER_PROCESS)}
"""Which tasks are run, and by which process, by what the executor is started for."""


class OwnAppExecutor(SubprocessExecutor):  # type: ignore[misc]  # Flower is not typed here
    """Runs tasks of one kind, split off from the nursery or, without one, in a new process; refuses all others."""

    def __init__(self, orders: socket.socket | None, kind: TaskType, process: str) -> None:
        super().__init__()
        self._orders, self._kind, self._process = orders, kind, process

    def get_eligible_capacity(self, supported_task_types: set[TaskType], **_: object) -> tuple[set[TaskType], set[str]]:
        """Ask for no other tasks."""
        return supported_task_types & {self._kind}, set()

    def launch(self, spec: ExecutionSpec) -> LaunchResult:
        if spec.task_type != self._kind or spec.runtime_dependency_install:
            wants = "packages to be installed" if spec.runtime_dependency_install else f"{spec.task_type} to be run"
            sentence = f"a task wants {wants}, and this machine runs its own {self._kind} alone"
            print(f"refused task.foreign: {sentence}", file=sys.stderr, flush=True)
            return LaunchResult.failed(sentence)
        if not self._order(spec):
            output = subprocess.DEVNULL if spec.suppress_output else None
            subprocess.Popen([sys.executable, "-m", self._process, *words_of(spec)], stdout=output, stderr=output)
        return LaunchResult.accepted()

    def _order(self, spec: ExecutionSpec) -> bool:
        """Have the nursery split off the process of a task; False where there is none that can."""
        if self._orders is None:
            return False
        try:
            order = {"name": self._process, "words": words_of(spec), "quiet": spec.suppress_output}
            self._orders.send(json.dumps(order).encode())
        except OSError:
            return False
        return True


def words_of(spec: ExecutionSpec) -> list[str]:
    """Arguments of the process of a task."""
    words = ["--runtime-api-address", spec.runtime_api_address, "--token", spec.token]
    if spec.insecure:
        words.append("--insecure")
    elif spec.root_certificates_path is not None:
        words += ["--root-certificates", spec.root_certificates_path]
    if spec.parent_pid is not None:
        words += ["--parent-pid", str(spec.parent_pid)]
    return words


def main() -> None:
    """Split off the nursery, then be Flower's executor; where a system has no such sockets, without a nursery."""
    app = sys.argv.pop(1)
    sys.argv[0] = "flower-superexec"
    if app == "server":
        os.environ.pop(POLL_VARIABLE, None)
    kind, process = KINDS[app]
    try:
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    except (AttributeError, OSError):
        run_superexec.get_executor = lambda *given, **named: OwnAppExecutor(None, kind, process)
        flower_superexec()
        return
    if os.fork() == 0:
        here.close()
        with suppress(KeyboardInterrupt):
            nursery.serve(there, nursery.load([process]))
        os._exit(0)
    there.close()
    run_superexec.get_executor = lambda *given, **named: OwnAppExecutor(here, kind, process)
    flower_superexec()


if __name__ == "__main__":
    main()
