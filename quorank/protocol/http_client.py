"""HTTPS client of a member: signed requests to one service, over urllib3's connections.

Nothing in an answer is trusted unchecked. Answers have a maximum size and a total time limit, are never compressed, and
redirects are not followed. Tasks are signed by the service's key. Request times follow the service's clock: a refusal
states the service's time, and the request is repeated once. Validity dates of certificates by an invitation's authority
are ignored, since the member's clock may be wrong.

Every call is idempotent, so a kept connection that the service has closed is replaced silently.
"""

from __future__ import annotations

import http.client
import random
import re
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, HTTPError, LocationParseError
from urllib3.response import HTTPResponse
from urllib3.util import make_headers, parse_url

from quorank.errors import BadInput, require
from quorank.files.codec import Length, Range
from quorank.files.documents import parse_json
from quorank.protocol import requests
from quorank.protocol.invitation import LOOPBACK, Invitation
from quorank.protocol.keys import SIGNATURE, MemberKey, is_signed, open_letter, task_content
from quorank.protocol.member_list import PAGE, START
from quorank.protocol.messages import KINDS

CALL_SECONDS, CONNECT_SECONDS = 60.0, 20.0  # time limits on a whole call and on its connection
TASK_BYTES, MAIL_BYTES = 1 << 26, 1 << 24  # maximum bytes of a task and of a letter
MEMBERS_BYTES = START + PAGE * 100  # maximum bytes of a page of the list of members
TERMS_BYTES, ANSWER_BYTES = 1 << 24, 1 << 16  # maximum bytes of the answer to an enrolment, and of any other answer
LONGEST_NEXT = 86_400.0  # maximum polling interval, seconds

ENROL = "/v1/enrol"
_BLOCK = 1 << 16
_NO_CHECK_TIME = 0x200000  # OpenSSL's X509_V_FLAG_NO_CHECK_TIME

_DECIMAL, _INTEGER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?"), re.compile(r"[0-9]{1,15}")
Answer = tuple[int, dict[str, str], bytes]  # status, headers by lower-case names, and content of an answer
# errors of a kept connection that the service has closed
_CLOSED = (ConnectionError, http.client.BadStatusLine, ssl.SSLEOFError, ssl.SSLZeroReturnError)
H = TypeVar("H")


class ServiceRefusal(BadInput):
    """Refusal of a service with its HTTP `status`, or an unreachable service (status 0, code `service.away`)."""

    def __init__(self, code: str, sentence: str, status: int = 0, wait: float = 0.0) -> None:
        super().__init__(code, sentence)
        self.status = status
        self.wait = wait  # seconds that the service asks to wait; 0: unspecified

    @property
    def is_temporary(self) -> bool:
        """Return whether the same call may succeed later."""
        return self.status in (0, 408, 429) or self.status >= 500


@dataclass(frozen=True)
class ServedTask:
    """Current task; without `content` where no task exists, or only the known one (its `etag`)."""

    next: float  # polling interval, seconds
    kind: str = ""
    round: int = 0
    content: bytes | None = None
    etag: str = ""
    asked: bool = True  # this member belongs to the cohort


class ServedMail(NamedTuple):
    """Oldest unanswered letter; without `content` where the mailbox is empty."""

    next: float
    id: int = 0
    content: bytes | None = None


@dataclass(frozen=True)
class Enrolment:
    """Confirmed enrolment of a member."""

    member: Annotated[int, Range(0, 2**32 - 1)]
    name: str
    terms: dict[str, Any]


@dataclass(frozen=True)
class LeavingState:
    """State of a request to leave: received, or done with a receipt."""

    state: Literal["heard", "done"]
    receipt: Annotated[str, Length(4096)] | None = None


@dataclass
class PollingInterval:
    """Seconds until the next call: as the service asks, with exponential back-off while it cannot be reached.

    >>> interval = PollingInterval(draw=lambda: 1.0)
    >>> interval.after_success(10.0), interval.after_failure(ServiceRefusal("service.away", "unreachable"))
    (11.0, 1.0)
    """

    least: float = 1.0
    most: float = 600.0
    draw: Callable[[], float] = random.random
    _failures: int = field(default=0, init=False)

    def after_success(self, wait: float) -> float:
        """Return the service's interval, extended by up to a tenth at random to spread the members' requests."""
        self._failures = 0
        return wait * (1.0 + 0.1 * self.draw())

    def after_failure(self, error: ServiceRefusal) -> float:
        """Return at least the interval that the service asks for, plus a doubling one of which half is random."""
        bound = min(self.most, self.least * 2.0 ** min(self._failures, 30))
        self._failures += 1
        return max(error.wait, 0.0) + bound * (0.5 + 0.5 * self.draw())


@dataclass(eq=False)
class ServiceClient:
    """Client of one member; not for several threads at once. Without key and number it can only enrol and poll open tasks.

    Args:
        url: `https://host[:port]` of the service.
        service: Public key of the service.
        certificate: PEM of the authority that signs the service's certificate; empty: those of the system.
        key: The member's key.
        member: The member's number.
        offset: Seconds by which the service's clock is ahead of this machine's.
        note_offset: Called with a corrected offset.
        seconds: Time limit of a call.
        keep: Keep the connection open between calls.
        clock: This machine's clock, seconds since 1970.
    """

    url: str
    service: bytes
    certificate: str = ""
    key: MemberKey | None = None
    member: int | None = None
    offset: float = 0.0
    note_offset: Callable[[float], None] = lambda seconds: None
    seconds: float = field(default_factory=lambda: CALL_SECONDS)
    keep: bool = True
    clock: Callable[[], float] = time.time
    _connection: HTTPConnection | None = field(default=None, init=False)
    _end: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._context = None if self.url.startswith("http:") else _context(self.certificate)

    def enrol(self, invitation: Invitation, key: MemberKey, attestation: bytes = b"") -> Enrolment:
        """Enrol with the member's own key; repeating the call returns the same enrolment."""
        body = requests.enrolment_body(key, self.service, invitation.code, invitation.token, attestation)
        _, _, content = self._call("POST", ENROL, body, most=TERMS_BYTES)
        enrolment = _decoded(content, Enrolment)
        self.key, self.member = key, enrolment.member
        return enrolment

    def task(self, etag: str = "", most: int = TASK_BYTES) -> ServedTask:
        """Return the current task, without content if it is the one with this tag."""
        extra = {"if-none-match": etag} if etag else {}
        status, headers, content = self._call("GET", "/v1/task", extra=extra, most=most)
        asked = headers.get(requests.ASKED) != "0"
        if status != 200:
            return ServedTask(_next(headers), etag=etag if status == 304 else "", asked=asked)
        kind, round_ = headers.get(requests.KIND, ""), headers.get(requests.ROUND, "0")
        valid = kind in KINDS and _INTEGER.fullmatch(round_)
        require(valid, "service.unreadable", "the service's task cannot be read")
        signature = requests.decode_base64(headers.get(requests.SIGNED, ""))
        authentic = is_signed(self.service, task_content(kind, content), signature)
        require(authentic, "task.unsigned", "the task is not signed by the service of the invitation; it was rejected")
        return ServedTask(_next(headers), kind, int(round_), content, headers.get("etag", "")[:200], asked)

    def reply(self, content: bytes) -> float:
        """Send a reply, which is committed when this returns; returns the polling interval, seconds."""
        _, headers, answer = self._call("POST", "/v1/reply", content)
        return _next({requests.NEXT: f"{_decoded(answer, dict[str, Any]).get('next')}"} | headers)

    def mail(self, most: int = MAIL_BYTES) -> ServedMail:
        """Return the oldest unanswered letter.

        Raises:
            BadInput: `mail.unsigned` where the service did not sign the letter for this member.
        """
        status, headers, content = self._call("GET", "/v1/mail", most=SIGNATURE + most)
        if status != 200:
            return ServedMail(_next(headers))
        number = headers.get(requests.MAIL, "")
        require(_INTEGER.fullmatch(number), "service.unreadable", "the service's letter has no number")
        return ServedMail(_next(headers), int(number), open_letter(self.service, self.member or 0, content))

    def members(self, first: int) -> tuple[bytes, bytes]:
        """Return the bytes that name the list of members, and its next entries from one that is counted from 0."""
        _, _, content = self._call("GET", f"/v1/members?from={first}", most=MEMBERS_BYTES)
        return content[:START], content[START:]

    def answer(self, number: int, content: bytes) -> float:
        """Answer a letter, with nothing where there is no answer; returns the polling interval, seconds."""
        return _next(self._call("POST", f"/v1/mail?id={number}", content)[1])

    def leave(self, request: bytes = b"") -> LeavingState:
        """Send a request to leave; without content return the state of the earlier request."""
        _, _, content = self._call("POST" if request else "GET", "/v1/leave", request)
        return _decoded(content, LeavingState)

    def close(self) -> None:
        """Close the connection; the next call opens another one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # ------------------------------------------------------------ transport

    def _call(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        *,
        most: int = ANSWER_BYTES,
        extra: Mapping[str, str] | None = None,
    ) -> Answer:
        """Return (status, headers, content) of an accepted call; raise ServiceRefusal otherwise.

        Repeat a call with a corrected clock if its time was refused, and over a new connection if a kept one is closed.
        """
        corrected = False
        while True:
            kept = self._connection is not None
            headers = dict(extra or {}) | self._headers(method, target, body)
            try:
                status, found, content = self._send(method, target, body, most, headers)
            except (OSError, http.client.HTTPException, HTTPError) as error:
                self.close()
                if not (kept and isinstance(error, _CLOSED)):
                    raise _unreachable(error) from None
                continue
            if status in (200, 202, 204, 304):
                return status, found, content
            refused, time_ = _refusal(status, found, content), found.get(requests.TIME, "")
            if refused.code != "request.time" or corrected or not _INTEGER.fullmatch(time_):
                raise refused
            corrected, self.offset = True, int(time_) - self.clock()
            self.note_offset(self.offset)

    def _headers(self, method: str, target: str, body: bytes) -> dict[str, str]:
        headers = {"accept-encoding": "identity", "user-agent": requests.AGENT}
        if not self.keep:
            headers["connection"] = "close"
        if method == "POST":
            headers |= {"content-length": str(len(body)), "content-type": "application/octet-stream"}
        if target == ENROL or self.key is None or self.member is None:
            return headers
        now, nonce = int(self.clock() + self.offset), secrets.token_bytes(requests.NONCE)
        return headers | requests.signed_headers(self.key, self.service, self.member, method, target, body, now, nonce)

    def _send(self, method: str, target: str, body: bytes, most: int, headers: dict[str, str]) -> Answer:
        self._end = time.monotonic() + self.seconds
        connection = self._connection = self._connection or self._connect()
        with self._deadline(connection):
            if connection.sock is None:
                connection.connect()
            connection.sock.settimeout(self._left())
            connection.request(method, target, body or None, headers, preload_content=False, decode_content=False)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.headers.items()}
            packed = found.get("content-encoding", "identity") != "identity"
            content = b"" if packed else self._read(response, most)
        unreadable = packed or len(content) > most
        if unreadable or not self.keep or found.get("connection", "").lower() == "close":
            self.close()
        if unreadable:
            raise ServiceRefusal("service.unreadable", "the service's answer is compressed or too long")
        return response.status, found, content

    @contextmanager
    def _deadline(self, connection: HTTPConnection) -> Iterator[None]:
        """Shut the socket down at the end of the call's time, however slowly bytes arrive."""

        def shut_down() -> None:
            if connection.sock is not None:
                with suppress(OSError):
                    socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)

        timer = threading.Timer(self._left(), shut_down)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            self._left()  # a body without length looks complete after a shutdown

    def _left(self) -> float:
        """Return the seconds that the call may still take."""
        left = self._end - time.monotonic()
        if left <= 0.0:
            raise TimeoutError("the service is too slow")
        return left

    def _read(self, response: HTTPResponse, most: int) -> bytes:
        """Return the body, or one byte more than `most` where it is longer; an announced excess is not read."""
        length = response.headers.get("content-length", "")
        if length.isdecimal() and int(length) > most:
            return bytes(most + 1)
        content = bytearray()
        while len(content) <= most:
            part = response.read1(min(_BLOCK, most + 1 - len(content)), decode_content=False)
            if not part:
                break
            content += part
            self._left()
        if length.isdecimal() and len(content) < int(length) and response.status not in (204, 304):
            raise http.client.IncompleteRead(b"")
        return bytes(content)

    def _connect(self) -> HTTPConnection:
        parts, seconds = urlsplit(self.url), min(CONNECT_SECONDS, self.seconds)
        host = parts.hostname or ""
        if self._context is None:
            return HTTPConnection(host, parts.port, timeout=seconds)
        proxy = _proxy_of(host)
        if proxy is None:
            return HTTPSConnection(host, parts.port, timeout=seconds, ssl_context=self._context)
        made = HTTPSConnection(*proxy[:2], timeout=seconds, ssl_context=self._context)
        made.set_tunnel(host, parts.port or 443, proxy[2])
        return made


def _context(certificate: str) -> ssl.SSLContext:
    if not certificate:
        return ssl.create_default_context()
    try:
        context = ssl.create_default_context(cadata=certificate)
    except (ssl.SSLError, ValueError):
        raise BadInput("invitation.damaged", "the invitation's certificate cannot be read; ask for a new one") from None
    context.verify_flags = ssl.VerifyFlags(context.verify_flags | _NO_CHECK_TIME)
    return context


def _proxy_of(host: str) -> tuple[str, int, dict[str, str]] | None:
    """Return (host, port, headers) of the proxy that the environment names for this host."""
    address = getproxies_environment().get("https", "")
    if not address or host in LOOPBACK or proxy_bypass_environment(host):
        return None
    try:
        found = parse_url(address if "//" in address else f"//{address}")
    except LocationParseError:
        found = parse_url("")
    valid = found.scheme in (None, "http") and found.host
    require(valid, "proxy.malformed", "expected http://host:port", "HTTPS_PROXY")
    headers = make_headers(proxy_basic_auth=unquote(found.auth)) if found.auth else {}
    return found.host or "", found.port or 80, {str(name): str(value) for name, value in headers.items()}


def _unreachable(error: Exception) -> ServiceRefusal:
    if isinstance(error, ssl.SSLCertVerificationError):
        sentence = f"the service's certificate is not the expected one ({error.verify_message}); nothing was sent"
        return ServiceRefusal("service.certificate", sentence)
    name = "TimeoutError" if isinstance(error, ConnectTimeoutError) else type(error).__name__
    return ServiceRefusal("service.away", f"the service cannot be reached ({name})")


def _refusal(status: int, headers: Mapping[str, str], content: bytes) -> ServiceRefusal:
    try:
        found = _decoded(content[:ANSWER_BYTES], dict[str, Any])
    except BadInput:
        found = {}
    known = requests.refusal(found.get("code"), found.get("sentence"))
    sentence = known.sentence if known.code != "service.unreadable" else f"the service answers {status}"
    return ServiceRefusal(known.code, sentence, status, _decimal(headers.get("retry-after", ""), 0.0))


def _next(headers: Mapping[str, str]) -> float:
    """Return the service's polling interval, seconds; half a minute where it names none."""
    return _decimal(headers.get(requests.NEXT, ""), 30.0)


def _decimal(value: str, default: float) -> float:
    return min(float(value), LONGEST_NEXT) if _DECIMAL.fullmatch(value) else default


def _decoded(content: bytes, hint: type[H]) -> H:
    """Decode an answer; its content is never quoted."""
    try:
        return parse_json(content, hint)  # type: ignore[no-any-return]
    except BadInput:
        raise BadInput("service.unreadable", "the service's answer cannot be read") from None
