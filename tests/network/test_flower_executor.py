"""The executor that forks for each task: what is handed to the nursery, what is refused, and that nothing outlives it."""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
import time
from pathlib import Path

import pytest
from refusals import refused

pytest.importorskip("flwr", reason="needs quorank[network]")
if not sys.platform.startswith("linux"):
    pytest.skip("forks", allow_module_level=True)

from flwr.supercore.constant import TaskType
from flwr.supercore.superexec.executor import LaunchResult
from flwr.supercore.superexec.executor.subprocess_executor import SubprocessExecutor
from flwr.supercore.superexec.executor.types import ExecutionSpec
from flwr.supernode.runtime import run_clientapp

from quorank.files import write_whole
from quorank.flower import app as flower_app
from quorank.flower import client as flower_client
from quorank.flower import executor as flower_executor
from quorank.flower import nursery
from quorank.flower import own_client as flower_own_client
from quorank.flower import own_server as flower_own_server
from quorank.flower import server as flower_server
from quorank.flower.own_server import RUNTIME

CLIENT, SERVER = "quorank.flower.own_client", "quorank.flower.own_server"
NODE, COORDINATOR = (TaskType.CLIENT_APP, CLIENT), (TaskType.SERVER_APP, SERVER)


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
    executor = flower_executor.OwnAppExecutor(here, *NODE)
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


@pytest.fixture
def processes(monkeypatch) -> list[list[str]]:
    """Commands of the processes that were started."""
    found: list[list[str]] = []
    monkeypatch.setattr("subprocess.Popen", lambda command, **_: found.append(command))
    return found


@pytest.mark.parametrize("own", [NODE, COORDINATOR])
def test_an_executor_runs_no_task_but_its_own_and_leaves_none_to_flower(own, by_flower, processes, capfd) -> None:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    there.setblocking(False)
    executor = flower_executor.OwnAppExecutor(here, *own)
    for kind in TaskType:
        for install in (False, True):
            if kind == own[0] and not install:
                continue
            result = executor.launch(task("foreign", kind, install))
            assert result.status == "failed" and f"runs its own {own[0]} alone" in str(result.message)
    assert capfd.readouterr().err.count("refused task.foreign: a task wants ") == 2 * len(TaskType) - 1
    with pytest.raises(BlockingIOError):
        there.recv(1 << 16)
    assert executor.get_eligible_capacity(set(TaskType), insecure=True) == ({own[0]}, set())
    assert executor.get_eligible_capacity({TaskType.SIMULATION}) == (set(), set())
    there.close()
    here.close()
    assert by_flower == [] and processes == []


@pytest.mark.parametrize("own", [NODE, COORDINATOR])
def test_without_a_nursery_its_own_app_is_started_too(own, by_flower, processes) -> None:
    """Where a system has no such sockets, or the nursery has gone: never Flower's process, which loads what was sent."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    there.close()
    for orders in (here, None):
        executor = flower_executor.OwnAppExecutor(orders, *own)
        assert executor.launch(task("alone", own[0])) == LaunchResult.accepted()
    here.close()
    words = ["--runtime-api-address", "127.0.0.1:1", "--token", "alone", "--insecure"]
    assert processes == 2 * [[sys.executable, "-m", own[1], *words]] and by_flower == []


NAMES = ("attacker/quorank-app", "quorank/other", "", "quorank/quorank-app/..", "x" * 10_000)


@pytest.fixture
def closed(monkeypatch):
    """Flower's modules that load apps, closed as in the process of a task; they are put back afterwards."""
    for module, functions in ((run_clientapp, flower_own_client.IN_PLACE), (RUNTIME, flower_own_server.IN_PLACE)):
        for name in functions:
            monkeypatch.setattr(module, name, getattr(module, name))
        flower_app.put_in_place(module, functions)
    return monkeypatch


def test_the_process_of_a_node_s_task_loads_nothing_that_was_sent(closed, capfd) -> None:
    assert run_clientapp.install_from_fab(b"not even a zip", skip_prompt=True) is None
    load = run_clientapp.get_load_client_app_fn(default_app_ref="", app_path=None, multi_app=True)
    assert load("quorank/quorank-app", "1.0.0", "abc") is flower_client.app
    for name in NAMES:
        with refused("app.foreign"):
            load(name, "1.0.0", "abc")
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == len(NAMES) and all(len(line) < 250 for line in lines)
    assert all(line.startswith("refused app.foreign: a foreign app (") for line in lines)
    with refused("app.foreign"):
        run_clientapp.install_app_dependencies("anywhere", launch_id="1")
    closed.delattr(run_clientapp, "get_load_client_app_fn")
    with refused("engine.version"):
        flower_app.put_in_place(run_clientapp, flower_own_client.IN_PLACE)


def test_the_process_of_the_coordinator_s_task_runs_nothing_that_was_sent(closed) -> None:
    assert RUNTIME.install_from_fab(b"not even a zip", skip_prompt=True) is None
    for name in NAMES:
        closed.setattr(flower_own_server, "get_fab_metadata", lambda content, name=name: (name, "1.0.0"))
        with refused("app.foreign"):
            RUNTIME.get_fab_metadata(b"packed")
    ran: list[object] = []
    closed.setattr(flower_own_server, "run", lambda **named: ran.append(named["loaded_server_app"]))
    RUNTIME.run_(grid=None, context=None, server_app_dir="/anywhere", server_app_attr="evil:app")
    assert ran == [flower_server.app]
