"""`quorank coordinator`: its words and refusals without an engine, and once with Flower, two devices and a proxy."""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import secrets
import signal
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path

import pytest
from flower_runs import TOKEN, running
from typer.testing import CliRunner

from quorank.cli.coordinator import app
from quorank.errors import BadInput
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import read_experiment_file
from quorank.experiments.runner import Runner
from quorank.flower import app as flower_app
from quorank.flower.processes import free_ports
from quorank.network import service_run
from quorank.service.home import Home
from quorank.service.members import members
from quorank.service.service import coordinator_of

SMALL = """\
[data]
source = "synthetic:mq2007"
[federation]
clients = 2
interactions = 3
rounds = 1000
"""
PROGRAMS = {
    "coordinator": "from quorank.cli.coordinator import app; app()",
    "join": "import typer; from quorank.cli.join import join; typer.run(join)",
}


def call(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*arguments: object) -> str:
    with pytest.raises(BadInput) as refusal:
        call(*arguments)
    return str(refusal.value)


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(SMALL)
    return tmp_path


@pytest.fixture
def started(here, monkeypatch) -> list[tuple[Home, int | None]]:
    """No engine: what would run is only written down."""
    calls: list[tuple[Home, int | None]] = []
    staying.clear()
    monkeypatch.setattr(flower_app, "check_installed", lambda: None)

    def run(home, log, port, *, stay) -> None:
        calls.append((home, port))
        staying.append(stay)

    monkeypatch.setattr(service_run, "run", run)
    return calls


staying: list[bool] = []
"""Of each start: whether the coordinator stays after its last round."""


def test_rounds_that_do_not_wait_and_an_end_that_is_wanted(started, here) -> None:
    call("start", "home", "--experiment", "small.toml", "--asynchronous", 0.5)
    assert started[0][0].settings.asynchronous == 0.5
    rules = coordinator_of(started[0][0]).rules
    assert rules.asynchronous is not None and rules.asynchronous.replies == 1
    call("start", "home", "--asynchronous", 0, "--exit-when-done")
    assert coordinator_of(Home.open(here / "home")).rules.asynchronous is None
    assert staying == [True, False]
    assert "share from 0" in refused("start", "home", "--asynchronous", 2)
    (here / "masked.toml").write_text(SMALL.replace("clients = 2", "clients = 5") + '[privacy]\nkind = "secure-sum"\n')
    told = refused("start", "masked", "--experiment", "masked.toml", "--asynchronous", 0.5)
    assert "nor can a secure sum be made" in told and not (here / "masked").exists()
    call("start", "masked", "--experiment", "masked.toml")
    assert "secure sum" in refused("start", "masked", "--asynchronous", 0.5)
    assert Home.open(here / "masked").settings.asynchronous == 0.0


def test_the_first_start_makes_the_folder_and_later_ones_open_it(started, here) -> None:
    assert "say what it runs with --experiment" in refused("start", "home")
    assert "no such experiment file" in refused("start", "home", "--experiment", "absent.toml")
    assert "say with --address" in refused("start", "home", "--experiment", "small.toml", "--host", "0.0.0.0")
    assert not (here / "home").exists() and started == []
    call("start", "home", "--experiment", "small.toml", "--host", "0.0.0.0", "--address", "s.example.org:443")
    home, port = started[-1]
    settings = home.settings
    assert (settings.run, settings.n_features, settings.address) == ("small", 46, "s.example.org:443")
    assert (settings.host, settings.port, settings.proxy, port) == ("0.0.0.0", 9092, True, None)
    call("start", "home", "--deadline", 60, "--no-proxy", "--metrics-port", 9999)
    changed = started[-1][0].settings
    assert (changed.deadline, changed.proxy, changed.address) == (60.0, False, "s.example.org:443")
    assert started[-1][1] == 9999 and Home.open(here / "home").settings == changed
    assert "fixed when the folder was made" in refused("start", "home", "--experiment", "small.toml")
    assert "--features, --run: fixed" in refused("start", "home", "--features", 46, "--run", "other")
    assert "0 < least" in refused("start", "home", "--least", 2)
    with Home.open(here / "home").running():
        assert f"runs already (process {os.getpid()})" in refused("start", "home")
    call("start", "second", "--experiment", "small.toml", "--features", 12, "--run", "x", "--port", 7001)
    assert started[-1][0].settings.n_features == 12
    assert started[-1][0].settings.address == "127.0.0.1:7001"
    call("start", "second", "--port", 7002)
    assert started[-1][0].settings.address == "127.0.0.1:7002", "an address that was not chosen follows the port"


def test_members_status_and_files(started, here) -> None:
    assert "no coordinator here" in refused("status", "home")
    call("start", "home", "--experiment", "small.toml")
    assert json.loads(call("invite", "home", "anna", "--json")) == {"name": "anna", "client": 0, "file": "anna.json"}
    assert (here / "anna.json").stat().st_mode & 0o777 == 0o600
    call("invite", "home", "ben", "--out", "b.json")
    assert "all 2 clients" in refused("invite", "home", "carl")
    call("revoke", "home", "ben")
    assert "revoked already" in refused("revoke", "home", "ben")
    table = json.loads(call("status", "home", "--json"))
    assert (table["state"], table["rounds"], table["rounds_planned"], table["process"]) == ("new", 0, 1000, None)
    assert [(m["name"], m["client"], m["state"]) for m in table["members"]] == [
        ("anna", 0, "away"),
        ("ben", 1, "revoked"),
    ]
    assert table["ndcg"] is None and table["epsilon_spent"] is None
    shown = " ".join(call("status", "home").split())
    assert "of 2 clients: 0 present, 1 away, 0 left, 1 revoked" in shown and "no private aggregate" in shown
    written = call("files", "home").split()
    assert [Path(path).name for path in written] == [
        "nginx.conf",
        "quorank-coordinator.service",
        "quorank-join.service",
    ]
    assert "expected a directory" in refused("files", "home", "--out", "small.toml")


def test_stop_ends_the_process_that_runs(started, here) -> None:
    call("start", "home", "--experiment", "small.toml")
    assert "does not run" in refused("stop", "home")
    program = (
        "import signal; from pathlib import Path; from quorank.service.home import Home\n"
        "with Home.open(Path('home')).running():\n    print('up', flush=True); signal.sigwait([signal.SIGTERM])"
    )
    words = [sys.executable, "-c", "import signal; signal.pthread_sigmask(0, [15])\n" + program]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stdout.readline() == "up\n"
        assert json.loads(call("status", "home", "--json"))["process"] == child.pid
        call("stop", "home")
        assert child.wait(10) == 0
    assert Home.open(here / "home").process() is None


def test_a_start_in_the_background_that_fails_says_why(started, here) -> None:
    call("start", "home", "--experiment", "small.toml")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"--metrics-port {port}: cannot be used" in refused("start", "home", "--detach", "--metrics-port", port)
    assert Home.open(here / "home").process() is None


# with the engine


def asked(port: int, authority: Path, path: str) -> int:
    context = ssl.create_default_context(cafile=str(authority))
    line = http.client.HTTPSConnection("localhost", port, timeout=10, context=context)
    line.request("POST", path, b"", {"Content-Type": "application/x-protobuf"})
    return line.getresponse().status


@pytest.mark.skipif(importlib.util.find_spec("flwr") is None, reason="needs quorank[network]")
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds processes by /proc")
def test_two_devices_over_flower(here) -> None:
    token, (outside, inside, metrics) = secrets.token_hex(8), free_ports(3)
    variables = {**os.environ, TOKEN: token}

    def begun(program: str, *words: object) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", PROGRAMS[program], *map(str, words)]
        return subprocess.Popen(command, env=variables, stdout=log, stderr=log)

    def until(ready, what: str, seconds: float = 150.0) -> None:
        end = time.monotonic() + seconds
        while not ready():
            assert time.monotonic() < end, f"{what}: {(here / 'test.log').read_text()}"
            time.sleep(0.2)

    children = []
    with (here / "test.log").open("wb") as log:
        try:
            ports = ("--port", outside, "--inside-port", inside, "--metrics-port", metrics, "--pause", 1)
            first = begun("coordinator", "start", here / "home", "--experiment", "small.toml", *ports, "--detach")
            children.append(first)
            until((here / "home" / "coordinator.json").exists, "the folder")
            home = Home.open(here / "home")
            for name in ("anna", "ben"):
                call("invite", home.path, name)
            until(lambda: all(member.node is not None for member in members(home)), "the keys are known")
            for client, name in enumerate(("anna", "ben")):
                own = ("--data", here / name, "--bundle", here / f"{name}.json", "--consent", "on")
                simulated = ("--simulate", here / "small.toml", "--client", client)
                children.append(begun("join", *own, *simulated, "--quiet"))
            until(lambda: home.last_status().get("rounds", 0) >= 2, "two rounds")
            assert first.wait(60) == 0, "the start in the background has ended by itself"
            table = json.loads(call("status", home.path, "--json"))
            assert table["state"] == "running" and table["rounds"] >= 2 and table["metrics_port"] == metrics
            assert table["accepted"] >= 4 and table["refused"] == {} and table["uptime_seconds"] > 0.0
            assert [member["state"] for member in table["members"]] == ["present", "present"]
            authority = home.path / "ca.pem"
            for path in ("/v1/control/list-nodes", "/v1/control/register-node", "/v1/runtime/acquire-task"):
                assert asked(outside, authority, path) == 403
            assert asked(inside, authority, "/v1/control/list-nodes") != 403, "what the proxy keeps away"
            connection = http.client.HTTPConnection("127.0.0.1", metrics, timeout=10)
            connection.request("GET", "/health")
            assert connection.getresponse().status == 200
            call("revoke", home.path, "ben")
            until(lambda: members(home)[1].removed, "the engine forgets a revoked key")
            call("stop", home.path)
            assert home.process() is None
            for child in children[1:]:
                child.send_signal(signal.SIGTERM)
            for child in children:
                child.wait(30)
        finally:
            number = Home(here / "home").process()
            if number is not None:
                os.kill(number, signal.SIGKILL)
            for child in children:
                child.kill()
                child.wait()
    until(lambda: not running(token), f"still running: {running(token)}", 20.0)
    coordinator = coordinator_of(home)
    assert coordinator.state.round >= 2
    runner = Runner(Experiment.read(read_experiment_file(here / "small.toml")), threads=1)
    state = runner.simulator.initial()
    for _ in range(coordinator.state.round):
        state, _ = runner.experiment.federation.round(state, runner.simulator.gather(state))
    assert coordinator.state.theta.tobytes() == state.theta.tobytes(), "the bits of the run in process"
    told = (home.path / "coordinator.log").read_text()
    assert "round_closed" in told and "anna" not in told and str(here) not in told
