"""Status of a folder: the document of the holder, members and events of the store, problems; also of a stopped one."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import replace

import pytest
from full_status import FULL
from signed_calls import folder_of
from store_worker import enrolled

from quorank.protocol.messages import Publication
from quorank.service.dashboard.status import LISTED, Event, MemberStatus
from quorank.service.home import STATUS, Home
from quorank.service.overview import Overview
from quorank.service.store.group_commit import Call
from quorank.service.store.sql_store import TRAFFIC, SqlStore

Place = tuple[Home, SqlStore]


@pytest.fixture
def place(tmp_path) -> Iterator[Place]:
    home = folder_of(tmp_path / "service", clients=1000)
    store = home.store()
    yield home, store
    store.close()


def test_members_are_those_of_the_store(place) -> None:
    home, store = place
    found = Overview(home).read()
    assert (found.state, found.kind, found.run, found.rounds_planned) == ("new", "devices", "run", 100)
    assert found.members == () and found.counts.enrolled == 0 and found.process is None and found.is_healthy
    enrolled(store, 3)
    store.invite("late-comer", "device", secrets.token_bytes(32))
    store.revoke(store.members()[2].name)
    found = Overview(home).read()
    assert (found.counts.enrolled, found.counts.invited, found.counts.revoked, found.counts.left) == (2, 1, 1, 0)
    assert [member.state for member in found.members] == ["present", "present", "revoked", "invited"]
    assert found.members[0].seen_seconds is not None, "who has just enrolled was seen"
    assert found.members[3].name == "late-comer" and found.members[3].identity is None


def test_what_the_holder_wrote_down_is_shown_as_stopped_where_no_process_runs(place) -> None:
    home, store = place
    enrolled(store, 2)
    store.hold()
    told = replace(FULL, at=store.now(), members=(MemberStatus(1, None, "away", waiting=True),))
    store.keep({STATUS: told.text().encode()})
    store.note("identity_copied", client=1)
    store.note("nothing_known", path="/anna")
    store.note("reply_refused", round=3, reason="/anna/secret", path="/anna")
    store.tally({"reply.norm": 5, "request.time": 2})
    found = Overview(home).read()
    assert (found.state, found.process, found.rounds) == ("stopped", None, 4)
    assert [member.waiting for member in found.members] == [False, True]
    assert found.refused == {"reply.norm": 7, "request.time": 2}
    times = [event.time for event in found.events]
    assert found.events == (
        Event(times[0], "reply_refused", {"round": 3, "reason": "reply.other"}),
        Event(times[1], "identity_copied", {"client": 1}),
    )
    assert "identity.copied" in {problem.code for problem in found.problems}
    assert "disk.full" not in {problem.code for problem in found.problems}, "of a holder that is gone"
    store.keep({STATUS: replace(told, state="done").text().encode()})
    assert Overview(home).read().state == "done"


def test_the_rate_of_requests_is_that_of_the_last_minute(place, monkeypatch) -> None:
    home, store = place
    clock = [100.0]
    monkeypatch.setattr("quorank.service.overview.time.monotonic", lambda: clock[0])
    reader, rates = Overview(home), []
    for moment, more in ((0.0, 1000), (20.0, 100), (50.0, 50), (79.0, 0)):
        clock[0] = 100.0 + moment
        store.tally(dict(zip(TRAFFIC, (more, 3000 * more), strict=True)))
        found = reader.read()
        rates.append(found.request_rate)
        assert found.refused == {}
    assert rates == [None, 100 / 20, 150 / 50, 50 / 59], "the read of moment 0 is older than a minute at 79"
    assert (found.requests, found.request_seconds) == (1150, 3.45) and found.request_latency == 0.003


def test_a_restored_service_that_nobody_answers_says_what_may_help(place) -> None:
    """Not before all have come, nor where it was never restored, nor where one has answered."""
    home, store = place
    numbers = enrolled(store, 2)
    store.hold()
    opened = store.publish(Publication("round", home.settings.run, 4, b"task", b"signature", 5.0, limits=b"limits"))
    for number in numbers:
        store.take([Call(number, secrets.token_bytes(16))])

    def codes() -> set[str]:
        return {problem.code for problem in Overview(home).read().problems}

    assert "restore.behind" not in codes()
    store.note("service_restored", rounds=0)
    assert "restore.behind" not in codes(), "they may still answer"
    store.database.execute("UPDATE events SET at = at - 3600")
    store.database.execute("UPDATE publication SET opened = opened - 3600")
    assert "restore.behind" in codes()
    store.database.execute("UPDATE members SET seen = seen - 7200 WHERE number = ?", numbers[0])
    assert "restore.behind" not in codes(), "one has not come since"
    store.take([Call(number, secrets.token_bytes(16)) for number in numbers])
    assert "restore.behind" in codes()
    store.take([Call(numbers[0], secrets.token_bytes(16), "reply", opened.number, b"reply")])
    assert "restore.behind" not in codes()


def test_awaited_members_are_listed_however_many_there_are(place) -> None:
    home, store = place
    numbers = enrolled(store, LISTED + 30)
    awaited = numbers[-5]
    store.hold()
    members = (MemberStatus(awaited, None, "away", waiting=True), MemberStatus(10**6, None, "away", waiting=True))
    store.keep({STATUS: replace(FULL, at=store.now(), members=members).text().encode()})
    found = Overview(home).read()
    assert len(found.members) == LISTED
    assert [member.client for member in found.members if member.waiting] == [awaited]
    assert next(member.name for member in found.members if member.waiting)


def test_parties_that_nobody_has_invited_yet_are_shown(place) -> None:
    home, store = place
    store.invite("north", "party", secrets.token_bytes(32))
    store.hold()
    members = tuple(
        MemberStatus(n, name, "not invited", phase="agreement") for n, name in enumerate(("north", "south"))
    )
    store.keep({STATUS: replace(FULL, kind="parties", at=store.now(), members=members).text().encode()})
    found = Overview(home).read()
    assert [(member.name, member.state) for member in found.members] == [("north", "invited"), ("south", "not invited")]
    assert found.members[0].phase == "agreement"
