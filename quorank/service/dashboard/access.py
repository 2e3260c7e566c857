"""Access to a private page: a token in the address or a header, then a cookie that does not hold it; private headers."""

from __future__ import annotations

import hashlib
import hmac

from starlette.requests import Request
from starlette.responses import Response

from quorank.protocol.invitation import LOOPBACK


class PageToken:
    """Token of a page, compared in constant time.

    The cookie's value and name are digests of it: services on several ports of one host share a browser's cookies.
    """

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self.cookie = f"quorank-{self._digest('cookie name')[:12]}"
        self._value = self._digest("cookie value")

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

    def set_cookie(self, request: Request, answer: Response) -> None:
        """Set the cookie, for this page only and hidden from scripts."""
        secure = request.url.scheme == "https" or request.url.hostname not in LOOPBACK
        answer.set_cookie(self.cookie, self._value, path="/", httponly=True, samesite="strict", secure=secure)


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
