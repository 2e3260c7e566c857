"""The holder of a group: what it logs and tells, and how it waits for the disk."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace

import numpy as np
import pytest
from fleets import sent
from silo_groups import NAMES, call, made, workplace

from quorank.protocol.keys import MemberKey
from quorank.protocol.messages import leaving_receipt, leaving_request
from quorank.service.dashboard.event_log import EventLog
from quorank.service.dashboard.status import Status
from quorank.service.holders.group import SiloService
from quorank.service.overview import Overview


@pytest.fixture
def held(tmp_path, monkeypatch):
    home = made(workplace(tmp_path, monkeypatch) / "home")
    store, log, now = home.store(), io.StringIO(), [1000.0]
    assert store.hold() is not None
    service = SiloService(home, store, EventLog(log), clock=lambda: now[0], sleep=lambda seconds: None)
    yield SimpleNamespace(home=home, store=store, log=log, now=now, service=service)
    store.close()


def test_turns_are_timed_from_the_second_on_and_refusals_told_as_codes(held) -> None:
    service, now = held.service, held.now
    server = SimpleNamespace(
        turns=(0, 10), refused={}, done=False, searches=False, blocked=False, gone=(), phase="training",
        terms=held.home.group,
    )  # fmt: skip
    server.waits, server.traffic = lambda party: party == "west", lambda: {"search": {"envelopes": 7, "bytes": 12345}}
    service.server = server
    for at, turns in ((1300.0, 1), (1304.0, 2), (1304.0, 2), (1312.0, 4)):
        now[0], server.turns = at, (turns, 10)
        service._record_turns()
    server.refused = {"a secret sentence of north": 2, "silo-message.turn": 1}
    now[0] += 10.0
    service._record_turns()
    events = [json.loads(line) for line in held.log.getvalue().splitlines()]
    assert [(e["round"], e["seconds"]) for e in events if e["event"] == "round_closed"] == [
        (1, None),
        (2, 4.0),
        (4, 4.0),
    ]
    assert [e["phase"] for e in events if e["event"] == "phase_begun"] == [2]
    reasons = [e["reason"] for e in events if e["event"] == "reply_refused"]
    assert reasons == ["reply.other", "silo-message.turn"] and "secret" not in held.log.getvalue()
    told = Overview(held.home).read()
    assert (told.kind, told.rounds, told.rounds_planned, told.last_round_seconds) == ("parties", 4, 10, 4.0)
    assert told.seconds_left == 20.0, "not by the first turn; the open one has taken longer than the mean"
    assert told.refused == {"reply.other": 2, "silo-message.turn": 1}
    assert [(m.name, m.waiting, m.state) for m in told.members] == [(n, n == "west", "not invited") for n in NAMES]


def test_status_names_the_parties_and_who_is_waited_for(held) -> None:
    assert Overview(held.home).read().state == "new"
    call("invite", "home", "north")
    call("invite", "home", "south")
    call("revoke", "home", "south")
    held.service.publish("running")
    with held.home.running():
        table = json.loads(call("status", "home", "--json"))
        shown = call("status", "home")
    assert (table["state"], table["phase"], table["rehearsal"]) == ("running", "agreement", True)
    states = {party["name"]: (party["state"], party["waiting"]) for party in table["members"]}
    assert states == {"north": ("invited", True), "south": ("revoked", True), "west": ("not invited", True)}
    assert max(map(len, shown.splitlines())) <= 80
    flat = " ".join(shown.split())
    assert "north invited, agreement: the session waits for its reply" in flat and "nothing is secret" in flat
    assert json.loads(call("status", "home", "--json"))["state"] == "stopped"


def test_a_full_disk_is_waited_for(held) -> None:
    turns = iter(range(3))

    def turn() -> bool:
        if next(turns) < 2:
            raise OSError(28, "no space left on device")
        raise KeyboardInterrupt

    held.service.post.turn = turn
    with pytest.raises(KeyboardInterrupt):
        held.service.play()
    assert held.log.getvalue().count('"code": 28') == 1, "once, however long it lasts"
    assert held.service.status("running").checkpoints_failed == 2


def test_it_publishes_that_parties_look_into_their_mailboxes_and_says_when_it_is_over(held) -> None:
    held.service.stop = lambda: True
    assert not held.service.play()
    found = held.store.publication()
    assert found is not None and (found.kind, found.content) == ("secure", b"") and found.next < 0.2
    assert Status.read(held.store.document("status.json") or b"").state == "stopped"
    theta = [0.5] * 16
    held.service.server = SimpleNamespace(
        turns=(3, 3), refused={}, done=True, searches=False, blocked=False, gone=(), phase="done", ranker=np.array(theta),
        traffic=dict, terms=held.home.group, waits=lambda party: False,
    )  # fmt: skip
    assert held.service.play()
    found = held.store.publication()
    assert found is not None and found.kind == "over"
    assert json.loads((held.home.path / "ranker.json").read_text())["parameters"] == theta


def test_a_party_that_leaves_is_let_go_and_status_says_what_that_means(held) -> None:
    key = MemberKey.create()
    held.store.invite("south", "party", b"code", 1)
    held.store.enrol(key.public, b"code")
    request = leaving_request(SimpleNamespace(run="spring", client=1), key, 5.0, b"nonce")
    assert not sent(held.store, 1, "leave", 0, request).code
    held.service.look()
    assert held.store.leaving(1) == (request, leaving_receipt(held.home.key, request)) and held.store.admitted() == []
    left = [event for event in held.store.events() if event["code"] == "member_left"]
    assert [(event["client"], event["round"]) for event in left] == [(1, 0)]
    held.service.publish("running")
    with held.home.running():
        told = Overview(held.home).read()
        assert "the session cannot continue without south" in " ".join(call("status", "home").split())
    assert "party.left" in [problem.code for problem in told.problems]
    assert {party.name: party.state for party in told.members}["south"] == "left"
    assert told.counts.waiting == 0, "nobody is asked for what leads nowhere"
    after = SiloService(held.home, held.store, EventLog(None))
    assert after.server.gone == ("south",) and after.server.blocked
