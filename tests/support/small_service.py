"""A small HTTPS service for devices, in this process: it speaks the protocol, or anything else that a test lets it say.

What it checks of requests is the code that every service uses (`members.requests`); the round is a real coordinator's.
"""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from devices import ListedMembers

from quorank.engines.process import Simulator
from quorank.errors import BadInput, require
from quorank.federation.coordinator import Coordinator
from quorank.federation.reply import Reply, Task, decode_reply, encode_task
from quorank.protocol.certificates import Authority
from quorank.protocol.invitation import Invitation
from quorank.protocol.keys import MemberKey, enrolment_content, is_signed, signed_letter, task_content
from quorank.protocol.messages import check_leaving_request, leaving_receipt
from quorank.protocol.requests import check, check_body, read_head, status_of
from quorank.protocol.terms import Terms

CODE = bytes(range(32))


class Said(NamedTuple):
    """One answer over HTTP."""

    status: int
    content: bytes = b""
    headers: Mapping[str, str] = MappingProxyType({})


class Heard(NamedTuple):
    """One request as it came."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


class SmallService:
    """`said` are answers in the place of the right ones, by (method, path): a Said, or a function of the handler."""

    def __init__(self, terms: Terms, coordinator: Coordinator | None = None, others: Any = None) -> None:
        self.terms, self.coordinator, self.others = terms, coordinator, others
        self.key, self.authority = MemberKey.create(), Authority.create()
        self.members: dict[int, bytes] = {}
        self.codes: dict[bytes, Terms] = {}  # of several devices: under which terms a code enrols
        self.heard: list[Heard] = []
        self.said: dict[tuple[str, str], Any] = {}
        self.nonces: set[tuple[int, bytes]] = set()
        self.replies: dict[tuple[str, int, int], bytes] = {}
        self.mail: dict[int, tuple[int, bytes]] = {}  # by number: to whom, what
        self.answers: dict[int, bytes] = {}
        self.listed = ListedMembers()
        self.leavers: dict[int, bytes] = {}
        self.gone: set[int] = set()
        self.published: tuple[str, bytes] | None = None  # in the place of the coordinator's task
        self.clock: Callable[[], float] = time.time
        self.next, self.lose = 600, 0  # seconds; confirmations of replies that are lost on their way
        self.url, self.certificates, self.days = "", 0, 30
        self.simulator: Simulator | None = None
        self._mutex = threading.RLock()

    @classmethod
    def over(cls, coordinator: Coordinator, simulator: Simulator, terms: Terms) -> SmallService:
        """The run of a coordinator with one real device; the others are simulated."""

        def others(task: Task, waiting: list[int]) -> list[Reply]:
            return simulator.replies(task, np.array(waiting)) if waiting else []

        made = cls(terms, coordinator, others)
        made.simulator = simulator
        return made

    # what is told

    def invitation(self, path: Path, **changes: Any) -> Path:
        values: dict[str, Any] = {
            "name": "desk",
            "url": self.url,
            "service": self.key.public,
            "terms": self.terms.table(),
            "code": CODE,
            "certificate": self.authority.pem.decode(),
        }
        Invitation(**(values | changes)).write(path)
        return path

    def task(self) -> tuple[str, bytes] | None:
        if self.published is not None or self.coordinator is None:
            return self.published
        if self.coordinator.done:
            state = self.coordinator.state
            return "over", encode_task(Task(self.coordinator.run, state.round, state.theta))
        return "round", encode_task(self.coordinator.plan())

    def signed(self, kind: str, content: bytes, **more: str) -> Said:
        signature = base64.b64encode(self.key.sign(task_content(kind, content))).decode()
        tag = f'"{hashlib.sha256(content).hexdigest()}"'
        return Said(200, content, {"Quorank-Kind": kind, "Quorank-Signature": signature, "ETag": tag, **more})

    # what is asked

    def answer(self, asked: Heard) -> Said:
        path = asked.target.partition("?")[0]
        if (asked.method, path) == ("POST", "/v1/enrol"):
            return self._enrol(asked)
        head = read_head(asked.headers)
        member = head.member
        require(member in self.members, "request.unknown-member", "no such member has enrolled")
        check(head, self.members[member], self.key.public, asked.method, asked.target, self.clock())
        check_body(head, asked.body)
        require((member, head.nonce) not in self.nonces, "request.replayed", "this request was made before")
        self.nonces.add((member, head.nonce))
        require(member not in self.gone or path == "/v1/leave", "request.left", "this member has left")
        method = getattr(self, f"_{asked.method.lower()}_{path.rpartition('/')[2]}", None)
        require(method is not None, "request.unknown", "there is no such call")
        assert method is not None
        found: Said = method(member, asked)
        return found

    def _enrol(self, asked: Heard) -> Said:
        table = json.loads(asked.body)
        secret = bytes.fromhex(table["code"]) if "code" in table else table["token"].encode()
        key = bytes.fromhex(table["key"])
        signed = is_signed(key, enrolment_content(self.key.public, secret, key), base64.b64decode(table["proof"]))
        require(signed, "request.signature", "the proof is not signed by the key")
        terms = self.codes.get(secret, self.terms)
        require(self.members.get(terms.client, key) == key, "invitation.used", "this invitation was used before")
        self.members[terms.client] = key
        return _json(200, member=terms.client, terms=terms.table(), name="desk")

    def _get_task(self, member: int, asked: Heard) -> Said:
        found = self.task()
        if found is None:
            return Said(204)
        said = self.signed(*found)
        if asked.headers.get("if-none-match") == said.headers["ETag"]:
            return Said(304)
        return said

    def _post_reply(self, member: int, asked: Heard) -> Said:
        coordinator = self.coordinator
        if asked.body == b"nothing" or coordinator is None or self.published is not None:
            self.replies["", 0, member] = asked.body
            return self._confirmed()
        reply = decode_reply(asked.body, len(coordinator.state.theta))
        key = (reply.run, reply.round, member)
        if key in self.replies:
            require(self.replies[key] == asked.body, "reply.repeated", "this round was answered before, otherwise")
            return self._confirmed()
        verdict = coordinator.receive(asked.body)
        require(verdict.accepted, verdict.code or "reply.refused", verdict.reason or "refused")
        self.replies[key] = asked.body
        if self.others is not None:
            for other in self.others(coordinator.plan(), sorted(coordinator.waiting)):
                coordinator.receive(other)
        if coordinator.is_complete():
            coordinator.advance()
        return self._confirmed()

    def _confirmed(self) -> Said:
        if self.lose > 0:
            self.lose -= 1
            raise ConnectionAbortedError
        return _json(200, accepted=True, next=self.next)

    def _get_mail(self, member: int, asked: Heard) -> Said:
        for number, (whom, content) in sorted(self.mail.items()):
            if whom == member and number not in self.answers:
                return Said(200, signed_letter(self.key, member, content), {"Quorank-Mail": str(number)})
        return Said(204)

    def _get_members(self, member: int, asked: Heard) -> Said:
        return Said(200, b"".join(self.listed.page(int(asked.target.partition("=")[2]))))

    def _post_mail(self, member: int, asked: Heard) -> Said:
        number = int(asked.target.partition("=")[2])
        require(self.answers.get(number, asked.body) == asked.body, "mail.repeated", "answered before, otherwise")
        self.answers[number] = asked.body
        return _json(200)

    def _post_leave(self, member: int, asked: Heard) -> Said:
        check_leaving_request(asked.body, self.terms.run, self.members)
        self.leavers[member] = asked.body
        return _json(202, state="heard")

    def _get_leave(self, member: int, asked: Heard) -> Said:
        request = self.leavers[member]
        if member not in self.gone:
            return _json(200, state="heard")
        return _json(200, state="done", receipt=leaving_receipt(self.key, request).decode())

    # how it runs

    @contextmanager
    def running(self, tmp_path: Path, hosts: tuple[str, ...] = ("127.0.0.1",)) -> Iterator[SmallService]:
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                """Quiet."""

            def _do(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                body = self.rfile.read(int(headers.get("content-length", "0")))
                asked = Heard(self.command, self.path, headers, body)
                service.heard.append(asked)
                said = service.said.get((self.command, self.path.partition("?")[0]))
                if callable(said):
                    said = said(self)
                    if said is None:
                        self.close_connection = True
                        return
                if said is None:
                    try:
                        with service._mutex:
                            said = service.answer(asked)
                    except BadInput as error:
                        said = _json(status_of(error.code), code=error.code, sentence=error.sentence)
                    except ConnectionAbortedError:
                        self.close_connection = True
                        return
                self.send_response_only(said.status)
                told = {"Quorank-Time": str(int(service.clock())), "Quorank-Next": str(service.next)}
                for name, value in (told | {"Content-Length": str(len(said.content))} | dict(said.headers)).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(said.content if said.status not in (204, 304) else b"")

            do_GET = do_POST = _do

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.certificates += 1
        pair, files = (
            self.authority.server(hosts),
            [tmp_path / f"server{self.certificates}.{end}" for end in ("key", "pem")],
        )
        for file, content in zip(files, pair, strict=True):
            file.write_bytes(content)
        context.load_cert_chain(files[1], files[0])
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"https://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


def _json(status: int, **table: Any) -> Said:
    return Said(status, json.dumps(table).encode(), {"Content-Type": "application/json"})
