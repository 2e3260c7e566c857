"""Access to a private page: a token in the address or a header, then a cookie that does not hold it; private headers.

Every account of a machine can read the command line of a browser that another one starts. So that address holds a code
instead of the token: it is good once, for a minute, and on Linux only from a connection of this process's own account.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from quorank.protocol.invitation import LOOPBACK

CODE_SECONDS = 60.0  # lifetime of a code that opens a page in a browser
CONNECTIONS = Path("/proc/net/tcp")  # Linux: every IPv4 connection with the account of its socket
_ESTABLISHED = "01"


class PageToken:
    """Token of a page, compared in constant time.

    The cookie's value and name are digests of it: services on several ports of one host share a browser's cookies.
    """

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self.cookie = f"quorank-{self._digest('cookie name')[:12]}"
        self._value = self._digest("cookie value")
        self._codes: dict[str, float] = {}  # digest of each open code: its end

    def _digest(self, purpose: str) -> str:
        return hmac.new(self._token, f"quorank page 1 {purpose}".encode(), hashlib.sha256).hexdigest()

    def has_bearer(self, request: Request) -> bool:
        """Return whether the request has the token in a header, as programs send it."""
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and self.is_token(given.strip())

    def knows(self, request: Request) -> bool:
        """Return whether the request has the token or its cookie."""
        cookie = request.cookies.get(self.cookie, "").encode()
        return self.has_bearer(request) or hmac.compare_digest(cookie, self._value.encode())

    def is_token(self, given: str) -> bool:
        """Return whether a string is the token."""
        return hmac.compare_digest(given.encode(), self._token)

    def issue_code(self) -> str:
        """Return a code that stands for the token in one address, for `CODE_SECONDS`."""
        code = secrets.token_urlsafe(24)
        self._codes[self._digest(code)] = time.monotonic() + CODE_SECONDS
        return code

    def redeem_code(self, request: Request, given: str) -> bool:
        """Return whether a string is an open code, and close it; a request of another account has no effect."""
        if not is_own_connection(request):
            return False
        return self._codes.pop(self._digest(given), 0.0) > time.monotonic()

    def set_cookie(self, request: Request, answer: Response) -> None:
        """Set the cookie, for this page only and hidden from scripts."""
        secure = request.url.scheme == "https" or request.url.hostname not in LOOPBACK
        answer.set_cookie(self.cookie, self._value, path="/", httponly=True, samesite="strict", secure=secure)


def is_own_connection(request: Request) -> bool:
    """Return whether this account opened a request's connection over IPv4 loopback; True where the system does not tell."""
    if not CONNECTIONS.exists():
        return True
    ends = [_as_listed(*request.scope[end]) for end in ("client", "server")]
    with suppress(OSError):
        for line in CONNECTIONS.read_text(encoding="ascii").splitlines()[1:]:
            _, local, remote, state, *_, account = line.split()[:8]
            if [local, remote] == ends and state == _ESTABLISHED:
                return int(account) == os.geteuid()
    return False


def _as_listed(host: str, port: int) -> str:
    """Return an address in the form of the list of connections."""
    return f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}:{int(port):04X}"


def private_headers(policy: str) -> dict[str, str]:
    """Return the headers of every answer of a private page: not framed, not cached, no referrer."""
    return {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": "no-store",
    }
