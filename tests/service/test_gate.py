"""Who gets in: every call, by everybody who should not, each refused with its code before anything of it counts."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import accepts, refused
from signed_calls import Caller, Desk, Got, folder_of, publish, reply_of

from quorank import __version__
from quorank.federation.reply import ReplyLimits, decode_task, longest_reply
from quorank.files.documents import json_bytes
from quorank.protocol import requests
from quorank.protocol.invitation import Invitation
from quorank.protocol.keys import MemberKey
from quorank.protocol.member_list import attestation, entry_of
from quorank.protocol.messages import leaving_receipt, leaving_request
from quorank.service.dashboard.event_log import EventLog
from quorank.service.enrolment import open_enrolment
from quorank.service.home import Home
from quorank.service.intake import intake as intake_module
from quorank.service.intake.limits import BODIES, IntakeTraffic, network_of
from quorank.service.overview import Overview

CALLS = [
    ("GET", "/v1/task"),
    ("POST", "/v1/reply"),
    ("GET", "/v1/mail"),
    ("POST", "/v1/mail?id=1"),
    ("POST", "/v1/leave"),
    ("GET", "/v1/leave"),
    ("GET", "/v1/members?from=0"),
]
"""All calls that members sign."""


Tries = Callable[[Desk, Caller, str, str], Got]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A service's folder, to be copied: making one takes a moment."""
    return folder_of(tmp_path_factory.mktemp("gate") / "home").path


@pytest.fixture
def desk(folder: Path, tmp_path: Path) -> Iterator[Desk]:
    shutil.copytree(folder, tmp_path / "home")
    found = Desk(Home.open(tmp_path / "home"))
    assert found.store.hold() is not None
    publish(found.home, found.store)
    yield found
    found.close()


@pytest.fixture
def anna(desk: Desk, tmp_path: Path) -> Caller:
    return desk.enrolled("anna", tmp_path)


def body_of(desk: Desk, caller: Caller, method: str, target: str) -> bytes:
    """A body that the call takes."""
    if (method, target) == ("POST", "/v1/reply"):
        return reply_of(caller.number)
    if (method, target) == ("POST", "/v1/leave"):
        return leaving_request(desk.home.terms(caller.number), caller.key, 1.0, bytes(16))
    return b""


def good(desk: Desk, caller: Caller, method: str, target: str) -> Got:
    return desk.signed(caller, method, target, body_of(desk, caller, method, target))


def test_every_call_lets_its_member_in(desk: Desk, anna: Caller) -> None:
    desk.store.send([(anna.number, b"a question")])
    statuses = {call: good(desk, anna, *call).status for call in CALLS}
    assert statuses == dict.fromkeys(CALLS, 200) | {("POST", "/v1/leave"): 202}


def signed_as(**changed: object) -> Tries:
    """A request of a caller that differs from Anna in something."""
    return lambda desk, anna, *call: good(desk, replace(anna, **changed), *call)  # type: ignore[type-var]


def with_headers(**changed: str) -> Tries:
    """A request with other headers than were signed."""

    def tries(desk: Desk, anna: Caller, method: str, target: str) -> Got:
        return desk.signed(anna, method, target, body_of(desk, anna, method, target), **changed)

    return tries


def other_name(desk: Desk, anna: Caller, method: str, target: str) -> Got:
    """Ben's key, in Anna's name."""
    ben = desk.enrolled("ben", desk.home.path.parent)
    return good(desk, replace(ben, number=anna.number), method, target)


def other_call(desk: Desk, anna: Caller, method: str, target: str) -> Got:
    """Headers that were signed for another path."""
    body = body_of(desk, anna, method, target)
    return desk.call(method, target, body, anna.headers(method, "/v1/other", body))


def unsigned(desk: Desk, anna: Caller, method: str, target: str) -> Got:
    token = {"Authorization": f"Bearer {desk.home.token}"}  # the operator's token is worth nothing here
    return desk.call(method, target, body_of(desk, anna, method, target), token)


def revoked(desk: Desk, anna: Caller, method: str, target: str) -> Got:
    desk.store.revoke("anna")
    return good(desk, anna, method, target)


def gone(desk: Desk, anna: Caller, method: str, target: str) -> Got:
    good(desk, anna, "POST", "/v1/leave")
    desk.store.let_go(anna.number, b"receipt")
    return good(desk, anna, method, target)


def again(desk: Desk, anna: Caller, method: str, target: str) -> Got:
    """The same request, bit by bit."""
    desk.store.send([(anna.number, b"a question")])
    if (method, target) == ("GET", "/v1/leave"):
        good(desk, anna, "POST", "/v1/leave")
    body = body_of(desk, anna, method, target)
    headers = anna.headers(method, target, body)
    assert desk.call(method, target, body, headers).status in (200, 202)
    return desk.call(method, target, body, headers)


def a_day_off(desk: Desk, anna: Caller, method: str, target: str) -> Got:
    found = good(desk, replace(anna, ahead=86400), method, target)
    assert abs(int(found.headers["quorank-time"]) - desk.store.now()) < 5, "it learns the service's time"
    return found


def other_body(desk: Desk, anna: Caller, method: str, target: str) -> Got:
    """A digest that was signed, and another body."""
    body = body_of(desk, anna, method, target)
    return desk.call(method, target, body, anna.headers(method, target, body + b"?"))


def twice(desk: Desk, anna: Caller, method: str, target: str) -> Got:
    """Two members in one request."""
    body = body_of(desk, anna, method, target)
    return desk.call(method, target, body, [*anna.headers(method, target, body).items(), ("Quorank-Member", "0")])


REFUSED: dict[str, tuple[Tries, int, str]] = {
    "unsigned": (unsigned, 401, "request.unsigned"),
    "stranger": (signed_as(key=MemberKey.create(), number=77), 401, "request.unknown-member"),
    "other key": (signed_as(key=MemberKey.create()), 401, "request.signature"),
    "other name": (other_name, 401, "request.signature"),
    "other service": (signed_as(service=MemberKey.create().public), 401, "request.signature"),
    "other call": (other_call, 401, "request.signature"),
    "a day off": (a_day_off, 401, "request.time"),
    "revoked": (revoked, 403, "request.revoked"),
    "gone": (gone, 403, "request.left"),
    "again": (again, 409, "request.replayed"),
    "other body": (other_body, 400, "request.digest"),
    "old protocol": (with_headers(**{requests.VERSION: "0"}), 426, "request.protocol"),
    "crooked nonce": (with_headers(**{requests.NONCE_HEADER: "zz"}), 400, "request.malformed"),
    "twice": (twice, 400, "request.malformed"),
}


SAMPLE = [
    pytest.param(*call, name, id=f"{name} {' '.join(call)}", marks=() if (at + place) % 3 == 0 else pytest.mark.nightly)
    for place, name in enumerate(REFUSED)
    for at, call in enumerate(CALLS)
]
"""Every refusal at two of the six calls, and every call with five refusals; the whole product is nightly."""


@pytest.mark.parametrize(("method", "target", "name"), SAMPLE)
def test_nobody_else(desk: Desk, anna: Caller, method: str, target: str, name: str) -> None:
    tries, *expected = REFUSED[name]
    if name == "gone" and target == "/v1/leave":  # who has left may ask for its receipt, or send the same request again
        expected = [200 if method == "GET" else 202, ""]
    before = len(desk.store.replies("run", 0)), desk.store.leaving(anna.number)
    found = tries(desk, anna, method, target)
    assert [found.status, found.code] == expected
    assert found.status not in (401, 403) or desk.pieces == [], "nothing is read of a body of who is unknown"
    if name not in ("again", "gone"):
        assert (len(desk.store.replies("run", 0)), desk.store.leaving(anna.number)) == before, "nothing of it counts"


def test_only_calls_of_the_protocol(desk: Desk, anna: Caller) -> None:
    tricks = ["/v1/task/", "/v1", "/v1/../v1/task", "//v1/task", "/V1/TASK", "/v1/task%00", "/static/x", "/v1/tasks"]
    for path in tricks:
        assert desk.signed(anna, "GET", path).code == "request.unknown"
    for method, path in [("PUT", "/v1/reply"), ("DELETE", "/v1/task"), ("POST", "/v1/task"), ("GET", "/v1/enrol")]:
        found = desk.signed(anna, method, path)
        assert (found.status, found.code) == (405, "request.method")
    assert desk.call("GET", "/healthz").table["ok"]


# ------------------------------------------------------------ enrolment


def test_an_invitation_is_good_for_one_key(desk: Desk, tmp_path: Path) -> None:
    invitation = desk.invited("anna", tmp_path)
    code = invitation.code
    first, second = Caller(desk.home.key.public), Caller(desk.home.key.public)
    told = desk.call("POST", "/v1/enrol", first.enrolment(code)).table
    assert told == {"member": 0, "name": "anna", "terms": {**invitation.terms, "client": 0}} | told
    assert desk.call("POST", "/v1/enrol", first.enrolment(code)).table == told, "the answer was lost"
    found = desk.call("POST", "/v1/enrol", second.enrolment(code))
    assert (found.status, found.code) == (409, "invitation.used")
    desk.stop()
    told = [(event["code"], event["client"]) for event in desk.store.events()]
    assert told == [("member_enrolled", 0), ("invitation_reused", 0)]
    assert len(desk.store.members()) == 1


def test_a_service_with_an_attester_enrols_only_keys_for_which_it_vouches(tmp_path: Path) -> None:
    attester = MemberKey.create()
    desk = Desk(folder_of(tmp_path / "home", attester=attester.public.hex()))
    code, caller = desk.invited("anna", tmp_path).code, Caller(desk.home.key.public)
    service, own = desk.home.key.public, caller.key.public
    for by, of in (
        (MemberKey.create(), (service, own)),
        (attester, (service, MemberKey.create().public)),
        (attester, (MemberKey.create().public, own)),
    ):
        found = desk.call("POST", "/v1/enrol", caller.enrolment(code, attestation=attestation(by, *of).hex()))
        assert (found.status, found.code) == (403, "enrolment.not-attested")
    assert desk.call("POST", "/v1/enrol", caller.enrolment(code)).code == "enrolment.not-attested"
    signature = attestation(attester, service, own)
    found = desk.call("POST", "/v1/enrol", caller.enrolment(code, attestation=signature.hex()))
    assert found.status == 200 and found.table["terms"]["attester"] == attester.public.hex()
    caller.number = 0
    answer = desk.call("GET", "/v1/members?from=0", headers=caller.headers("GET", "/v1/members?from=0")).body
    assert answer[16:] == entry_of(0, own, signature)
    desk.close()


def test_members_are_listed_in_the_order_of_their_enrolment(desk: Desk, tmp_path: Path) -> None:
    callers = [desk.enrolled(name, tmp_path) for name in ("anna", "bert", "cleo")]
    entries = [entry_of(caller.number, caller.key.public) for caller in callers]

    def page(first: str) -> Any:
        target = f"/v1/members?from={first}"
        return desk.call("GET", target, headers=callers[0].headers("GET", target))

    whole = page("0").body
    assert (
        whole[16:] == b"".join(entries) and page("2").body == whole[:16] + entries[2] and page("9").body == whole[:16]
    )
    digest = hashlib.sha256(b"quorank members 1\n" + whole[:16]).digest()
    for entry in entries:
        digest = hashlib.sha256(digest + entry).digest()
    assert desk.store.member_head() == (3, digest)
    desk.store.revoke("bert")
    assert page("0").body == whole, "an entry stays"
    for wrong in ("", "-1", "x", "0x1"):
        assert page(wrong).code == "members.malformed"
    assert desk.call("GET", "/v1/members?from=0").code == "request.unsigned"


def test_enrolments_are_events_and_many_are_one(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake_module, "TALLY_SECONDS", 3600.0)
    log = io.StringIO()
    desk.intake._log = EventLog(log, clock=lambda: 5.0)
    desk.enrolled("anna", tmp_path)
    desk.intake._write_counts()
    desk.store.open_enrolment("word", 50, desk.store.now() + 60.0)
    for number in range(50):
        body = Caller(desk.home.key.public).enrolment("word")
        assert desk.call("POST", "/v1/enrol", body, address=f"192.0.2.{number}").status == 200
    desk.stop()
    facts = [{name: one[name] for name in one if name != "at"} for one in desk.store.events()]
    assert facts == [
        {"code": "members_enrolled", "client": 50, "count": 50},
        {"code": "member_enrolled", "client": 0, "count": 1},
    ]
    assert [json.loads(line) for line in log.getvalue().splitlines()] == [
        {"time": 5.0, "event": "member_enrolled", "client": 0},
        {"time": 5.0, "event": "members_enrolled", "count": 50, "client": 50},
    ]


def test_what_is_counted_is_written_down_without_another_request(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake_module, "TALLY_SECONDS", 0.01)
    desk.call("GET", "/nowhere")
    desk.loop.run_until_complete(asyncio.sleep(0.05))
    desk.loop.run_until_complete(desk.writer.stop())
    tallies = desk.store.tallies()
    assert tallies.pop("request_microseconds") > 0 and tallies == {"request.unknown": 1, "requests": 1}


def test_the_version_of_a_member_is_that_of_its_last_request(desk: Desk, anna: Caller) -> None:
    for agent in ("curl/8.0", "quorank/", "quorank/<b>", "quorank/1." + "9" * 40, f"Mozilla {requests.AGENT}"):
        assert desk.signed(anna, "GET", "/v1/task", **{"user-agent": agent}).status == 200
        assert desk.store.programs() == {"other": 1}, agent
    desk.signed(anna, "GET", "/v1/task", **{"user-agent": requests.AGENT})
    assert desk.store.programs() == {__version__: 1} == Overview(desk.home).read().versions.members
    desk.signed(anna, "GET", "/v1/mail", **{"user-agent": "quorank/2.10.3rc1"})
    assert desk.store.programs() == {"2.10.3rc1": 1}


def test_enrolments_that_are_none(desk: Desk, tmp_path: Path) -> None:
    anna, code = Caller(desk.home.key.public), desk.invited("anna", tmp_path).code
    for changed, status, expected in (
        ({"code": "00" * 32}, 400, "enrolment.proof"),
        ({"key": MemberKey(bytes(32)).public.hex()}, 400, "enrolment.proof"),
        ({"proof": base64.b64encode(bytes(64)).decode()}, 400, "enrolment.proof"),
        *(
            (changed, 400, "request.malformed")
            for changed in ({"proof": "?"}, {"key": "00"}, {"code": 7}, {"code": "00"})
        ),
        ({"token": "both"}, 400, "request.malformed"),
        ({"protocol": 2}, 426, "request.protocol"),
    ):
        found = desk.call("POST", "/v1/enrol", anna.enrolment(code, **changed))
        assert (found.status, found.code) == (status, expected)
    assert desk.call("POST", "/v1/enrol", anna.enrolment(bytes(32))).code == "invitation.unknown"
    desk.store.revoke("anna")
    assert desk.call("POST", "/v1/enrol", anna.enrolment(code)).code == "request.revoked"
    for body in (b"", b"[]", b"{}", b"\xff", b"{" * 4000, json.dumps({"protocol": 1}).encode()):
        assert desk.call("POST", "/v1/enrol", body).code == "request.malformed"
    assert desk.call("POST", "/v1/enrol", b" " * 5000).status == 413
    assert desk.store.admitted() == []


def test_open_enrolment_has_a_quota_an_end_and_public_tasks(desk: Desk, tmp_path: Path) -> None:
    assert desk.call("GET", "/v1/task").code == "request.unsigned"
    open_enrolment(desk.home, desk.store, 2, 1.0, tmp_path / "all.json")
    token = Invitation.read(tmp_path / "all.json").token
    one = Caller(desk.home.key.public)
    numbers = [desk.call("POST", "/v1/enrol", one.enrolment(token)).table["member"] for _ in range(3)]
    assert numbers == [0, 0, 0], "one identity a device"
    assert desk.call("GET", "/v1/task").status == 200
    assert desk.call("POST", "/v1/enrol", Caller(one.service).enrolment(token)).table["member"] == 1
    assert desk.call("POST", "/v1/enrol", Caller(one.service).enrolment(token)).code == "enrolment.full"
    assert desk.call("POST", "/v1/enrol", Caller(one.service).enrolment("another")).code == "invitation.unknown"
    assert desk.store.close_enrolment() == 1
    assert desk.call("POST", "/v1/enrol", Caller(one.service).enrolment(token)).code == "enrolment.ended"
    assert desk.call("GET", "/v1/task").code == "request.unsigned"


def test_enrolments_of_one_address_are_counted(tmp_path: Path) -> None:
    now = [0.0]
    desk = Desk(folder_of(tmp_path / "home"), IntakeTraffic(3, clock=lambda: now[0]))
    try:
        body = Caller(desk.home.key.public).enrolment(bytes(32))
        codes = [desk.call("POST", "/v1/enrol", body).code for _ in range(4)]
        assert codes == ["invitation.unknown"] * 3 + ["enrolment.too-many"]
        found = desk.call("POST", "/v1/enrol", body)
        assert (found.status, found.headers["retry-after"]) == (429, "5")
        assert desk.call("POST", "/v1/enrol", body, address="192.0.2.2").code == "invitation.unknown"
        now[0] += 60.0
        assert desk.call("POST", "/v1/enrol", body).code == "invitation.unknown"
    finally:
        desk.close()


@pytest.mark.parametrize(("limit", "workers"), [(60, 1), (60, 2), (7, 3)])
def test_no_minute_has_more_enrolments_of_an_address_than_stated(limit: int, workers: int) -> None:
    now, passed = [0.0], list[float]()
    traffics = [IntakeTraffic(limit, workers=workers, clock=lambda: now[0]) for _ in range(workers)]
    while now[0] < 300.0:
        for traffic in traffics:
            if accepts(traffic.enrol, "192.0.2.1"):
                passed.append(now[0])
        now[0] += 0.25
    most = max(sum(start <= at < start + 60.0 for at in passed) for start in passed)
    assert limit - workers < most <= limit
    assert len(passed) > 4 * (limit - workers)


# ------------------------------------------------------------ tasks, replies, mail, leaving


def test_a_task_is_signed_cached_and_says_when_to_come_back(desk: Desk, anna: Caller) -> None:
    from quorank.protocol.keys import is_signed, task_content

    found = desk.signed(anna, "GET", "/v1/task")
    signature = base64.b64decode(found.headers["quorank-signature"])
    assert is_signed(anna.service, task_content("round", found.body), signature)
    told = [found.headers[name] for name in ("quorank-kind", "quorank-round", "quorank-next")]
    assert told == ["round", "0", "7"]
    same = desk.signed(anna, "GET", "/v1/task", **{"If-None-Match": found.headers["etag"]})
    assert (same.status, same.body, same.headers["quorank-next"]) == (304, b"", "7")
    publish(desk.home, desk.store, 1)
    fresh = desk.signed(anna, "GET", "/v1/task", **{"If-None-Match": found.headers["etag"]})
    assert (fresh.status, fresh.headers["quorank-round"]) == (200, "1")


def test_who_is_not_asked_is_told_so(desk: Desk, anna: Caller) -> None:
    publish(desk.home, desk.store, 3, asked=(anna.number + 1).to_bytes(4, "little"))
    got = desk.signed(anna, "GET", "/v1/task")
    assert (got.status, got.headers["quorank-asked"]) == (200, "0") and decode_task(got.body).round == 3
    again = desk.signed(anna, "GET", "/v1/task", **{"If-None-Match": got.headers["etag"]})
    assert (again.status, again.headers["quorank-asked"]) == (304, "0")
    assert desk.signed(anna, "POST", "/v1/reply", reply_of(anna.number, 3)).code == "reply.unasked"
    publish(desk.home, desk.store, 3, asked=anna.number.to_bytes(4, "little"))
    assert "quorank-asked" not in desk.signed(anna, "GET", "/v1/task").headers


def test_before_the_first_task_there_is_none(tmp_path: Path) -> None:
    desk = Desk(folder_of(tmp_path / "home", pause=30.0))
    try:
        anna = desk.enrolled("anna", tmp_path)
        found = desk.signed(anna, "GET", "/v1/task")
        assert (found.status, found.headers["quorank-next"]) == (204, "30")
        assert desk.signed(anna, "POST", "/v1/reply", reply_of(0)).code == "reply.no-open-round"
    finally:
        desk.close()


def test_a_reply_is_committed_once_and_confirmed_again(desk: Desk, anna: Caller) -> None:
    body = reply_of(anna.number)
    for _ in range(2):
        found = desk.signed(anna, "POST", "/v1/reply", body)
        assert (found.status, found.table) == (200, {"accepted": True, "next": 7})
    assert [(one.member, one.content) for one in desk.store.replies("run", 0)] == [(0, body)]
    found = desk.signed(anna, "POST", "/v1/reply", reply_of(anna.number, value=0.2))
    assert (found.status, found.code) == (409, "reply.repeated")
    desk.stop()
    told = [(event["code"], event["client"]) for event in desk.store.events()]
    assert told == [("member_enrolled", 0), ("identity_copied", 0)]
    tallies = desk.store.tallies()
    assert tallies.pop("request_microseconds") > 0
    assert tallies == {"reply.repeated": 1, "requests": 4}, "the enrolment and three replies"


FALSE_REPLIES = [
    ("reply.malformed", b"QRNK"),
    ("reply.malformed", b""),
    ("reply.malformed", reply_of(0)[:-1]),
    ("reply.malformed", b"nothing"),
    ("reply.other-client", reply_of(1)),
    ("reply.other-run", reply_of(0, run="another")),
    ("reply.other-round", reply_of(0, 1)),
    ("reply.shape", reply_of(0, release=np.zeros(4))),
    ("reply.not-finite", reply_of(0, value=np.nan)),
    ("reply.weight", reply_of(0, interactions=4)),
    ("reply.weight", reply_of(0, interactions=0)),
    ("reply.norm", reply_of(0, value=1e6)),
    ("reply.protocol", reply_of(0)[:5] + b"\x02\x00" + reply_of(0)[7:]),
]


def test_false_replies_are_refused_before_they_are_committed(desk: Desk, anna: Caller) -> None:
    assert anna.number == 0
    for code, body in FALSE_REPLIES:
        found = desk.signed(anna, "POST", "/v1/reply", body)
        assert (found.status, found.code) == (409, code)
    assert desk.store.replies("run", 0) == []


def test_limits_of_the_holder_are_those_of_the_intake(desk: Desk, anna: Caller) -> None:
    limits = json_bytes(replace(ReplyLimits("run", 1, 5, 3, 1e6, 5), clip=0.5))
    publish(desk.home, desk.store, 1, limits=limits)
    assert desk.signed(anna, "POST", "/v1/reply", reply_of(0, 1, 0.5)).code == "reply.clip"
    assert desk.signed(anna, "POST", "/v1/reply", reply_of(0, 1, 0.1)).status == 200


def test_a_rebuilding_may_be_answered_with_nothing(desk: Desk, anna: Caller) -> None:
    publish(desk.home, desk.store, 1, "rebuilding")
    assert desk.signed(anna, "POST", "/v1/reply", b"nothing").status == 200
    publish(desk.home, desk.store, 1, "secure")
    assert desk.signed(anna, "POST", "/v1/reply", reply_of(0, 1)).code == "reply.no-open-round"


def test_messages_are_for_one_member_and_answered_once(desk: Desk, anna: Caller, tmp_path: Path) -> None:
    ben = desk.enrolled("ben", tmp_path)
    (number,) = desk.store.send([(anna.number, b"a question")])
    found = desk.signed(anna, "GET", "/v1/mail")
    assert (found.status, found.body, found.headers["quorank-mail"]) == (200, b"a question", str(number))
    assert desk.signed(ben, "GET", "/v1/mail").status == 204
    target = f"/v1/mail?id={number}"
    assert desk.signed(ben, "POST", target, b"an answer").code == "mail.unknown"
    assert [desk.signed(anna, "POST", target, b"an answer").status for _ in range(2)] == [200, 200]
    assert desk.signed(anna, "POST", target, b"another").code == "mail.repeated"
    assert desk.signed(anna, "GET", "/v1/mail").status == 204
    for target in ("/v1/mail", "/v1/mail?id=", "/v1/mail?id=-1", "/v1/mail?id=1&id=2", "/v1/mail?id=" + "9" * 30):
        assert desk.signed(anna, "POST", target, b"an answer").code == "mail.malformed"


def test_leaving_is_heard_and_then_done(desk: Desk, anna: Caller, tmp_path: Path) -> None:
    ben = desk.enrolled("ben", tmp_path)
    request = leaving_request(desk.home.terms(anna.number), anna.key, 1.0, bytes(16))
    assert desk.signed(anna, "GET", "/v1/leave").code == "leaving.unknown"
    assert desk.signed(ben, "POST", "/v1/leave", request).code == "leaving.unknown-client"
    forged = leaving_request(desk.home.terms(anna.number), ben.key, 1.0, bytes(16))
    assert desk.signed(anna, "POST", "/v1/leave", forged).code == "leaving.unsigned"
    assert desk.signed(anna, "POST", "/v1/leave", b"please").code == "leaving.malformed"
    assert desk.signed(anna, "POST", "/v1/leave", request).status == 202
    assert desk.signed(anna, "GET", "/v1/leave").table == {"state": "heard"}
    receipt = leaving_receipt(desk.home.key, request)
    desk.store.let_go(anna.number, receipt)
    assert desk.signed(anna, "GET", "/v1/leave").table == {"state": "done", "receipt": receipt.decode()}
    assert desk.signed(anna, "GET", "/v1/task").code == "request.left"


# ------------------------------------------------------------ hostile bodies


def test_long_bodies_are_refused_unread(desk: Desk, anna: Caller) -> None:
    for method, target in [("POST", "/v1/reply"), ("POST", "/v1/leave"), ("POST", "/v1/mail?id=1")]:
        found = desk.signed(anna, method, target, b"0" * 50_000_000)
        assert (found.status, found.code, desk.pieces) == (413, "request.too-long", [])
    assert desk.signed(anna, "GET", "/v1/task", b"a body").code == "request.too-long"
    body = reply_of(0)
    headers = anna.headers("POST", "/v1/reply", body)
    assert desk.call("POST", "/v1/reply", body[:-8], headers).code == "request.digest", "a truncated one"
    for length in ("-1", "1e3", "9" * 30, "0x10", "12, 12"):
        assert desk.call("POST", "/v1/reply", body, headers | {"Content-Length": length}).status in (400, 413)


def test_bodies_without_end_are_given_up(desk: Desk, anna: Caller) -> None:
    longest = longest_reply(5)

    def endless() -> Iterator[bytes]:
        while True:
            yield b"0" * 1000

    headers = anna.headers("POST", "/v1/reply", b"") | {"Transfer-Encoding": "chunked"}
    found = desk.call("POST", "/v1/reply", endless(), headers)
    assert (found.status, found.code) == (413, "request.too-long")
    assert sum(map(len, desk.pieces)) <= longest + 1000


def test_slow_and_compressed_bodies(desk: Desk, anna: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    body = reply_of(0)
    assert desk.signed(anna, "POST", "/v1/reply", body, **{"Content-Encoding": "gzip"}).status == 415
    monkeypatch.setattr(intake_module, "BODY_SECONDS", 0.05)

    async def silent() -> dict:
        await asyncio.sleep(60)
        return {}

    sent: list[dict] = []

    async def send(message: dict) -> None:
        sent.append(message)

    headers = anna.headers("POST", "/v1/reply", body) | {"Content-Length": str(len(body))}
    scope = {
        "type": "http", "method": "POST", "path": "/v1/reply", "query_string": b"", "client": ("192.0.2.1", 1),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }  # fmt: skip
    desk.loop.run_until_complete(desk.intake(scope, silent, send))
    assert sent[0]["status"] == 408 and b"request.slow" in sent[1]["body"]


def test_one_address_cannot_have_everything_under_way() -> None:
    traffic = IntakeTraffic(0, per_address=3)
    with ExitStack() as under_way:
        for _ in range(3):
            under_way.enter_context(traffic.request("192.0.2.1"))
        with refused("request.too-many"), traffic.request("192.0.2.1"):
            pass
        with traffic.request("192.0.2.2"), traffic.body(BODIES), refused("service.busy"), traffic.body(1):
            pass
    with traffic.request("192.0.2.1"), traffic.body(2 * BODIES):
        pass  # a single body may be longer


def test_who_asks_is_what_a_proxy_says_only_behind_one(tmp_path: Path) -> None:
    for behind, expected in ((False, "invitation.unknown"), (True, "enrolment.too-many")):
        home = folder_of(tmp_path / f"home-{behind}", behind_proxy=behind)
        desk = Desk(home, IntakeTraffic(1))
        try:
            body = Caller(home.key.public).enrolment(bytes(32))
            desk.call("POST", "/v1/enrol", body, {"X-Forwarded-For": "1.1.1.1, 10.0.0.9"}, address="192.0.2.1")
            said = {"X-Forwarded-For": "2.2.2.2, 10.0.0.9"}
            assert desk.call("POST", "/v1/enrol", body, said, address="192.0.2.2").code == expected
        finally:
            desk.close()
    assert network_of("2001:db8:0:1::1") == network_of("2001:db8:0:1:ffff::2") != network_of("2001:db8:0:2::1")
    assert network_of("fe80::1%eth0") == network_of("fe80::2") and network_of("nonsense" * 20) == ("nonsense" * 8)


def test_a_fault_of_ours_tells_nothing(desk: Desk, anna: Caller, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    def broken(number: int) -> None:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr(desk.store, "letter", broken)
    found = desk.signed(anna, "GET", "/v1/mail")
    assert (found.status, found.code) == (500, "service.fault") and b"secret" not in found.body
    assert capsys.readouterr().err == '{"event": "worker_fault", "kind": "ZeroDivisionError"}\n'
