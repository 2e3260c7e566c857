"""`quorank silo start|invite|join|…`: folders, refusals and a session without an engine, and once all of it over Flower."""

from __future__ import annotations

import http.client
import importlib.util
import io
import json
import os
import re
import secrets
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from flower_runs import TOKEN, running
from joint_ranker import joint_ranker
from typer.testing import CliRunner

from quorank import frames
from quorank.cli.silo import app
from quorank.errors import BadInput
from quorank.experiments.experiment_file import parse_experiment_file, read_experiment_file, shipped_file
from quorank.federation import notices
from quorank.federation.declined import Declined
from quorank.federation.transport import BUSY, Failure, Memory
from quorank.flower import app as flower_app
from quorank.flower.processes import Processes, free_ports
from quorank.flower.worker import ANSWER_WORD, SENT, ask
from quorank.network import silo_run
from quorank.network.silo_link import take_part
from quorank.party.folder import FolderSource, PartyFolder
from quorank.party.party import SiloParty
from quorank.rankers.ranker_file import read_ranker
from quorank.service import silo_service
from quorank.service.members import members
from quorank.service.observe import EventLog
from quorank.service.silo_experiment import read_group
from quorank.service.silo_gate import SiloGate
from quorank.service.silo_home import SiloHome, settings_of
from quorank.service.silo_server import SiloServer
from quorank.service.silo_service import SiloService, ranker_bytes
from quorank.silos.learning.augmentation import Augment
from quorank.silos.learning.comparison import SiloSetting
from quorank.silos.learning.exchange import SiloProtocol
from quorank.silos.learning.training import Averaging, RoundRobin
from quorank.silos.protocol.invitation import SiloBundle

NAMES = ("north", "south", "west")
SMALL = """\
seed = 3
[silo]
parties = ["north", "south", "west"]
labelled = 2
asked = 4
[protocol]
perturbation = "published"
k = 10
[training]
kind = "round-robin"
turns = 3
steps = 5
[augment]
weights = [1.0]
take = 10
negatives = 5
"""
PROGRAM = "from quorank.cli.main import main; main()"
KEYS = {name: bytes([number]) * 32 for number, name in enumerate(NAMES, 1)}


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


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(SMALL)
    return tmp_path


@pytest.fixture
def started(here, monkeypatch) -> list[tuple[SiloHome, int | None]]:
    """No engine: what would run is only written down."""
    calls: list[tuple[SiloHome, int | None]] = []
    monkeypatch.setattr(flower_app, "check_installed", lambda: None)
    monkeypatch.setattr(silo_run, "run", lambda home, log, port: calls.append((home, port)))
    return calls


# the experiment file


def group(text: str):
    return read_group(parse_experiment_file(text, "group.toml"), "spring")


def test_an_experiment_file_says_what_the_group_settles() -> None:
    found = group(SMALL)
    assert (found.run, found.parties, found.seed) == ("spring", NAMES, 3)
    assert found.setting.labelled == (2,) and found.setting.asked == 4
    assert found.protocol == SiloProtocol("published", k=10)
    assert found.setting.training == RoundRobin(turns=3, steps=5)
    assert found.setting.augment == Augment(take=10, negatives=5, weights=(1.0,))
    plain = group('[silo]\nparties = ["a", "b"]\n')
    assert plain.seed is None and plain.protocol == SiloProtocol() and plain.setting == SiloSetting()
    other = group('augment = "published"\n[silo]\nparties = ["a", "b"]\nrun = "x"\n[training]\nkind = "averaging"\n')
    assert other.setting.augment == Augment.published() and other.setting.training == Averaging()
    assert other.run == "x"
    assert type(found).read(json.loads(json.dumps(found.table()))) == found, "terms survive their table"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "silo.parties: expected the names"),
        ('[silo]\nparties = "a, b"\n', "line 2: silo.parties: expected the names"),
        ('[silo]\nparties = ["a"]\n', "2 to 64 parties, got 1"),
        ('[silo]\nparties = ["a", "a"]\n', "stands twice"),
        ('[silo]\nparties = ["a", "b c"]\n', "b c"),
        ('[silo]\nparties = ["a", "b"]\nlabeled = 3\n', "line 3: silo.labeled: unknown key"),
        ('[silo]\nparties = ["a", "b"]\nlabelled = 0\n', "line 3: silo.labelled: expected numbers"),
        ('[silo]\nparties = ["a", "b"]\n[protocol]\nepsilon = "x"\n', "line 4: protocol.epsilon: expected a number"),
        ('[silo]\nparties = ["a", "b"]\n[training]\nkind = "sgd"\n', "line 4: training.kind: unknown training"),
        ('[silo]\nparties = ["a", "b"]\n[augment]\ntake = 0\n', "take: must be at least 1"),
        ('augment = "mine"\n[silo]\nparties = ["a", "b"]\n', "line 1: augment: expected recommended"),
        ('[silo]\nparties = ["a", "b"]\n[data]\nsource = "x"\n', "line 3: data: unknown section"),
        ('[silo]\nparties = ["a", "b"]\n[training]\nkind = "clicks"\n', "line 4: training.kind: clicks are simulated"),
        ('[silo]\nparties = ["a", "b"]\nlabels = "reference-rank"\n', "line 3: silo.labels: a reference rank"),
        ('seed = -1\n[silo]\nparties = ["a", "b"]\n', "line 1: seed: must be"),
        ('seed = "x"\n[silo]\nparties = ["a", "b"]\n', "line 1: seed: expected a whole number"),
        ('[silo]\nparties = ["a", "b"]\n[protocol]\nshape = 3\n', "line 4: protocol.shape: expected a table"),
    ],
)
def test_mistakes_in_the_file_are_sentences_with_their_place(text: str, words: str) -> None:
    with pytest.raises(BadInput) as refusal:
        group(text)
    assert words in str(refusal.value) and str(refusal.value).startswith("group.toml")


def test_the_shipped_file_holds_the_defaults() -> None:
    file = shipped_file(Path("silo-group"))
    assert file is not None
    found = read_group(read_experiment_file(file), "silo-group")
    assert found.parties == NAMES and found.seed is None
    assert found.protocol == SiloProtocol() and found.setting == SiloSetting()


# the coordinator's folder


def test_the_first_start_makes_the_folder_and_later_ones_open_it(started, here) -> None:
    assert "say who takes part" in refused("start", "home")
    assert "say who takes part" in refused("start", "home", "--experiment", "small.toml", "--parties", "a,b")
    assert "no such experiment file" in refused("start", "home", "--experiment", "absent.toml")
    assert "--parties a: a group has 2 to" in refused("start", "home", "--parties", "a")
    assert "say with --address" in refused("start", "home", "--parties", "a,b", "--host", "0.0.0.0")
    assert not (here / "home").exists() and started == []
    call("start", "home", "--experiment", "small.toml", "--host", "0.0.0.0", "--address", "s.example.org:443")
    home, port = started[-1]
    assert (home.group.run, home.group.parties, port) == ("small", NAMES, None)
    settings = home.settings
    assert (settings.address, settings.host, settings.port, settings.pause) == (
        "s.example.org:443",
        "0.0.0.0",
        9092,
        5.0,
    )
    assert mode(home.path) == 0o700
    for name in ("ca.key", "server.key", "executor.secret", "silo.json", "terms.json"):
        assert mode(home.path / name) == 0o600, name
    call("start", "home", "--pause", 2, "--no-proxy", "--metrics-port", 9999)
    changed = started[-1][0].settings
    assert (changed.pause, changed.proxy, changed.address) == (2.0, False, "s.example.org:443")
    assert started[-1][1] == 9999 and SiloHome.open(here / "home").settings == changed
    assert "fixed when the folder was made" in refused("start", "home", "--parties", "a,b")
    with SiloHome.open(here / "home").running():
        assert f"runs already (process {os.getpid()})" in refused("start", "home")
    call("start", "second", "--parties", "a, b", "--run", "x", "--port", 7001)
    assert started[-1][0].group.parties == ("a", "b") and started[-1][0].group.run == "x"
    assert started[-1][0].group.seed is None, "in earnest unless a file gives a seed"
    call("start", "second", "--port", 7002)
    assert started[-1][0].settings.address == "127.0.0.1:7002"


def test_folders_that_are_refused(started, here) -> None:
    (here / "full").mkdir()
    (here / "full" / "thesis.txt").write_text("mine")
    assert "not empty" in refused("start", "full", "--parties", "a,b")
    assert "does not exist" in refused("start", "x/y", "--parties", "a,b")
    assert "no group here" in refused("status", "full")
    assert sorted(path.name for path in here.iterdir()) == ["full", "small.toml"]
    call("start", "home", "--experiment", "small.toml")
    for name, texts in (
        ("silo.json", ("{", "[]", '{"format": 1, "surprise": 2}', '{"format": 99}')),
        ("terms.json", ("{", "[]", "{}")),
    ):
        whole = (here / "home" / name).read_text()
        for text in texts:
            (here / "home" / name).write_text(text)
            assert name in refused("status", "home"), text
        (here / "home" / name).write_text(whole)
    call("status", "home")


def test_invitations_name_the_party_the_terms_and_who_is_pinned(started, here) -> None:
    call("start", "home", "--experiment", "small.toml")
    told = json.loads(call("invite", "home", "south", "--json"))
    assert told == {"name": "south", "number": 1, "file": "south.json", "pinned": []}
    assert mode(here / "south.json") == 0o600
    bundle = SiloBundle.read(here / "south.json")
    home = SiloHome.open(here / "home")
    assert (bundle.name, bundle.address, bundle.terms) == ("south", "127.0.0.1:9092", home.group)
    assert bundle.certificate.encode() == home.authority and bundle.identities == {}
    assert bundle.key not in repr(bundle)
    assert "is no party of this group" in refused("invite", "home", "east")
    assert "invited already" in refused("invite", "home", "south", "--out", "again.json")
    assert "there already" in refused("invite", "home", "north", "--out", "south.json")
    pin = f"south={KEYS['south'].hex()}"
    call("invite", "home", "north", "--out", "n.json", "--pin", pin, "--pin", f"north={KEYS['north'].hex()}")
    assert SiloBundle.read(here / "n.json").identities == {"south": KEYS["south"]}
    call("invite", "home", "west")
    known = {name: KEYS[name] for name in ("north", "south")}
    assert SiloBundle.read(here / "west.json").identities == known, "identities are kept for later invitations"
    call("revoke", "home", "south")
    assert "another identity before" in refused("invite", "home", "south", "--pin", f"south={'ab' * 32}")
    assert "64 hexadecimal digits" in refused("invite", "home", "south", "--pin", "south=abcd")
    assert "expected NAME=HEX" in refused("invite", "home", "south", "--pin", f"east={'ab' * 32}")
    call("invite", "home", "south", "--out", "s2.json")
    assert SiloBundle.read(here / "s2.json").key != bundle.key
    assert [(m.name, m.client, m.admitted) for m in members(home)] == [
        ("south", 1, False),
        ("north", 0, True),
        ("west", 2, True),
        ("south", 1, True),
    ]


def test_invitations_that_are_refused(started, here) -> None:
    call("start", "home", "--experiment", "small.toml")
    call("invite", "home", "west")
    found = json.loads((here / "west.json").read_text())
    for change, words in (
        ({"format": "quorank invitation"}, "accept it with quorank join"),
        ({"format": "x"}, "not a party's invitation"),
        ({"version": 2}, "of version 2"),
        ({"key": None}, "damaged"),
        ({"name": "east"}, "no party of the group"),
        ({"address": "nowhere"}, "not an address"),
        ({"identities": {"east": "00"}}, "expected NAME=HEX"),
        ({"identities": {"north": "00"}}, "64 hexadecimal digits"),
        ({"terms": {}}, "terms"),
    ):
        (here / "bad.json").write_text(json.dumps(found | change))
        with pytest.raises(BadInput, match=r"^bad\.json: ") as refusal:
            SiloBundle.read(Path("bad.json"))
        assert words in str(refusal.value), change
        assert found["key"][40:80] not in str(refusal.value)
    assert "cannot be read" in refused("join", "--data", "d", "--bundle", "absent.json")
    (here / "bad.json").write_text("[")
    assert "not JSON" in refused("join", "--data", "d", "--bundle", "bad.json")
    assert not (here / "d").exists()


def test_status_says_who_is_there_and_what_is_waited_for(started, here) -> None:
    call("start", "home", "--experiment", "small.toml")
    call("invite", "home", "north")
    call("invite", "home", "south")
    call("revoke", "home", "south")
    assert "revoked already" in refused("revoke", "home", "south")
    assert "quorank silo status" in refused("revoke", "home", "west")
    table = json.loads(call("status", "home", "--json"))
    assert (table["state"], table["process"], table["rehearsal"], table["turns"]) == ("new", None, True, 0)
    assert {p["name"]: p["state"] for p in table["parties"]} == {
        "north": "away",
        "south": "revoked",
        "west": "not invited",
    }
    home = SiloHome.open(here / "home")
    told = {
        "state": "running", "phase": "training", "present": [0], "waited": ["north"], "rounds": 2, "rounds_planned": 3,
        "started": time.time() - 60, "seconds_left": 12.3, "last_round_seconds": 4.5, "sent_bytes": 5000,
        "received_bytes": 3000, "refused": {"silo-message.malformed": 2},
        "traffic": {"ask": {"envelopes": 7, "bytes": 12345}},
    }  # fmt: skip
    (home.path / "status.json").write_text(json.dumps(told))
    with home.running():
        shown = call("status", "home")
        table = json.loads(call("status", "home", "--json"))
    assert table["parties"][0] == {"name": "north", "state": "present", "waited": True, "known": False}
    assert table["seconds_left"] == 12.3 and table["uptime_seconds"] >= 60.0
    assert max(map(len, shown.splitlines())) <= 80
    flat = " ".join(shown.split())
    for words in (
        "training: the ranker is trained in turns",
        "north present: the session waits for its answer",
        "turns 2 of 3, the last one took 4.5 s, about 12 s are left",
        "ask 7 envelopes, 12.3kB",
        "refused 2 silo-message.malformed 2",
    ):
        assert words in flat, words
    stopped = json.loads(call("status", "home", "--json"))
    assert (stopped["state"], stopped["parties"][0]["state"], stopped["seconds_left"]) == ("stopped", "away", None)


def test_files_for_nginx_and_systemd(started, here) -> None:
    call("start", "home", "--experiment", "small.toml", "--port", 7001, "--inside-port", 7002)
    written = [Path(line) for line in call("files", "home", "--out", "units").splitlines()]
    assert [path.name for path in written] == ["nginx.conf", "quorank-silo.service", "quorank-party.service"]
    nginx, coordinator, party = (path.read_text() for path in written)
    assert "listen 127.0.0.1:7001 ssl;" in nginx and "https://127.0.0.1:7002" in nginx
    assert f" silo start {here / 'home'} " in coordinator and "ProtectSystem=strict" in coordinator
    assert " silo join --data %S/quorank-party" in party and "StateDirectory=quorank-party" in party
    assert "@" not in (coordinator + party).replace("@system-service", "")


def test_stop_ends_the_process_that_runs(started, here) -> None:
    call("start", "home", "--experiment", "small.toml")
    assert "does not run" in refused("stop", "home")
    program = (
        "import signal; signal.pthread_sigmask(0, [15])\n"
        "from pathlib import Path; from quorank.service.silo_home import SiloHome\n"
        "with SiloHome.open(Path('home')).running():\n    print('up', flush=True); signal.sigwait([signal.SIGTERM])"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stdout.readline() == "up\n"
        assert json.loads(call("status", "home", "--json"))["process"] == child.pid
        call("stop", "home")
        assert child.wait(10) == 0
    assert SiloHome.open(here / "home").process() is None


# the gate


def test_only_admitted_parties_pass_the_gate_each_with_one_message(started, here) -> None:
    call("start", "home", "--experiment", "small.toml")
    for name in NAMES:
        call("invite", "home", name)
    home = SiloHome.open(here / "home")
    labels = {member.name: member.label for member in members(home)}
    answers: dict[str, bytes | Failure] = {
        label: frames.pack([b"of " + name.encode()]) for name, label in labels.items()
    }
    inner = Memory(lambda node, content: answers[node], [*labels.values(), "stranger"])
    said: list[BadInput] = []
    gate = SiloGate(inner, said.append)
    gate.admit(members(home))
    assert gate.names == labels and gate.present() == list(NAMES) and "stranger" not in gate.nodes()
    inner.leave(labels["west"])
    assert gate.present() == ["north", "south"]
    inner.come(labels["west"])

    def heard(name: str) -> bytes | Failure:
        gate.push(labels[name], b"question")
        (arrival,) = gate.pull()
        assert arrival.node == labels[name]
        return arrival.content

    assert heard("north") == b"of north" and gate.sent == 8 and gate.came == len(answers[labels["north"]])
    answers[labels["north"]] = frames.pack([notices.HEARD])
    assert heard("north") == Failure(BUSY)
    for content in (frames.pack([b"a", b"b"]), frames.pack([]), b"\xff" * 9):
        answers[labels["north"]] = content
        assert isinstance(heard("north"), Failure)
    assert len(said) == 3
    gate.push(labels["south"], b"question")
    home.revoke("south")
    gate.admit(members(home))
    (arrival,) = gate.pull()
    assert isinstance(arrival.content, Failure) and said[-1].code == "reply.revoked"
    assert list(gate.names) == ["north", "west"]


# a party's folder


@pytest.fixture
def bundle(started, here) -> Path:
    call("start", "home", "--experiment", "small.toml")
    call("invite", "home", "north")
    return here / "north.json"


def test_a_folder_keeps_what_the_next_start_needs(bundle, here) -> None:
    folder = PartyFolder.accept(here / "data", SiloBundle.read(bundle))
    assert mode(folder.path) == 0o700 and mode(folder.path / "invitation.json") == 0o600
    with pytest.raises(BadInput, match="--collection PATH"):
        folder.holding()
    folder.note_source(FolderSource(generated=1, documents=30))
    again = PartyFolder.open(here / "data")
    holding = again.holding()
    assert (holding.name, holding.n_documents) == ("north", 30)
    with pytest.raises(BadInput, match="documents are others"):
        again.note_source(FolderSource(generated=2, documents=30))
    with pytest.raises(BadInput, match="from 0 to 2"):
        FolderSource(generated=3).holding("north", 3, None)
    with pytest.raises(BadInput, match="give the party's documents"):
        FolderSource("somewhere", 1)
    PartyFolder.accept(here / "data", SiloBundle.read(bundle))
    other = json.loads(bundle.read_text()) | {"name": "south"}
    (here / "other.json").write_text(json.dumps(other))
    with pytest.raises(BadInput, match="belongs to north in the run small"):
        PartyFolder.accept(here / "data", SiloBundle.read(here / "other.json"))
    with pytest.raises(BadInput, match="not empty"):
        PartyFolder.accept(here / "home", SiloBundle.read(bundle))
    with pytest.raises(BadInput, match="no invitation here"):
        PartyFolder.open(here)
    with folder.playing(), pytest.raises(BadInput, match="another process plays"), again.playing():
        pass


def test_consent_is_off_until_it_is_given_and_where_it_cannot_be_read(bundle, here) -> None:
    folder = PartyFolder.accept(here / "data", SiloBundle.read(bundle))
    assert not folder.consent()
    table = json.loads(call("join", "--data", "data", "--consent", "on", "--json"))
    assert table["consent"] is True and table["name"] == "north" and table["ranker"] is None
    assert folder.consent()
    call("join", "--data", "data", "--consent", "on")
    assert json.loads(call("join", "--data", "data", "--consent", "off", "--json"))["consent"] is False
    assert [on for _, on in folder.consents] == [True, False]
    (folder.path / "consent.json").write_text('[[0, "x"')
    assert not folder.consent()
    assert "consent.json: damaged" in refused("join", "--data", "data", "--consent", "on")


def test_pins_hold_the_others_and_never_change_by_themselves(bundle, here) -> None:
    folder = PartyFolder.accept(here / "data", SiloBundle.read(bundle))
    pin = f"south={KEYS['south'].hex()}"
    call("join", "--data", "data", "--status", "--pin", pin)
    assert folder.pins == {"south": KEYS["south"]}
    assert "another identity is pinned" in refused("join", "--data", "data", "--status", "--pin", f"south={'ab' * 32}")
    assert "pin the others" in refused("join", "--data", "data", "--status", "--pin", f"north={'ab' * 32}")
    assert "expected NAME=HEX" in refused("join", "--data", "data", "--status", "--pin", "south")
    both = refused("join", "--data", "data", "--status", "--pin", f"west={'ab' * 32}", "--pin", f"west={'cd' * 32}")
    assert "two different identities" in both
    assert folder.pins == {"south": KEYS["south"]}
    assert "choose one of them" in refused("join", "--data", "data", "--status", "--log")
    assert "there is nothing here" in refused("join", "--data", "data", "--status", "--collection", "absent")
    lines = call("join", "--data", "data", "--identity").splitlines()
    assert re.fullmatch(r"north=[0-9a-f]{64}", lines[0]), "what the others give to --pin"
    assert lines[1:] == ["fingerprint: not agreed on yet", "south: pinned", "west: not pinned"]
    assert call("join", "--data", "data", "--identity").splitlines() == lines, "it lasts"
    assert mode(folder.path / "session" / "identity.key") == 0o600
    assert json.loads(call("join", "--data", "data", "--log", "--json"))["sent"] == []
    shown = call("join", "--data", "data", "--status")
    assert "not agreed on yet" in " ".join(shown.split()) and max(map(len, shown.splitlines())) <= 80


class Script:
    """A line that asks what it was told to, then ends or stays quiet."""

    def __init__(self, *questions: bytes, ends: bool = True) -> None:
        self.questions, self.ends, self.sent = list(questions), ends, list[bytes | None]()

    def wait(self, seconds: float) -> bytes | None:
        if self.questions:
            return self.questions.pop(0)
        if self.ends:
            raise EOFError
        return None

    def send(self, answer: bytes | None) -> None:
        self.sent.append(answer)


class Echo:
    progress = "waits"

    def answer(self, content: bytes) -> bytes | Declined:
        return Declined("waiting") if content == b"early" else b"to " + content


def test_a_party_answers_until_the_line_ends_or_it_is_stopped() -> None:
    seen: list[object] = []
    line = Script(b"early", b"one")
    assert take_part(Echo(), line, lambda: True, lambda: False, seen.append)
    assert line.sent == [None, b"to one"] and [s for s in seen if s is not None] == [Declined("waiting"), b"to one"]
    with pytest.raises(BadInput, match="before this party had the ranker"):
        take_part(Echo(), Script(b"one"), lambda: False, lambda: False, seen.append)
    line = Script(b"one", b"two", ends=False)
    assert not take_part(Echo(), line, lambda: True, lambda: len(line.sent) == 1, seen.append)
    assert line.sent == [b"to one"], "it stops between two answers"
    ticks = iter(range(0, 100_000, 50))
    assert take_part(Echo(), Script(b"one", ends=False), lambda: True, lambda: False, seen.append, lambda: next(ticks))

    class Broken(Echo):
        def answer(self, content: bytes) -> bytes | Declined:
            raise KeyboardInterrupt

    line = Script(b"one")
    with pytest.raises(KeyboardInterrupt):
        take_part(Broken(), line, lambda: False, lambda: False, seen.append)
    assert line.sent == [None], "whoever waits is not left waiting"


# the service


def made(folder: Path) -> SiloHome:
    settings = settings_of("spring", address="127.0.0.1:9092", pause=0.2)
    return SiloHome.make(folder, group(SMALL), settings)


def test_turns_are_timed_from_the_second_on_and_refusals_logged_as_codes(tmp_path) -> None:
    log, now = io.StringIO(), 1000.0
    service = SiloService(made(tmp_path / "home"), EventLog(log), lambda: now)
    service.server.close()
    server = SimpleNamespace(turns=(0, 10), refused={}, done=False, phase="training")
    server.waits, server.traffic = lambda party: party == "west", dict
    service.server = server
    assert service.left() is None
    for at, turns in ((1300.0, 1), (1304.0, 2), (1304.0, 2), (1312.0, 4)):
        now, server.turns = at, (turns, 10)
        service._seen(server)
    assert service.left() == 12.0 / 3 * 6 and service.figures.last_round_seconds == 4.0, "not by the first turn"
    server.refused = {"a secret sentence of north": 2}
    service._seen(server)
    service.refuse(BadInput("reply.revoked", "a secret sentence"))
    events = [json.loads(line) for line in log.getvalue().splitlines()]
    assert [e["round"] for e in events if e["event"] == "round_closed"] == [1, 2, 4]
    assert len([e for e in events if e["event"] == "reply_refused"]) == 3 and "secret" not in log.getvalue()
    service.publish()
    told = SiloHome.open(tmp_path / "home").last_status()
    assert (told["rounds"], told["waited"], told["seconds_left"]) == (4, ["west"], 24.0)
    assert told["refused"] == {"reply.other": 2, "reply.revoked": 1}


def test_a_full_disk_is_waited_for(tmp_path, monkeypatch) -> None:
    class Full:
        calls = 0

        def __init__(self, *arguments, **words) -> None:
            pass

        def run(self, server) -> bool:
            Full.calls += 1
            if Full.calls < 3:
                raise OSError(28, "no space left on device")
            return False

    monkeypatch.setattr(silo_service, "SiloDriver", Full)
    monkeypatch.setattr(silo_service, "DISK_SECONDS", 0.0)
    log = io.StringIO()
    service = SiloService(made(tmp_path / "home"), EventLog(log))
    nobody = Memory(lambda node, content: content, [])
    assert not service.play(nobody, lambda: None, lambda: True, lambda: False)
    assert Full.calls == 3 and service.figures.checkpoints_failed == 2
    assert log.getvalue().count('"code": 28') == 2
    service.server.close()


# sessions


def write_collection(folder: Path, own: str) -> Path:
    """A small collection in the BEIR layout: a query is answered by the documents that share its rare word."""
    random = np.random.default_rng(len(own))
    folder.mkdir()
    words = [f"commonword{i}" for i in range(20)] + [f"{own}word{i}" for i in range(10)]
    with (folder / "corpus.jsonl").open("w") as out:
        for d in range(40):
            rare = f"rareword{d % 4}"
            text = " ".join([*random.choice(words, 12), rare, rare])
            out.write(
                json.dumps({"_id": f"{own}-document-{d}", "title": f"{rare} {words[d % 30]}", "text": text}) + "\n"
            )
    with (folder / "queries.jsonl").open("w") as out:
        for q in range(8):
            out.write(json.dumps({"_id": f"{own}-query-{q}", "text": f"rareword{q % 4} {words[2 * q]}"}) + "\n")
    (folder / "qrels").mkdir()
    lines = ["query-id\tcorpus-id\tscore"]
    lines += [f"{own}-query-{q}\t{own}-document-{d}\t1" for q in range(8) for d in range(40) if d % 4 == q % 4]
    (folder / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n")
    return folder


SECRETS = [b"commonword", b"rareword", b"northword", b"southword", b"westword", b"-document-", b"-query-"]


def in_process(home: SiloHome, holdings) -> bytes:
    """The ranker of the same session in one process."""
    terms = home.group
    assert terms.seed is not None
    return ranker_bytes(joint_ranker(holdings, terms.setting, terms.protocol, terms.seed))


def test_a_party_whose_pins_do_not_fit_says_so_and_seals_nothing(tmp_path) -> None:
    terms = group(SMALL)
    wrong = {"south": KEYS["south"]}
    parties = {
        name: SiloParty(
            tmp_path / name,
            name,
            terms,
            FolderSource(generated=number, documents=20).holding(name, 3, 3),
            pins=wrong if name == "north" else None,
        )
        for number, name in enumerate(NAMES)
    }
    server = SiloServer(tmp_path / "server", terms)
    for _ in range(3):
        for name, party in parties.items():
            question = server.due(name)
            answer = None if question is None else party.answer(question)
            if isinstance(answer, bytes):
                server.receive(name, answer)
    assert server.phase == "agreement" and "south has another key" in parties["north"].progress
    assert {entry["kind"] for entry in parties["north"].sent_log()} == {"hello"}
    for each in (*parties.values(), server):
        each.close()


LINE = """
import os, threading
from pathlib import Path
from quorank.cli import silo_join
from quorank.cli.main import main
from quorank.experiments import runner
from quorank.network import silo_link, silo_party, silo_service, worker

def connect(bundle, folder):
    line, ready = silo_link.SiloLink(bundle, folder / "engine"), threading.Event()
    words = (Path(os.environ["LINE"]), line.respond, ready.set)
    threading.Thread(target=worker.serve, args=words, daemon=True).start()
    ready.wait()
    return line

silo_link.connect = connect
if __name__ == "__main__":
    main()
"""
"""A party's process whose engine is a socket: questions are asked on it as Flower's shim asks them."""

MODULE = "line.party"


ENDS = ((6, "south", signal.SIGKILL), (12, "west", signal.SIGTERM), (20, "north", signal.SIGINT))
"""After so many messages, who is ended and how; each is started again at once."""


class Parties:
    """The parties' processes, and who of them has been ended how."""

    def __init__(self, folder: Path, program: str, **variables: str) -> None:
        self.folder, self.program, self.variables = folder, program, variables
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        self.log = (folder / "parties.log").open("ab")

    def begin(self, name: str, *words: object) -> None:
        command = [sys.executable, "-c", self.program, "silo", "join", "--data", str(self.folder / f"data-{name}")]
        variables = {**os.environ, **self.variables, "LINE": str(self.folder / f"{name}.sock")}
        child = subprocess.Popen([*command, *map(str, words)], env=variables, stdout=self.log, stderr=self.log)
        self.children[name] = child

    def end(self, name: str, number: signal.Signals) -> int:
        self.children[name].send_signal(number)
        return self.children[name].wait(60)

    def close(self) -> None:
        for child in self.children.values():
            child.kill()
            child.wait()
        self.log.close()

    def said(self) -> str:
        return (self.folder / "parties.log").read_text()


class OnALine:
    """The same with `LINE`; the processes are split off from one that has it loaded."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "line").mkdir()
        (folder / "line" / "__init__.py").touch()
        (folder / "line" / "party.py").write_text(LINE)
        paths = os.pathsep.join([str(folder), str(Path(__file__).parents[2])])
        self.variables = {**os.environ, "PYTHONPATH": paths}
        self.processes = Processes(folder / "line", prepared=(MODULE,))

    def begin(self, name: str, *words: object) -> None:
        command = [sys.executable, "-m", MODULE, "silo", "join", "--data", str(self.folder / f"data-{name}")]
        variables = self.variables | {"LINE": str(self.folder / f"{name}.sock")}
        self.processes.start(name, [*command, *map(str, words)], variables)

    def end(self, name: str, number: signal.Signals) -> int:
        self.processes.children[name].signal(number)
        return self.code(name)

    def code(self, name: str) -> int:
        """How a process ended, within a minute."""
        child, end = self.processes.children[name], time.monotonic() + 60
        while (code := child.code) is None:
            assert time.monotonic() < end, f"{name} has not ended: {self.said()}"
            time.sleep(0.02)
        return code

    def said(self) -> str:
        return "".join((self.folder / "line" / f"{name}.log").read_text() for name in NAMES)


def first_words(here: Path, name: str) -> tuple[object, ...]:
    return ("--bundle", here / f"{name}.json", "--collection", here / f"texts-{name}", "--consent", "on")


def test_parties_that_are_killed_and_stopped_come_to_the_ranker_of_one_process(here) -> None:
    home = made(here / "home")
    for name in NAMES:
        write_collection(here / f"texts-{name}", name)
        call("invite", "home", name)
    labels = {member.label: member.name for member in members(home)}
    parties = OnALine(here)
    crossed: list[bytes] = []
    ended: dict[str, int] = {}

    def answer(node: str, content: bytes) -> bytes | Failure:
        name = labels[node]
        for count, who, number in ENDS:
            if len(crossed) >= count and who not in ended:
                ended[who] = parties.end(who, number)
                parties.begin(who)
        if len(crossed) >= 26 and "coordinator" not in ended:
            ended["coordinator"] = 0
            os.kill(os.getpid(), signal.SIGTERM)
        kind, *parts = ask(str(here / f"{name}.sock"), content, 60.0)
        if kind != ANSWER_WORD:
            return Failure(BUSY)
        crossed.extend([content, *parts])
        return parts[0]

    @contextmanager
    def memory(service, stop) -> Iterator[silo_run.Line]:
        yield Memory(answer, list(labels)), lambda: None, lambda: True

    log = io.StringIO()
    try:
        for name in NAMES:
            parties.begin(name, *first_words(here, name))
        assert not silo_run.run(home, EventLog(log), connect=memory), "it was asked to stop"
        assert json.loads(call("status", "home", "--json"))["state"] == "stopped" and "stopped" in log.getvalue()
        assert silo_run.run(home, EventLog(log), connect=memory), parties.said()
        codes = {name: parties.code(name) for name in NAMES}
    finally:
        parties.processes.stop()
    assert ended == {"south": -9, "west": 130, "north": 130, "coordinator": 0}
    assert codes == dict.fromkeys(NAMES, 0), parties.said()
    holdings = [PartyFolder.open(here / f"data-{name}").holding() for name in NAMES]
    expected = in_process(home, holdings)
    for folder in (here / "home", *(here / f"data-{name}" for name in NAMES)):
        assert (folder / "ranker.json").read_bytes() == expected, folder
    assert read_ranker(here / "data-north").n_features == 16
    everything = b"".join(crossed)
    assert len(everything) > 10_000 and not [word for word in SECRETS if word in everything]
    assert not [word for word in SECRETS if word in (here / "home" / "session" / "coordinator.sqlite").read_bytes()]
    told = log.getvalue()
    assert "finished" in told and str(here) not in told and "north" not in told
    table = json.loads(call("status", "home", "--json"))
    assert (table["state"], table["phase"], table["turns"]) == ("done", "done", table["turns_planned"])
    assert silo_run.run(home, EventLog(None), connect=memory), "what is done stays done"
    log_of_north = json.loads(call("join", "--data", "data-north", "--log", "--json"))
    kinds = {entry["kind"] for entry in log_of_north["sent"]}
    assert kinds >= {"hello", "contribution", "masked", "catalogue", "ask", "answer", "learned", "kept"}
    assert all(entry["tells"] and entry["receiver"] in (*NAMES, "the coordinator") for entry in log_of_north["sent"])
    assert [entry["given"] for entry in log_of_north["consent"]] == [True]
    marks = {json.loads(call("join", "--data", f"data-{n}", "--identity", "--json"))["fingerprint"] for n in NAMES}
    assert len(marks) == 1 and None not in marks, "the same at all parties"
    for file in (here / "data-north" / "session").iterdir():
        assert mode(file) == 0o600, file
    shown = parties.said() + call("join", "--data", "data-north", "--log")
    assert max(map(len, shown.splitlines())) <= 80, shown
    assert "nothing is secret" in shown and "Traceback" not in shown


@pytest.mark.skipif(importlib.util.find_spec("flwr") is None, reason="needs quorank[network]")
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds processes by /proc")
def test_three_parties_over_flower(here) -> None:
    token, (outside, inside, metrics), sent = secrets.token_hex(8), free_ports(3), here / "sent"
    sent.mkdir()
    variables = {TOKEN: token, SENT: str(sent)}
    parties = Parties(here, PROGRAM, **variables)

    def until(ready: Callable[[], object], what: str, seconds: float = 240.0) -> None:
        end = time.monotonic() + seconds
        while not ready():
            assert time.monotonic() < end, f"{what}: {parties.said()}"
            time.sleep(0.2)

    home = SiloHome(here / "home")
    ports = ("--port", outside, "--inside-port", inside, "--metrics-port", metrics, "--pause", 1)
    words = ("silo", "start", here / "home", "--experiment", "small.toml", *ports, "--detach")
    try:
        first = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *map(str, words)],
            env={**os.environ, **variables},
            stdout=parties.log,
            stderr=parties.log,
        )
        parties.children["start"] = first
        until((here / "home" / "silo.json").exists, "the folder")
        for name in NAMES:
            write_collection(here / f"texts-{name}", name)
            call("invite", home.path, name)
            parties.begin(name, *first_words(here, name))
        until(lambda: home.last_status().get("traffic"), "the first envelope")
        assert first.wait(60) == 0, "the start in the background has ended by itself"
        table = json.loads(call("status", home.path, "--json"))
        assert table["state"] == "running" and table["metrics_port"] == metrics and table["refused"] == {}
        assert parties.end("west", signal.SIGTERM) == 130
        parties.begin("west")
        connection = http.client.HTTPConnection("127.0.0.1", metrics, timeout=10)
        connection.request("GET", "/health")
        assert connection.getresponse().status == 200
        until(lambda: home.last_status().get("state") == "done", "the session")
        codes = {name: parties.children[name].wait(60) for name in NAMES}
        until(lambda: home.process() is None, "the coordinator ends", 60.0)
    finally:
        number = home.process()
        if number is not None:
            os.kill(number, signal.SIGKILL)
        parties.close()
    until(lambda: not running(token), f"still running: {running(token)}", 20.0)
    assert codes == dict.fromkeys(NAMES, 0), parties.said()
    holdings = [PartyFolder.open(here / f"data-{name}").holding() for name in NAMES]
    expected = in_process(home, holdings)
    for folder in (home.path, *(here / f"data-{name}" for name in NAMES)):
        assert (folder / "ranker.json").read_bytes() == expected, folder
    left = b"".join(path.read_bytes() for path in sent.iterdir())
    assert len(left) > 5_000 and not [word for word in SECRETS if word in left]
    told = (home.path / "coordinator.log").read_text()
    assert "finished" in told and "north" not in told and str(here) not in told
    assert not (here / "data-north" / "engine").exists(), "the node's key goes with the line"
