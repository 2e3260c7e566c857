"""A coordinator's folder, its members, its gate, its proxy, and its work over a network in memory."""

from __future__ import annotations

import http.client
import io
import json
import os
import shutil
import signal
import ssl
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from devices import killed, shoot
from refusals import refused

from quorank import frames
from quorank.cli.flower_status import print_status, status_of
from quorank.errors import BadInput
from quorank.experiments import run_directory as storage
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import parse_experiment_file
from quorank.experiments.runner import Runner
from quorank.federation import notices, wire
from quorank.federation.bundle import Bundle
from quorank.federation.coordinator import CHECKPOINT
from quorank.federation.transport import Arrival, Failure, Memory
from quorank.network.service_run import run
from quorank.privacy import Setting, accounting
from quorank.privacy.ledger import loss_of, read_ledger, recount
from quorank.service import home as service_files
from quorank.service import members as service_members
from quorank.service import service as services
from quorank.service import units
from quorank.service.flower_figures import exposition
from quorank.service.gate import Gate
from quorank.service.home import Home, Settings
from quorank.service.members import InvitedMember, invite, members, revoke
from quorank.service.observe import EventLog
from quorank.service.proxy import CALLS, PATHS, Proxy
from quorank.service.service import Service, coordinator_of

ROUNDS, CLIENTS = 3, 3
FILE = f"""\
[data]
source = "synthetic:mq2007"
[federation]
clients = {CLIENTS}
interactions = 2
rounds = {ROUNDS}
keep_every = 0
"""


def experiment(more: str = "") -> Experiment:
    return Experiment.read(parse_experiment_file(FILE + more, "service.toml"))


def settings(**changes) -> Settings:
    return Settings(**({"run": "spring", "n_features": 46, "address": "search.example.org:9092"} | changes))


@pytest.fixture
def home(tmp_path) -> Home:
    return Home.create(tmp_path / "home", experiment(), settings())


@pytest.fixture(scope="module")
def runner() -> Runner:
    return Runner(experiment(), threads=1)


@pytest.fixture(scope="module")
def expected(runner) -> bytes:
    """The ranker of the run in process."""
    state = runner.simulator.initial()
    for _ in range(ROUNDS):
        state, _ = runner.experiment.federation.round(state, runner.simulator.gather(state))
    return storage.ranker_bytes(runner.experiment, 46, runner.experiment.federation.ranker(state))


# the folder


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_folder_is_its_owner_s_and_appears_whole(tmp_path, monkeypatch) -> None:
    home = Home.create(tmp_path / "home", experiment(), settings())
    assert mode(home.path) == 0o700
    for name in ("ca.key", "server.key", "executor.secret", "seed", "coordinator.json", "experiment.toml"):
        assert mode(home.path / name) == 0o600, name
    again = Home.open(tmp_path / "home")
    assert again.settings == settings() and again.experiment == experiment()
    assert home.seed != Home.create(tmp_path / "other", experiment(), settings()).seed

    def full(*_):
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(Home, "issue", full)
    with pytest.raises(OSError, match="no space"):
        Home.create(tmp_path / "third", experiment(), settings())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "other"]


def test_folders_that_are_refused(home, tmp_path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    with pytest.raises(BadInput, match="not empty"):
        Home.create(tmp_path / "full", experiment(), settings())
    assert (tmp_path / "full" / "thesis.txt").read_text() == "mine"
    with pytest.raises(BadInput, match="does not exist"):
        Home.create(tmp_path / "a" / "b", experiment(), settings())
    with pytest.raises(BadInput, match="no coordinator here"):
        Home.open(tmp_path / "full")
    for text in ("{", "[]", '{"format": 1, "surprise": 2}', '{"format": 99}'):
        (home.path / "coordinator.json").write_text(text)
        with pytest.raises(BadInput, match=r"coordinator\.json"):
            Home.open(home.path)
    with pytest.raises(BadInput, match="drawn by the devices"):
        central = '[privacy]\nkind = "gaussian"\nsum = "secure"\nnoise_by = "coordinator"\nnoise_multiplier = 0.5\n'
        Home.create(tmp_path / "secure", experiment(central), settings())
    with pytest.raises(BadInput, match="nothing can be learned"):
        hopeless = experiment('[privacy]\nkind = "gaussian"\nnoise_multiplier = 2.0\n')
        Home.create(tmp_path / "hopeless", hopeless, settings())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "home"]
    with pytest.raises(BadInput, match="not an address"):
        settings(address="nowhere")
    with pytest.raises(BadInput, match="a port of its own"):
        settings(port=9093)


def test_the_certificate_follows_the_address_and_is_renewed(home, monkeypatch) -> None:
    def found() -> x509.Certificate:
        return x509.load_pem_x509_certificate((home.path / "server.pem").read_bytes())

    def names() -> list[str]:
        extension = found().extensions.get_extension_for_class(x509.SubjectAlternativeName)
        return extension.value.get_values_for_type(x509.DNSName)

    first = found()
    assert names() == ["search.example.org", "localhost"] and home.days_left() > 300
    home.change(settings(deadline=10.0))
    assert found() == first and home.settings.deadline == 10.0
    home.change(settings(address="other.example.org:9092"))
    assert names()[0] == "other.example.org" and Home.open(home.path).settings.address.startswith("other")
    second = found()
    monkeypatch.setattr(service_files, "RENEW_DAYS", 400)
    home.change(home.settings)
    assert found() != second
    found().verify_directly_issued_by(x509.load_pem_x509_certificate(home.authority))


def test_one_coordinator_runs_in_a_folder(home) -> None:
    assert home.process() is None
    with home.running():
        assert home.process() == os.getpid()
        with pytest.raises(BadInput, match=f"runs already .process {os.getpid()}"), home.running():
            pass
        assert status_of(home)["process"] == os.getpid()
    assert home.process() is None and status_of(home)["state"] == "new"


# members


def test_invitations_and_revocations(home, tmp_path) -> None:
    anna = invite(home, "anna", tmp_path / "anna.json")
    ben = invite(home, "ben", tmp_path / "ben.json")
    assert (anna.client, ben.client) == (0, 1)
    bundle = Bundle.read(tmp_path / "anna.json")
    assert mode(tmp_path / "anna.json") == mode(home.path / "members.json") == 0o600
    assert (bundle.address, bundle.certificate) == ("search.example.org:9092", home.authority.decode())
    assert bundle.terms == home.terms(0) and bundle.terms.run == "spring"
    private = serialization.load_ssh_private_key(bundle.key.encode(), None)
    public = private.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    assert public.decode() == anna.public
    secret = bundle.key.splitlines()[2].encode()
    for path in home.path.rglob("*"):
        assert not path.is_file() or secret not in path.read_bytes(), "the coordinator keeps no node's key"
    for name, match in (("anna", "invited already"), ("../x", "not a device's name"), ("", "name")):
        with pytest.raises(BadInput, match=match):
            invite(home, name, tmp_path / "new.json")
    with pytest.raises(BadInput, match="there already"):
        invite(home, "carl", tmp_path / "anna.json")
    assert not (tmp_path / "new.json").exists()
    assert revoke(home, "anna").revoked is not None
    for name, match in (("anna", "revoked already"), ("carl", "is not invited")):
        with pytest.raises(BadInput, match=match):
            revoke(home, name)
    again = invite(home, "anna", tmp_path / "anna2.json")
    assert again.client == 0 and again.public != anna.public and again.label != anna.label
    assert invite(home, "carl", tmp_path / "carl.json").client == 2
    with pytest.raises(BadInput, match="all 3 clients"):
        invite(home, "dora", tmp_path / "dora.json")
    assert not (tmp_path / "dora.json").exists()
    assert [m.admitted for m in members(home)] == [False, True, True, True]
    assert "anna" not in again.label
    service_members.note_nodes(home, {again.label: 2**63 + 5}, {anna.label})
    assert [(m.node, m.removed) for m in members(home)][:3:2] == [(None, True), (2**63 + 5, False)]
    (home.path / "members.json").write_text('[{"name": 1}]')
    with pytest.raises(BadInput, match="damaged"):
        members(home)


def test_noise_and_cohorts_come_from_the_folder_s_secret(tmp_path) -> None:
    more = '[privacy]\nkind = "gaussian"\nnoise_multiplier = 0.5\n'
    homes = [Home.create(tmp_path / name, experiment(more), settings()) for name in "ab"]
    public = Runner(experiment(more), threads=1).simulator.mechanism

    def noised(mechanism) -> bytes:
        memory = mechanism.start()
        return mechanism.finish(np.zeros(46), 3.0, 3, 3, 0, memory).total.tobytes()

    found = [noised(coordinator_of(home).mechanism) for home in (*homes, homes[0])]
    assert found[0] == found[2] != found[1] != noised(public) != found[0]
    assert coordinator_of(homes[0]).seed == homes[0].seed


# the gate


class Handing:
    """A transport that brings what it is given."""

    def __init__(self) -> None:
        self.arrivals: list[Arrival] = []
        self.sent: list[tuple[str, bytes]] = []

    def nodes(self) -> list[str]:
        return ["a", "b", "stranger"]

    def push(self, node: str, content: bytes) -> str:
        self.sent.append((node, content))
        return "1"

    def pull(self) -> list[Arrival]:
        found, self.arrivals = self.arrivals, []
        return found

    def forget(self, message: str) -> None:
        pass


def reply(client: int) -> bytes:
    return wire.encode_reply(wire.Reply("spring", 0, client, np.zeros(3), 2))


def test_a_device_answers_in_its_own_name_only(monkeypatch) -> None:
    inner, refused = Handing(), []
    monkeypatch.setattr(InvitedMember, "label", property(lambda self: self.name))
    known = [InvitedMember("a", 0, "key", 0.0), InvitedMember("b", 1, "key", 0.0)]
    gate = Gate(inner, lambda client, error: refused.append((client, error.code)))
    gate.admit(known)
    assert gate.nodes() == ["a", "b"] and gate.present() == [0, 1] and gate.names == {0: "a", 1: "b"}

    def brought(node: str, *parts: bytes) -> bytes | Failure:
        inner.arrivals = [Arrival("1", node, frames.pack(parts))]
        return gate.pull()[0].content

    assert brought("a", reply(0)) == frames.pack([reply(0)]) and not refused
    assert brought("b", b'{"at": 1}') == frames.pack([b'{"at": 1}']), "signed requests pass"
    assert isinstance(brought("a", notices.HEARD), Failure) and not refused
    for node, parts in (("a", [reply(1)]), ("a", [reply(0), reply(1)]), ("stranger", [reply(0)]), ("a", [b"x"])):
        assert isinstance(brought(node, *parts), Failure)
    inner.arrivals = [Arrival("1", "a", b"\xff" * 20), Arrival("2", "a", Failure("away"))]
    assert [type(arrival.content) for arrival in gate.pull()] == [Failure, Failure]
    codes = [code for _, code in refused]
    assert codes == ["reply.other-client", "reply.several", "reply.revoked", "reply.malformed", "bundle.malformed"]
    names = gate.names
    gate.admit([known[0], InvitedMember("b", 1, "key", 0.0, revoked=1.0)])
    assert names == {0: "a"}, "the driver's own view changes with it"
    assert isinstance(brought("b", reply(1)), Failure) and gate.nodes() == ["a"]
    gate.push("a", b"12345")
    assert gate.sent == 5 and gate.came > 0


# at work


def in_memory(runner: Runner, before: Callable[[int], None] = lambda count: None, tend=lambda: None):
    """A network whose devices are the simulator's clients."""

    @contextmanager
    def connect(service: Service, stop) -> Iterator:
        clients = {m.label: m.client for m in members(service.home) if m.admitted}
        count = [0]

        def answer(node: str, content: bytes) -> bytes | Failure:
            if notices.is_notice(content):
                return frames.pack([notices.HEARD])
            count[0] += 1
            before(count[0])
            replies = runner.simulator.replies(wire.decode_task(content), np.array([clients[node]]))
            return frames.pack([wire.encode_reply(replies[0])])

        yield Memory(answer, list(clients)), tend, lambda: True

    return connect


def invited(home: Home, tmp_path: Path) -> None:
    for name in ("anna", "ben", "carl"):
        invite(home, name, tmp_path / f"{name}.json")


def test_a_run_with_devices_comes_to_the_bits_of_the_run_in_process(home, tmp_path, runner, expected) -> None:
    invited(home, tmp_path)
    stream = io.StringIO()
    assert run(home, EventLog(stream), 0, in_memory(runner)) is True
    assert (home.path / "ranker.json").read_bytes() == expected
    table = status_of(home)
    assert (table["state"], table["rounds"], table["accepted"]) == ("done", ROUNDS, ROUNDS * CLIENTS)
    assert table["process"] is table["uptime_seconds"] is table["metrics_port"] is None
    assert table["ndcg"] is None and "no private aggregate" in table["ndcg_note"]
    assert table["epsilon_spent"] is None and table["refused"] == {}
    assert table["checkpoint_age_seconds"] >= 0.0 and table["received_bytes"] > 0
    events = [json.loads(line) for line in stream.getvalue().splitlines()]
    kinds = [event["event"] for event in events]
    assert kinds == ["starting", "ready", *["round_closed"] * ROUNDS, "finished"]
    assert [event.get("round") for event in events] == [0, 0, 1, 2, 3, 3]
    for name in ("anna", "ben", "carl", "spring", str(tmp_path)):
        assert name not in stream.getvalue()
    assert mode(home.path / "status.json") == mode(home.path / CHECKPOINT) == 0o600
    again = io.StringIO()
    assert run(home, EventLog(again), None, in_memory(runner, lambda count: pytest.fail("asked"))) is True


@pytest.mark.parametrize("moment", [2, 5])
def test_after_a_kill_it_goes_on_to_the_same_bits(moment, home, tmp_path, runner, expected) -> None:
    invited(home, tmp_path)

    def dies(count: int) -> None:
        if count == moment:
            shoot()

    killed(lambda: run(home, EventLog(None), None, in_memory(runner, dies)))
    assert home.process() is None and status_of(home)["state"] == "stopped"
    (home.path / "ranker.json").unlink(missing_ok=True)
    assert run(home, EventLog(None), None, in_memory(runner)) is True
    assert (home.path / "ranker.json").read_bytes() == expected


def test_sigterm_stops_it_in_the_middle_of_a_round(home, tmp_path, runner, expected) -> None:
    invite(home, "anna", tmp_path / "anna.json")  # one of three: the round cannot end
    asked: list[float] = []

    def tend() -> None:
        asked.append(time.monotonic())
        if len(asked) == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    stream = io.StringIO()
    assert run(home, EventLog(stream), None, in_memory(runner, tend=tend)) is False
    assert json.loads(stream.getvalue().splitlines()[-1])["event"] == "stopped"
    table = status_of(home)
    assert (table["state"], table["rounds"], table["accepted"]) == ("stopped", 0, 1)
    for name in ("ben", "carl"):
        invite(home, name, tmp_path / f"{name}.json")
    asked.extend([0.0] * 3)
    assert run(home, EventLog(None), None, in_memory(runner, tend=tend)) is True
    assert (home.path / "ranker.json").read_bytes() == expected


def test_a_full_disk_is_waited_for(home, tmp_path, runner, expected, monkeypatch) -> None:
    from quorank.federation import checkpoint as checkpoints

    invited(home, tmp_path)
    real, calls = checkpoints.write_arrays, []

    def full(path, arrays, **how):
        calls.append(path)
        if len(calls) in (1, 2, 4):
            raise OSError(28, "no space left on device", str(path))
        real(path, arrays, **how)

    monkeypatch.setattr(checkpoints, "write_arrays", full)
    monkeypatch.setattr(services, "DISK_SECONDS", 0.01)
    stream = io.StringIO()
    assert run(home, EventLog(stream), None, in_memory(runner)) is True
    assert (home.path / "ranker.json").read_bytes() == expected
    failed = [json.loads(line) for line in stream.getvalue().splitlines() if "checkpoint_failed" in line]
    assert [(event["round"], event["code"]) for event in failed] == [(0, 28), (0, 28), (1, 28)]
    assert str(tmp_path) not in stream.getvalue()


def test_a_revoked_device_is_out_of_the_round(home, tmp_path, runner) -> None:
    invited(home, tmp_path)
    home.change(settings(least=0.5, deadline=0.05))
    revoke(home, "ben")
    asked: list[int] = []

    @contextmanager
    def connect(service: Service, stop) -> Iterator:
        known = {m.label: m.client for m in members(service.home)}

        def answer(node: str, content: bytes) -> bytes:
            asked.append(known[node])
            if notices.is_notice(content):
                return frames.pack([notices.HEARD])
            replies = runner.simulator.replies(wire.decode_task(content), np.array([known[node]]))
            return frames.pack([wire.encode_reply(replies[0])])

        yield Memory(answer, list(known)), lambda: None, lambda: True

    assert run(home, EventLog(None), None, connect) is True
    assert set(asked) == {0, 2} and status_of(home)["accepted"] == 2 * ROUNDS
    assert [m["state"] for m in status_of(home)["members"]] == ["away", "revoked", "away"]


def test_epsilon_is_what_the_mechanism_states(tmp_path, runner) -> None:
    home = Home.create(
        tmp_path / "home", experiment('[privacy]\nkind = "gaussian"\nnoise_multiplier = 0.5\n'), settings()
    )
    invited(home, tmp_path)
    private = Runner(home.experiment, threads=1)
    assert run(home, EventLog(None), None, in_memory(private)) is True
    table = status_of(home)
    assert table["epsilon_spent"] == coordinator_of(home).mechanism.statement(ROUNDS)["epsilon"] > 0.0
    assert table["privacy"]["unit"] == "client"


PRIVATE = '[privacy]\nkind = "gaussian"\nnoise_multiplier = 0.25\n'


def one_leaves(home: Home, tmp_path: Path, round_: int = 1) -> tuple[list[bytes], bytes, str]:
    """A run in which carl asks to leave in a round: what he heard, his request, and the log."""
    from quorank.federation.leaving import request_of

    invited(home, tmp_path)
    private = Runner(home.experiment, threads=1)
    bundle = Bundle.read(tmp_path / "carl.json")
    request, stream = request_of(bundle.terms, bundle.key, 5.0, b"nonce"), io.StringIO()
    heard: list[bytes] = []

    @contextmanager
    def connect(service: Service, stop) -> Iterator:
        clients = {m.label: m.client for m in members(service.home)}

        def answer(node: str, content: bytes) -> bytes:
            if notices.is_notice(content):
                heard.extend([content] if clients[node] == 2 else [])
                return frames.pack([notices.HEARD])
            task = wire.decode_task(content)
            if clients[node] == 2 and task.round >= round_:
                return frames.pack([request])
            replies = private.simulator.replies(task, np.array([clients[node]]))
            return frames.pack([wire.encode_reply(replies[0])])

        yield Memory(answer, list(clients)), lambda: None, lambda: True

    assert run(home, EventLog(stream), None, connect) is True
    return heard, request, stream.getvalue()


def test_a_client_leaves(tmp_path) -> None:
    from quorank.federation.leaving import receipt_of

    home = Home.create(tmp_path / "home", experiment(PRIVATE), settings())
    heard, request, _ = one_leaves(home, tmp_path, 0)
    table = status_of(home)
    assert table["accepted"] == 2 * ROUNDS and table["refused"] == {}
    assert [m["state"] for m in table["members"]] == ["away", "away", "left"]
    assert receipt_of(request) in heard


def test_a_rebuilding_is_in_the_ledger_the_status_and_the_metrics(tmp_path, capsys) -> None:
    """Run and rebuilding at one δ, also after a restart; their ε used to be added, beside one δ."""
    home = Home.create(tmp_path / "home", experiment(PRIVATE), settings(total_epsilon=100.0))
    one_leaves(home, tmp_path)
    table, book = status_of(home), read_ledger(home.path)
    (entry,) = book["unlearning"]
    assert (entry["without"], entry["finished"], entry["setting"]["rounds"]) == ([2], True, 1)
    alone, own = book["privacy"]["epsilon"], entry["privacy"]["epsilon"]
    expected = accounting.epsilon(Setting(1, 1, ROUNDS + 1), 0.25, 1e-5)
    assert table["epsilon_spent"] == pytest.approx(expected) == book["altogether"]["epsilon"]
    assert alone < expected < alone + own
    assert table["epsilon_delta"] == book["altogether"]["delta"] == 1e-5 and table["rebuilding_rounds"] == 1
    again = Service(Home.open(home.path), EventLog(None))
    assert again.figures.epsilon == table["epsilon_spent"]
    assert f"quorank_epsilon_spent {again.figures.epsilon!r}" in exposition(again.figures, 0.0)
    assert "quorank_epsilon_delta 1e-05" in exposition(again.figures, 0.0)
    print_status(table)
    assert "1 rounds of rebuildings, δ = 1e-05" in " ".join(capsys.readouterr().out.split())
    assert recount(book) == alone and loss_of(book) is not None


def test_a_rebuilding_beyond_the_plan_is_refused_and_said(tmp_path, capsys) -> None:
    home = Home.create(tmp_path / "home", experiment(PRIVATE), settings())
    _, _, log = one_leaves(home, tmp_path)
    table = status_of(home)
    planned = coordinator_of(home).mechanism.statement()["epsilon"]
    assert table["epsilon_spent"] == pytest.approx(planned) and table["rebuilding_rounds"] == 0
    assert (
        f"beyond the budget of {planned:.4g}; a larger one is allowed with --total-epsilon" in table["rebuilding_note"]
    )
    assert '"event": "rebuilding_refused"' in log
    assert "unlearning" not in read_ledger(home.path)
    print_status(table)
    assert "--total-epsilon" in capsys.readouterr().out


POISSON = FILE.replace("keep_every = 0\n", 'keep_every = 0\nparticipation = { kind = "poisson", rate = 0.67 }\n')


def test_beside_an_amplified_epsilon_nothing_tells_how_many_were_in_a_round(tmp_path, capsys) -> None:
    chosen = Experiment.read(parse_experiment_file(POISSON + PRIVATE + 'accountant = "rdp"\n', "service.toml"))
    home, stream = Home.create(tmp_path / "home", chosen, settings()), io.StringIO()
    invited(home, tmp_path)
    service: list[Service] = []

    def connect(one: Service, stop):
        service.append(one)
        return in_memory(Runner(chosen, threads=1))(one, stop)

    assert run(home, EventLog(stream), None, connect) is True
    for line in map(json.loads, stream.getvalue().splitlines()):
        assert not {"replies", "cohort", "client", "sent_bytes", "received_bytes"} & set(line)
    table, told = status_of(home), json.loads((home.path / "status.json").read_text())
    assert table["accepted"] is table["sent_bytes"] is table["received_bytes"] is None and table["waiting"] == []
    assert told["accepted"] is told["sent_bytes"] is told["received_bytes"] is None
    assert "nobody knowing" in table["withheld"]
    book = read_ledger(home.path)
    assert all(e["releases"] is None and e["participants"] == {"planned": 2} for e in book["releases"])
    assert not {"replies_accepted", "waiting", "bytes"} & set(exposition(service[0].measure(), 0.0).split("_"))
    print_status(table | {"cohort": 2})
    shown = " ".join(capsys.readouterr().out.split())
    assert "clients planned for a round" in shown and "withheld" in shown
    with refused("option.conflict", "report_epsilon"):
        Home.create(tmp_path / "reports", chosen, settings(report_epsilon=1.0))


def test_noise_in_shares_waits_for_all_of_them(tmp_path) -> None:
    published = experiment('[privacy]\nkind = "published"\n')
    with refused("option.conflict", "least"):
        Home.create(tmp_path / "home", published, settings())
    home = Home.create(tmp_path / "home", published, settings(least=1.0))
    with refused("option.conflict", "least"):
        home.change(settings(least=0.9))


def test_epsilon_is_never_understated(tmp_path, monkeypatch) -> None:
    more = '[privacy]\nkind = "gaussian"\nnoise_multiplier = 0.5\n'
    home = Home.create(tmp_path / "home", experiment(more), settings())
    service = Service(home, EventLog(None))
    stated: list[int] = []

    def slow(rounds: int) -> dict:
        stated.append(rounds)
        return {"epsilon": float(rounds)}

    coordinator = service.coordinator
    monkeypatch.setattr(type(coordinator.mechanism), "statement", lambda self, rounds: slow(rounds))
    monkeypatch.setattr(services, "STATEMENT_SECONDS", 0.0)
    coordinator.rounds = 1000
    for done in range(1, 1001):
        coordinator.state = replace(coordinator.state, round=done)
        service._state_privacy()
        assert done <= service.figures.epsilon <= max(done + 1, 1.1 * done + 1)
    assert len(stated) < 80 and stated[-1] == 1000


def test_the_engine_learns_of_new_and_of_revoked_members(home, tmp_path, monkeypatch) -> None:
    from quorank.flower import app as flower_app
    from quorank.network import service_network

    monkeypatch.setattr(flower_app, "check_installed", lambda: None)
    monkeypatch.setattr(service_network, "RETRY_SECONDS", 0.0)
    stream, admitted, orders = io.StringIO(), [], []

    class Processes:
        """Flower's command line, which fails the first time."""

        def running(self, name: str) -> bool:
            return False

        def start(self, name: str, command: list[str], environment: dict[str, str]) -> None:
            given = [json.loads(word) for word in command[4:]]
            orders.append([tuple(order[:2]) for order in given])
            answers = [{"success": len(orders) > 1, "node-id": str(1000 + len(orders))} for _ in given]
            Path(command[3]).write_text(json.dumps(answers[:-1] if len(orders) == 1 else answers))

    network = service_network.ServiceNetwork(home, EventLog(stream), admitted.append)
    network.folder = tmp_path
    network.processes = Processes()  # type: ignore[assignment]
    network.transport = SimpleNamespace(ids={})  # type: ignore[assignment]
    network.reconcile()
    assert orders == []
    anna = invite(home, "anna", tmp_path / "anna.json")
    for _ in range(4):
        network.reconcile()
    assert orders == [[("supernode", "register")]] * 2
    assert network.transport.ids == {anna.label: 1002} and members(home)[0].node == 1002
    revoke(home, "anna")
    network.reconcile()
    assert network.transport.ids == {} and not admitted[-1][0].admitted, "at once, before the engine answers"
    for _ in range(3):
        network.reconcile()
    assert orders[2:] == [[("supernode", "unregister")]] and members(home)[0].removed
    events = [json.loads(line)["event"] for line in stream.getvalue().splitlines()]
    assert events == ["member_not_admitted", "member_admitted", "member_removed"]


# what stands before the engine


@pytest.fixture(scope="module")
def proxied(tmp_path_factory) -> Iterator[tuple[int, Path, list[tuple[str, str, bytes]]]]:
    """A proxy before a server that takes everything: (port, authority, what came through)."""
    home = Home.create(tmp_path_factory.mktemp("proxy") / "home", experiment(), settings())
    came: list[tuple[str, str, bytes]] = []

    class Engine(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            came.append((self.path, self.headers.get("flwr-signature", ""), body))
            self.send_response(401 if body == b"who" else 200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[::-1])

        do_GET = do_POST

        def log_message(self, *arguments) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(home.path / "server.pem", home.path / "server.key")
    engine = ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    engine.socket = context.wrap_socket(engine.socket, server_side=True)
    names = ("server.pem", "server.key", "ca.pem")
    proxy = Proxy("127.0.0.1", 0, engine.server_address[1], *(home.path / name for name in names))
    for server in (engine, proxy):
        Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield proxy.server_address[1], home.path / "ca.pem", came
    for server in (engine, proxy):
        server.shutdown()
        server.server_close()


def trusting(authority: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority))


def test_fleet_calls_pass_the_proxy(proxied) -> None:
    port, authority, came = proxied
    line = http.client.HTTPSConnection("localhost", port, timeout=10, context=trusting(authority))
    for number, call in enumerate(CALLS):  # on one connection, as nodes do
        body = f"message {number}".encode() * 1000
        line.request("POST", f"/v1/fleet/{call}", body, {"flwr-signature": "abc", "Connection": "keep-alive"})
        answer = line.getresponse()
        assert (answer.status, answer.read()) == (200, body[::-1])
        assert came[-1] == (f"/v1/fleet/{call}", "abc", body)
    large = os.urandom(3 << 20)
    line.request("POST", "/v1/fleet/push-object", large)
    assert line.getresponse().read() == large[::-1]
    line.request("POST", "/v1/fleet/get-run", b"who")
    assert line.getresponse().status == 401, "the engine's own refusals come through"


@pytest.mark.parametrize(
    "path",
    [
        "/v1/control/register-node", "/v1/control/start-run", "/v1/runtime/acquire-task", "/health", "/", "*",
        "/v1/fleet/register-node", "/v1/fleet/unregister-node", "/v1/fleet/../control/start-run", "/V1/fleet/get-run",
        "/v1/fleet/get-run/", "/v1/fleet/get-run?x=1", "/v1/fleet/get%2drun",
        "/v1/fleet/get-run/../../control/start-run", "/v1/fleet/get-run;/v1/control/start-run",
        "https://localhost/v1/control/start-run", "/docs", "/openapi.json",
    ],
)  # fmt: skip
def test_nothing_else_does(path, proxied) -> None:
    port, authority, came = proxied
    before = len(came)
    for method in ("POST", "GET", "PUT", "HEAD", "OPTIONS", "CONNECT"):
        line = http.client.HTTPSConnection("localhost", port, timeout=10, context=trusting(authority))
        line.putrequest(method, path, skip_accept_encoding=True)
        line.putheader("Content-Length", "0")
        line.endheaders()
        assert line.getresponse().status == 403
    for allowed in sorted(PATHS)[:2]:
        line = http.client.HTTPSConnection("localhost", port, timeout=10, context=trusting(authority))
        line.request("GET", allowed)
        assert line.getresponse().status == 403
    assert len(came) == before


def test_nothing_is_smuggled_behind_a_call(proxied) -> None:
    port, authority, came = proxied
    before = len(came)
    inner = b"POST /v1/control/start-run HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
    call = b"POST /v1/fleet/get-run HTTP/1.1\r\nHost: x\r\n"
    bodies = [
        b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner,
        b"Content-Length: 0\r\nContent-Length: %d\r\n\r\n" % len(inner) + inner,
        b"Content-Length: +0\r\n\r\n" + inner,
        b"Content-Length: 0x10\r\n\r\n" + inner,
        b"Content-Length: 99999999999\r\n\r\n" + inner,
        b"\r\n" + inner,
    ]

    def spoken(content: bytes) -> bytes:
        import socket

        with (
            socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
            trusting(authority).wrap_socket(plain, server_hostname="localhost") as line,
        ):
            line.sendall(content)
            line.settimeout(5)
            found = b""
            while piece := line.recv(65536):
                found += piece
            return found

    for body in bodies:
        answer = spoken(call + body)
        assert answer.startswith((b"HTTP/1.1 411", b"HTTP/1.1 413")) and answer.count(b"HTTP/1.1") == 1
    assert spoken(b"\x00\x01 nonsense\r\n\r\n") == b""
    assert spoken(b"POST /v1/fleet/get-run nonsense\r\n\r\n") == b""
    assert len(came) == before
    last = spoken(call + b"Content-Length: 2\r\n\r\nok" + inner)
    assert last.startswith(b"HTTP/1.1 200") and b"HTTP/1.1 403" in last
    assert [path for path, _, _ in came[before:]] == ["/v1/fleet/get-run"]


def test_only_tls_is_spoken_and_a_slow_handshake_holds_up_nobody(proxied) -> None:
    import socket

    port, authority, _ = proxied
    with socket.create_connection(("127.0.0.1", port), timeout=10):  # says nothing
        plain = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        with pytest.raises((http.client.HTTPException, OSError)):
            plain.request("POST", "/v1/fleet/get-run", b"x")
            plain.getresponse()
        with pytest.raises(ssl.SSLError):
            http.client.HTTPSConnection("localhost", port, timeout=10).request("POST", "/", b"x")
        line = http.client.HTTPSConnection("localhost", port, timeout=10, context=trusting(authority))
        line.request("POST", "/v1/fleet/get-run", b"x")
        assert line.getresponse().status == 200


# files for the machine


def test_the_files_for_the_machine(home, tmp_path) -> None:
    out = tmp_path / "etc"
    assert sorted(path.name for path in units.write(home, out)) == sorted(units.FILES)
    for name in units.FILES:
        text = (out / name).read_text()
        assert "@" not in text.replace("@system-service", ""), "a place was not filled"
    nginx = (out / "nginx.conf").read_text()
    inside = f"https://127.0.0.1:{home.settings.inside}/v1/fleet/$1;"
    assert nginx.count("proxy_pass") == 1 and f"proxy_pass {inside}" in nginx
    assert nginx.count("location") == 2 and "location / {\n        return 403;" in nginx
    assert f"^/v1/fleet/({'|'.join(CALLS)})$" in nginx and "listen 127.0.0.1:9092 ssl;" in nginx
    unit = (out / "quorank-coordinator.service").read_text()
    assert f"coordinator start {home.path} " in unit and f"ReadWritePaths={home.path}" in unit
    for word in ("NoNewPrivileges=yes", "ProtectSystem=strict", "PrivateTmp=yes", "UMask=0077"):
        assert word in unit and word in (out / "quorank-join.service").read_text()
    assert "StateDirectory=quorank-device" in (out / "quorank-join.service").read_text()
    assert units._state(Path("/var/lib/quorank/spring")).startswith("StateDirectory=quorank/spring\n")
    spaced = Home.create(tmp_path / "my home", experiment(), settings())
    with pytest.raises(BadInput, match="choose a folder without them"):
        units.write(spaced, tmp_path / "spaced")
    assert not (tmp_path / "spaced").exists()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_understands_the_units(home, tmp_path) -> None:
    paths = [path for path in units.write(home, tmp_path / "etc") if path.suffix == ".service"]
    words = ["systemd-analyze", "verify", "--man=no", *map(str, paths)]
    found = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    told = [line for line in found.stderr.splitlines() if "quorank" in line and "not executable" not in line]
    assert told == [], found.stderr
    broken = paths[0].read_text().replace("NoNewPrivileges=yes", "NoNewPrivilege=yes\nProtectSystem=sometimes")
    paths[0].write_text(broken)
    found = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert "NoNewPrivilege" in found.stderr and "sometimes" in found.stderr, "the check can fail"


@pytest.mark.skipif(shutil.which("nginx") is None, reason="needs nginx")
def test_nginx_understands_its_file(home, tmp_path) -> None:
    units.write(home, tmp_path)
    whole = tmp_path / "whole.conf"
    whole.write_text(f"events {{}}\npid {tmp_path}/pid;\nhttp {{ include {tmp_path}/nginx.conf; }}\n")
    found = subprocess.run(["nginx", "-t", "-c", str(whole)], capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode == 0, found.stderr
