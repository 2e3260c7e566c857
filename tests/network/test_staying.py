"""After the last round a coordinator stays: devices hear that all is over, and clients can still leave."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from quorank import frames
from quorank.cli.flower_status import status_of
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import parse_experiment_file
from quorank.experiments.runner import Runner
from quorank.federation import notices, wire
from quorank.federation.bundle import Bundle
from quorank.federation.leaving import receipt_of, request_of
from quorank.federation.transport import Memory
from quorank.network import service_run
from quorank.network.service_run import run
from quorank.service import staying
from quorank.service.home import Home, Settings
from quorank.service.members import invite, members
from quorank.service.observe import EventLog

FILE = """\
[data]
source = "synthetic:mq2007"
[federation]
clients = 3
interactions = 2
rounds = 2
keep_every = 0
"""


@pytest.fixture
def home(tmp_path) -> Home:
    found = Experiment.read(parse_experiment_file(FILE, "staying.toml"))
    home = Home.create(tmp_path / "home", found, Settings("spring", 46, "search.example.org:9092"))
    for name in ("anna", "ben", "carl"):
        invite(home, name, tmp_path / f"{name}.json")
    return home


class People:
    """Three devices: they go when they hear that all is over; `script` says what happens then."""

    def __init__(self, home: Home, request: bytes, script) -> None:
        self.runner, self.request, self.script = Runner(home.experiment, threads=1), request, script
        self.clients = {member.label: member.client for member in members(home)}
        self.names = {client: label for label, client in self.clients.items()}
        self.heard: list[tuple[int, bytes]] = []
        self.leaving = False

    def answer(self, node: str, content: bytes) -> bytes:
        client = self.clients[node]
        if notices.is_notice(content):
            self.heard.append((client, content))
            if content == notices.OVER and not (self.leaving and client == 2):
                self.network.leave(node)
                return frames.pack([notices.HEARD])
            if content.startswith(notices.RECEIPT) or not (self.leaving and client == 2):
                return frames.pack([notices.HEARD])
        if self.leaving and client == 2:
            return frames.pack([self.request])
        replies = self.runner.simulator.replies(wire.decode_task(content), np.array([client]))
        return frames.pack([wire.encode_reply(replies[0])])

    @contextmanager
    def connect(self, service, stop):
        self.network = Memory(self.answer, list(self.clients))
        yield self.network, lambda: self.script(self, service), lambda: True


def stop() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_client_leaves_after_the_last_round(home, tmp_path, monkeypatch) -> None:
    bundle = Bundle.read(tmp_path / "carl.json")
    request = request_of(bundle.terms, bundle.key, 5.0, b"nonce")
    seen: dict[str, object] = {}
    deadline = time.monotonic() + 20.0

    def script(people: People, service) -> None:
        assert time.monotonic() < deadline, people.heard
        if service.coordinator.done and not people.network.present and not people.leaving:
            seen["told"], seen["status"] = list(people.heard), status_of(home)
            seen["ranker"] = (home.path / "ranker.json").read_bytes()
            people.leaving = True
            people.network.come(people.names[2])
        if service.desk is not None and service.desk.pending:
            for client in (
                0,
                1,
            ):  # the others' devices come back, and are not sent away before the ranker is built again
                people.network.come(people.names[client])
        if (2, receipt_of(request)) in people.heard and not people.network.present - {people.names[2]}:
            stop()

    people, stream = People(home, request, script), io.StringIO()
    assert run(home, EventLog(stream), None, people.connect, stay=True) is True
    told = sorted(client for client, notice in seen["told"] if notice == notices.OVER)
    assert told == [0, 1, 2]
    assert seen["status"]["state"] == "done" and seen["status"]["process"] == os.getpid()
    assert seen["status"]["rounds"] == 2 and seen["status"]["cohort"] == 0
    assert (home.path / "ranker.json").read_bytes() != seen["ranker"], "it was built again"
    (left,) = json.loads((home.path / "leaving.json").read_text())
    assert (left["client"], left["done"], left["method"]) == (2, True, "fresh")
    kinds = [json.loads(line)["event"] for line in stream.getvalue().splitlines()]
    assert kinds == ["starting", "ready", *["round_closed"] * 2, "finished", "rebuilding_finished", "stopped"]
    assert status_of(home)["state"] == "done"


def test_a_later_start_stays_too_and_a_leaver_needs_no_others_where_none_may_be_asked(
    home, tmp_path, monkeypatch
) -> None:
    """Stopped in the middle of a rebuilding, it goes on with it at the next start."""
    bundle = Bundle.read(tmp_path / "carl.json")
    request = request_of(bundle.terms, bundle.key, 5.0, b"nonce")
    deadline = time.monotonic() + 30.0

    def alone(people: People, service) -> None:
        assert time.monotonic() < deadline, people.heard
        if service.coordinator.done and not people.network.present:
            people.leaving = True
            people.network.come(people.names[2])
        if service.desk is not None and service.desk.pending:
            stop()

    run(home, EventLog(None), None, People(home, request, alone).connect, stay=True)
    assert [one["done"] for one in json.loads((home.path / "leaving.json").read_text())] == [False]

    def others(people: People, service) -> None:
        assert time.monotonic() < deadline, people.heard
        people.leaving = True
        if (2, receipt_of(request)) in people.heard:
            stop()

    assert run(home, EventLog(None), None, People(home, request, others).connect, stay=True) is True
    assert [one["done"] for one in json.loads((home.path / "leaving.json").read_text())] == [True]


def test_who_is_still_there_is_told_again(home, monkeypatch) -> None:
    monkeypatch.setattr(staying, "AGAIN_SECONDS", 0.3)

    def script(people: People, service) -> None:
        if service.coordinator.done:
            for name in people.names.values():
                people.network.come(name)  # it did not hear it
        if people.heard.count((0, notices.OVER)) >= 3:
            stop()

    people, logs = People(home, b"", script), set()
    monkeypatch.setattr(service_run, "turn_over", logs.add)
    run(home, EventLog(None), None, people.connect, stay=True)
    assert logs == {home.path / "coordinator.log"}, "its length is looked at all the time"
    assert {client for client, notice in people.heard if notice == notices.OVER} == {0, 1, 2}


PROGRAM = """
import sys
from pathlib import Path
from quorank.service.observe import turn_over
for number in range(40):
    print(f"{number:03d}" + 96 * "x", file=sys.stderr, flush=True)
    turn_over(Path(sys.argv[1]), longest=1000, kept=2)
print("out", flush=True)
"""


def test_a_log_begins_anew_at_its_size_and_the_oldest_goes(tmp_path) -> None:
    log = tmp_path / "coordinator.log"
    with log.open("ab") as stream:
        subprocess.run([sys.executable, "-c", PROGRAM, str(log)], stdout=stream, stderr=stream, check=True, timeout=60)
    found = sorted(path.name for path in tmp_path.iterdir())
    assert found == ["coordinator.log", "coordinator.log.1", "coordinator.log.2"]
    assert all(path.stat().st_size <= 1100 for path in tmp_path.iterdir())
    lines = "".join((tmp_path / name).read_text() for name in reversed(found)).splitlines()
    numbers = [int(line[:3]) for line in lines if line != "out"]
    assert numbers == list(range(numbers[0], 40)) and lines[-1] == "out"


def test_what_is_printed_elsewhere_is_left_alone(tmp_path) -> None:
    log = tmp_path / "coordinator.log"
    log.write_bytes(bytes(5000))
    words = [sys.executable, "-c", PROGRAM, str(log)]
    subprocess.run(words, capture_output=True, check=True, timeout=60)
    assert [path.name for path in Path(tmp_path).iterdir()] == ["coordinator.log"]
