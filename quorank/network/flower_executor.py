"""Flower's executor, with tasks that start in a moment: a process that has Flower loaded splits off each one.

Flower's own starts a new interpreter for every task, which spends more than a second of processor time on imports before
it carries a few hundred bytes. Here a nursery is forked before the executor begins and ends with it.

The executor of a node (a device, a party, one of an experiment) runs Quorank's ClientApp and nothing else: other kinds of
tasks and the installation of packages are refused, and `flower_own_app` refuses other apps. The coordinator's leaves to
Flower what it does not know.

`python -m quorank.network.flower_executor APP` takes the arguments of `flower-superexec` behind the app's name.
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
from flwr.supercore.constant import TASK_TYPE_TO_COMMAND, TaskType
from flwr.supercore.superexec import run_superexec
from flwr.supercore.superexec.executor import LaunchResult
from flwr.supercore.superexec.executor.subprocess_executor import SubprocessExecutor
from flwr.supercore.superexec.executor.types import ExecutionSpec

from quorank.network import nursery
from quorank.network.flower_app import OWN_PROCESS, POLL_VARIABLE

with suppress(ImportError):
    importlib.import_module("httpcore")  # or every process that is split off loads it with its first request

SERVER_PROCESS = "flwr-serverapp"


class ForkingExecutor(SubprocessExecutor):  # type: ignore[misc]  # Flower is not typed here
    """Hands tasks of the coordinator to the nursery; without one, and of other kinds, to Flower."""

    process = SERVER_PROCESS

    def __init__(self, orders: socket.socket | None) -> None:
        super().__init__()
        self._orders = orders

    def launch(self, spec: ExecutionSpec) -> LaunchResult:
        known = TASK_TYPE_TO_COMMAND[spec.task_type] == self.process and not spec.runtime_dependency_install
        if known and self.order(spec):
            return LaunchResult.accepted()
        return super().launch(spec)

    def order(self, spec: ExecutionSpec) -> bool:
        """Have the nursery split off the process of a task; whether there is one that can."""
        if self._orders is None:
            return False
        try:
            order = {"name": self.process, "words": words_of(spec), "quiet": spec.suppress_output}
            self._orders.send(json.dumps(order).encode())
        except OSError:
            return False
        return True


class NodeExecutor(ForkingExecutor):
    """Runs our ClientApp, from the nursery or in a new process, and refuses all else."""

    process = OWN_PROCESS

    def get_eligible_capacity(self, supported_task_types: set[TaskType], **_: object) -> tuple[set[TaskType], set[str]]:
        """Ask for no other tasks."""
        return supported_task_types & {TaskType.CLIENT_APP}, set()

    def launch(self, spec: ExecutionSpec) -> LaunchResult:
        if spec.task_type != TaskType.CLIENT_APP or spec.runtime_dependency_install:
            wants = "packages to be installed" if spec.runtime_dependency_install else f"{spec.task_type} to be run"
            sentence = f"a task wants {wants}, and this node runs its own ClientApp alone"
            print(f"refused task.foreign: {sentence}", file=sys.stderr, flush=True)
            return LaunchResult.failed(sentence)
        if not self.order(spec):
            output = subprocess.DEVNULL if spec.suppress_output else None
            subprocess.Popen([sys.executable, "-m", self.process, *words_of(spec)], stdout=output, stderr=output)
        return LaunchResult.accepted()


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


EXECUTORS = {"client": NodeExecutor, "server": ForkingExecutor}
"""By the app that is run, which is `quorank.network.flower_…`."""


def main() -> None:
    """Split off the nursery, then be Flower's executor; where a system has no such sockets, without a nursery."""
    app = sys.argv.pop(1)
    sys.argv[0] = "flower-superexec"
    if app == "server":
        os.environ.pop(POLL_VARIABLE, None)
    executor = EXECUTORS[app]
    try:
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    except (AttributeError, OSError):
        run_superexec.get_executor = lambda *given, **named: executor(None)
        flower_superexec()
        return
    if os.fork() == 0:
        here.close()
        with suppress(KeyboardInterrupt):
            entries = nursery.load([executor.process])
            importlib.import_module(f"quorank.network.flower_{app}")
            nursery.serve(there, entries)
        os._exit(0)
    there.close()
    run_superexec.get_executor = lambda *given, **named: executor(here)
    flower_superexec()


if __name__ == "__main__":
    main()
