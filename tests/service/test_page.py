"""The page is for the operator alone, loads nothing, shows every kind of federation, and follows it live."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
from dataclasses import replace

import pytest
from full_status import FULL
from html_pages import Seen
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.testclient import TestClient

from quorank.errors import BadInput
from quorank.service.dashboard import page as page
from quorank.service.dashboard.access import PageToken
from quorank.service.dashboard.numbers import duration
from quorank.service.dashboard.page import draw_page, draw_sections, page_routes
from quorank.service.dashboard.status import (
    Event,
    MemberCounts,
    MemberStatus,
    Problem,
    Quality,
    RoundFigures,
    Status,
    Versions,
)

TOKEN = "a-token-of-the-operator"
NASTY = "<script>alert('x')</script>\"&<!--/members-->"


def client_of(read=lambda: FULL, address: str = "https://search.example.org", **options) -> TestClient:
    app = Starlette(routes=page_routes(read, TOKEN, **options))
    return TestClient(app, base_url=address, follow_redirects=False)


def operator(**options) -> TestClient:
    client = client_of(**options)
    client.headers["authorization"] = f"Bearer {TOKEN}"
    return client


# ---------------------------------------------------------------- who gets in


FALSE = [
    {}, {"authorization": "Bearer else"}, {"authorization": TOKEN}, {"authorization": f"Basic {TOKEN}"},
    {"authorization": f"Bearer {TOKEN}x"}, {"authorization": "Bearer "}, {"cookie": f"quorank={TOKEN}"},
    {"authorization": b"Bearer \xff\xfe"},
]  # fmt: skip


@pytest.mark.parametrize("path", ["/", "/events", "/metrics"])
def test_nobody_sees_anything_without_the_token(path) -> None:
    unread = client_of(read=lambda: pytest.fail("the status was read"))
    for headers in FALSE:
        answer = unread.get(path, headers=headers)
        assert answer.status_code == 401 and answer.json()["code"] == "operator.token"
        assert "demo" not in answer.text and TOKEN not in answer.text


def test_the_token_in_the_address_becomes_a_cookie_and_leaves_it() -> None:
    client = client_of()
    answer = client.get("/", params={"token": TOKEN})
    assert answer.status_code == 303 and answer.headers["location"] == "./"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie and "Secure" in cookie and "Path=/" in cookie
    assert TOKEN not in cookie
    assert answer.headers["cache-control"] == "no-store" and answer.headers["referrer-policy"] == "no-referrer"
    assert client.get("/").status_code == 200, "the cookie is enough"
    assert client.get("/metrics").status_code == 200


def test_another_token_in_the_address_sets_no_cookie() -> None:
    for given in ("", "else", TOKEN[:-1], TOKEN + "x", "é", "\x00"):
        answer = client_of().get("/", params={"token": given})
        assert answer.status_code == 401 and "set-cookie" not in answer.headers
        assert given not in answer.text or not given


def test_the_cookie_is_for_tls_unless_it_is_plain_loopback_and_of_one_service() -> None:
    plain, secure = ("http://127.0.0.1:9000", "http://localhost"), ("https://127.0.0.1", "http://host")
    for address in plain + secure:
        cookie = client_of(address=address).get("/", params={"token": TOKEN}).headers["set-cookie"]
        assert ("Secure" in cookie) == (address in secure)
    assert len({PageToken(token).cookie for token in ("a" * 20, "b" * 20)}) == 2, "ports of one host share cookies"
    client = client_of()
    client.get("/", params={"token": TOKEN})
    other = TestClient(Starlette(routes=page_routes(lambda: FULL, "other")), base_url="https://search.example.org")
    other.cookies = client.cookies
    assert other.get("/").status_code == 401


def test_it_is_read_only() -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert {operator().request(method, path).status_code for path in ("/", "/events", "/metrics")} == {405}


# ---------------------------------------------------------------- what a browser may do with it


def test_nothing_is_loaded_or_run_but_what_is_written_here() -> None:
    answer = operator().get("/")
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'" and policy["frame-ancestors"] == "'none'"
    for name in ("script", "style"):
        (content,) = re.findall(f"<{name}>(.*?)</{name}>", answer.text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert policy[f"{name}-src"] == f"'sha256-{digest}'"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert not re.findall(r"(?:src|href|action)=\"(?!data:)", answer.text), "no resource of anywhere"
    assert " style=" not in answer.text and " on" not in re.sub(r">[^<]*<", "><", answer.text)


def sound(text: str) -> Seen:
    """A page whose tables and pictures readers of screens understand."""
    seen = Seen(text)
    assert seen.is_sound
    for tag, found in seen.elements:
        assert tag != "th" or found.get("scope") in ("row", "col")
        assert tag != "svg" or "x" in found or (found.get("role") == "img" and found.get("aria-label"))
    return seen


KINDS = [
    FULL,
    *(replace(FULL, kind=kind, problems=()) for kind in ("parties", "tuning", "simulation")),
    *(Status(kind, "new", "demo", 0.0) for kind in ("devices", "parties", "tuning", "simulation")),
    *(replace(FULL, state=state) for state in ("starting", "rebuilding", "done", "stopped")),
    replace(FULL, withheld="secret cohorts", accepted=None, replies=None, counts=MemberCounts(9, waiting=None)),
    replace(FULL, at=1e300, events=(Event(-1e300, "ready"), Event(1e300, "unheard")), rounds_planned=None),
    replace(FULL, history=(RoundFigures(1, 0.0, 0.0, 0.0, 0.0, 0.0),), epsilon_planned=0.0, rounds_planned=0),
    replace(FULL, quality=Quality("nDCG", least_devices=4), members=()),
]


def test_every_kind_is_drawn_as_sound_html() -> None:
    for status in KINDS:
        text = draw_page(status)
        seen = sound(text)
        sections = draw_sections(status)
        assert len(sections) == 10 and set(sections) <= {"title", *seen.ids}
        assert {"header", "main", "footer", "h1"} <= set(seen.tags) and seen.tags.count("main") == 1
        assert 'aria-live="polite"' in text and '<html lang="en">' in text and '<meta http-equiv="refresh"' in text
        assert all(html in text for html in sections.values())


def test_no_text_becomes_markup() -> None:
    member = MemberStatus(1, NASTY, "present", phase=NASTY)
    status = replace(
        FULL, kind="parties", run=NASTY, address=NASTY, phase=NASTY, members=(member,), refused={NASTY: 1},
        problems=(Problem(NASTY, NASTY),), traffic={NASTY: {}}, versions=Versions(NASTY, 1, {NASTY: 1}),
        events=(Event(1.0, NASTY, {NASTY: NASTY}),), epsilon_horizon=NASTY, withheld=NASTY,
        quality=Quality(NASTY, 0.5, 0.1, 3, 9), arms={NASTY: 1},
        weights=tuple(replace(weight, name=NASTY) for weight in FULL.weights),
    )  # fmt: skip
    for kind in ("parties", "devices", "tuning", "simulation"):
        text = draw_page(replace(status, kind=kind))
        assert "alert(" in text and "<script>alert" not in text and text.count("<!--/members-->") == 1
        sound(text)


def test_on_a_phone_every_value_of_a_row_has_its_column() -> None:
    text = draw_page(replace(FULL, kind="parties"))
    tables = re.findall(r'<div class="scroll"><table.*?</table>', text, re.DOTALL)
    assert len(tables) == 2
    for table in tables:
        heads = re.findall(r'<th scope="col">(.*?)</th>', table)
        for row in re.findall(r"<tr><th scope=\"row\">.*?</tr>", table, re.DOTALL):
            assert re.findall(r'<td(?: class="range")? data-head="(.*?)"', row) == heads[1:]
            assert row.count("<td") == len(heads) - 1
    assert "content: attr(data-head)" in page.style()


def test_stalls_versions_and_the_rate_of_requests_are_shown() -> None:
    text = draw_page(FULL)
    assert "2.5/s" in text and "mean latency 3 ms; 1,200 in all" in text and "round.stalled" not in text
    assert re.search(r"devices with 0\.1</th><td>2<", text) and re.search(r"service</th><td>0\.1<", text)
    late = replace(FULL, open_seconds=900.0, history=(RoundFigures(4, 100.0),), counts=MemberCounts(enrolled=4))
    text = draw_page(late)
    assert "round.stalled" in text and "has been open for 15 min" in text
    assert re.findall(r'<dl class="figure loud"><dt>(.*?)</dt>', text) == ["Devices online", "Time per round"]
    assert "Requests" not in draw_page(replace(FULL, requests=None))


def test_it_says_what_an_operator_asks() -> None:
    text = draw_page(FULL)
    for words in (
        "demo", "running", "Round 5 of 9", "about 3 s left", "ends in 2 s at the latest", "disk.full", "reply.norm",
        "0.450 ± 0.040", "1 of 2", "unit: client", "whole run", "three", "awaited", "host:1", "round 4:",
    ):  # fmt: skip
        assert words in text, words
    assert "too few reports" in draw_page(replace(FULL, quality=Quality("nDCG@10", least_devices=4)))
    noisy = draw_page(replace(FULL, quality=Quality("nDCG@10", 0.5, 0.3, 4, 8)))
    assert "too few reports" in noisy and "mostly noise" in noisy
    empty = draw_page(Status("devices", "new", "demo", 0.0))
    assert "No device has enrolled yet" in empty and "coordinator invite" in empty
    assert "silo invite" in draw_page(Status("parties", "new", "demo", 0.0))
    assert "costs a device ε = 0.1" in draw_page(replace(FULL, epsilon_spent=None, epsilon_planned=None))
    tuned = draw_page(replace(FULL, kind="tuning"))
    assert 'aria-label="w: 1 between 0 and 2"' in tuned and "version 4" in tuned
    session = draw_page(replace(FULL, kind="parties", phase="statistics"))
    assert '<li aria-current="step"' in session and "masked tables" in session
    beyond = draw_page(replace(FULL, epsilon_spent=2.1))
    assert "loud" in re.sub(r"<style>.*?</style>", "", beyond, flags=re.DOTALL)


def test_times_in_words() -> None:
    seconds = (None, 0.034, 8.0, 59.6, 60.0, 90.0, 700.0, 4325.0, 7200.0, 200_000.0)
    expected = ["unknown", "0.034 s", "8 s", "60 s", "1 min", "1 min 30 s", "11 min", "1 h 12 min", "2 h", "2 d 7 h"]
    assert [duration(value) for value in seconds] == expected


# ---------------------------------------------------------------- live


def stream_of(read, ends: int, monkeypatch) -> list[tuple[str, str]]:
    """The events of one stream that is stopped after so many looks."""
    monkeypatch.setattr(page, "LIVE_SECONDS", 0.0)
    looks = 0

    def stopping() -> bool:
        nonlocal looks
        looks += 1
        return looks > ends

    (events,) = (route for route in page_routes(read, TOKEN, stopping) if route.path == "/events")
    header = [(b"authorization", f"Bearer {TOKEN}".encode())]
    request = Request({"type": "http", "method": "GET", "path": "/events", "query_string": b"", "headers": header})

    async def collect() -> str:
        answer = await events.endpoint(request)
        assert answer.media_type == "text/event-stream" and answer.headers["cache-control"] == "no-store"
        return "".join([piece async for piece in answer.body_iterator])

    found = []
    for message in asyncio.run(collect()).split("\n\n"):
        lines = dict(line.split(": ", 1) if ": " in line else (line.rstrip(":"), "") for line in message.splitlines())
        if "event" in lines:
            found.append((lines["event"], lines["data"]))
    return found


def test_all_sections_come_first_and_then_those_that_changed(monkeypatch) -> None:
    statuses = [FULL, FULL, replace(FULL, rounds=5), replace(FULL, rounds=5, problems=())]
    events = stream_of(lambda: statuses.pop(0) if len(statuses) > 1 else statuses[0], 40, monkeypatch)
    assert [name for name, _ in events] == ["change", "change", "change", "over"]
    first, second, third = (json.loads(data) for _, data in events[:3])
    assert first == draw_sections(FULL)
    assert {"title", "summary"} <= set(second) and "events" not in second and "Round 6 of 9" in second["summary"]
    assert third == {"problems": ""}


def test_a_status_that_cannot_be_read_leaves_the_page_as_it_is(monkeypatch) -> None:
    answers = [FULL, BadInput("store.busy", "the store is busy"), OSError(28, "full", "/secret"), FULL]

    def read() -> Status:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    events = stream_of(read, 40, monkeypatch)
    assert [name for name, _ in events] == ["change", "over"]

    def fail() -> Status:
        raise OSError(28, "full", "/secret/path")

    answer = operator(read=fail).get("/")
    assert answer.status_code == 503 and answer.json()["code"] == "status.unreadable" and "secret" not in answer.text
    assert operator(read=fail).get("/metrics").status_code == 503


def test_the_status_is_read_once_for_all_who_watch(monkeypatch) -> None:
    reads = []
    client = operator(read=lambda: reads.append(1) or FULL)
    with client:
        for _ in range(20):
            assert client.get("/").status_code == 200 and client.get("/metrics").status_code == 200
    assert len(reads) <= 3
    monkeypatch.setattr(page, "MOST_STREAMS", 0)
    answer = operator().get("/events")
    assert answer.status_code == 503 and answer.json()["code"] == "request.busy", "streams are bounded"
