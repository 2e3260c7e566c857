"""`quorank join`: rehearsals, invitations, consent, the log, and leaving."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import typer
from flower_runs import TOKEN, running
from typer.testing import CliRunner

from quorank.certificates import node_keys
from quorank.cli.join import join
from quorank.device import link as links
from quorank.device.leaving import LEFT
from quorank.device.link import Direct
from quorank.device.private_store import PrivateStore
from quorank.device.rehearsal import FOLDER, JoinRehearsal
from quorank.errors import BadInput
from quorank.experiments.client_terms import terms_of
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import read_experiment_file
from quorank.experiments.runner import Runner
from quorank.federation.bundle import FILE, Bundle
from quorank.federation.coordinator import Coordinator
from quorank.federation.keeping import KeptInFolder

SMALL = """\
[data]
source = "synthetic:mq2007"
[federation]
clients = 5
interactions = 3
rounds = 6
keep_every = 2
"""
KEYS = node_keys()
app = typer.Typer()
app.command()(join)


@dataclass
class Outcome:
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


def call(*arguments: object) -> Outcome:
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return Outcome(result.stdout, result.stderr)


def refused(*arguments: object) -> str:
    with pytest.raises(BadInput) as refusal:
        call(*arguments)
    return str(refusal.value)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(SMALL)
    return tmp_path


def experiment(text: str = SMALL, folder=None) -> Experiment:
    return Experiment.read(read_experiment_file(folder / "small.toml"))


def test_a_rehearsal_comes_to_the_run_s_bits_in_several_sittings(here, monkeypatch) -> None:
    rehearse = ("--data", "device", "--simulate", "small.toml", "--client", 3)
    first = call(*rehearse)
    assert "consent is off" in first.err
    assert call("--data", "device", "--status", "--json").json["releases"] == 0
    real, calls = links.take_part, []

    def cut_short(device, link, search, seen):
        """The process ends after some tasks."""
        calls.append(1)
        if len(calls) > 1:
            return real(device, link, search, seen)
        for number, task in enumerate(link.tasks()):
            if number == 2:
                break
            device.answer(task)
            while not device.ready():
                search(device)
            link.send(device.answer(task))
        return 2

    monkeypatch.setattr(links, "take_part", cut_short)
    call(*rehearse, "--consent", "on")
    assert call("--data", "device", "--status", "--json").json["last_round"] == 2
    done = call(*rehearse)
    assert "sent" in done.err
    figures = call("--data", "device", "--status", "--json").json
    assert figures["last_round"] == figures["rounds"] == figures["releases"] == 6
    assert figures["consent"] is True
    log = call("--data", "device", "--log", "--json").json
    assert [entry["round"] for entry in log["releases"]] == [1, 2, 3, 4, 5, 6]
    assert sum(entry["bytes"] for entry in log["releases"]) == figures["bytes_sent"]
    assert log["releases"][0]["privacy"]["standing"].startswith("not protected")
    assert [given["given"] for given in log["consent"]] == [True]
    shown = call("--data", "device", "--log").out
    assert "not protected: the coordinator can read this update" in " ".join(shown.split())
    with PrivateStore(here / "device") as store:
        assert [round_ for round_, _ in store.kept(FOLDER)] == [1, 3, 5]
    runner = Runner(experiment(folder=here), threads=1)
    state = runner.simulator.initial()
    for _ in range(6):
        state, _ = runner.experiment.federation.round(state, runner.simulator.gather(state))
    coordinator = JoinRehearsal(here / "small.toml", 3).link(here / "device").coordinator
    assert coordinator.done
    assert coordinator.state.theta.tobytes() == state.theta.tobytes()


def bundle_of(here, client=1) -> Bundle:
    found = experiment(folder=here)
    terms = terms_of(found, 46, client, "spring")
    return Bundle("desk", "localhost:9092", "PEM", KEYS.private.decode(), terms)


def engine_of(here, monkeypatch, enough=True) -> list[Direct]:
    """In place of a network: a coordinator in this process, of the run that the invitation is for."""
    lines: list[Direct] = []
    rehearsal = JoinRehearsal(here / "small.toml", 1)
    simulator = rehearsal.simulator
    (here / "coordinator").mkdir(exist_ok=True)

    def connect(bundle, folder):
        coordinator = Coordinator(
            simulator.federation, simulator.mechanism, simulator.initial(), 6, "spring", 1,
            keeping=KeptInFolder(here / "coordinator"),
        )  # fmt: skip

        def others(task, clients):
            return simulator.replies(task, np.array(clients)) if clients else []

        lines.append(Direct(coordinator, 1, others, {1: KEYS.public}))
        return lines[-1]

    monkeypatch.setattr(links, "connect", connect)
    return lines


def test_an_invitation_is_accepted_once_and_a_client_leaves(here, monkeypatch) -> None:
    bundle_of(here).write(here / "desk.json")
    lines = engine_of(here, monkeypatch)
    simulated = ("--simulate", "small.toml", "--client", 1)
    call("--data", "device", "--bundle", "desk.json", "--consent", "on", *simulated, "--quiet")
    assert (here / "device" / FILE).stat().st_mode & 0o777 == 0o600
    assert lines[0].coordinator.done
    figures = call("--data", "device", "--status", "--json").json
    assert (figures["run"], figures["client"], figures["releases"]) == ("spring", 1, 6)
    off = call("--data", "device", "--consent", "off", "--json").json
    assert off["consent"] is False
    gone = call("--data", "device", "--leave", "--json").json
    assert set(gone["files"]) == {"device.sqlite", "device.lock", FILE}
    assert lines[-1].leavers[0].client == 1
    assert [path.name for path in (here / "device").iterdir()] == [LEFT]
    for more in (["--status"], ["--log"], [], ["--bundle", "desk.json"], ["--consent", "on"]):
        assert "has left its run" in refused("--data", "device", *more)
    assert "left already" in refused("--data", "device", "--leave")


@pytest.mark.parametrize("halfway", [False, True])
def test_a_leaving_that_was_cut_short_is_finished(halfway, here, monkeypatch) -> None:
    from quorank.device import leaving

    bundle_of(here).write(here / "desk.json")
    engine_of(here, monkeypatch)
    call("--data", "device", "--bundle", "desk.json", "--consent", "on", "--quiet")

    def dies(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(leaving.PrivateStore, "erase", dies)
        CliRunner().invoke(app, ["--data", "device", "--leave"])
    file = here / "device" / "device.sqlite"
    assert file.exists()
    if halfway:  # killed while zeros were written over it
        file.write_bytes(bytes(8192) + file.read_bytes()[8192:])
    assert "has left its run" in refused("--data", "device", "--status")
    assert "overwritten and deleted" in call("--data", "device", "--leave").out
    assert [path.name for path in (here / "device").iterdir()] == [LEFT]


def test_refusals(here, monkeypatch) -> None:
    assert "no device here" in refused("--data", "device", "--status")
    assert "no device here" in refused("--data", "device", "--log")
    assert "no device here" in refused("--data", "device", "--leave")
    assert "no device here" in refused("--data", "device", "--consent", "on")
    assert "no invitation here" in refused("--data", "device")
    assert "no invitation here" in refused("--data", "device", "--coordinator", "host:9092")
    assert "not an address" in refused("--data", "device", "--coordinator", "host")
    assert "needs --client" in refused("--data", "device", "--simulate", "small.toml")
    assert "is of --simulate" in refused("--data", "device", "--client", 3)
    assert "choose one" in refused("--data", "device", "--log", "--status")
    assert "without --bundle" in refused("--data", "device", "--log", "--bundle", "x")
    assert "clients 0 to 4" in refused("--data", "device", "--simulate", "small.toml", "--client", 5)
    assert "no such experiment" in refused("--data", "device", "--simulate", "absent.toml", "--client", 1)
    assert "cannot be read" in refused("--data", "device", "--bundle", "absent.json")
    assert not (here / "device").exists()
    bundle_of(here).write(here / "desk.json")
    monkeypatch.setattr(links, "ENGINE", "quorank.network.absent")
    assert "no engine is installed" in refused("--data", "device", "--bundle", "desk.json")
    bundle_of(here, 2).write(here / "other.json")
    assert "under other terms" in refused("--data", "device", "--bundle", "other.json")
    with PrivateStore(here / "device"):
        assert "another process plays" in refused("--data", "device", "--bundle", "desk.json")
        assert call("--data", "device", "--consent", "on", "--json").json["consent"] is True
    (here / "small.toml").write_text(SMALL + '[privacy]\nkind = "secure-sum"\n')
    secure = refused("--data", "second", "--simulate", "small.toml", "--client", 1)
    assert "a secure sum needs devices only" in secure
    (here / "small.toml").write_text(
        SMALL.replace("interactions = 3", "interactions = 4") + '[learner]\nkind = "evolution"\n'
    )
    assert "devices learn with pdgd" in refused("--data", "third", "--simulate", "small.toml", "--client", 1)


ENGINE = """
import sys
from quorank.cli.main import main
from quorank.network import flower_app, flower_device
idle = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
flower_app.Commands.supernode = flower_app.Commands.node_executor = lambda *_: idle
flower_app.check_installed = lambda: None
flower_device.reachable = lambda address: True
sys.argv = ["quorank", "join", *sys.argv[1:]]
main()
"""


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds processes by /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_cleanly_when_it_is_asked_to(number, here) -> None:
    """The engine's folder with the key and its processes are gone, and the exit code says that it was stopped."""
    bundle = Bundle("desk", "localhost:9092", "PEM", KEYS.private.decode(), terms_of(experiment(folder=here), 46, 0))
    bundle.write(here / "desk.json")
    token = secrets.token_hex(8)
    words = [sys.executable, "-c", ENGINE, "--data", "desk", "--bundle", "desk.json", "--consent", "on"]
    with subprocess.Popen(words, env={**os.environ, TOKEN: token}, stderr=subprocess.PIPE, text=True) as child:
        try:
            end = time.monotonic() + 30.0
            while not (here / "desk" / "engine" / "executor.log").exists():
                assert time.monotonic() < end and child.poll() is None
                time.sleep(0.05)
            assert (here / "desk" / "engine" / "node.key").exists()
            child.send_signal(number)
            assert child.wait(30) == 130
            assert child.stderr is not None and "Traceback" not in child.stderr.read()
        finally:
            child.kill()
    assert not (here / "desk" / "engine").exists()
    end = time.monotonic() + 5.0
    while running(token):
        assert time.monotonic() < end, running(token)
        time.sleep(0.05)
