"""`quorank join`: rehearsals, invitations, consent, the log, the socket, signals, and leaving."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest
import typer
from command_line import invoke
from devices import ListedMembers
from real_services import until
from small_service import Said, SmallService
from typer.testing import CliRunner

from quorank.cli.join import UNREACHED, join
from quorank.errors import BadInput
from quorank.experiments.deployment import terms_of
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import read_experiment_file
from quorank.experiments.runner import Runner
from quorank.federation.coordinator import Coordinator
from quorank.member import Client, Policy, local_socket
from quorank.member.client import known_members
from quorank.member.membership import LEFT
from quorank.member.private_store import PrivateStore
from quorank.protocol.member_list import Head

pytestmark = pytest.mark.slow

SMALL = """\
[data]
source = "synthetic:mq2007"
[federation]
clients = 5
interactions = 3
rounds = 6
"""
POLICY = "unstated = true\ncohort = 5\n"
BUNDLE = ("--bundle", "desk.json", "--policy", "policy.toml")
app = typer.Typer()
app.command()(join)


def call(*arguments: object) -> str:
    return invoke(app, *arguments).stdout


def told(*arguments: object, code: int = 0) -> dict:
    """What it prints as JSON."""
    return json.loads(invoke(app, *arguments, "--json", code=code).stdout)


def refused(*arguments: object) -> str:
    with pytest.raises(BadInput) as refusal:
        call(*arguments)
    return str(refusal.value)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(SMALL)
    (tmp_path / "policy.toml").write_text(POLICY)
    return tmp_path


def experiment(text: str = SMALL, folder=None) -> Experiment:
    return Experiment.read(read_experiment_file(folder / "small.toml"))


@pytest.fixture
def service(here):
    """The run of the experiment's client 1, with the others simulated."""
    simulator = Runner(experiment(folder=here), threads=1).simulator
    coordinator = Coordinator(simulator.federation, simulator.mechanism, simulator.initial(), 6, "spring", 1)
    terms = terms_of(experiment(folder=here), 46, 1, "spring")
    with SmallService.over(coordinator, simulator, terms).running(here) as made:
        made.invitation(here / "desk.json")
        yield made


SIMULATED = ("--simulate", "small.toml", "--client", 1)


def test_an_invitation_is_accepted_once_and_a_client_leaves(here, service) -> None:
    service.next = 0
    call("--data", "device", *BUNDLE, "--consent", "on", *SIMULATED, "--quiet")
    assert service.coordinator.done
    figures = told("--data", "device", "--status")
    assert (figures["run"], figures["client"], figures["releases"]) == ("spring", 1, 6)
    assert figures["state"] == "enrolled" and figures["identity"] == service.members[1].hex()
    assert service.members[1].hex() in call("--data", "device", "--status")
    off = told("--data", "device", "--consent", "off")
    assert off["consent"] is False
    service.gone.add(1)
    gone = told("--data", "device", "--leave")
    assert set(gone["files"]) == {"device.sqlite", "device.lock"}
    assert [path.name for path in (here / "device").iterdir()] == [LEFT]
    for more in (["--status"], ["--log"], [], [*BUNDLE], ["--consent", "on"], ["--once"]):
        assert "has left its run" in refused("--data", "device", *more)
    assert "left already" in refused("--data", "device", "--leave")


@pytest.mark.parametrize("halfway", [False, True])
def test_a_leaving_that_was_cut_short_is_finished(halfway, here, service, monkeypatch) -> None:
    from quorank.member import membership

    call("--data", "device", *BUNDLE, "--consent", "on", "--once", "--quiet")
    service.gone.add(1)

    def dies(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(membership.PrivateStore, "erase", dies)
        CliRunner().invoke(app, ["--data", "device", "--leave"])
    file = here / "device" / "device.sqlite"
    assert file.exists()
    if halfway:  # killed while zeros were written over it
        file.write_bytes(bytes(8192) + file.read_bytes()[8192:])
    assert "has left its run" in refused("--data", "device", "--status")
    assert "overwritten and deleted" in call("--data", "device", "--leave")
    assert [path.name for path in (here / "device").iterdir()] == [LEFT]


def test_once_for_timers(here, service) -> None:
    found = told("--data", "device", *BUNDLE, "--once")
    assert found["outcome"] == "consent" and not service.heard
    found = told("--data", "device", "--consent", "on", "--once")
    assert (found["outcome"], found["code"]) == ("nothing", "device.waiting")
    assert told("--data", "device", "--once")["outcome"] == "early"
    with Client.open(here / "device") as client:
        client.sync(force=True)
        service.said["GET", "/v1/task"] = Said(500)
        client.store.database.execute("DELETE FROM facts WHERE name = 'polling'")
    assert told("--data", "device", "--once", code=UNREACHED)["code"] == "service.unreadable"
    service.said["GET", "/v1/task"] = Said(
        403, b'{"code": "request.revoked", "sentence": "the operator has revoked this"}'
    )
    with Client.open(here / "device") as client:
        client.store.database.execute("DELETE FROM facts WHERE name = 'polling'")
    assert "revoked" in refused("--data", "device", "--once")
    with Client.open(here / "device") as client:
        client.store.database.execute("DELETE FROM facts WHERE name = 'polling'")
    assert "revoked" in refused("--data", "device")  # a service that is refused for good ends


JOIN = [sys.executable, "-m", "quorank.cli.main", "join", "--data", "device"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 130), (signal.SIGINT, 130)])
def test_as_a_service_it_shares_the_device_and_ends_when_asked(number, code, here, service) -> None:
    words = [*JOIN, *BUNDLE]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as child:
        try:
            until(lambda: local_socket.call(here / "device", "status") is not None)
            assert not service.heard
            assert told("--data", "device", "--consent", "on")["consent"] is True
            until(lambda: len(service.heard) >= 2)  # it was woken, and has enrolled
            assert told("--data", "device", "--once")["outcome"] in ("early", "busy")
            assert "another process runs" in refused("--data", "device")
            rows = np.random.default_rng(0).normal(size=(8, 46)).tolist()
            for _ in range(3):
                shown = local_socket.call(here / "device", "rank", features=rows)
                clicks = [True] + [False] * 7
                local_socket.call(
                    here / "device", "record", list=shown["list"], clicks=clicks, query="a secret question"
                )
            service.said["GET", "/v1/task"] = Said(500, b"a secret question")

            def synced() -> dict:
                return local_socket.call(here / "device", "sync", force=True)["sync"]

            until(lambda: synced()["code"] == "service.unreadable")
            del service.said["GET", "/v1/task"]
            until(lambda: synced() and local_socket.call(here / "device", "status")["status"]["releases"] == 1)
            child.send_signal(number)
            assert child.wait(30) == code
            assert child.stderr is not None
            said = child.stderr.read()  # of what was searched, shown and clicked, and where, nothing
        finally:
            child.kill()
    assert not (here / "device" / "device.sock").exists()
    for private in ("Traceback", "secret", str(here), "features", "clicks", f"{rows[0][0]:.4f}"):
        assert private not in said
    assert told("--data", "device", "--status")["releases"] == 1


def test_leaving_while_another_process_plays_the_device(here, service) -> None:
    with subprocess.Popen([*JOIN, *BUNDLE, "--consent", "on"], stderr=subprocess.DEVNULL) as child:
        try:
            until(lambda: len(service.heard) >= 2)
            service.gone.add(1)
            assert "overwritten and deleted" in call("--data", "device", "--leave")
            assert child.wait(30) == 0
        finally:
            child.kill()
    assert [path.name for path in (here / "device").iterdir()] == [LEFT]


def test_leaving_when_the_other_process_ends_before_it_answers(here, service) -> None:
    with (
        Client.open(here / "device", here / "desk.json", policy=Policy(unstated=True, cohort=5)) as client,
        socket.socket(socket.AF_UNIX) as listener,
    ):
        client.consent(True)
        client.sync()
        service.gone.add(1)
        listener.bind(str(here / "device" / local_socket.SOCKET))
        listener.listen()

        def leave_and_hang_up() -> None:
            connection = listener.accept()[0]
            assert client.leave().outcome == "left"
            connection.close()

        other = threading.Thread(target=leave_and_hang_up)
        other.start()
        assert "overwritten and deleted" in call("--data", "device", "--leave")
        other.join(30)


def test_members_are_pinned_and_lists_compared(here, service) -> None:
    call("--data", "device", *BUNDLE, "--once", "--quiet")
    assert "no list of members yet" in refused("--data", "device", "--compare", f"0:{'0' * 64}")
    listed = ListedMembers()
    for number in range(4):
        listed.add(number, bytes([number]) * 32)
    with PrivateStore(here / "device") as store:
        known_members(store).update(Head.from_bytes(listed.head()), listed.page)
    head = told("--data", "device", "--status")["members"]
    assert head == f"{Head.from_bytes(listed.head())}" and head.startswith("4:")
    assert head[2:] in call("--data", "device", "--status").replace("\n", "")
    early = f"{Head.from_bytes(listed.head(2))}"
    assert told("--data", "device", "--compare", early) == {"agrees": True, "compared": 2, "members": head}
    assert "the same 4 members" in call("--data", "device", "--compare", head.upper())
    assert "the two lists differ" in refused("--data", "device", "--compare", f"4:{early[2:]}")
    listed.add(4, bytes(31) + b"9")
    later = f"{Head.from_bytes(listed.head())}"
    assert f"compare on the other device with --compare {head}" in refused("--data", "device", "--compare", later)
    for false in ("", "4", "x:" + head[2:], head[:-1], "-1" + head[1:]):
        if false:
            assert "expected NUMBER:DIGEST" in refused("--data", "device", "--compare", false)

    call("--data", "device", "--pin", f"3={b'3'.hex() * 32}", "--pin", f"02={b'2'.hex() * 32}")
    assert told("--data", "device", "--status")["pinned"] == ["2", "3"]
    assert "ask 3 by voice" in refused("--data", "device", "--pin", f"3={bytes(32).hex()}")
    assert "two different keys are given" in refused(
        "--data", "device", "--pin", f"1={'00' * 32}", "--pin", f"1={'01' * 32}"
    )
    for false in ("3", "x=" + "00" * 32, "3=00", "3=" + "zz" * 32):
        assert "expected" in refused("--data", "device", "--pin", false)
    assert "128 hexadecimal digits" in refused("--data", "device", "--attestation", "00")
    assert told("--data", "device", "--status")["pinned"] == ["2", "3"]


def test_refusals(here, service) -> None:
    assert "no device here" in refused("--data", "device", "--status")
    assert "no device here" in refused("--data", "device", "--log")
    assert "no device here" in refused("--data", "device", "--leave")
    assert "no device here" in refused("--data", "device", "--consent", "on")
    assert "no invitation here" in refused("--data", "device")
    assert "no invitation here" in refused("--data", "device", "--once")
    assert "need each other" in refused("--data", "device", "--simulate", "small.toml")
    assert "need each other" in refused("--data", "device", "--client", 3)
    assert "choose one" in refused("--data", "device", "--log", "--status")
    assert "cannot be combined with --bundle" in refused("--data", "device", "--log", "--bundle", "x")
    assert "clients 0 to 4" in refused("--data", "device", "--simulate", "small.toml", "--client", 5)
    assert "no such experiment" in refused("--data", "device", "--simulate", "absent.toml", "--client", 1)
    assert "no invitation here" in refused("--data", "device", *SIMULATED)
    assert "no such file" in refused("--data", "device", "--bundle", "absent.json")
    assert "absent.toml: no such file" in refused("--data", "device", *BUNDLE[:2], "--policy", "absent.toml")
    assert not (here / "device").exists()
    call("--data", "device", *BUNDLE, "--once", "--quiet")
    service.terms = terms_of(experiment(folder=here), 46, 2, "spring")
    service.invitation(here / "other.json", code=bytes(32))
    assert "another invitation" in refused("--data", "device", "--bundle", "other.json")
    with PrivateStore(here / "device"):
        assert "another process runs" in refused("--data", "device", *BUNDLE)
        assert told("--data", "device", "--consent", "on")["consent"] is True
