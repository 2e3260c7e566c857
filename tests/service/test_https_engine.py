"""`run --engine https`: an experiment through the real service comes to the bytes of the run in process, whoever dies."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from postgresql_server import empty_database
from real_services import children_of
from refusals import refused
from signed_calls import Desk
from small_runs import files_of

from quorank.engines.engine import EngineRun
from quorank.engines.https import HttpsClients, key_of
from quorank.engines.simulated_clients import SimulatedClients
from quorank.errors import Interrupted
from quorank.experiments import run_directory as storage
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import parse_experiment_file
from quorank.experiments.runner import run_experiment
from quorank.protocol.http_client import ServiceClient
from quorank.protocol.keys import MemberKey
from quorank.service.engine import FOLDER, PlayedHome, PlayedService, https
from quorank.service.store.sql_store import open_store

FILE = """\
[data]
source = "synthetic:mq2007"
[federation]
clients = {clients}
interactions = 2
rounds = {rounds}
keep_every = 0
"""
MORE = {
    "arrivals": 'participation = { kind = "arrivals", enough = 4, least = 2, most = 3, rest = 0, rate = 0.6 }\n',
    "start": '[ranker]\nstart = { 5 = 20.0, 13 = 10.0 }\nstart_scale = "rule"\n',
    "momentum": 'client_momentum = 0.9\nparticipation = { kind = "sampled", cohort = 5 }\n',
    "secure with momentum": 'client_momentum = 0.9\n[privacy]\nkind = "secure-sum"\nclip = 0.1\n',
}


def experiment_of(more: str = "", clients: int = 8, rounds: int = 4) -> Experiment:
    return Experiment.read(parse_experiment_file(FILE.format(clients=clients, rounds=rounds) + more, "played.toml"))


class Interruptions:
    """Asks the run to stop after so many replies of its rounds were committed, and holds up the clients until it has."""

    def __init__(self, moments: list[int]) -> None:
        self.moments, self.replies, self.asked = moments, 0, False

    def committed(self) -> None:
        self.replies += 1
        self.asked = self.asked or (bool(self.moments) and self.replies >= self.moments[0])

    def begin(self) -> None:
        if self.asked:
            self.moments.pop(0)
        self.asked = False


class DeskLine(ServiceClient):
    """A line to the service's application in this process; every so many an answer is lost."""

    clients: InProcess

    def _send(self, method, target, body, most, headers) -> tuple[int, dict[str, str], bytes]:
        clients = self.clients
        with clients.lock:
            while clients.interruptions.asked and not clients.stopping:
                time.sleep(0.01)
            if clients.stopping:
                raise SystemExit
            got = clients.desk.call(method, target, body, headers)
            clients.count += 1
            if target == "/v1/reply" and got.status == 200:
                clients.interruptions.committed()
            if clients.count % 7 == 0:  # its worker was killed: what was committed was not confirmed
                clients.desk.close()
                clients.desk = Desk(clients.home)
                raise ConnectionResetError
        return got.status, got.headers, got.body


class InProcess(HttpsClients):
    """Clients whose requests go to the service's application in this process."""

    def __init__(self, home: PlayedHome, clients: SimulatedClients, interruptions: Interruptions) -> None:
        super().__init__(home.invitation, clients)
        self.home = home
        self.desk, self.lock, self.count, self.stopping = Desk(home), threading.Lock(), 0, False
        self.interruptions = interruptions

    def new_line(self) -> DeskLine:
        line = DeskLine(self.home.settings.url, self.home.key.public)
        line.clients = self
        return line


@contextmanager
def in_process(run: EngineRun, database: str, interruptions: Interruptions) -> Iterator:
    """The engine without processes."""
    interruptions.begin()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        home = PlayedHome.of(run.folder, listener.getsockname()[1], 1, database)
        played = PlayedService(home, listener, run)
        played.tend = played.holder.tend = lambda: None
        clients = InProcess(home, run.clients(), interruptions)

        def work() -> None:
            with suppress(SystemExit):
                clients.enrol()
                clients.play()

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        try:
            yield played.play
        finally:
            clients.stopping = True
            thread.join(20)
            clients.desk.close()
            played.close()


def played_in_process(experiment: Experiment, folder: Path, database: str = "", moments: tuple[int, ...] = ()) -> None:
    """Play with the holder stopped in the middle of rounds, and go on with another."""
    interruptions, resume = Interruptions(list(moments)), False

    def engine(run: EngineRun):
        return in_process(run, database, interruptions)

    for _ in range(1 + len(moments)):
        try:
            run_experiment(
                experiment, folder, resume=resume, stop=lambda: interruptions.asked, threads=1, engine=engine
            )
        except Interrupted:
            resume = True
    assert interruptions.moments == [], "it was stopped as often as it should"


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.nightly] * (kind == "momentum")) for kind in MORE]
)
def test_an_experiment_through_the_application_comes_to_the_same_bytes(kind, tmp_path) -> None:
    experiment = experiment_of(MORE[kind])
    run_experiment(experiment, tmp_path / "process", threads=1)
    played_in_process(experiment, tmp_path / "https", moments=() if "secure" in kind else (6, 13))
    assert files_of(tmp_path / "https") == files_of(tmp_path / "process")
    assert not (tmp_path / "https" / FOLDER).exists(), "nothing of the service is left"
    assert not (tmp_path / "https" / storage.CARRIED).exists()


@pytest.mark.slow
def test_on_postgresql_too(tmp_path) -> None:
    database, experiment = empty_database(), experiment_of(clients=4, rounds=2)
    run_experiment(experiment, tmp_path / "process", threads=1)
    for name in ("first", "second"):  # the first leaves nothing that is in the way of the second
        played_in_process(experiment, tmp_path / name, database, moments=(2, 6))
        assert files_of(tmp_path / name) == files_of(tmp_path / "process")


def test_what_is_refused(tmp_path) -> None:
    with refused("value.out-of-range", "--workers"):
        https(0)
    (tmp_path / storage.CONFIG).write_text(FILE.format(clients=3, rounds=2))
    home = PlayedHome.of(tmp_path, 9, 1, "")
    with refused("option.conflict", "--database"):
        PlayedHome.of(tmp_path, 9, 1, "postgresql://localhost/other")
    store = home.store()
    store.invite("anna", "device", bytes(32))
    run = EngineRun(tmp_path, lambda: None, "", 3, False, 0, 2, lambda: False)
    with refused("database.in-use", "--database"), socket.socket() as listener:
        PlayedService(home, listener, run)
    assert MemberKey(key_of("token", 1).secret).public != key_of("token", 2).public


@pytest.mark.slow
@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgresql", marks=pytest.mark.nightly)])
def test_real_processes_of_which_a_worker_and_the_holder_are_killed(database, tmp_path) -> None:
    clients, rounds = 80, 4
    url = "" if database == "sqlite" else empty_database()
    file, folder = tmp_path / "played.toml", tmp_path / "https"
    file.write_text(FILE.format(clients=clients, rounds=rounds))
    run_experiment(Experiment.read(parse_experiment_file(file.read_text(), "x")), tmp_path / "process", threads=1)
    quorank = [sys.executable, "-m", "quorank.cli.main", "run"]
    options = ["--engine", "https", "--workers", "2", "--quiet", *(["--database", url] if url else [])]
    process = subprocess.Popen([*quorank, str(file), "--out", str(folder), *options], stdout=subprocess.DEVNULL)
    killed: list[int] = []
    try:
        end = time.monotonic() + 120.0
        while not (folder / FOLDER / "coordinator.json").exists() and time.monotonic() < end:
            time.sleep(0.05)
        store = open_store(folder / FOLDER, url)
        while process.poll() is None and len(killed) < 2 and time.monotonic() < end:
            found = store.publication()
            came = 0 if found is None else len(store.replies(found.run, found.round, most=clients))
            if found is None or not 0 < came < clients or found.round < 1 + len(killed):
                time.sleep(0.002)
                continue
            workers = [number for number, words in children_of(process.pid).items() if "intake.worker" in words]
            victim = workers[0] if not killed else process.pid
            os.kill(victim, signal.SIGKILL)
            killed.append(victim)
        assert len(killed) == 2 and process.wait(10) == -signal.SIGKILL
        store.close()
        again = [*quorank, "--resume", str(folder), *options]
        done = subprocess.run(again, stdout=subprocess.DEVNULL, timeout=120, check=False)
        assert done.returncode == 0
    finally:
        process.kill()
        process.wait()
    assert files_of(folder) == files_of(tmp_path / "process")
