"""A member's line believes nothing of what a service answers, and signs every request for the service's clock."""

from __future__ import annotations

import base64
import contextlib
import datetime
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
from refusals import refused

from quorank import __version__
from quorank.protocol import certificates, requests
from quorank.protocol import http_client as line_module
from quorank.protocol.certificates import Authority
from quorank.protocol.http_client import Enrolment, PollingInterval, ServedMail, ServiceClient, ServiceRefusal
from quorank.protocol.invitation import Invitation
from quorank.protocol.keys import MemberKey, enrolment_content, is_signed, signed_letter, task_content

SERVICE, MEMBER = MemberKey(bytes(32)), MemberKey(bytes([1]) * 32)
TASK = base64.b64encode(SERVICE.sign(task_content("round", b"theta"))).decode()


class Scripted:
    """A service that says what it is told to, one answer after the other, and keeps what it was asked."""

    def __init__(self, folder) -> None:
        authority = Authority.create()
        self.authority, (key, certificate) = authority.pem.decode(), authority.server(["127.0.0.1"])
        (folder / "key.pem").write_bytes(key)
        (folder / "certificate.pem").write_bytes(certificate)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://127.0.0.1:{self.socket.getsockname()[1]}"
        self.answers: list[bytes | Callable[[ssl.SSLSocket], None]] = []
        self.asked: list[tuple[str, dict[str, str], bytes]] = []
        self.connections = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                plain, _ = self.socket.accept()
            except OSError:
                return
            try:
                with self.context.wrap_socket(plain, server_side=True) as found:
                    self.connections += 1
                    self._answer(found)
            except OSError:
                continue

    def _answer(self, found: ssl.SSLSocket) -> None:
        reader = found.makefile("rb")
        while first := reader.readline().decode().strip():
            headers = {}
            while line := reader.readline().decode().strip():
                name, _, value = line.partition(": ")
                headers[name.lower()] = value
            self.asked.append((first, headers, reader.read(int(headers.get("content-length", 0)))))
            answer = self.answers.pop(0)
            if callable(answer):
                answer(found)
                return
            found.sendall(answer)


def said(status: int, content: bytes = b"", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} x", f"Content-Length: {len(content)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + content


@pytest.fixture
def service(tmp_path) -> Iterator[Scripted]:
    made = Scripted(tmp_path)
    yield made
    made.socket.close()


def line_of(service: Scripted, **options) -> ServiceClient:
    return ServiceClient(service.url, SERVICE.public, service.authority, MEMBER, 7, **options)


def test_requests_are_signed_and_one_connection_carries_them(service) -> None:
    line = line_of(service)
    service.answers = [
        said(
            200, b"theta", quorank_kind="round", quorank_round="3", quorank_signature=TASK, quorank_next="4", etag="e"
        ),
        said(304, quorank_next="2.5"),
        said(200, b'{"accepted": true, "next": 9}'),
        said(200, signed_letter(SERVICE, 7, b"letter"), quorank_mail="12", quorank_next="0.05"),
        said(204, quorank_next="0.1"),
        said(202, b'{"state": "heard"}'),
        said(200, b'{"state": "done", "receipt": "word"}'),
    ]
    task = line.task()
    assert (task.kind, task.round, task.content, task.next, task.etag) == ("round", 3, b"theta", 4.0, "e")
    assert line.task("e").content is None and line.reply(b"reply") == 9.0
    assert line.mail() == (0.05, 12, b"letter") and line.mail() == ServedMail(0.1)
    assert line.leave(b"bye").state == "heard" and line.leave().receipt == "word"
    assert service.connections == 1 and service.asked[1][1]["if-none-match"] == "e"
    nonces = set()
    for first, headers, body in service.asked:
        method, target, _ = first.split()
        head = requests.read_head(headers)
        assert headers["user-agent"] == f"quorank/{__version__}" and head.program == __version__
        requests.check(head, MEMBER.public, SERVICE.public, method, target, time.time())
        requests.check_body(head, body)
        assert head.member == 7
        nonces.add(head.nonce)
    assert len(nonces) == len(service.asked)


def test_a_member_enrols_with_a_key_of_its_own(service) -> None:
    invitation = Invitation("north", service.url, SERVICE.public, {"a": 1}, b"c" * 32, certificate=service.authority)
    service.answers = [said(200, b'{"member": 5, "name": "north", "terms": {"a": 1}}')]
    line = ServiceClient(service.url, SERVICE.public, service.authority)
    assert line.enrol(invitation, MEMBER) == Enrolment(5, "north", {"a": 1}) and line.member == 5
    told = json.loads(service.asked[0][2])
    assert bytes.fromhex(told["key"]) == MEMBER.public and bytes.fromhex(told["code"]) == b"c" * 32
    content = enrolment_content(SERVICE.public, b"c" * 32, MEMBER.public)
    assert is_signed(MEMBER.public, content, base64.b64decode(told["proof"]))
    assert MEMBER.secret.hex() not in service.asked[0][2].decode()


def test_the_time_is_the_services(service) -> None:
    now, noted = time.time(), []
    line = line_of(service, clock=lambda: now - 86_400.0, note_offset=noted.append)
    refusal = said(401, b'{"code": "request.time", "sentence": "x"}', quorank_time=f"{int(now)}")
    service.answers = [refusal, said(204), refusal, refusal]
    line.mail()
    assert noted == [pytest.approx(86_400.0, abs=1.0)]
    assert abs(int(service.asked[1][1]["quorank-time"]) - now) <= 1.0
    with refused("request.time"):
        line.mail()  # it is corrected once, not for ever


def test_a_kept_connection_that_was_closed_is_opened_again(service) -> None:
    line = line_of(service)
    service.answers = [said(204), lambda found: None, said(204)]
    line.mail()
    line.mail()
    assert service.connections == 2 and len({headers["quorank-nonce"] for _, headers, _ in service.asked}) == 3


def drip(found: ssl.SSLSocket) -> None:
    for letter in said(200, b"x" * 1000, quorank_mail="1"):
        found.sendall(bytes([letter]))
        time.sleep(0.02)


def endless(found: ssl.SSLSocket) -> None:
    found.sendall(b"HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\nquorank-mail: 1\r\n\r\n")
    for _ in range(10_000):
        found.sendall(b"10000\r\n" + bytes(65536) + b"\r\n")


def headers_without_end(found: ssl.SSLSocket) -> None:
    found.sendall(b"HTTP/1.1 200 x\r\n" + b"a: b\r\n" * 5000)


HOSTILE = {
    "endless": (endless, "service.unreadable"),
    "drip": (drip, "service.away"),
    "headers": (headers_without_end, "service.away"),
    "no http": (lambda found: found.sendall(b"hello\r\n\r\n"), "service.away"),
    "cut off": (lambda found: found.sendall(said(200, b"abc", quorank_mail="1")[:-1]), "service.away"),
    "huge": (said(200, quorank_mail="1").replace(b"Length: 0", b"Length: 99999999999"), "service.unreadable"),
    "packed": (said(200, b"x", quorank_mail="1", content_encoding="gzip"), "service.unreadable"),
    "elsewhere": (said(302, location="https://elsewhere.example/"), "service.unreadable"),
    "no number": (said(200, b"x", quorank_mail="-1"), "service.unreadable"),
    "odd code": (said(403, b'{"code": "\\u001b[31m", "sentence": "x"}'), "service.unreadable"),
    "deep": (said(403, b"[" * 30_000), "service.unreadable"),
    "revoked": (said(403, b'{"code": "request.revoked", "sentence": "x"}'), "request.revoked"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_whatever_a_service_answers_is_an_answer_or_a_refusal(service, case) -> None:
    answer, code = HOSTILE[case]
    service.answers = [answer]
    began = time.monotonic()
    with refused(code):
        line_of(service, seconds=0.5).mail(most=1 << 20)
    assert time.monotonic() - began < 2.0 and len(service.asked) == 1


def test_a_task_that_the_service_did_not_sign_is_refused(service) -> None:
    good = {"quorank_kind": "round", "quorank_round": "3", "quorank_signature": TASK}
    line, foreign = line_of(service), base64.b64encode(MEMBER.sign(task_content("round", b"theta"))).decode()
    for content, changes in (
        (b"other", {}),
        (b"theta", {"quorank_signature": foreign}),
        (b"theta", {"quorank_kind": "over"}),
        (b"theta", {"quorank_signature": ""}),
    ):
        service.answers = [said(200, content, **(good | changes))]
        with refused("task.unsigned"):
            line.task()
    service.answers = [said(200, b"theta", **(good | {"quorank_kind": "code"}))]
    with refused("service.unreadable"):
        line.task()


def test_a_letter_that_the_service_did_not_sign_for_this_member_is_refused(service) -> None:
    true, line = signed_letter(SERVICE, 7, b"letter"), line_of(service)
    for letter in (
        b"letter", b"", true[:-1], true + b" ", signed_letter(MEMBER, 7, b"letter"), signed_letter(SERVICE, 8, b"letter")
    ):  # fmt: skip
        service.answers = [said(200, letter, quorank_mail="12")]
        with refused("mail.unsigned"):
            line.mail()


def test_another_authority_is_refused_and_dates_are_not_looked_at(service, tmp_path, monkeypatch) -> None:
    other = ServiceClient(service.url, SERVICE.public, Authority.create().pem.decode(), MEMBER, 7)
    with refused("service.certificate"):
        other.mail()
    assert service.asked == []
    tomorrow = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    clock = SimpleNamespace(now=lambda zone: tomorrow)  # the member's is a day behind
    fake = SimpleNamespace(datetime=clock, UTC=datetime.UTC, timedelta=datetime.timedelta)
    monkeypatch.setattr(certificates, "datetime", fake)
    authority = Authority.create()
    key, certificate = authority.server(["127.0.0.1"])
    (tmp_path / "key.pem").write_bytes(key)
    (tmp_path / "certificate.pem").write_bytes(certificate)
    service.context.load_cert_chain(tmp_path / "certificate.pem", tmp_path / "key.pem")
    service.answers = [said(204)]
    ServiceClient(service.url, SERVICE.public, authority.pem.decode(), MEMBER, 7).mail()


def test_a_proxy_is_asked_where_the_environment_names_one(service, monkeypatch) -> None:
    """The request goes through CONNECT, and the service's certificate is still that of its host."""
    proxy = socket.create_server(("127.0.0.1", 0))
    heard: list[bytes] = []

    def carry() -> None:
        client, _ = proxy.accept()
        heard.append(client.recv(4096))
        client.sendall(b"HTTP/1.1 200 x\r\n\r\n")
        way = socket.create_connection(("127.0.0.1", int(service.url.rsplit(":", 1)[1])))
        for one, other in ((client, way), (way, client)):
            threading.Thread(target=pipe, args=(one, other), daemon=True).start()

    def pipe(one: socket.socket, other: socket.socket) -> None:
        while content := one.recv(4096):
            other.sendall(content)
        with contextlib.suppress(OSError):
            other.shutdown(socket.SHUT_WR)

    threading.Thread(target=carry, daemon=True).start()
    monkeypatch.setattr(line_module, "LOOPBACK", ())
    monkeypatch.setenv("HTTPS_PROXY", f"http://me:word@127.0.0.1:{proxy.getsockname()[1]}")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    service.answers = [said(204), said(204)]
    line = line_of(service)
    line.mail()
    assert heard[0].startswith(b"CONNECT 127.0.0.1:") and b"proxy-authorization: Basic bWU6d29yZA==" in heard[0]
    line.close()
    monkeypatch.setenv("NO_PROXY", "example.org, 127.0.0.1")
    line.mail()
    assert len(heard) == 1
    proxy.close()


def test_who_cannot_reach_the_service_waits_longer_and_longer() -> None:
    pace, away = PollingInterval(draw=lambda: 1.0), ServiceRefusal("service.away", "x")
    assert [pace.after_failure(away) for _ in range(12)] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]
    assert (
        pace.after_success(10.0) == 11.0 and pace.after_failure(ServiceRefusal("service.busy", "x", 503, 30.0)) == 31.0
    )
    assert away.is_temporary and not ServiceRefusal("request.revoked", "x", 403).is_temporary
