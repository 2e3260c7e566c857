"""The executor that forks for each task: what is handed to the nursery, what is refused, and that nothing outlives it."""

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
from flwr.supernode.runtime import run_clientapp

from quorank.errors import BadInput
from quorank.files import write_whole
from quorank.network import flower_client, flower_executor, flower_own_app, nursery

CLIENT = "quorank.network.flower_own_app"


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
    executor = flower_executor.NodeExecutor(here)
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


def test_what_the_coordinator_s_nursery_does_not_know_is_left_to_flower(by_flower) -> None:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    executor = flower_executor.ForkingExecutor(here)
    executor.launch(task("client"))
    executor.launch(task("installs", TaskType.SERVER_APP, install=True))
    there.close()
    executor.launch(task("alone", TaskType.SERVER_APP))
    flower_executor.ForkingExecutor(None).launch(task("none", TaskType.SERVER_APP))
    assert by_flower == ["client", "installs", "alone", "none"]
    here.close()


@pytest.fixture
def processes(monkeypatch) -> list[list[str]]:
    """Commands of the processes that were started."""
    found: list[list[str]] = []
    monkeypatch.setattr("subprocess.Popen", lambda command, **_: found.append(command))
    return found


def test_a_node_runs_no_task_but_its_own_and_leaves_none_to_flower(by_flower, processes, capfd) -> None:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    there.setblocking(False)
    executor = flower_executor.NodeExecutor(here)
    for kind in TaskType:
        for install in (False, True):
            if kind == TaskType.CLIENT_APP and not install:
                continue
            result = executor.launch(task("foreign", kind, install))
            assert result.status == "failed" and "runs its own ClientApp alone" in str(result.message)
    assert capfd.readouterr().err.count("refused task.foreign: a task wants ") == 2 * len(TaskType) - 1
    with pytest.raises(BlockingIOError):
        there.recv(1 << 16)
    assert executor.get_eligible_capacity(set(TaskType), insecure=True) == ({TaskType.CLIENT_APP}, set())
    assert executor.get_eligible_capacity({TaskType.SERVER_APP}) == (set(), set())
    there.close()
    here.close()
    assert by_flower == [] and processes == []


def test_a_node_without_a_nursery_starts_its_own_app_too(by_flower, processes) -> None:
    """Where a system has no such sockets, or the nursery has gone: never Flower's process, which loads what was sent."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    there.close()
    for executor in (flower_executor.NodeExecutor(here), flower_executor.NodeExecutor(None)):
        assert executor.launch(task("alone")) == LaunchResult.accepted()
    here.close()
    words = ["--runtime-api-address", "127.0.0.1:1", "--token", "alone", "--insecure"]
    assert processes == 2 * [[sys.executable, "-m", CLIENT, *words]] and by_flower == []


def test_the_process_of_a_task_loads_nothing_that_was_sent(monkeypatch, capfd) -> None:
    ours = {"install_from_fab": None, "get_load_client_app_fn": None, "install_app_dependencies": None}
    for name in ours:
        monkeypatch.setattr(run_clientapp, name, getattr(run_clientapp, name))  # put back afterwards
    flower_own_app.close_process()
    assert run_clientapp.install_from_fab(b"not even a zip", skip_prompt=True) is None
    load = run_clientapp.get_load_client_app_fn(default_app_ref="", app_path=None, multi_app=True)
    assert load("quorank/quorank-app", "1.0.0", "abc") is flower_client.app
    for name in ("attacker/quorank-app", "quorank/other", "", "quorank/quorank-app/..", "x" * 10_000):
        with pytest.raises(BadInput) as refusal:
            load(name, "1.0.0", "abc")
        assert refusal.value.code == "app.foreign" and len(str(refusal.value)) < 250
    assert capfd.readouterr().err.count("refused app.foreign: a foreign app (") == 5
    with pytest.raises(BadInput):
        run_clientapp.install_app_dependencies("anywhere", launch_id="1")
    monkeypatch.delattr(run_clientapp, "get_load_client_app_fn")
    with pytest.raises(BadInput, match="not known"):
        flower_own_app.close_process()
