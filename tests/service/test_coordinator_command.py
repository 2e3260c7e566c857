"""`quorank coordinator`: its words and refusals, and once with real processes in the background."""

from __future__ import annotations

import json
import os
import socket
from contextlib import closing
from pathlib import Path

import pytest
from command_line import invoke
from real_services import free_port, is_alive, until
from refusals import refused
from signed_calls import Caller, over_tls

from quorank.cli import service
from quorank.cli.coordinator import app
from quorank.protocol.invitation import Invitation
from quorank.service.dashboard.event_log import EventLog
from quorank.service.holders.tuning import TuningHome, TuningService
from quorank.service.home import Home

SMALL = """\
[federation]
clients = 2
interactions = 3
rounds = 1000
"""


def call(*arguments: object) -> str:
    return invoke(app, *arguments).stdout


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(SMALL)
    return tmp_path


@pytest.fixture
def started(here: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What would run is only written down."""
    calls: list[list[str]] = []
    monkeypatch.setattr(service, "replace_by", calls.append)
    return calls


def test_the_first_start_makes_the_folder_and_later_ones_open_it(started: list[list[str]], here: Path) -> None:
    with refused("coordinator.missing"):
        call("start", "home")
    with refused("file.missing"):
        call("start", "home", "--experiment", "absent.toml")
    with refused("address.every"):
        call("start", "home", "--experiment", "small.toml", "--features", 5, "--host", "0.0.0.0")
    assert not (here / "home").exists() and started == []
    made = ("--experiment", "small.toml", "--features", 5, "--host", "0.0.0.0", "--address", "s.example.org:443")
    call("start", "home", *made)
    assert started[-1][1:] == ["-m", "quorank.service.supervisor", str(here / "home")]
    settings = Home.open(here / "home").settings
    assert (settings.run, settings.n_features, settings.url) == ("small", 5, "https://s.example.org:443")
    assert (settings.host, settings.port, settings.workers) == ("0.0.0.0", 9092, 2)
    call("start", "home", "--set", "deadline=60", "--workers", 4, "--exit-when-done")
    changed = Home.open(here / "home").settings
    assert (changed.deadline, changed.workers, changed.address) == (60.0, 4, "s.example.org:443")
    assert started[-1][-1] == "--exit-when-done"
    call("start", "home", "--set", "behind_proxy=true", "--url", "https://s.example.org")
    assert Home.open(here / "home").settings.url == "https://s.example.org"
    with refused("option.fixed", "--experiment"):
        call("start", "home", "--experiment", "small.toml")
    with refused("option.fixed", "--features, --run"):
        call("start", "home", "--features", 46, "--run", "other")
    with refused("value.out-of-range"):
        call("start", "home", "--set", "least=2")
    with refused("key.unknown", "--set"):
        call("start", "home", "--set", "leest=2")
    with Home.open(here / "home").running(), refused("coordinator.running"):
        call("start", "home")
    call("start", "second", "--experiment", "small.toml", "--features", 12, "--run", "x", "--port", 7001)
    assert Home.open(here / "second").settings.address == "127.0.0.1:7001"
    call("start", "second", "--port", 7002)
    assert Home.open(here / "second").settings.address == "127.0.0.1:7002", "an address not chosen follows the port"


def test_members_status_and_files(started: list[list[str]], here: Path) -> None:
    with refused("coordinator.missing"):
        call("status", "home")
    call("start", "home", "--experiment", "small.toml", "--features", 5)
    assert json.loads(call("invite", "home", "anna", "--json")) == {"name": "anna", "client": 0, "file": "anna.json"}
    assert (here / "anna.json").stat().st_mode & 0o777 == 0o600
    call("invite", "home", "ben", "--out", "b.json")
    with refused("invitation.none-left", "carl"):
        call("invite", "home", "carl")
    call("revoke", "home", "ben")
    with refused("invitation.unknown", "ben"):
        call("revoke", "home", "ben")
    table = json.loads(call("status", "home", "--json"))
    assert (table["state"], table["rounds"], table["rounds_planned"], table["process"]) == ("new", 0, 1000, None)
    assert [(m["name"], m["client"], m["state"]) for m in table["members"]] == [
        ("anna", 0, "invited"),
        ("ben", 1, "revoked"),
    ]
    assert table["quality"] is None and table["epsilon_spent"] is None
    assert "no device has enrolled" in " ".join(call("status", "home").split())
    written = call("files", "home").split()
    assert [Path(path).name for path in written] == [
        "nginx.conf", "quorank-coordinator.service", "quorank-join.service", "Containerfile",
    ]  # fmt: skip
    with refused("folder.is-file"):
        call("files", "home", "--out", "small.toml")
    with refused("coordinator.not-running"):
        call("stop", "home")
    with refused("ranker.missing"):
        call("ranker", "home")
    home = Home.open(here / "home")
    assert call("token", "home") == f"https://127.0.0.1:9092/?token={home.token}\n"


def test_many_invitations_at_once_and_open_enrolment(started: list[list[str]], here: Path) -> None:
    (here / "many.toml").write_text(SMALL.replace("clients = 2", "clients = 28"))
    call("start", "home", "--experiment", "many.toml", "--features", 5)
    told = json.loads(call("invite", "home", "--count", 10, "--out", "invitations", "--json"))
    assert [one["client"] for one in told["invitations"]] == list(range(10))
    assert len(list((here / "invitations").iterdir())) == 10
    told = json.loads(call("invite", "home", "anna", "ben", "--json"))
    assert [one["file"] for one in told["invitations"]] == ["anna.json", "ben.json"]
    for more, code in (
        (("--count", 17), "invitation.none-left"), (("carl", "dora", "anna"), "invitation.repeated"),
        (("carl", "carl"), "invitation.repeated"), (("carl", "no name"), "device.name"),
    ):  # fmt: skip
        with refused(code):
            call("invite", "home", *more, "--out", "none")
        assert not list((here / "none").glob("*")), "all or none"
    told = json.loads(call("status", "home", "--json"))
    assert told["counts"]["invited"] == 12
    told = json.loads(call("invite", "home", "--count", 8, "--out", "none", "--json"))
    assert [one["client"] for one in told["invitations"]] == list(range(12, 20))
    with refused("option.conflict"):
        call("invite", "home")
    with refused("option.conflict"):
        call("invite", "home", "carl", "--count", 2)
    told = json.loads(call("open", "home", "--quota", 8, "--days", 2, "--json"))
    assert told == {"file": "many.json", "quota": 8, "days": 2.0}
    assert Invitation.read(here / "many.json").token
    assert json.loads(call("close", "home", "--json")) == {"closed": 1}


def test_a_backup_and_its_restoration(started: list[list[str]], here: Path) -> None:
    call("start", "home", "--experiment", "small.toml", "--features", 5)
    call("invite", "home", "anna")
    told = json.loads(call("backup", "home", "service.backup", "--json"))
    assert told["members"] == 1 and (here / "service.backup").stat().st_mode & 0o777 == 0o600
    assert "--skip" in invoke(app, "restore", "service.backup", "again", code=2).stderr, "0 must be said"
    call("restore", "service.backup", "again", "--skip", 0)
    first, second = Home.open(here / "home"), Home.open(here / "again")
    assert (second.settings, second.key.public, second.secret) == (first.settings, first.key.public, first.secret)
    assert json.loads(call("status", "again", "--json"))["members"][0]["name"] == "anna"
    with refused("folder.not-empty"):
        call("restore", "service.backup", "home", "--skip", 0)


@pytest.mark.slow
def test_a_start_in_the_background(here: Path) -> None:
    port = free_port()
    call("start", "home", "--experiment", "small.toml", "--features", 5, "--port", port, "--workers", 1, "--detach")
    home = Home.open(here / "home")
    process = home.process()
    try:
        assert process is not None and is_alive(process)
        call("invite", home.path, "anna")
        invitation = Invitation.read(here / "anna.json")
        body = Caller(invitation.service).enrolment(invitation.code)
        got = over_tls(home.settings.url, home.path / "ca.pem", "POST", "/v1/enrol", body)
        assert got.table["name"] == "anna"
        table = json.loads(call("status", home.path, "--json"))
        assert table["process"] == process and table["counts"]["enrolled"] == 1
        with refused("coordinator.running"):
            call("start", "home", "--detach")
        call("stop", home.path)
        assert home.process() is None
        until(lambda: not is_alive(process), seconds=5.0)
        with socket.create_server(("127.0.0.1", port)), refused("coordinator.not-started"):
            call("start", "home", "--detach")
        assert home.process() is None
    finally:
        number = home.process()
        if number is not None:
            os.kill(number, 9)
    log = (home.path / "coordinator.log").read_text()
    assert "worker_started" in log and "anna" not in log


def test_a_tuning_is_started_invited_to_and_shown(started: list[list[str]], here: Path) -> None:
    (here / "tune.toml").write_text('heuristic = "decay"\niterations = 7\n')
    with refused("option.conflict", "--tune"):
        call("start", "home", "--tune", "tune.toml", "--experiment", "small.toml")
    call("start", "home", "--tune", "tune.toml")
    assert started[-1][1:] == ["-m", "quorank.service.supervisor", str(here / "home")]
    home = TuningHome.open(here / "home")
    with closing(home.store()) as store, home.running():
        assert store.hold() is not None
        TuningService(home, store, EventLog(None)).publish("running")
        call("invite", "home", "desk")
        assert Invitation.read(here / "desk.json").terms["heuristic"]["name"] == "decay"
        status = json.loads(call("status", "home", "--json"))
        assert (status["kind"], status["state"], status["rounds_planned"]) == ("tuning", "running", 7)
        assert [weight["name"] for weight in status["weights"]] == ["high", "medium", "low", "half-life"]
        assert "versions" in call("status", "home")
    with refused("option.fixed", "--tune"):
        call("start", "home", "--tune", "tune.toml")
