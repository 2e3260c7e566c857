"""A hostile service: whatever it says, a device runs no code, writes into its folder only, and sends what was agreed."""

from __future__ import annotations

import gzip
import json
import sys
import threading
import time
import zlib
from contextlib import suppress

import numpy as np
import pytest
from devices import ANY, SEED, simulator_of, task_of, terms_of, user_of
from small_service import Said, SmallService

from quorank.federation import Federation
from quorank.federation.unlearning import rebuilding_name
from quorank.member import Client
from quorank.privacy import ClippedGaussian
from quorank.protocol import http_client as line

pytestmark = pytest.mark.slow

ROUNDS = 4


@pytest.fixture(scope="module")
def simulator(tiny_collection):
    part = ClippedGaussian(epsilon=100.0, clip=0.1, noise_multiplier=1.0)
    return simulator_of(tiny_collection, Federation(6, 3, privacy=part))


@pytest.fixture
def service(simulator, tmp_path, monkeypatch):
    monkeypatch.setattr(line, "CALL_SECONDS", 1.0)
    with SmallService(terms_of(simulator, 0)).running(tmp_path / "..") as made:
        made.simulator = simulator
        yield made


@pytest.fixture
def client(service, tmp_path):
    with Client.open(tmp_path / "device", service.invitation(tmp_path / "i.json"), seed=SEED, policy=ANY) as made:
        made.consent(True)
        for _ in range(7):
            user_of(service.simulator)(made.device)
        yield made


def replies(service):
    return [asked for asked in service.heard if asked.target == "/v1/reply"]


def raw(content: bytes, close: bool = True):
    """Bytes instead of an answer."""

    def say(handler):
        handler.wfile.write(content)
        handler.wfile.flush()

    return say


def dripping(head: bytes, more: bytes):
    """A head, and then a little now and then, for ever."""

    def say(handler):
        end = time.monotonic() + 5.0
        with suppress(OSError):
            handler.wfile.write(head)
            while time.monotonic() < end:
                handler.wfile.write(more)
                handler.wfile.flush()
                time.sleep(0.05)

    return say


def silent(handler):
    time.sleep(1.5)


def endless(handler):
    with suppress(OSError):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(100_000):
            handler.wfile.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")


BOMB = gzip.compress(bytes(1 << 26))
ANSWERS = {
    "not http": (raw(b"\x00\xff" * 4000), "service.away"),
    "cut short": (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nabc"), "service.away"),
    "a head of a megabyte": (raw(b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * (1 << 20) + b"\r\n\r\n"), "service.away"),
    "many heads": (raw(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 5000 + b"\r\n"), "service.away"),
    "a body of a terabyte": (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1099511627776\r\n\r\n"), "service.unreadable"),
    "a negative length": (raw(b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nabc"), "service.unreadable"),
    "endless": (endless, "service.unreadable"),
    "slow": (dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", b"x"), "service.away"),
    "slow heads": (dripping(b"HTTP/1.1 200 OK\r\n", b"X-Slow: 1\r\n"), "service.away"),
    "silent": (silent, "service.away"),
    "redirected": (Said(302, b"", {"Location": "https://127.0.0.1:1/v1/task"}), "service.unreadable"),
    "moved": (Said(308, b"", {"Location": "file:///etc/passwd"}), "service.unreadable"),
    "a bomb": (Said(200, BOMB, {"Content-Encoding": "gzip"}), "service.unreadable"),
    "deflated": (Said(200, zlib.compress(b"x"), {"Content-Encoding": "deflate"}), "service.unreadable"),
    "a bomb that is not called one": (Said(200, BOMB), "service.unreadable"),
    "a status of no meaning": (Said(299, b"x"), "service.unreadable"),
    "a code with a path": (Said(400, b'{"code": "../../x", "sentence": "\\u001b[2J"}'), "service.unreadable"),
    "a kind of its own": (Said(200, b"x", {"Quorank-Kind": "code"}), "service.unreadable"),
    "unsigned": (Said(200, b"x", {"Quorank-Kind": "round"}), "task.unsigned"),
    "a false signature": (
        Said(200, b"x", {"Quorank-Kind": "round", "Quorank-Signature": "A" * 86 + "=="}),
        "task.unsigned",
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_that_are_none(name, service, client) -> None:
    said, code = ANSWERS[name]
    client.consent(True)
    service.said["GET", "/v1/task"] = said
    begun = time.monotonic()
    report = client.sync(force=True)
    assert (report.outcome, report.code) == ("failed", code), report
    assert time.monotonic() - begun < 4.0
    assert "\x1b" not in report.sentence and len(report.sentence) < 500
    assert not replies(service)
    del service.said["GET", "/v1/task"]
    service.published = ("round", task_of(service.simulator))
    assert client.sync(force=True).outcome == "sent"


def test_tasks_that_were_not_agreed(service, client, simulator) -> None:
    size = simulator.simulation.parameters
    memory = simulator.initial().private
    good = task_of(simulator)
    for kind, content, code in (
        ("round", task_of(simulator, run="other"), "device.run"),
        ("round", task_of(simulator, run="../../device.sqlite"), "device.run"),
        ("round", task_of(simulator, run=rebuilding_name("run", 1, 1)), "device.run"),
        ("round", task_of(simulator, ROUNDS), "device.over"),
        ("round", task_of(simulator, 2**40), "device.over"),
        ("round", task_of(simulator, clients=(1,)), "device.client"),
        ("round", task_of(simulator, theta=np.zeros(size - 1)), "device.task"),
        ("round", task_of(simulator, theta=np.full(size, np.inf)), "device.task"),
        ("round", task_of(simulator, private={}), "device.task"),
        ("round", task_of(simulator, private={name: 1e6 * values for name, values in memory.items()}), "device.task"),
        ("round", task_of(simulator, private={**memory, "../../x": np.zeros(1)}), "device.task"),
        ("round", good[:-1], "device.malformed"),
        ("round", b"", "device.malformed"),
        ("round", b"QSEC" + bytes(50), "device.malformed"),
        ("over", b"\x80\x04\x95", "device.malformed"),  # a pickle's beginning
        ("over", task_of(simulator, ROUNDS + 1), "device.task"),
        ("secure", good[:-1], "device.malformed"),
        ("rebuilding", good, "device.run"),
        ("rebuilding", task_of(simulator, ROUNDS, run=rebuilding_name("run", 1, 1)), "device.over"),
        ("tuning", good, "device.task"),
    ):
        service.published = (kind, content)
        report = client.sync(force=True)
        assert (report.outcome, report.code) == ("nothing", code), (kind, content[:60], report)
    assert not replies(service)
    service.published = ("round", task_of(simulator, 1))
    assert client.sync(force=True).outcome == "sent"
    for content, code in (
        (task_of(simulator), "device.old"),
        (task_of(simulator, 1, theta=np.ones(size)), "device.repeated"),
    ):
        service.published = ("round", content)
        assert client.sync(force=True).code == code
    assert len(replies(service)) == 1


def test_a_task_that_is_signed_for_another_kind_or_by_another_key(service, client, simulator) -> None:
    good = service.signed("round", task_of(simulator))
    service.said["GET", "/v1/task"] = good._replace(headers={**good.headers, "Quorank-Kind": "rebuilding"})
    assert client.sync(force=True).code == "task.unsigned"
    service.said["GET", "/v1/task"] = SmallService(service.terms).signed("round", task_of(simulator))
    assert client.sync(force=True).code == "task.unsigned"
    assert not replies(service)


def test_messages_that_are_none(service, client, simulator) -> None:
    """The mailbox gets no answer but to a secure sum, which these terms have not."""
    service.published = ("secure", task_of(simulator))
    for number, content in enumerate((task_of(simulator), b"QSEC" + bytes(60), b'{"run": "code"}', b"")):
        service.mail[number] = (0, content)
        client.sync(force=True)
        assert service.answers[number] == b""
    service.said["GET", "/v1/mail"] = Said(200, b"QSEC", {"Quorank-Mail": "1&x=/etc/passwd"})
    assert client.sync(force=True).code == "service.unreadable"
    assert not replies(service)
    assert {asked.target.partition("?")[0] for asked in service.heard} == {"/v1/enrol", "/v1/task", "/v1/mail"}


def test_other_terms_at_enrolment(service, client, simulator) -> None:
    weaker = terms_of(simulator, 0, interactions=1)
    for table in (
        weaker.table(),
        terms_of(simulator, 0, rounds=4000).table(),
        terms_of(simulator, 0, privacy=ClippedGaussian(epsilon=1e5, clip=100.0, noise_multiplier=1.0)).table(),
        terms_of(simulator, 0, run="other").table(),
        terms_of(simulator, 0, report_epsilon=1.0).table(),
        terms_of(simulator, 3).table(),  # not the number that it was given
    ):
        service.said["POST", "/v1/enrol"] = Said(
            200, json.dumps({"member": 0, "name": "desk", "terms": table}).encode()
        )
        report = client.sync(force=True)
        assert (report.outcome, report.code) == ("failed", "terms.changed"), table
    for content in (
        b"",
        b"[]",
        b"{",
        b'{"member": -1}',
        b'{"member": true}',
        b'{"member": 0}',
        b"[" * 100_000,
        b"9" * 5000,
    ):
        service.said["POST", "/v1/enrol"] = Said(200, content)
        assert client.sync(force=True).code in ("service.unreadable", "terms.version")
    assert {asked.target for asked in service.heard} == {"/v1/enrol"}
    assert client.status()["state"] == "invited"


def test_terms_never_import_a_plug_in(service, tmp_path, monkeypatch, simulator) -> None:
    """A package that offers a part is installed; neither an invitation nor an enrolment makes it be imported."""
    site = tmp_path / "site"
    (site / "evil-1.dist-info").mkdir(parents=True)
    (site / "evil-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1\n")
    words = ("privacy", "ranker", "learner", "personal")
    points = "[quorank.parts]\n" + "".join(f"{word}.evil = evil_part:Evil\n" for word in words)
    (site / "evil-1.dist-info" / "entry_points.txt").write_text(points)
    (site / "evil_part.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Evil: pass\n")
    monkeypatch.syspath_prepend(str(site))
    from importlib.metadata import entry_points

    assert "privacy.evil" in {entry.name for entry in entry_points(group="quorank.parts")}
    for word in words:
        terms = service.terms.table() | {word: {"kind": "evil"}}
        path = service.invitation(tmp_path / f"{word}.json", terms=terms)
        with pytest.raises(Exception) as refusal:
            Client.open(tmp_path / word, path)
        assert refusal.value.code == "part.unknown-kind"
        service.said["POST", "/v1/enrol"] = Said(
            200, json.dumps({"member": 0, "name": "desk", "terms": terms}).encode()
        )
        with Client.open(tmp_path / f"{word} enrols", service.invitation(tmp_path / "good.json"), policy=ANY) as client:
            client.consent(True)
            assert client.sync().code == "part.unknown-kind"
    assert "evil_part" not in sys.modules and not (tmp_path / "ran").exists()


def test_nothing_is_run_or_written_elsewhere(service, client, simulator, tmp_path) -> None:
    """The interpreter itself tells of every file that is opened for writing, every process and every import, meanwhile."""
    events: list[tuple[str, object]] = []
    watched = threading.get_ident()

    def look(event: str, args: tuple[object, ...]) -> None:
        if watched != threading.get_ident():
            return
        if event in (
            "os.system",
            "os.exec",
            "os.posix_spawn",
            "subprocess.Popen",
            "exec",
            "compile",
            "pickle.find_class",
        ):
            events.append((event, args[:1]))
        if event == "open" and isinstance(args[0], str | bytes) and isinstance(args[2], int) and args[2] & 3:
            events.append((event, args[0]))
        if event == "socket.connect":
            events.append((event, args[1]))

    service.published = ("round", task_of(simulator))
    assert client.sync(force=True).outcome == "sent"  # whatever is imported late has been
    sys.addaudithook(look)
    try:
        for name, (said, _) in ANSWERS.items():
            if name not in ("slow", "slow heads", "silent", "endless"):
                service.said["GET", "/v1/task"] = said
                client.sync(force=True)
        del service.said["GET", "/v1/task"]
        for run in ("run", "../x", "/etc/passwd", "run rebuilt 1 every 1"):
            for kind in ("round", "secure", "rebuilding", "over", "tuning"):
                service.published = (kind, task_of(simulator, 2, run=run))
                client.sync(force=True)
    finally:
        watched = 0
    port = int(service.url.rpartition(":")[2])
    found = [one for one in events if one != ("socket.connect", ("127.0.0.1", port))]
    assert not [one for one in found if one[0] != "open" or not str(one[1]).startswith(str(tmp_path / "device"))]
    assert len(events) > len(found)  # it was asked, and its answers were looked at


def test_the_service_chooses_no_header_and_no_path(service, client, simulator) -> None:
    good = service.signed("round", task_of(simulator))
    for tag in ('"a\tb"', "x" * 5000, '"' + "y" * 200 + '"', "none"):
        service.said["GET", "/v1/task"] = good._replace(headers={**good.headers, "ETag": tag})
        client.sync(force=True)
    assert not [asked for asked in service.heard if "if-none-match" in asked.headers]
    del service.said["GET", "/v1/task"]


@pytest.mark.parametrize("next_", ["-5", "1e9", "nan", "99999999999", "x" * 4000])
def test_the_service_cannot_send_a_device_away_for_ever(next_, service, client, simulator) -> None:
    good = service.signed("round", task_of(simulator))
    service.said["GET", "/v1/task"] = good._replace(headers={**good.headers, "Quorank-Next": next_})
    service.said["POST", "/v1/reply"] = Said(200, b'{"accepted": true, "next": 1e300}', {"Quorank-Next": next_})
    assert client.sync(force=True).next <= 86400.0
    service.said["GET", "/v1/task"] = Said(503, b"{}", {"Retry-After": next_})
    assert client.sync(force=True).next <= 86400.0
