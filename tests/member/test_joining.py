"""Parties over HTTPS: in threads and as processes that are killed, they come to the ranker of one process."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import refusals
from command_line import invoke
from real_services import free_port, until
from silo_groups import NAMES, SECRETS, SMALL, call, in_process, made, workplace, write_collection
from silo_sessions import Group, ScriptedLine, step_through, terms_of

from quorank.cli.silo import app
from quorank.errors import BadInput
from quorank.member.party_folder import PartyFolder
from quorank.member.party_run import take_part
from quorank.protocol.http_client import ServedMail, ServiceRefusal
from quorank.protocol.invitation import Invitation
from quorank.rankers.ranker_file import read_ranker

TURNS = 24
LONG = SMALL.replace("turns = 3", f"turns = {TURNS}")


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    return workplace(tmp_path, monkeypatch)


@contextlib.contextmanager
def serving(folder: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The service of a folder, as a process; its own children end with it."""
    with log.open("ab") as out:
        words = [sys.executable, "-m", "quorank.service.supervisor", str(folder), "--exit-when-done"]
        child = subprocess.Popen(words, stdout=out, stderr=out, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"})
    try:
        yield child
    finally:
        child.terminate()
        child.wait(60)


# ---------------------------------------------------------------- as processes that are killed


class Parties:
    """`quorank silo join` in processes of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.children = folder, dict[str, subprocess.Popen[bytes]]()
        self.logs = {
            name: (folder / f"said-{name}.log").open("ab") for name in NAMES
        }  # lines of several would run together

    def begin(self, name: str, *words: object) -> None:
        program = "from quorank.cli.main import main; main()"
        command = [sys.executable, "-c", program, "silo", "join", "--data", str(self.folder / f"data-{name}")]
        variables = os.environ | {"OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
        self.children[name] = subprocess.Popen(
            [*command, *map(str, words)], stdout=self.logs[name], stderr=self.logs[name], env=variables
        )

    def end(self, name: str, number: signal.Signals) -> int:
        self.children[name].send_signal(number)
        return self.children[name].wait(60)

    def close(self) -> None:
        for child in self.children.values():
            child.kill()
            child.wait()
        for log in self.logs.values():
            log.close()

    def said(self) -> str:
        return "".join((self.folder / f"said-{name}.log").read_text() for name in NAMES)


def test_killed_parties_holders_and_workers_come_to_the_ranker_of_one_process(here) -> None:
    """SIGKILL of a party, of the holder and of the worker, SIGTERM of a party and of the service; each in the middle."""
    port = free_port()
    home = made(here / "home", LONG, port)
    for name in NAMES:
        write_collection(here / f"texts-{name}", name)
        call("invite", "home", name)
    log, parties = here / "service.log", Parties(here)
    ended: dict[str, int] = {}

    def turns() -> int:
        return sum(entry["kind"] == "part" for entry in sent(here, "south"))

    def child(name: str) -> int:
        found: int = json.loads((home.path / "supervisor.json").read_text())["children"][name]
        return found

    try:
        with serving(home.path, log) as service:
            for name in NAMES:
                words = ("--bundle", here / f"{name}.json", "--collection", here / f"texts-{name}", "--consent", "on")
                parties.begin(name, *words)
            until(lambda: any(entry["kind"] == "statistics" for entry in sent(here, "west")), parties.said)
            ended["west"] = parties.end("west", signal.SIGKILL)
            parties.begin("west")
            until(lambda: turns() >= 2, parties.said)
            os.kill(child("holder"), signal.SIGKILL)
            before = turns()
            until(lambda: turns() > before + 2, parties.said)
            os.kill(child("worker-0"), signal.SIGKILL)
            before = turns()
            until(lambda: turns() > before + 2, parties.said)
            ended["north"] = parties.end("north", signal.SIGTERM)  # no turn ends without it
            service.terminate()
            parties.begin("north")
            assert service.wait(60) == 0
        stopped = json.loads(call("status", "home", "--json"))
        assert stopped["state"] == "stopped" and 6 <= stopped["rounds"] < TURNS and stopped["kind"] == "parties"
        with serving(home.path, log) as service:
            assert service.wait(120) == 0, parties.said()
            codes = {name: parties.children[name].wait(60) for name in NAMES}
    finally:
        parties.close()
    assert ended == {"west": -9, "north": 130} and codes == dict.fromkeys(NAMES, 0), parties.said()
    wanted = in_process(home.group, [PartyFolder.open(here / f"data-{name}").holding() for name in NAMES])
    for folder in (home.path, *(here / f"data-{name}" for name in NAMES)):
        assert (folder / "ranker.json").read_bytes() == wanted, folder
    assert read_ranker(here / "data-north").n_features == 18
    for file in (*home.path.glob("service.sqlite*"), log):
        content = file.read_bytes()
        assert not [word for word in SECRETS if word in content], file
    told = log.read_text()
    assert "finished" in told and str(here) not in told and "north" not in told and "Traceback" not in told
    table = json.loads(call("status", "home", "--json"))
    assert (table["state"], table["phase"], table["rounds"]) == ("done", "done", TURNS)
    assert [party["name"] for party in table["members"]] == list(NAMES)
    kinds = {entry["kind"] for entry in sent(here, "north")}
    assert kinds >= {"hello", "contribution", "statistics", "part", "kept"}
    given = json.loads(call("join", "--data", "data-north", "--log", "--json"))["consent"]
    assert [entry["given"] for entry in given] == [True]
    marks = {json.loads(call("join", "--data", f"data-{n}", "--identity", "--json"))["fingerprint"] for n in NAMES}
    assert len(marks) == 1 and None not in marks, "the same at all parties"
    shown = parties.said() + call("join", "--data", "data-north", "--log") + call("status", "home")
    assert max(map(len, shown.splitlines())) <= 80, shown
    assert "nothing is secret" in shown and "Traceback" not in shown


@pytest.mark.slow
def test_a_group_goes_on_when_its_members_have_compared_and_searches_within_its_limits(here) -> None:
    """Keys are secret: nothing but keys leaves before the fingerprint is confirmed, and a third search is refused."""
    port = free_port()
    home = made(
        here / "home",
        SMALL.replace("seed = 3\n", "") + "[search]\nquestions_a_day = 2\nshare = 1.0\nshare_of_all = 1.0\n",
        port,
    )
    for name in NAMES:
        write_collection(here / f"texts-{name}", name)
        call("invite", "home", name)
        PartyFolder.accept(here / f"data-{name}", Invitation.read(here / f"{name}.json")).consent(True)
    parties = Parties(here)

    def states(key: str) -> list[object]:
        return [PartyFolder.open(here / f"data-{name}").state.get(key) for name in NAMES]

    try:
        with serving(home.path, here / "service.log"):
            for name in NAMES:
                parties.begin(name, "--collection", here / f"texts-{name}")
            until(lambda: all(states("fingerprint")), parties.said)
            time.sleep(1.0)  # time in which the session would go on
            assert {entry["kind"] for name in NAMES for entry in sent(here, name)} == {"hello", "contribution"}
            for name in NAMES:
                call("join", "--data", f"data-{name}", "--confirm", str(states("fingerprint")[0]))
            until(lambda: all(states("done")), parties.said)
            found = [invoke(app, "search", "data-north", "rareword1 commonword1") for _ in range(3)]
            before, after = (
                [" ".join(said.split()) for said in each]
                for each in ([f.stderr for f in found], [f.stdout for f in found])
            )
            assert "south: not asked yet" in before[0] and "at least 1 such searches are left" in after[0]
            assert "at least 1 such searches are left" in before[1] and "at least 0 such searches are left" in after[1]
            assert "south does not answer" in after[2]
    finally:
        parties.close()


def sent(here: Path, name: str) -> list[dict]:
    """What a party has sent; nothing before its file is made."""
    with contextlib.suppress(BadInput):
        return PartyFolder.open(here / f"data-{name}").sent_log()
    return []


# ---------------------------------------------------------------- the loop


@pytest.fixture
def group(tmp_path) -> Iterator[Group]:
    made_ = Group(tmp_path / "group", terms_of())
    yield made_
    made_.close()


def test_a_party_waits_for_its_service_and_for_consent(group) -> None:
    now, agreed, faults = [0.0], [False], list[str]()
    content = group.server.due("north")
    line = ScriptedLine(
        *[ServiceRefusal("service.away", "away")] * 3, ServedMail(0.0, 7, b"noise"), ServedMail(0.0, 8, content)
    )

    def sleep(seconds: float) -> None:
        now[0] += seconds
        agreed[0] = agreed[0] or now[0] > 5.0

    def play(stop: Callable[[], bool]) -> bool:
        return take_part(
            group.parties["north"], line, stop, lambda: agreed[0], faults.append, clock=lambda: now[0], sleep=sleep
        )

    assert not play(lambda: len(line.answers) == 2)
    assert now[0] > 5.0 + 1.0 and [one for one in faults if one] == ["away"] * 3
    assert line.answers[0] == (7, b"") and line.answers[1][1], "what it cannot read it answers with nothing"
    line.said = [ServiceRefusal("request.revoked", "revoked", 403)]
    with refusals.refused("request.revoked"):
        play(lambda: False)
    line.over = True
    with refusals.refused("silo-run.ended"):
        play(lambda: False)


def test_a_party_with_the_ranker_ends_when_all_is_said_or_nobody_is_there(group) -> None:
    step_through(group)
    now, line = [0.0], ScriptedLine(over=True)

    def sleep(seconds: float) -> None:
        now[0] += seconds

    def play(line: ScriptedLine) -> bool:
        return take_part(group.parties["north"], line, lambda: False, clock=lambda: now[0], sleep=sleep)

    assert play(line)
    gone = ScriptedLine(*[ServiceRefusal("service.away", "away")] * 50)
    assert play(gone) and now[0] > 180.0
    with pytest.raises(BadInput):
        play(ScriptedLine(ServiceRefusal("request.signature", "x", 401)))
