"""Application of the pages: access control, answers as a page or as JSON, and errors."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from quorank.errors import BadInput, first_line, require
from quorank.search.pages import views
from quorank.search.pages.changes import (
    CHANGES,
    MESSAGES,
    Change,
    change_of_form,
    change_of_json,
    parse_form,
    read_body,
)
from quorank.search.pages.drawing import draw, static_files
from quorank.search.pages.security import HEADERS, READING, PageGate
from quorank.search.pages.upkeep import Upkeep

Values = Callable[[Upkeep, views.Given], dict[str, Any]]
VIEWS: dict[str, tuple[str, Values]] = {
    "/": ("search", views.list_values),
    "/learned": ("learned", views.learned_values),
    "/sources": ("sources", views.source_values),
    "/list": ("list", partial(views.list_values, typing=True)),
    "/sources/list": ("source_list", views.source_values),
}
"""Template and values of each page, and of the parts that are updated while the person types or a source is scanned."""
ANSWERS: dict[str, Values] = {
    "/api/find": views.find_answer,
    "/api/why": views.why_answer,
    "/api/status": views.status_answer,
}
"""Answers for programs."""
STATUS = {
    **dict.fromkeys(("page.token", "page.host", "page.origin"), 403),
    **dict.fromkeys(("page.missing", "document.missing", "source.unknown", "source.missing"), 404),
    **dict.fromkeys(("page.files", "page.failed"), 500),
}
"""HTTP status of errors by their codes; 400 for all others."""
_BACK = re.compile(r"(/|/learned|/sources)(\?\S*)?")


def search_app(upkeep: Upkeep, gate: PageGate) -> ASGIApp:
    """Return the application for a search, behind its access control."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            response = await _respond(upkeep, gate, Request(scope, receive))
            response.headers.update(HEADERS)
            await response(scope, receive, send)

    return app


async def _respond(upkeep: Upkeep, gate: PageGate, request: Request) -> Response:
    """Return the response to a request; an error is a page for a browser, and code and sentence for a program."""
    try:
        if welcome := gate.admit(request):
            return welcome
        if request.method == "POST" and request.url.path in CHANGES:
            return await _change(upkeep, request)
        require(request.method in READING, "page.missing", "there is no such page")
        return await run_in_threadpool(_read, upkeep, request)
    except BadInput as error:
        found = error
    except OSError as error:
        found = BadInput("page.files", f"files cannot be read or written now ({first_line(error)})")
    except Exception:
        logging.getLogger(__name__).exception("unexpected error of a page")
        found = BadInput("page.failed", "unexpected error; the terminal of `quorank search serve` shows it")
    status = STATUS.get(found.code, 400)
    if _wants_page(request):
        return draw("refusal", status, error=found)
    return JSONResponse({"code": found.code, "sentence": str(found)}, status)


def _wants_page(request: Request) -> bool:
    """Return whether a response is for a browser's window rather than a program."""
    return "text/html" in request.headers.get("accept", "")


def _read(upkeep: Upkeep, request: Request) -> Response:
    path, given = request.url.path, request.query_params
    if path in VIEWS:
        return _draw_page(upkeep, path, given)
    if path in ANSWERS:
        return JSONResponse(ANSWERS[path](upkeep, given))
    require(path in static_files(), "page.missing", "there is no such page")
    content, kind = static_files()[path]
    return Response(content, media_type=kind)


def _draw_page(upkeep: Upkeep, path: str, given: views.Given, problem: BadInput | None = None) -> Response:
    template, values = VIEWS[path]
    notice, status = MESSAGES.get(given.get("done", ""), ""), STATUS.get(problem.code, 400) if problem else 200
    return draw(template, status, here=template, notice=notice, problem=problem, **values(upkeep, given))


async def _change(upkeep: Upkeep, request: Request) -> Response:
    """Apply a change; a form is answered by the page in its field `back`, a program by the result."""
    kind, change = request.headers.get("content-type", "").partition(";")[0].strip().lower(), CHANGES[request.url.path]
    if kind == "application/json":
        return await _apply(upkeep, request, change_of_json(await read_body(request), change), "/")
    sentence = "expected the fields of a form or application/json"
    require(kind == "application/x-www-form-urlencoded", "request.wrong-type", sentence)
    fields = parse_form(await read_body(request))
    back = fields.get("back", "/")
    back = back if _BACK.fullmatch(back) else "/"
    try:
        return await _apply(upkeep, request, change_of_form(fields, change), back)
    except BadInput as error:
        if not _wants_page(request):
            raise
        page = urlsplit(back)
        given = dict(parse_qsl(page.query)) | {"path": fields.get("path", "")}
        return await run_in_threadpool(_draw_page, upkeep, page.path, given, error)


async def _apply(upkeep: Upkeep, request: Request, change: Change, back: str) -> Response:
    result, message = await run_in_threadpool(change, upkeep)
    if not _wants_page(request):
        return JSONResponse(result)
    done = f"{'&' if '?' in back else '?'}done={message}" if message else ""
    return RedirectResponse(f"{back}{done}", status_code=303)
