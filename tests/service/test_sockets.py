"""Real processes: one listening socket, workers that are killed, replaced and flooded, and nothing left behind."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.request import urlopen

import pytest
from postgresql_server import empty_database
from real_services import RealService, free_port, is_alive, listening_sockets, real_service, until
from signed_calls import Caller, over_tls, reply_of

from quorank.protocol.certificates import Authority
from quorank.service.home import Home

pytestmark = pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="looks at processes in /proc")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealService]:
    with real_service(tmp_path_factory.mktemp("sockets") / "home", clients=300) as found:
        yield found


def test_a_member_over_tls_and_one_listening_socket(service: RealService, tmp_path: Path) -> None:
    assert len(service.children("worker")) == 2
    assert len(listening_sockets([service.pid, *service.children()])) == 1
    anna = service.enrolled("anna", tmp_path)
    assert service.signed(anna, "GET", "/v1/task").status in (200, 204)
    assert service.call("GET", "/v1/task").code == "request.unsigned"
    assert service.signed(Caller(anna.service, number=anna.number), "GET", "/v1/task").code == "request.signature"
    headers = anna.headers("GET", "/v1/task")
    assert service.call("GET", "/v1/task", headers=headers).status in (200, 204)
    assert service.call("GET", "/v1/task", headers=headers).code == "request.replayed"
    assert service.call("GET", "/metrics").code == "operator.token"
    operator = {"Authorization": f"Bearer {service.home.token}"}
    assert b"quorank_enrolled_members" in service.call("GET", "/metrics", headers=operator).body
    assert b"<html" in service.call("GET", "/", headers=operator).body


def raw(service: RealService, content: bytes, seconds: float = 20.0) -> bytes:
    """What is answered to bytes that no client would send."""
    context = ssl.create_default_context(cafile=str(service.home.path / "ca.pem"))
    with (
        socket.create_connection(("127.0.0.1", service.home.settings.port), timeout=seconds) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as line,
    ):
        try:
            line.sendall(content)
            return line.recv(65536)
        except OSError:
            return b""


def test_requests_that_are_none(service: RealService) -> None:
    flood = b"".join(b"X-%d: %s\r\n" % (at, b"y" * 1000) for at in range(200))
    assert raw(service, b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + flood + b"\r\n")[:15] in (b"", b"HTTP/1.1 431 Re")
    long = raw(service, b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    assert long[:12] in (b"", b"HTTP/1.1 414", b"HTTP/1.1 431")
    assert b"request.unknown" in raw(service, b"GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n")
    assert raw(service, b"\x16\x03\x01 nonsense\r\n\r\n")[:12] in (b"", b"HTTP/1.1 400")
    smuggled = (
        b"POST /v1/enrol HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET"
    )
    assert b"200 OK" not in raw(service, smuggled)
    assert service.call("GET", "/healthz").status == 200


def test_silent_and_slow_connections_of_one_address_stop_nobody(service: RealService) -> None:
    """1,000 of them: without a word, in the middle of a handshake, of headers, and of a body."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    address, context = ("127.0.0.1", service.home.settings.port), ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    held: list[socket.socket] = []
    try:
        for at in range(1000):
            one = socket.create_connection(address, timeout=20)
            held.append(one)
            if at % 4 == 1:
                one.sendall(b"\x16\x03\x01")
            elif at % 20 == 2:
                held.append(line := context.wrap_socket(one, do_handshake_on_connect=True))
                line.sendall(b"GET /v1/task HTTP/1.1\r\nHost: x\r\nX-Slow:")
            elif at % 20 == 3:
                held.append(line := context.wrap_socket(one, do_handshake_on_connect=True))
                line.sendall(b"POST /v1/enrol HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        for _ in range(5):
            begun = time.monotonic()
            assert service.call("GET", "/healthz").status == 200
            assert time.monotonic() - begun < 3.0
    finally:
        for one in held:
            one.close()


def test_an_address_with_too_many_connections_loses_its_oldest() -> None:
    from quorank.service.intake.limits import ConnectionGuard

    port, now = 20_000 + os.getpid() % 10_000, [0.0]  # below the ports that the system gives to connections
    with socket.create_server(("127.0.0.1", port)) as listener:
        guard = ConnectionGuard(port, per_address=100, clock=lambda: now[0])
        accepted, held = [], []

        def connect(source: str, count: int) -> list[socket.socket]:
            made = []
            for _ in range(count):
                made.append(socket.create_connection(("127.0.0.1", port), timeout=5, source_address=(source, 0)))
                accepted.append(listener.accept()[0])
            held.extend(made)
            return made

        try:
            other, old = connect("127.0.0.2", 50), connect("127.0.0.1", 60)
            assert guard.look() == 0
            connect("127.0.0.1", 30)
            now[0] = 1.0
            assert guard.look() == 0
            new = connect("127.0.0.1", 40)
            now[0] = 2.0
            assert guard.look() == 30
            for one in (*old, *new, *other):
                one.setblocking(False)
            ended = [one for one in old if is_ended(one)]
            assert len(ended) == 30 and not any(map(is_ended, [*new, *other]))
        finally:
            for one in (*held, *accepted):
                one.close()


def is_ended(one: socket.socket) -> bool:
    try:
        return one.recv(1) == b""
    except BlockingIOError:
        return False


def hammer(service: RealService, callers: list[Caller], round_: int, done: dict[int, int], failed: list[str]) -> None:
    """Devices reply, and again where the answer was lost."""
    for caller in callers:
        body = reply_of(caller.number, round_)
        for _ in range(20):
            try:
                got = service.signed(caller, "POST", "/v1/reply", body)
            except OSError as error:
                failed.append(type(error).__name__)
                time.sleep(0.05)
                continue
            if got.status == 200:
                done[caller.number] = got.status
                break
            failed.append(got.code)


def test_a_killed_worker_loses_nothing_that_was_accepted(service: RealService, tmp_path: Path) -> None:
    silent = service.enrolled("silent", tmp_path)  # does not reply, so that the round stays open
    callers = [service.enrolled(f"killed-{at}", tmp_path) for at in range(40)]
    done, failed = dict[int, int](), list[str]()
    until(lambda: all(service.signed(silent, "GET", "/v1/task").status == 200 for _ in range(5)), service.log)
    threads = [
        threading.Thread(target=hammer, args=(service, callers[at::4], 0, done, failed), daemon=True) for at in range(4)
    ]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    victim = service.children("worker")[0]
    os.kill(victim, signal.SIGKILL)
    for thread in threads:
        thread.join(60)
    assert sorted(done) == sorted(caller.number for caller in callers)
    store = service.home.store()
    stored = [reply.member for reply in store.replies("run", 0)]
    store.close()
    assert sorted(stored) == sorted(done), "none lost, none twice"
    until(lambda: victim not in service.children("worker") and len(service.children("worker")) == 2)


def test_a_new_certificate_is_handed_over_without_a_lost_request(service: RealService, tmp_path: Path) -> None:
    callers = [service.enrolled(f"renewed-{at}", tmp_path) for at in range(2)]
    stopping, answered, failed = [], list[int](), list[str]()

    def ask(caller: Caller) -> None:
        while not stopping:
            try:
                answered.append(service.signed(caller, "GET", "/v1/task").status)
            except OSError as error:
                failed.append(repr(error))

    def served() -> bytes:
        return ssl.get_server_certificate(("127.0.0.1", service.home.settings.port)).encode()

    threads = [threading.Thread(target=ask, args=(caller,), daemon=True) for caller in callers]
    for thread in threads:
        thread.start()
    before, workers = served(), service.children("worker")
    service.home.issue(service.home.settings)
    until(lambda: not set(workers) & set(service.children("worker")), service.log)
    until(lambda: not any(map(is_alive, workers)))
    after = {served() for _ in range(5)}
    stopping.append(True)
    for thread in threads:
        thread.join(20)
    assert before not in after and len(after) == 1
    assert failed == [] and set(answered) <= {200, 204} and len(answered) > 10
    workers = service.children("worker")  # a broken certificate is not used
    good = (service.home.path / "server.pem").read_bytes()
    (service.home.path / "server.pem").write_bytes(b"not a certificate")
    time.sleep(3.0)
    assert service.children("worker") == workers and all(map(is_alive, workers))
    health = service.call("GET", "/healthz")
    assert health.status == 200 and "certificate.unreadable" in health.body.decode()
    (service.home.path / "server.pem").write_bytes(good)
    assert service.call("GET", "/healthz").status in (200, 503)


def test_children_end_with_their_supervisor_however_it_ends(tmp_path: Path) -> None:
    """Of a service with certificates that were given."""
    authority = Authority.create()
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    key, certificate = authority.server(["127.0.0.1"])
    (tmp_path / "key.pem").write_bytes(key)
    (tmp_path / "cert.pem").write_bytes(certificate)
    given = {"certificate": str(tmp_path / "cert.pem"), "key": str(tmp_path / "key.pem"), "workers": 1}
    with real_service(tmp_path / "home", **given) as service:
        assert over_tls(service.url, tmp_path / "ca.pem", "GET", "/healthz").status == 200
        assert service.home.authority == b"", "invitations trust the system's certificates"
        children = service.children()
        os.kill(service.pid, signal.SIGKILL)
        until(lambda: not any(map(is_alive, children)), seconds=10.0)
        service.kill()
        service.start()
        children = service.children()
        assert service.stop() == 0
        assert not any(map(is_alive, children))
        assert service.told()["state"] == "stopped" and service.home.process() is None


def test_plain_http_behind_a_proxy(tmp_path: Path) -> None:
    with real_service(tmp_path / "home", behind_proxy=True, workers=1) as service:
        assert service.url.startswith("http://127.0.0.1")
        with urlopen(f"{service.url}/healthz", timeout=10) as answer:
            assert answer.status == 200


def test_two_hosts_and_one_database(tmp_path: Path) -> None:
    """Two copies of a folder over one PostgreSQL: a member of one is known to the other, and so are its nonces."""
    with real_service(tmp_path / "first", workers=1, minimum_members=1, database=empty_database()) as first:
        shutil.copytree(first.home.path, tmp_path / "second", ignore=shutil.ignore_patterns("lock", "supervisor.json"))
        second = RealService(Home.open(tmp_path / "second"))
        port = free_port()
        second.home.change(replace(first.home.settings, port=port, address=f"127.0.0.1:{port}"))
        store = first.home.store()

        def holder() -> int:
            return int(json.loads(store.document("status.json") or b'{"process": 0}')["process"])

        try:
            second.start()
            anna, ben = first.enrolled("anna", tmp_path), second.enrolled("ben", tmp_path)
            until(lambda: second.signed(anna, "GET", "/v1/task").status == 200, second.log)
            headers = ben.headers("GET", "/v1/task")
            assert first.call("GET", "/v1/task", headers=headers).status == 200
            assert second.call("GET", "/v1/task", headers=headers).code == "request.replayed"
            assert first.signed(anna, "POST", "/v1/reply", reply_of(anna.number)).status == 200
            before = holder()
            assert before in (*first.children("holder"), *second.children("holder"))
            os.kill(before, signal.SIGKILL)
            assert second.signed(ben, "POST", "/v1/reply", reply_of(ben.number)).status == 200
            until(lambda: second.signed(anna, "GET", "/v1/task").headers["quorank-round"] == "1", second.log)
            until(lambda: holder() not in (0, before), second.log)

            def are_copied(name: str) -> bool:
                found = store.document(name)
                return found is not None and all(
                    (one.home.path / name).is_file() and (one.home.path / name).read_bytes() == found
                    for one in (first, second)
                )

            until(lambda: are_copied("ranker.json") and are_copied("ledger.json"), second.log)
        finally:
            store.close()
            second.kill()
