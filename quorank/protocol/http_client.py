"""HTTPS client of a member: signed requests to one service, over urllib3's connections.

Nothing in an answer is trusted unchecked. Answers have a maximum size and a total time limit, are never compressed, and
redirections are not followed. Tasks carry a signature by the service's key. Request times follow the service's clock: a
refusal tells a member how far its own clock is off, and the request is repeated once. With the authority of an invitation,
validity dates of certificates are ignored for the same reason.

Every call is idempotent: a committed call is answered as it was the first time. A kept connection that the service has
closed meanwhile is therefore replaced silently.
"""

from __future__ import annotations

import base64
import binascii
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
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, HTTPError
from urllib3.response import HTTPResponse

from quorank.errors import BadInput, require
from quorank.files.codec import Length, Range
from quorank.files.documents import parse_json
from quorank.protocol import requests
from quorank.protocol.invitation import Invitation
from quorank.protocol.keys import MemberKey, is_signed, task_content
from quorank.protocol.messages import KINDS

CALL_SECONDS, CONNECT_SECONDS = 60.0, 20.0
"""Time limits on a whole call and on its connection."""
TASK_BYTES, MAIL_BYTES, TERMS_BYTES, ANSWER_BYTES = 1 << 26, 1 << 24, 1 << 24, 1 << 16
"""Maximum bytes of a task, a letter, the answer to an enrolment, and any other answer."""
LONGEST_NEXT = 86_400.0
"""Maximum polling interval, seconds."""

_BLOCK = 1 << 16
_NO_CHECK_TIME = 0x200000  # OpenSSL's X509_V_FLAG_NO_CHECK_TIME
_LOCAL = ("localhost", "127.0.0.1", "::1")
_DECIMAL = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_CLOSED = (ConnectionError, http.client.BadStatusLine, ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""Errors of a kept connection that the service has closed."""


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


class Enrolment(NamedTuple):
    """Confirmed enrolment of a member."""

    member: int
    name: str
    terms: Mapping[str, Any]


class LeavingState(NamedTuple):
    """State of a request to leave: heard, or done with a receipt."""

    state: str
    receipt: bytes = b""


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
        """Return the service's interval, extended by up to a tenth so that members do not come all at once."""
        self._failures = 0
        return wait * (1.0 + 0.1 * self.draw())

    def after_failure(self, error: ServiceRefusal) -> float:
        """Return at least the interval that the service asks for, plus a doubling one of which half is random."""
        bound = min(self.most, self.least * 2.0 ** min(self._failures, 30))
        self._failures += 1
        return max(error.wait, 0.0) + bound * (0.5 + 0.5 * self.draw())


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

    def __init__(
        self,
        url: str,
        service: bytes,
        certificate: str = "",
        key: MemberKey | None = None,
        member: int | None = None,
        **options: Any,
    ) -> None:
        self.url, self.service, self.key, self.member = url, service, key, member
        self._options = _Options(**options)
        self.offset = self._options.offset
        self._context = None if url.startswith("http:") else _context(certificate)
        self._connection: HTTPConnection | None = None
        self._end = 0.0

    @classmethod
    def from_invitation(cls, invitation: Invitation, **options: Any) -> ServiceClient:
        """Return the client of an invitation; options as for the constructor."""
        return cls(invitation.url, invitation.service, invitation.certificate, **options)

    def enrol(self, invitation: Invitation, key: MemberKey) -> Enrolment:
        """Enrol with the member's own key; repeating the call returns the same enrolment."""
        body = requests.enrolment_body(key, self.service, invitation.code, invitation.token)
        _, _, content = self._call("POST", "/v1/enrol", body, most=TERMS_BYTES, signed=False)
        found = _decoded(content, _Enrolled)
        self.key, self.member = key, found["member"]
        return Enrolment(found["member"], found["name"], found["terms"])

    def task(self, etag: str = "", most: int = TASK_BYTES) -> ServedTask:
        """Return the current task, without content if it is the one with this tag."""
        extra = {"if-none-match": etag} if etag else {}
        signed = self.key is not None and self.member is not None
        status, headers, content = self._call("GET", "/v1/task", extra=extra, most=most, signed=signed)
        asked = headers.get(requests.ASKED) != "0"
        if status != 200:
            return ServedTask(_next(headers), etag=etag if status == 304 else "", asked=asked)
        kind, round_ = headers.get(requests.KIND, ""), headers.get(requests.ROUND, "0")
        try:
            signature = base64.b64decode(headers.get(requests.SIGNED, ""), validate=True)
        except (binascii.Error, ValueError):
            signature = b""
        valid = kind in KINDS and round_.isascii() and round_.isdigit() and len(round_) <= 15
        require(valid, "service.unreadable", "the service's task cannot be read")
        authentic = is_signed(self.service, task_content(kind, content), signature)
        require(authentic, "task.unsigned", "the task is not signed by the service of the invitation; it was rejected")
        return ServedTask(_next(headers), kind, int(round_), content, headers.get("etag", "")[:200], asked)

    def reply(self, content: bytes) -> float:
        """Send a reply, which is committed when this returns; returns the polling interval, seconds."""
        _, headers, answer = self._call("POST", "/v1/reply", content)
        found = _decoded(answer).get("next")
        return _next({requests.NEXT: f"{found}"}) if type(found) in (int, float) else _next(headers)

    def mail(self, most: int = MAIL_BYTES) -> ServedMail:
        """Return the oldest unanswered letter."""
        status, headers, content = self._call("GET", "/v1/mail", most=most)
        if status != 200:
            return ServedMail(_next(headers))
        number = headers.get(requests.MAIL, "")
        valid = number.isascii() and number.isdigit() and len(number) <= 18
        require(valid, "service.unreadable", "the service's letter has no number")
        return ServedMail(_next(headers), int(number), content)

    def answer(self, number: int, content: bytes) -> float:
        """Answer a letter, with nothing where there is no answer; returns the polling interval, seconds."""
        _, headers, _ = self._call("POST", f"/v1/mail?id={number}", content)
        return _next(headers)

    def leave(self, request: bytes) -> LeavingState:
        """Send a request to leave."""
        return _leaving(self._call("POST", "/v1/leave", request)[2])

    def leaving_state(self) -> LeavingState:
        """Return the state of this member's request to leave."""
        return _leaving(self._call("GET", "/v1/leave")[2])

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
        signed: bool = True,
        extra: Mapping[str, str] | None = None,
    ) -> tuple[int, dict[str, str], bytes]:
        """Return (status, headers, content) of an accepted call; raise ServiceRefusal otherwise."""
        corrected = False
        while True:
            status, headers, content = self._exchange(method, target, body, most, signed, extra or {})
            if status in (200, 202, 204, 304):
                return status, headers, content
            refused = _refusal(status, headers, content)
            time_ = headers.get(requests.TIME, "")
            if refused.code != "request.time" or corrected or not (time_.isdigit() and len(time_) <= 12):
                raise refused
            corrected, self.offset = True, int(time_) - self._options.clock()
            if self._options.note_offset is not None:
                self._options.note_offset(self.offset)

    def _exchange(
        self, method: str, target: str, body: bytes, most: int, signed: bool, extra: Mapping[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        """Send a request and read its answer; once more where a kept connection turns out to be closed."""
        while True:
            kept = self._connection is not None
            headers = dict(extra) | self._headers(method, target, body, signed)
            try:
                return self._send(method, target, body, most, headers)
            except (OSError, http.client.HTTPException, HTTPError) as error:
                self.close()
                if not (kept and isinstance(error, _CLOSED)):
                    raise _unreachable(error) from None

    def _headers(self, method: str, target: str, body: bytes, signed: bool) -> dict[str, str]:
        headers = {"accept-encoding": "identity", "user-agent": requests.AGENT}
        if not self._options.keep:
            headers["connection"] = "close"
        if method == "POST":
            headers |= {"content-length": str(len(body)), "content-type": "application/octet-stream"}
        if not signed:
            return headers
        require(self.key is not None and self.member is not None, "request.unsigned", "enrol first")
        assert self.key is not None and self.member is not None
        now, nonce = int(self._options.clock() + self.offset), secrets.token_bytes(requests.NONCE)
        return headers | requests.signed_headers(self.key, self.service, self.member, method, target, body, now, nonce)

    def _send(
        self, method: str, target: str, body: bytes, most: int, headers: dict[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        self._end = time.monotonic() + self._options.seconds
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
        if packed or len(content) > most or not self._options.keep or found.get("connection", "").lower() == "close":
            self.close()
        if packed or len(content) > most:
            sentence = "the service's answer is compressed or too long"
            raise ServiceRefusal("service.unreadable", sentence)
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
            self._left()  # a body without length looks complete after a shutdown
        except Exception:
            self._left()
            raise
        finally:
            timer.cancel()

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
        parts, size = [], 0
        while size <= most and (part := response.read1(min(_BLOCK, most + 1 - size), decode_content=False)):
            parts.append(part)
            size += len(part)
            self._left()
        if length.isdecimal() and size < int(length) and response.status not in (204, 304):
            raise http.client.IncompleteRead(b"")
        return b"".join(parts)

    def _connect(self) -> HTTPConnection:
        parts, seconds = urlsplit(self.url), min(CONNECT_SECONDS, self._options.seconds)
        host = parts.hostname or ""
        if self._context is None:
            return HTTPConnection(host, parts.port, timeout=seconds)
        proxy = _proxy_of(host)
        if proxy is None:
            return HTTPSConnection(host, parts.port, timeout=seconds, ssl_context=self._context)
        made = HTTPSConnection(*proxy[:2], timeout=seconds, ssl_context=self._context)
        made.set_tunnel(host, parts.port or 443, proxy[2])
        return made


@dataclass(frozen=True)
class _Options:
    offset: float = 0.0
    note_offset: Callable[[float], None] | None = None
    seconds: float = field(default_factory=lambda: CALL_SECONDS)
    keep: bool = True
    clock: Callable[[], float] = time.time


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
    if not address or host in _LOCAL or proxy_bypass_environment(host):
        return None
    parts = urlsplit(address if "//" in address else f"//{address}")
    try:
        port = parts.port or 80
    except ValueError:
        port = 0
    valid = parts.scheme in ("", "http") and parts.hostname and port
    require(valid, "proxy.malformed", "expected http://host:port", "HTTPS_PROXY")
    headers = {}
    if parts.username:
        word = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Proxy-Authorization"] = "Basic " + base64.b64encode(word.encode()).decode()
    return parts.hostname or "", port, headers


def _unreachable(error: Exception) -> ServiceRefusal:
    if isinstance(error, ssl.SSLCertVerificationError):
        sentence = f"the service's certificate is not the expected one ({error.verify_message}); nothing was sent"
        return ServiceRefusal("service.certificate", sentence)
    name = "TimeoutError" if isinstance(error, ConnectTimeoutError) else type(error).__name__
    return ServiceRefusal("service.away", f"the service cannot be reached ({name})")


def _refusal(status: int, headers: Mapping[str, str], content: bytes) -> ServiceRefusal:
    try:
        found = _decoded(content[:ANSWER_BYTES])
        code, sentence = found.get("code"), found.get("sentence")
    except BadInput:
        code = sentence = None
    known = requests.refusal(code if isinstance(code, str) else "", sentence if isinstance(sentence, str) else "")
    sentence = known.sentence if known.code != "service.unreadable" else f"the service answers {status}"
    wait = headers.get("retry-after", "")
    seconds = min(float(wait), LONGEST_NEXT) if _DECIMAL.fullmatch(wait) else 0.0
    return ServiceRefusal(known.code, sentence, status, seconds)


def _next(headers: Mapping[str, str]) -> float:
    """Return the service's polling interval, seconds; half a minute where it names none."""
    value = headers.get(requests.NEXT, "")
    return min(float(value), LONGEST_NEXT) if _DECIMAL.fullmatch(value) else 30.0


class _Enrolled(TypedDict):
    member: Annotated[int, Range(0, 2**32 - 1)]
    name: str
    terms: dict[str, Any]


class _Leaving(TypedDict):
    state: Literal["heard", "done"]
    receipt: NotRequired[Annotated[str, Length(4096)] | None]


def _decoded(content: bytes, hint: Any = dict[str, Any]) -> Any:
    """Decode an answer; its content is never quoted."""
    try:
        return parse_json(content, hint)
    except BadInput:
        raise BadInput("service.unreadable", "the service's answer cannot be read") from None


def _leaving(content: bytes) -> LeavingState:
    found = _decoded(content, _Leaving)
    return LeavingState(found["state"], (found.get("receipt") or "").encode())
