"""HTTPS intake of a service, as an ASGI application: docs/protocol.md, call by call.

A request is checked in this order: call and method, limits of its address, headers and signature, length of the body, its
digest, its content. It is confirmed after it is committed to the store. Unauthenticated bodies are not read; accepted
replies stay accepted, since the coordinator checks them by the same limits (`ReplyLimits`).

A worker holds caches only: tasks and members' keys are read again when the store's version has changed.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from quorank.errors import BadInput, require
from quorank.federation.reply import ReplyLimits, longest_reply
from quorank.federation.unlearning import NOTHING
from quorank.files.documents import parse_json
from quorank.protocol import requests
from quorank.protocol.member_list import is_attested
from quorank.protocol.messages import Publication, check_leaving_request
from quorank.service.dashboard.event_log import EventLog
from quorank.service.home import Home
from quorank.service.intake.limits import IntakeTraffic, network_of
from quorank.service.overview import Overview
from quorank.service.store.group_commit import Call, CallKind, EnrolmentCall, Outcome, Writer
from quorank.service.store.sql_store import TRAFFIC, Member

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Found = TypeVar("Found")

LOOK_SECONDS = 0.2  # polling interval of the store's version, seconds
CLOCK_SECONDS = 30.0  # interval of comparisons with the store's clock, seconds
BODY_SECONDS = 30.0  # timeout of a body, seconds
KEYS = 200_000  # maximum number of cached members
OPERATOR = frozenset({"/", "/events", "/metrics"})  # paths protected by the operator's token
ENROLMENT_BYTES, LEAVING_BYTES = 4096, 4096  # maximum bytes of an enrolment and of a request to leave
MAIL_BYTES, PARTY_BYTES = 1 << 22, 10 << 20  # maximum bytes of an answer to a letter, of a device and of a party
TALLY_SECONDS = 2.0  # seconds between two writes of counted requests, refusals and enrolments


class HttpAnswer(NamedTuple):
    """Response: status, body, and headers in addition to the common ones."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Request(NamedTuple):
    """Request before its body is read."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    address: str
    receive: Receive


_LETTER, _FIRST = re.compile(r"id=([0-9]{1,18})"), re.compile(r"from=([0-9]{1,9})")
_JSON = (b"content-type", b"application/json")
_BYTES = (b"content-type", b"application/octet-stream")
_NEVER = (b"cache-control", b"no-store")


def as_json(status: int, table: Mapping[str, Any], *headers: tuple[bytes, bytes]) -> HttpAnswer:
    """Return an answer in JSON."""
    return HttpAnswer(status, json.dumps(table, separators=(",", ":")).encode(), (_JSON, _NEVER, *headers))


def refused(error: BadInput) -> HttpAnswer:
    """Return the answer to a refused request."""
    status = requests.status_of(error.code)
    wait = ((b"retry-after", b"5"),) if status in (429, 503) else ()
    return as_json(status, {"code": error.code, "sentence": error.sentence}, *wait)


class View:
    """Current task at one version of the store, with its encoded answers."""

    def __init__(self, version: int, open_: Publication | None, limits: ReplyLimits | None, public: bool) -> None:
        self.version, self.open, self.limits, self.public = version, open_, limits, public
        self.members: dict[int, Member] = {}  # enrolled members that have made a request
        self.copied: set[int] = set()  # members with a reported second copy
        self.etag, self.task, self.same = b"", HttpAnswer(204), HttpAnswer(304)
        if open_ is not None:
            self.etag = b'"%d-%s"' % (open_.number, hashlib.sha256(open_.content).hexdigest()[:24].encode())
            next_ = (requests.NEXT.encode(), _seconds(open_.next))
            common = (next_, (b"etag", self.etag), (b"cache-control", b"no-cache"))
            kind, round_ = (requests.KIND.encode(), open_.kind.encode()), (requests.ROUND.encode(), b"%d" % open_.round)
            signed = (requests.SIGNED.encode(), base64.b64encode(open_.signature))
            self.task = HttpAnswer(200, open_.content, (*common, _BYTES, kind, round_, signed))
            self.same = HttpAnswer(304, b"", common)


class Intake:
    """Application of one worker on a folder's store; writes have a connection of their own, so that no read waits for them.

    Open streams of the dashboard end when `stopping` is set.
    """

    def __init__(self, home: Home, traffic: IntakeTraffic | None = None) -> None:
        self.home, self.store, self._notes = home, home.store(), home.store()
        self.writer = Writer(self._notes.take)
        self.overview = Overview(home, self.writer)
        self.traffic = traffic or IntakeTraffic(home.settings.enrolments, workers=home.settings.workers)
        self.stopping = False
        self.refusals = Counter[str]()  # by code, since the last write
        self.answered = Counter[str]()  # TRAFFIC, since the last write
        self._service, self._terms = home.key.public, home.terms_table
        self._view = View(-1, None, None, False)
        self._looked = self._compared = -1e9
        self._ahead = 0.0  # offset of the store's clock
        self._looking, self._reader = asyncio.Lock(), ThreadPoolExecutor(1, "reader")
        self._log = EventLog(sys.stderr)
        # of a release under the members' terms
        devices = "n_features" in self._terms
        self._parameters = home.terms(0).parameters if devices else int(self._terms.get("parameters", 1))
        self._enrolled: list[int] = []  # since the last write
        self._due: asyncio.TimerHandle | None = None  # next write
        self.routes: dict[tuple[str, str], Callable[[Request], Awaitable[HttpAnswer]]] = {
            ("GET", "/v1/task"): self._task,
            ("POST", "/v1/reply"): self._reply,
            ("GET", "/v1/mail"): self._mail,
            ("POST", "/v1/mail"): self._answer,
            ("GET", "/v1/members"): self._members,
            ("POST", "/v1/leave"): self._leave,
            ("GET", "/v1/leave"): self._leaving,
            ("POST", "/v1/enrol"): self._enrol,
            ("GET", "/healthz"): self._healthz,
        }

    # ------------------------------------------------------------ ASGI

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        path: str = scope["path"]
        if path in OPERATOR:
            operator = await asyncio.get_running_loop().run_in_executor(None, lambda: self._operator)
            await operator(scope, receive, send)
            return
        began = time.perf_counter()
        try:
            answer = await self._answered(scope, path, receive)
        except BadInput as error:
            self._count(error.code)
            answer = refused(error)
        except OSError:  # the store cannot be read
            self._count("service.storage")
            answer = refused(BadInput("service.storage", "the service cannot read its store; ask again later"))
        except Exception as error:  # a bug: only the operator learns its kind
            self._count("service.fault")
            print(json.dumps({"event": "worker_fault", "kind": type(error).__name__}), file=sys.stderr, flush=True)
            answer = refused(BadInput("service.fault", "the service could not answer; the cause is in its log"))
        for name, more in zip(TRAFFIC, (1, round(1e6 * (time.perf_counter() - began))), strict=True):
            self.answered[name] += more
        self._write_soon()
        headers = [*answer.headers, (b"quorank-time", b"%d" % self.now())]
        if answer.status != 304:
            headers.append((b"content-length", b"%d" % len(answer.body)))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    @cached_property
    def _operator(self) -> Any:
        """Dashboard and metrics, imported at the first request."""
        from starlette.applications import Starlette

        from quorank.service.dashboard.page import page_routes

        return Starlette(routes=page_routes(self.overview.read, self.home.token, lambda: self.stopping))

    async def _answered(self, scope: Scope, path: str, receive: Receive) -> HttpAnswer:
        handler = self.routes.get((scope["method"], path))
        if handler is None:
            known = any(path == one for _, one in self.routes)
            require(known, "request.unknown", "there is no such call; docs/protocol.md has all of them")
            raise BadInput("request.method", "this call does not support this method")
        headers = requests.headers_of(scope["headers"])
        address = self._address(scope, headers)
        with self.traffic.request(address):
            query = scope.get("query_string", b"").decode("latin-1")
            return await handler(Request(scope["method"], path, query, headers, address, receive))

    def _address(self, scope: Scope, headers: Mapping[str, str]) -> str:
        """Return the client's address; of X-Forwarded-For only the proxy's own entry counts, and only behind a proxy."""
        if self.home.settings.behind_proxy and "x-forwarded-for" in headers:
            return network_of(headers["x-forwarded-for"].rpartition(",")[2].strip())
        client = scope.get("client")
        return network_of(str(client[0])) if client else ""

    def now(self) -> float:
        """Return the time by the store's clock."""
        return time.time() + self._ahead

    def _count(self, code: str) -> None:
        self.refusals[code] += 1
        self._write_soon()

    def _write_soon(self) -> None:
        """Schedule one write of the counted requests, refusals and enrolments."""
        if self._due is None:
            self._due = asyncio.get_running_loop().call_later(TALLY_SECONDS, self._write_counts)

    def _write_counts(self) -> None:
        counts, enrolled = self.refusals + self.answered, self._enrolled
        self.refusals, self.answered, self._enrolled, self._due = Counter(), Counter(), [], None
        if counts:
            self.writer.later(self._notes.tally, counts)
        if enrolled:
            event = "member_enrolled" if len(enrolled) == 1 else "members_enrolled"
            self._note(event, client=enrolled[-1], count=len(enrolled))

    def close(self) -> None:
        """Hand the remaining counts to the writer, and end the reader's thread."""
        if self._due is not None:
            self._due.cancel()
            self._write_counts()
        self._reader.shutdown()

    # ------------------------------------------------------------ cached reads of the store

    async def _read(self, call: Callable[..., Found], *values: object) -> Found:
        """Read from the store: a file directly, a database on the network in a thread."""
        if not self.home.settings.database:
            return call(*values)
        return await asyncio.get_running_loop().run_in_executor(self._reader, call, *values)

    async def view(self) -> View:
        """Return the view of the store, at most LOOK_SECONDS old."""
        if time.monotonic() - self._looked > LOOK_SECONDS:
            async with self._looking:
                if time.monotonic() - self._looked > LOOK_SECONDS:
                    await self._look()
        return self._view

    async def _look(self) -> None:
        now = time.monotonic()
        if now - self._compared > CLOCK_SECONDS:
            self._ahead = await self._read(self.store.now) - time.time() if self.home.settings.database else 0.0
            self._compared = now
        version = await self._read(self.store.version)
        if version != self._view.version:
            self._view = await self._read(self._viewed, version)
        self._looked = now

    def _viewed(self, version: int) -> View:
        open_ = self.store.publication()
        limits = None if open_ is None or not open_.limits else parse_json(open_.limits, ReplyLimits)
        return View(version, open_, limits, self.store.is_open())

    async def _member(self, number: int) -> Member:
        members = self._view.members
        found = members.get(number) or await self._read(self.store.member, number)
        if found is None or found.key is None:
            raise BadInput("request.unknown-member", "no such member has enrolled")
        if len(members) >= KEYS:
            members.clear()
        members[number] = found
        return found

    # ------------------------------------------------------------ authentication and bodies

    async def _signed(self, request: Request) -> tuple[requests.SignedHead, Member]:
        """Return the authenticated head and member of a request."""
        head = requests.read_head(request.headers)
        await self.view()
        member = await self._member(head.member)
        target = f"{request.path}?{request.query}" if request.query else request.path
        requests.check(head, member.key or b"", self._service, request.method, target, self.now())
        require(member.revoked is None, "request.revoked", "the operator has revoked this member")
        gone = member.left is not None and request.path != "/v1/leave"
        require(not gone, "request.left", "this member has left")
        return head, member

    async def _body(self, request: Request, most: int, head: requests.SignedHead | None = None) -> bytes:
        """Read a body of at most `most` bytes and check its signed digest."""
        with self.traffic.body(requests.body_length(request.headers, most)):
            try:
                async with asyncio.timeout(BODY_SECONDS):
                    body = await _received(request.receive, most)
            except TimeoutError:
                raise BadInput("request.slow", f"the body did not arrive within {BODY_SECONDS:g} s") from None
        if head is not None:
            requests.check_body(head, body)
        return body

    async def _commit(
        self, head: requests.SignedHead, kind: CallKind, number: int = 0, content: bytes = b""
    ) -> Outcome:
        outcome = await self.writer.submit(Call(head.member, head.nonce, kind, number, content, head.program))
        require(not outcome.code, outcome.code, outcome.sentence)
        return outcome

    async def _looks(self, request: Request, kind: CallKind = "look") -> int:
        """Authenticate a call without a body and commit it; return the member."""
        head, _ = await self._signed(request)
        await self._body(request, 0, head)
        await self._commit(head, kind)
        return head.member

    def _next(self) -> tuple[bytes, bytes]:
        open_ = self._view.open
        return requests.NEXT.encode(), _seconds(self.home.settings.pause if open_ is None else open_.next)

    # ------------------------------------------------------------ calls

    async def _task(self, request: Request) -> HttpAnswer:
        member = None
        if requests.SIGNED not in request.headers and (await self.view()).public:
            await self._body(request, 0)
        else:
            member = await self._looks(request)
        view = self._view
        if view.open is None:
            return HttpAnswer(204, b"", (self._next(), _NEVER))
        answer = view.same if request.headers.get("if-none-match", "").encode("latin-1") == view.etag else view.task
        if member is not None and not view.open.asks(member):
            answer = answer._replace(headers=(*answer.headers, (requests.ASKED.encode(), b"0")))
        return answer

    async def _reply(self, request: Request) -> HttpAnswer:
        head, _ = await self._signed(request)
        limits = self._view.limits
        longest = longest_reply(self._parameters if limits is None else limits.parameters)
        body = await self._body(request, longest, head)
        open_, limits = self._view.open, self._view.limits
        if open_ is None or limits is None:
            raise BadInput("reply.no-open-round", "no round is open for replies")
        if open_.kind != "rebuilding" or body != NOTHING:
            limits.check_content(body, head.member)
        try:
            await self._commit(head, "reply", open_.number, body)
        except BadInput as error:
            # two different replies of one identity to a round: its folder or key was copied
            if error.code == "reply.repeated" and head.member not in self._view.copied:
                self._view.copied.add(head.member)
                self._note("identity_copied", client=head.member)
            raise
        return as_json(200, {"accepted": True, "next": max(1, round(open_.next))}, self._next())

    def _note(self, event: str, **facts: object) -> None:
        self._log.write(event, **facts)
        self.writer.later(self._notes.note, event, **facts)

    async def _mail(self, request: Request) -> HttpAnswer:
        letter = await self._read(self.store.letter, await self._looks(request))
        if letter is None:
            return HttpAnswer(204, b"", (self._next(), _NEVER))
        return HttpAnswer(200, letter.content, (_BYTES, _NEVER, (requests.MAIL.encode(), b"%d" % letter.id)))

    async def _members(self, request: Request) -> HttpAnswer:
        first = _FIRST.fullmatch(request.query)
        if first is None:
            raise BadInput("members.malformed", "name the first entry, from 0: /v1/members?from=N")
        await self._looks(request)
        return HttpAnswer(200, await self._read(self.store.member_page, int(first[1])), (_BYTES, _NEVER))

    async def _answer(self, request: Request) -> HttpAnswer:
        head, member = await self._signed(request)
        named = _LETTER.fullmatch(request.query)
        if named is None:
            raise BadInput("mail.malformed", "name the answered message: /v1/mail?id=N")
        most = PARTY_BYTES if member.kind == "party" else max(MAIL_BYTES, 4 * longest_reply(self._parameters))
        body = await self._body(request, most, head)
        await self._commit(head, "mail", int(named[1]), body)
        return as_json(200, {"accepted": True}, self._next())

    async def _leave(self, request: Request) -> HttpAnswer:
        head, member = await self._signed(request)
        body = await self._body(request, LEAVING_BYTES, head)
        check_leaving_request(body, self.home.settings.run, {head.member: member.key or b""})
        await self._commit(head, "leave", 0, body)
        return as_json(202, {"state": "heard"}, self._next())

    async def _leaving(self, request: Request) -> HttpAnswer:
        found = await self._read(self.store.leaving, await self._looks(request, "leave"))
        if found is None:
            raise BadInput("leaving.unknown", "this member has not asked to leave")
        _, receipt = found
        if receipt is None:
            return as_json(200, {"state": "heard"}, self._next())
        return as_json(200, {"state": "done", "receipt": receipt.decode("ascii", "replace")})

    async def _enrol(self, request: Request) -> HttpAnswer:
        self.traffic.enrol(request.address)
        body = await self._body(request, ENROLMENT_BYTES)
        call = EnrolmentCall(*requests.read_enrolment(body, self._service))
        attester = bytes.fromhex(self.home.settings.attester)
        vouched = not attester or is_attested(attester, self._service, call.key, call.attestation)
        sentence = "this service enrols only keys signed by its attester; ask the attester for its signature"
        require(vouched, "enrolment.not-attested", sentence)
        outcome = await self.writer.submit(call)
        if outcome.code == "invitation.used":
            self._note("invitation_reused", client=outcome.member)
        require(not outcome.code, outcome.code, outcome.sentence)
        if not outcome.again:
            self._enrolled.append(outcome.member)
            self._write_soon()
        member: Member | None = await self._read(self.store.member, outcome.member)
        assert member is not None
        self._looked = -1e9  # its first request may follow immediately
        own = {"client": member.number} if "client" in self._terms else {}
        return as_json(200, {"member": member.number, "name": member.name, "terms": self._terms | own})

    async def _healthz(self, request: Request) -> HttpAnswer:
        """Return whether the service can work, without anything about members."""
        table = await asyncio.get_running_loop().run_in_executor(None, self.overview.health)
        return as_json(200 if table["ok"] else 503, table)


def _seconds(wait: float) -> bytes:
    """Return an interval in integer seconds, or in hundredths below one second."""
    return b"%d" % round(wait) if wait >= 1.0 else b"%.2f" % wait


async def _received(receive: Receive, most: int) -> bytes:
    """Read a body; abort as soon as it is too long."""
    pieces, length = [], 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise BadInput("request.cut", "the request ended before its body")
        piece: bytes = message.get("body", b"")
        length += len(piece)
        require(length <= most, "request.too-long", f"a body of this call has at most {most} bytes")
        pieces.append(piece)
        if not message.get("more_body", False):
            return b"".join(pieces)
