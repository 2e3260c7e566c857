"""Access control of the pages, and the headers of every response.

A page of another site can make a browser send requests here, and a name that it owns can resolve to this machine. So a
request must name this machine in `Host`, must not come from another origin, and must carry the token: once in the
address (or a code for it, where this process opens the browser), then as a cookie that other sites cannot make a browser
send; programs send it in a header. Changes are requested by POST from these pages, or by a program with the token.
"""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from quorank.errors import require
from quorank.protocol.invitation import LOOPBACK
from quorank.service.dashboard.access import PageToken, private_headers

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = private_headers(POLICY) | {"Cross-Origin-Opener-Policy": "same-origin"}
HOW_TO_OPEN = "this page is for its owner: open the address that `quorank search serve` prints, with its token"
READING = ("GET", "HEAD")


class PageGate:
    """Check of each request by its host, its origin and its token."""

    def __init__(self, token: str, port: int) -> None:
        self.token = PageToken(token)
        self._hosts = frozenset(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host in LOOPBACK)
        self._origins = frozenset(f"http://{host}" for host in self._hosts)

    def admit(self, request: Request) -> Response | None:
        """Return the response to an address with token or code, else None; raise BadInput for a refused request."""
        self._check_place(request)
        if request.url.path == "/" and request.method in READING:
            for name, is_valid in (("token", self.token.is_token), ("code", partial(self.token.redeem_code, request))):
                if (given := request.query_params.get(name)) is not None:
                    require(is_valid(given), "page.token", HOW_TO_OPEN)
                    answer = RedirectResponse("/", status_code=303)
                    self.token.set_cookie(request, answer)
                    return answer
        require(self.token.knows(request), "page.token", HOW_TO_OPEN)
        self._check_change(request)
        return None

    def _check_place(self, request: Request) -> None:
        """Raise BadInput for other host names and for requests caused by other sites."""
        host = request.headers.get("host", "").lower()
        require(host in self._hosts, "page.host", "these pages answer only under 127.0.0.1 and localhost")
        origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site", "")
        moved = request.method in READING and request.headers.get("sec-fetch-mode") == "navigate"
        foreign = site == "cross-site" or (site == "same-site" and not moved)
        sentence = "another page made this request; open it from the page of your search"
        require(origin in (None, "null", *self._origins) and not foreign, "page.origin", sentence)

    def _check_change(self, request: Request) -> None:
        """Raise BadInput for a change requested neither by these pages nor by a program with the token.

        A form of a page without referrer has the origin "null"; Sec-Fetch-Site then identifies these pages.
        """
        if request.method in READING or self.token.has_bearer(request):
            return
        origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site", "")
        sentence = "a change must be requested from these pages, or by a program with the token in its header"
        require(origin in self._origins or site == "same-origin", "page.origin", sentence)
