"""Flower's executor that runs Quorank's own app and nothing else.

That of a node runs our ClientApp, the coordinator's the ServerApp, each task in a new process. Tasks of other kinds and the
installation of packages are refused here, other apps by the process of the task (`own_client`, `own_server`). Nothing is
left to Flower's executor.

`python -m quorank.flower.executor APP` takes the arguments of `flower-superexec` behind the app's name.
"""

from __future__ import annotations

import subprocess
import sys

from flwr.supercore.cli.flower_superexec import flower_superexec
from flwr.supercore.constant import TaskType
from flwr.supercore.superexec import run_superexec
from flwr.supercore.superexec.executor import LaunchResult
from flwr.supercore.superexec.executor.subprocess_executor import SubprocessExecutor
from flwr.supercore.superexec.executor.types import ExecutionSpec

KINDS = {
    "client": (TaskType.CLIENT_APP, "quorank.flower.own_client"),
    "server": (TaskType.SERVER_APP, "quorank.flower.own_server"),
}
"""Which tasks are run, and by which process, by what the executor is started for."""


class OwnAppExecutor(SubprocessExecutor):  # type: ignore[misc]  # Flower is not typed here
    """Runs tasks of one kind, each in a new process; refuses all others."""

    def __init__(self, kind: TaskType, process: str) -> None:
        super().__init__()
        self._kind, self._process = kind, process

    def get_eligible_capacity(self, supported_task_types: set[TaskType], **_: object) -> tuple[set[TaskType], set[str]]:
        """Ask for no other tasks."""
        return supported_task_types & {self._kind}, set()

    def launch(self, spec: ExecutionSpec) -> LaunchResult:
        """Start the process of a task of ours; refuse any other."""
        if spec.task_type != self._kind or spec.runtime_dependency_install:
            wants = "packages to be installed" if spec.runtime_dependency_install else f"{spec.task_type} to be run"
            sentence = f"a task wants {wants}, and this machine runs its own {self._kind} alone"
            print(f"refused task.foreign: {sentence}", file=sys.stderr, flush=True)
            return LaunchResult.failed(sentence)
        words = [sys.executable, "-m", self._process]
        words += ["--runtime-api-address", spec.runtime_api_address, "--token", spec.token]
        words += ["--insecure"] if spec.insecure else ["--root-certificates", spec.root_certificates_path]
        if spec.parent_pid is not None:
            words += ["--parent-pid", str(spec.parent_pid)]
        subprocess.Popen(words)
        return LaunchResult.accepted()


def main() -> None:
    """Be Flower's executor."""
    app = sys.argv.pop(1)
    sys.argv[0] = "flower-superexec"
    run_superexec.get_executor = lambda *given, **named: OwnAppExecutor(*KINDS[app])
    flower_superexec()


if __name__ == "__main__":
    main()
