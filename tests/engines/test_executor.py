"""The executor of a node and of the coordinator: it runs our own app, and refuses whatever else is sent."""

from __future__ import annotations

import sys

import pytest
from refusals import refused

pytest.importorskip("flwr", reason="needs quorank[flower]")

from flwr.supercore.constant import TaskType
from flwr.supercore.superexec.executor import LaunchResult
from flwr.supercore.superexec.executor.subprocess_executor import SubprocessExecutor
from flwr.supercore.superexec.executor.types import ExecutionSpec
from flwr.supernode.runtime import run_clientapp

from quorank.flower import app as flower_app
from quorank.flower import client as flower_client
from quorank.flower import executor as flower_executor
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


@pytest.fixture
def processes(monkeypatch) -> list[list[str]]:
    """Commands of the processes that were started."""
    found: list[list[str]] = []
    monkeypatch.setattr("subprocess.Popen", lambda command, **_: found.append(command))
    return found


@pytest.mark.parametrize("own", [NODE, COORDINATOR])
def test_an_executor_runs_no_task_but_its_own_and_leaves_none_to_flower(own, by_flower, processes, capfd) -> None:
    executor = flower_executor.OwnAppExecutor(*own)
    for kind in TaskType:
        for install in (False, True):
            if kind == own[0] and not install:
                continue
            result = executor.launch(task("foreign", kind, install))
            assert result.status == "failed" and f"runs its own {own[0]} alone" in str(result.message)
    assert capfd.readouterr().err.count("refused task.foreign: a task wants ") == 2 * len(TaskType) - 1
    assert executor.get_eligible_capacity(set(TaskType), insecure=True) == ({own[0]}, set())
    assert executor.get_eligible_capacity({TaskType.SIMULATION}) == (set(), set())
    assert by_flower == [] and processes == []


@pytest.mark.parametrize("own", [NODE, COORDINATOR])
def test_its_own_app_is_started_in_a_process_of_ours(own, by_flower, processes) -> None:
    """Never Flower's process, which loads what was sent."""
    executor = flower_executor.OwnAppExecutor(*own)
    assert executor.launch(task("alone", own[0])) == LaunchResult.accepted()
    words = ["--runtime-api-address", "127.0.0.1:1", "--token", "alone", "--insecure"]
    assert processes == [[sys.executable, "-m", own[1], *words]] and by_flower == []


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
