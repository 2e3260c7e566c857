"""A member's line to its service: short HTTPS requests, signed, each answered within a bounded time and size.

What comes back is believed as far as it is checked: no redirect is followed, nothing compressed is unpacked, an answer that
is too long or drips too slowly is given up, and a refusal is a code of known shape with a sentence of bounded length. The
service's time comes with every answer, so that a member whose clock is wrong signs with the right one all the same.

The service's certificate is checked against the authority of the invitation, or the system's. Of the invitation's own
authority the dates are not checked, since they would be held against the member's clock.
"""

from __future__ import annotations

import base64
import functools
import http.client
import io
import json
import os
import re
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from quorank.documents import Table, Text, parse_json
from quorank.errors import BadInput, require
from quorank.federation.member_key import MemberKey, enrolment_content
from quorank.federation.requests import NEXT, NONCE, PROTOCOL, TIME, refusal, signed_headers

SECONDS = 30.0
"""A request and its answer take at most so long, all in all."""
LONGEST_WAIT = 86400.0
"""Seconds that a service can make a member wait."""
SHORT = 1 << 16
"""Bytes of an answer that says little."""
_HEAD = 1 << 18  # bytes of an answer beside its content
_NO_CHECK_TIME = 0x200000  # OpenSSL's X509_V_FLAG_NO_CHECK_TIME
_SECONDS = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,6})?")
_SAID = Table({"code": Text(longest=200), "sentence": Text(longest=2000)})


class ServiceAnswer(NamedTuple):
    """What a service said: its status, headers by lower-case names, content."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def next(self) -> float | None:
        """Seconds until it is worth asking again, where the service says so."""
        return seconds_of(self.headers.get(NEXT))

    def table(self) -> dict[str, Any]:
        """The content as a JSON object; anything else is refused."""
        try:
            found: dict[str, Any] = parse_json(self.content)
        except BadInput:
            raise BadInput("service.unreadable", "the service's answer cannot be read") from None
        return found


class ServiceRefusal(BadInput):
    """What a service refused; `wait`: seconds after which it may be asked again, where it says so."""

    def __init__(self, error: BadInput, status: int, wait: float | None) -> None:
        super().__init__(error.code, error.sentence)
        self.status, self.wait = status, wait


def seconds_of(word: str | None) -> float | None:
    """The seconds that a header names, a day at most; None for whatever else it holds."""
    return min(float(word), LONGEST_WAIT) if word is not None and _SECONDS.fullmatch(word) else None


class ServiceLine:
    """One member's requests to one service; `offset` is by how much its clock differs from the service's."""

    def __init__(
        self,
        url: str,
        service: bytes,
        key: MemberKey,
        certificate: str = "",
        member: int | None = None,
        *,
        offset: float = 0.0,
        seconds: float = SECONDS,
        clock: Callable[[], float] = time.time,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.url, self.service, self.key, self.certificate = url, service, key, certificate
        self.member, self.offset, self.seconds = member, offset, seconds
        self._clock, self._entropy = clock, entropy
        self._connection: http.client.HTTPConnection | None = None

    def __enter__(self) -> ServiceLine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up; the next request connects again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def call(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        *,
        longest: int = SHORT,
        headers: Mapping[str, str] | None = None,
        signed: bool = True,
    ) -> ServiceAnswer:
        """Ask; a refusal is a ServiceRefusal, and a service that cannot be reached or understood a BadInput."""
        for last in (False, True):
            answer = self._once(method, target, body, longest, headers or {}, signed)
            if answer.status < 300 or answer.status == 304:
                return answer
            error = self._refused(answer)
            if last or error.code != "request.time":
                raise error
        raise AssertionError

    def _once(
        self, method: str, target: str, body: bytes, longest: int, more: Mapping[str, str], signed: bool
    ) -> ServiceAnswer:
        end = time.monotonic() + self.seconds
        fresh = self._connection is None
        try:
            try:
                answer = self._exchange(
                    method, target, body, self._headers(method, target, body, more, signed), longest, end
                )
            except (http.client.RemoteDisconnected, ConnectionError):
                self.close()
                if fresh:
                    raise
                headers = self._headers(
                    method, target, body, more, signed
                )  # it had hung up in between, or has just now
                answer = self._exchange(method, target, body, headers, longest, end)
        except ssl.SSLCertVerificationError as error:
            self.close()
            sentence = f"the certificate of {self.url} is not of the agreed authority ({error.verify_message})"
            raise BadInput("service.certificate", sentence) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            sentence = f"{self.url} cannot be reached, or does not speak HTTP ({type(error).__name__})"
            raise BadInput("service.unreachable", sentence) from None
        except BaseException:
            self.close()
            raise
        told = answer.headers.get(TIME, "")
        if _SECONDS.fullmatch(told):
            self.offset = float(told) - self._clock()
        return answer

    def _headers(self, method: str, target: str, body: bytes, more: Mapping[str, str], signed: bool) -> dict[str, str]:
        headers = {"accept-encoding": "identity", "user-agent": f"quorank/{PROTOCOL}", **more}
        if body:
            headers["content-type"] = "application/octet-stream"
        if signed:
            require(self.member is not None, "device.not-enrolled", "this member has not enrolled yet")
            assert self.member is not None
            now, nonce = max(0, int(self._clock() + self.offset)), self._entropy(NONCE)
            headers |= signed_headers(self.key, self.service, self.member, method, target, body, now, nonce)
        return headers

    def _exchange(
        self, method: str, target: str, body: bytes, headers: Mapping[str, str], longest: int, end: float
    ) -> ServiceAnswer:
        if self._connection is None:
            self._connection = self._connected(end)
        connection = self._connection
        connection.response_class = functools.partial(_response, end=end, most=_HEAD + 8 * longest)  # type: ignore[assignment]
        assert connection.sock is not None
        connection.sock.settimeout(max(0.001, end - time.monotonic()))
        connection.request(method, target, body or None, dict(headers))
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        encoded = found.get("content-encoding", "identity").lower() != "identity"
        require(not encoded, "service.encoding", "the service's answer is compressed, which was not asked for")
        require(not 300 <= response.status < 304, "service.redirect", "the service sends elsewhere; nobody follows")
        sentence = f"the service's answer is longer than {longest:,} bytes"
        promised = response.length or 0
        require(promised <= longest, "service.too-long", sentence)
        content = response.read(longest + 1)
        if len(content) < promised:
            raise http.client.IncompleteRead(b"", promised - len(content))
        require(len(content) <= longest, "service.too-long", sentence)
        if response.will_close or not response.isclosed():
            self.close()
        return ServiceAnswer(response.status, found, content)

    def _connected(self, end: float) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        host, secure = parts.hostname or "", parts.scheme == "https"
        port = parts.port or (443 if secure else 80)
        proxy = proxy_for(host) if secure else None
        place = (host, port) if proxy is None else (proxy.host, proxy.port)
        left = max(0.001, end - time.monotonic())
        connection = http.client.HTTPConnection(*place, timeout=left)
        if secure:
            connection = http.client.HTTPSConnection(*place, timeout=left, context=trust(self.certificate))
        if proxy is not None:
            connection.set_tunnel(host, port, proxy.headers)
        connection.response_class = functools.partial(_response, end=end, most=_HEAD)  # type: ignore[assignment]
        connection.connect()
        return connection

    def _refused(self, answer: ServiceAnswer) -> ServiceRefusal:
        wait = seconds_of(answer.headers.get("retry-after"))
        try:
            said = parse_json(answer.content, _SAID)
            error = refusal(said["code"], said["sentence"])
        except BadInput:
            error = BadInput("service.unreadable", f"the service answered {answer.status} without a reason")
        return ServiceRefusal(error, answer.status, answer.next if wait is None else wait)

    def enrol(self, code: bytes, token: str = "") -> dict[str, Any]:
        """Make this key a member by the code or token of an invitation; what the service answered."""
        secret, public = code or token.encode(), self.key.public
        proof = self.key.sign(enrolment_content(self.service, secret, public))
        table = {
            "protocol": PROTOCOL,
            **({"code": code.hex()} if code else {"token": token}),
            "key": public.hex(),
            "proof": base64.b64encode(proof).decode(),
        }
        answer = self.call("POST", "/v1/enrol", json.dumps(table).encode(), longest=1 << 20, signed=False)
        found = answer.table()
        member = found.get("member")
        sound = isinstance(member, int) and not isinstance(member, bool) and 0 <= member < 2**31
        require(sound, "service.unreadable", "the service's answer cannot be read")
        return found


class ThroughProxy(NamedTuple):
    """Through whom a service is reached."""

    host: str
    port: int
    headers: dict[str, str]


def proxy_for(host: str) -> ThroughProxy | None:
    """The proxy of HTTPS_PROXY, or of the system, unless NO_PROXY names the host."""
    from urllib.request import getproxies, proxy_bypass

    found = getproxies().get("https", "")
    if not found or proxy_bypass(host):
        return None
    try:
        parts = urlsplit(found if "://" in found else f"http://{found}")
        good = parts.scheme == "http" and parts.hostname
        port = parts.port or 3128
    except ValueError:
        good, port = None, 0
    require(good, "proxy.unknown", "expected a proxy as http://host:port in HTTPS_PROXY")
    headers = {}
    if parts.username:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        headers["Proxy-Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
    return ThroughProxy(parts.hostname or "", port, headers)


def trust(certificate: str) -> ssl.SSLContext:
    """Whom a member believes: the authority of its invitation alone, or those of the system (SSL_CERT_FILE)."""
    if not certificate:
        return ssl.create_default_context()
    try:
        context = ssl.create_default_context(cadata=certificate)
    except (ssl.SSLError, ValueError):
        raise BadInput("invitation.damaged", "the invitation's certificate cannot be read; ask for a new one") from None
    context.verify_flags |= _NO_CHECK_TIME
    return context


class _Timed(io.RawIOBase):
    """What comes over a socket until a moment, and so many bytes of it."""

    def __init__(self, sock: socket.socket, end: float, most: int) -> None:
        self._sock, self._end, self._left = sock, end, most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._end - time.monotonic()
        if left <= 0.0:
            raise TimeoutError
        self._sock.settimeout(left)
        count = self._sock.recv_into(buffer)
        self._left -= count
        require(self._left >= 0, "service.too-long", "the service's answer is longer than agreed")
        return count


def _response(sock: socket.socket, *args: Any, end: float, most: int, **more: Any) -> http.client.HTTPResponse:
    class Source:
        """A socket as far as a response needs one."""

        def makefile(self, *_: object) -> io.BufferedReader:
            return io.BufferedReader(_Timed(sock, end, most))

    return http.client.HTTPResponse(Source(), *args, **more)  # type: ignore[arg-type]
