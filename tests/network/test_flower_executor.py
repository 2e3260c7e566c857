"""The executor that forks for each task: what is handed to the nursery, what is not, and that nothing outlives it."""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs quorank[network]")
if not sys.platform.startswith("linux"):
    pytest.skip("forks", allow_module_level=True)

from flwr.supercore.constant import TaskType
from flwr.supercore.superexec.executor import LaunchResult
from flwr.supercore.superexec.executor.subprocess_executor import SubprocessExecutor
from flwr.supercore.superexec.executor.types import ExecutionSpec

from quorank.files import write_whole
from quorank.network import flower_executor, nursery

CLIENT = "flwr-clientapp"


def task(token: str, kind: TaskType = TaskType.CLIENT_APP, install: bool = False) -> ExecutionSpec:
    return ExecutionSpec(kind, "127.0.0.1:1", token, True, None, install, None, False, 1)


@pytest.fixture
def by_flower(monkeypatch) -> list[str]:
    """The tokens of tasks that were left to Flower."""
    left: list[str] = []

    def launch(self: SubprocessExecutor, spec: ExecutionSpec) -> LaunchResult:
        left.append(spec.token)
        return LaunchResult.accepted()

    monkeypatch.setattr(SubprocessExecutor, "launch", launch)
    return left


def running(process: str) -> str | None:
    """When a process that has not ended was started: a later one may have its number; None where there is none."""
    try:
        state, *rest = Path("/proc", process, "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state in "ZX" else rest[18]


def write_token(folder: Path) -> None:
    """In place of a ClientApp: it says that it ran, and in which process, and ends as Flower's tasks end."""
    words = sys.argv
    assert words[:3] == [CLIENT, "--runtime-api-address", "127.0.0.1:1"] and "--insecure" in words
    token = words[words.index("--token") + 1]
    number = str(os.getpid())
    write_whole(folder / "told" / token, f"{number} {running(number)}")
    if token == "raises":
        raise RuntimeError("what a task may say")
    sys.exit(3)


def test_each_task_is_a_process_of_its_own_and_the_nursery_goes_with_the_executor(tmp_path, by_flower) -> None:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    told = tmp_path / "told"
    told.mkdir()

    def serve() -> None:
        here.close()
        nursery.serve(there, {CLIENT: lambda: write_token(tmp_path)})

    process = multiprocessing.get_context("fork").Process(target=serve)
    process.start()
    there.close()
    executor = flower_executor.ForkingExecutor(here, {CLIENT})
    tokens = ["raises", *(f"task-{number}" for number in range(20))]
    for token in tokens:
        assert executor.launch(task(token)) == LaunchResult.accepted()
    end = time.monotonic() + 60
    while not all((told / token).exists() for token in tokens) and time.monotonic() < end:
        time.sleep(0.01)
    processes = dict((told / token).read_text().split() for token in tokens)
    assert len(processes) == len(tokens) and str(process.pid) not in processes
    assert by_flower == []
    here.close()
    process.join(60)
    assert process.exitcode == 0
    end = time.monotonic() + 60
    while any(running(number) == since for number, since in processes.items()):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_what_the_nursery_does_not_know_or_what_finds_no_nursery_is_left_to_flower(by_flower) -> None:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    executor = flower_executor.ForkingExecutor(here, {CLIENT})
    executor.launch(task("server", TaskType.SERVER_APP))
    executor.launch(task("installs", install=True))
    there.close()
    executor.launch(task("alone"))
    assert by_flower == ["server", "installs", "alone"]
    here.close()
