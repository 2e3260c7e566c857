"""Access control of the pages, and the headers of every response.

A page of another site can make a browser send requests here, and a name that it owns can resolve to this machine. So a
request must name this machine in `Host`, must not come from another origin, and must carry the token: once in the
address, then as a cookie that other sites cannot make a browser send; programs send it in a header. Changes are
requested by POST from these pages, or by a program with the token.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quorank.errors import BadInput, require
from quorank.search.pages.drawing import draw
from quorank.service.dashboard.access import LOOPBACK, PageToken, private_headers

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = private_headers(POLICY) | {"Cross-Origin-Opener-Policy": "same-origin"}
HOW_TO_OPEN = "this page is for its owner: open the address that `quorank search serve` prints, with its token"
_READING = ("GET", "HEAD")


class PageGate:
    """ASGI application that passes requests of the owner to another one, and sets the headers of all responses."""

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self._app, self._token = app, PageToken(token)
        self.hosts = frozenset(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host in LOOPBACK)
        self._origins = frozenset(f"http://{host}" for host in self.hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                names = {name for name, _ in own}
                message["headers"] = [*own, *(pair for pair in message["headers"] if pair[0].lower() not in names)]
            await send(message)

        request = Request(scope)
        answer = self._answer(request)
        await (self._app if answer is None else answer)(scope, receive, send_with_headers)

    def _answer(self, request: Request) -> Response | None:
        """Return the response to a refused request or to one with the token in the address; None to pass it on."""
        try:
            self._check_place(request)
            given = request.query_params.get("token")
            if given is not None and request.url.path == "/" and request.method in _READING:
                require(self._token.is_token(given), "page.token", HOW_TO_OPEN)
                answer = RedirectResponse("/", status_code=303)
                self._token.set_cookie(request, answer)
                return answer
            require(self._token.knows(request), "page.token", HOW_TO_OPEN)
            self._check_change(request)
        except BadInput as error:
            return refusal(request, error, 403)
        return None

    def _check_place(self, request: Request) -> None:
        """Raise BadInput for other host names and for requests caused by other sites."""
        host = request.headers.get("host", "").lower()
        require(host in self.hosts, "page.host", "these pages answer only under 127.0.0.1 and localhost")
        origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site", "")
        moved = request.method in _READING and request.headers.get("sec-fetch-mode") == "navigate"
        foreign = site == "cross-site" or (site == "same-site" and not moved)
        sentence = "this was requested by another page; open it from the page of your search"
        require(origin in (None, "null", *self._origins) and not foreign, "page.origin", sentence)

    def _check_change(self, request: Request) -> None:
        """Raise BadInput for a change requested neither by these pages nor by a program with the token.

        A form of a page without referrer has the origin "null"; Sec-Fetch-Site then identifies these pages.
        """
        if request.method in _READING or self._token.has_bearer(request):
            return
        origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site", "")
        sentence = "a change must be requested from these pages, or by a program with the token in its header"
        require(origin in self._origins or site == "same-origin", "page.origin", sentence)


def wants_page(request: Request) -> bool:
    """Return whether a response is for a browser's window rather than a program."""
    return "text/html" in request.headers.get("accept", "")


def refusal(request: Request, error: BadInput, status: int) -> Response:
    """Return an error as a page for a browser, and as code and sentence for a program."""
    if wants_page(request):
        return draw("refusal", status, error=error)
    return JSONResponse({"code": error.code, "sentence": str(error)}, status)
