"""A member's line to its service: signed requests over HTTPS, with the standard library alone.

Nothing that a service answers is believed unchecked: an answer has a bounded size and a bounded time from its first byte to
its last, is not packed, is never a redirection, and a task is signed by the service's key. The time that is signed is the
service's: a member whose clock is off learns by how much from a refusal, and asks again. With the authority of an
invitation, the certificate's dates are not looked at for the same reason.

Every call may be made again: what was committed is answered as the first time. So a kept connection that the service has
closed meanwhile is opened anew without a word.
"""

from __future__ import annotations

import base64
import binascii
import http.client
import io
import os
import random
import re
import secrets
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from quorank.errors import BadInput, require
from quorank.files.documents import ANYTHING, parse_json
from quorank.protocol import requests
from quorank.protocol.invitation import Invitation
from quorank.protocol.member_key import MemberKey, is_signed, task_content
from quorank.protocol.publication import KINDS

SECONDS = 60.0
"""A call takes no longer, from its first byte to its last."""
CONNECT_SECONDS = 20.0
MOST_TASK, MOST_MAIL, MOST_TERMS, MOST_WORDS = 1 << 26, 1 << 24, 1 << 24, 1 << 16
"""Bytes of a task, a message, the answer to an enrolment, and any other answer."""
LONGEST_NEXT = 86_400.0

_BLOCK = 1 << 16
_NO_CHECK_TIME = 0x200000  # OpenSSL's X509_V_FLAG_NO_CHECK_TIME
_LOCAL = ("localhost", "127.0.0.1", "::1")
_DECIMAL = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


class ServiceRefusal(BadInput):
    """What a service refused (`status`), or that it cannot be reached (status 0, code `service.away`)."""

    def __init__(self, code: str, sentence: str, status: int = 0, wait: float = 0.0) -> None:
        super().__init__(code, sentence)
        self.status = status
        self.wait = wait  # seconds that the service asks to wait; 0: it says nothing

    @property
    def passes(self) -> bool:
        """Whether the same call may succeed later."""
        return self.status in (0, 408, 429) or self.status >= 500


@dataclass(frozen=True)
class ServedTask:
    """The task of the moment; `content` is None where there is none, or none but the known one, which has its `etag`."""

    next: float  # seconds until it is worth asking again
    kind: str = ""
    round: int = 0
    content: bytes | None = None
    etag: str = ""
    asked: bool = True  # whether this round takes a reply of this member


class ServedMail(NamedTuple):
    """The oldest open message; `content` is None where there is none."""

    next: float
    id: int = 0
    content: bytes | None = None


class Enrolment(NamedTuple):
    """What a service lets a member in with."""

    member: int
    name: str
    terms: Mapping[str, Any]


class LeavingState(NamedTuple):
    """How far a request to leave is: heard, or done with a receipt."""

    state: str
    receipt: bytes = b""


class Pace:
    """Seconds until the next call: as the service says, and longer and longer while it cannot be reached."""

    def __init__(self, least: float = 1.0, most: float = 600.0, draw: Callable[[], float] = random.random) -> None:
        self.least, self.most, self._draw, self._failures = least, most, draw, 0

    def well(self, next_: float) -> float:
        """After a call that was answered: up to a tenth later than it says, so that members do not come at once."""
        self._failures = 0
        return next_ * (1.0 + 0.1 * self._draw())

    def badly(self, error: ServiceRefusal) -> float:
        """After a call that was not: at least as long as the service asks, else doubled each time, half of it drawn."""
        bound = min(self.most, self.least * 2.0 ** min(self._failures, 30))
        self._failures += 1
        return max(error.wait, 0.0) + bound * (0.5 + 0.5 * self._draw())


class _DeadlineReader(io.RawIOBase):
    """Socket reader that ends at a deadline, however slowly bytes come."""

    def __init__(self, inner: Any, left: Callable[[], float]) -> None:
        super().__init__()
        self._inner, self._left = inner, left

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._left()
        found: int | None = self._inner.readinto(buffer)
        return found

    def close(self) -> None:
        self._inner.close()
        super().close()


class ServiceLine:
    """One member's line; not for several threads at once. Without a key and a number, only `enrol` and open tasks."""

    def __init__(
        self,
        url: str,
        service: bytes,
        certificate: str = "",
        key: MemberKey | None = None,
        member: int | None = None,
        *,
        offset: float = 0.0,
        note_offset: Callable[[float], None] | None = None,
        seconds: float = SECONDS,
        keep: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.url, self.service, self.key, self.member = url, service, key, member
        self.offset, self._note_offset = offset, note_offset
        self.seconds, self.keep, self._clock = seconds, keep, clock
        parts = urlsplit(url)
        self._host, self._port, self._plain = parts.hostname or "", parts.port, parts.scheme == "http"
        self._context = None if self._plain else _context(certificate)
        self._connection: http.client.HTTPConnection | None = None
        self._until = 0.0

    @classmethod
    def of(cls, invitation: Invitation, **options: Any) -> ServiceLine:
        """The line of an invitation; options as for the constructor."""
        return cls(invitation.url, invitation.service, invitation.certificate, **options)

    # ------------------------------------------------------------ calls

    def enrol(self, invitation: Invitation, key: MemberKey) -> Enrolment:
        """Be let in with a key of one's own; the same again gives the same."""
        body = requests.enrolment_body(key, self.service, invitation.code, invitation.token)
        _, _, content = self._call("POST", "/v1/enrol", body, most=MOST_TERMS, signed=False)
        found = _table(content)
        member, name, terms = found.get("member"), found.get("name"), found.get("terms")
        sound = type(member) is int and 0 <= member < 2**32 and isinstance(name, str) and isinstance(terms, dict)
        require(sound, "service.unreadable", "the service's answer to the enrolment cannot be read")
        assert isinstance(member, int) and isinstance(name, str) and isinstance(terms, dict)
        self.key, self.member = key, member
        return Enrolment(member, name, terms)

    def task(self, etag: str = "", most: int = MOST_TASK) -> ServedTask:
        """The task of the moment, unless it is the one with this tag."""
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
        sound = kind in KINDS and round_.isascii() and round_.isdigit() and len(round_) <= 15
        require(sound, "service.unreadable", "the service's task cannot be read")
        good = is_signed(self.service, task_content(kind, content), signature)
        require(good, "task.unsigned", "a task is not signed by the service of the invitation; it is refused")
        return ServedTask(_next(headers), kind, int(round_), content, headers.get("etag", "")[:200], asked)

    def reply(self, content: bytes) -> float:
        """Hand in a reply; it is committed when this returns. Seconds until it is worth asking again."""
        _, headers, answer = self._call("POST", "/v1/reply", content)
        found = _table(answer).get("next")
        return _next({requests.NEXT: f"{found}"}) if type(found) in (int, float) else _next(headers)

    def mail(self, most: int = MOST_MAIL) -> ServedMail:
        """The oldest message that waits for an answer."""
        status, headers, content = self._call("GET", "/v1/mail", most=most)
        if status != 200:
            return ServedMail(_next(headers))
        number = headers.get(requests.MAIL, "")
        sound = number.isascii() and number.isdigit() and len(number) <= 18
        require(sound, "service.unreadable", "the service's message has no number")
        return ServedMail(_next(headers), int(number), content)

    def answer(self, number: int, content: bytes) -> float:
        """Answer a message; nothing says that there is no answer. Seconds until it is worth asking again."""
        _, headers, _ = self._call("POST", f"/v1/mail?id={number}", content)
        return _next(headers)

    def leave(self, request: bytes) -> LeavingState:
        """Hand in a request to leave."""
        return _leaving(self._call("POST", "/v1/leave", request)[2])

    def left(self) -> LeavingState:
        """How far it is."""
        return _leaving(self._call("GET", "/v1/leave")[2])

    def close(self) -> None:
        """Hang up; the next call connects again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # ------------------------------------------------------------ the way there

    def _call(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        *,
        most: int = MOST_WORDS,
        signed: bool = True,
        extra: Mapping[str, str] | None = None,
    ) -> tuple[int, dict[str, str], bytes]:
        """(status, headers, content) of a call that was accepted; else ServiceRefusal."""
        corrected = False
        while True:
            status, headers, content = self._exchange(method, target, body, most, signed, extra or {})
            if status in (200, 202, 204, 304):
                return status, headers, content
            refused = _refusal(status, headers, content)
            told = headers.get(requests.TIME, "")
            if refused.code != "request.time" or corrected or not (told.isdigit() and len(told) <= 12):
                raise refused
            corrected, self.offset = True, int(told) - self._clock()
            if self._note_offset is not None:
                self._note_offset(self.offset)

    def _exchange(
        self, method: str, target: str, body: bytes, most: int, signed: bool, extra: Mapping[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        kept = self._connection is not None
        try:
            return self._once(method, target, body, most, signed, extra)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            gone = isinstance(
                error, ConnectionError | http.client.BadStatusLine | ssl.SSLEOFError | ssl.SSLZeroReturnError
            )
            if not (kept and gone):
                raise _away(error) from None
        try:
            return self._once(method, target, body, most, signed, extra)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise _away(error) from None

    def _once(
        self, method: str, target: str, body: bytes, most: int, signed: bool, extra: Mapping[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        headers = dict(extra)
        if signed:
            require(self.key is not None and self.member is not None, "request.unsigned", "enrol first")
            assert self.key is not None and self.member is not None
            now, nonce = int(self._clock() + self.offset), secrets.token_bytes(requests.NONCE)
            headers |= requests.signed_headers(self.key, self.service, self.member, method, target, body, now, nonce)
        headers |= {"accept-encoding": "identity", "user-agent": requests.AGENT}
        if not self.keep:
            headers["connection"] = "close"
        if method == "POST":
            headers |= {"content-length": str(len(body)), "content-type": "application/octet-stream"}
        self._until = time.monotonic() + self.seconds
        connection = self._connection = self._connection or self._connect()
        connection.request(method, target, self._blocks(body) if body else None, headers)
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        packed = found.get("content-encoding", "identity") != "identity"
        content = b"" if packed else _read(response, most)
        whole = response.isclosed() or response.length == 0
        if packed or not whole or not self.keep or response.will_close:
            self.close()
        if packed or len(content) > most:
            raise ServiceRefusal(
                "service.unreadable", "the service's answer is packed, or longer than such an answer is"
            )
        return response.status, found, content

    def _blocks(self, body: bytes) -> Iterator[bytes]:
        for at in range(0, len(body), _BLOCK):
            self._left()
            yield body[at : at + _BLOCK]

    def _left(self) -> float:
        """Seconds that the call may still take, also told to its socket."""
        left = self._until - time.monotonic()
        if left <= 0.0:
            raise TimeoutError("the service is too slow")
        if self._connection is not None and self._connection.sock is not None:
            self._connection.sock.settimeout(left)
        return left

    def _connect(self) -> http.client.HTTPConnection:
        seconds = min(CONNECT_SECONDS, self.seconds)
        if self._plain:
            made = http.client.HTTPConnection(self._host, self._port, timeout=seconds)
        else:
            proxy = _proxy_of(self._host)
            host, port = (self._host, self._port) if proxy is None else proxy[:2]
            made = http.client.HTTPSConnection(host, port, timeout=seconds, context=self._context)
            if proxy is not None:
                made.set_tunnel(self._host, self._port or 443, proxy[2])
        line = self

        class BoundedResponse(http.client.HTTPResponse):
            def __init__(self, sock: Any, *words: Any, **options: Any) -> None:
                super().__init__(sock, *words, **options)

                def left() -> float:
                    seconds = line._left()
                    sock.settimeout(seconds)
                    return seconds

                self.fp = io.BufferedReader(_DeadlineReader(self.fp.detach(), left))

        made.response_class = BoundedResponse
        return made


def _read(response: http.client.HTTPResponse, most: int) -> bytes:
    """The body, and one byte more where it is too long; nothing of one that says so beforehand."""
    announced = response.length
    if announced is not None and announced > most:
        return b"\0" * (most + 1)
    parts, size = [], 0
    while size <= most and (part := response.read(min(_BLOCK, most + 1 - size))):
        parts.append(part)
        size += len(part)
    if announced is not None and size < announced:
        raise http.client.IncompleteRead(b"")
    return b"".join(parts)


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
    """(host, port, headers) of the proxy that the environment names for this host."""
    given = os.environ.get("https_proxy") or os.environ.get("HTTPS_PROXY") or ""
    if not given or host in _LOCAL or _bypassed(host):
        return None
    parts = urlsplit(given if "//" in given else f"//{given}")
    try:
        port = parts.port or 80
    except ValueError:
        port = 0
    sound = parts.scheme in ("", "http") and parts.hostname and port
    require(sound, "proxy.malformed", "expected http://host:port", "HTTPS_PROXY")
    headers = {}
    if parts.username:
        word = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Proxy-Authorization"] = "Basic " + base64.b64encode(word.encode()).decode()
    return parts.hostname or "", port, headers


def _bypassed(host: str) -> bool:
    """Whether NO_PROXY names this host: by its name, a domain above it, or `*` for all."""
    given = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    names = [name.strip().lower().lstrip(".") for name in given.split(",") if name.strip()]
    return any(name == "*" or host == name or host.endswith(f".{name}") for name in names)


def _away(error: Exception) -> ServiceRefusal:
    if isinstance(error, ssl.SSLCertVerificationError):
        said = f"the service's certificate is not the one to expect ({error.verify_message}); nothing was sent"
        return ServiceRefusal("service.certificate", said)
    return ServiceRefusal("service.away", f"the service cannot be reached ({type(error).__name__})")


def _refusal(status: int, headers: Mapping[str, str], content: bytes) -> ServiceRefusal:
    try:
        found = _table(content[:MOST_WORDS])
        code, sentence = found.get("code"), found.get("sentence")
    except BadInput:
        code = sentence = None
    told = requests.refusal(code if isinstance(code, str) else "", sentence if isinstance(sentence, str) else "")
    sentence = told.sentence if told.code != "service.unreadable" else f"the service answers {status}"
    wait = headers.get("retry-after", "")
    seconds = min(float(wait), LONGEST_NEXT) if _DECIMAL.fullmatch(wait) else 0.0
    return ServiceRefusal(told.code, sentence, status, seconds)


def _next(headers: Mapping[str, str]) -> float:
    """Seconds until it is worth asking again, as a service says; half a minute where it does not."""
    told = headers.get(requests.NEXT, "")
    return min(float(told), LONGEST_NEXT) if _DECIMAL.fullmatch(told) else 30.0


def _table(content: bytes) -> dict[str, Any]:
    try:
        found = parse_json(content, ANYTHING)
    except BadInput:
        found = None
    require(isinstance(found, dict), "service.unreadable", "the service's answer cannot be read")
    assert isinstance(found, dict)
    return found


def _leaving(content: bytes) -> LeavingState:
    found = _table(content)
    state, receipt = found.get("state"), found.get("receipt") or ""
    require(
        state in ("heard", "done") and isinstance(receipt, str) and len(receipt) <= 4096,
        "service.unreadable",
        "the service's answer to the leaving cannot be read",
    )
    return LeavingState(f"{state}", receipt.encode())
