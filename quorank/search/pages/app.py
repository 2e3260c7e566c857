"""Application of the pages: routes, answers as a page or as JSON, and errors."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from quorank.errors import BadInput, first_line, require
from quorank.search.pages import views
from quorank.search.pages.changes import (
    CHANGES,
    MESSAGES,
    Change,
    Pages,
    change_of_form,
    change_of_json,
    parse_form,
    read_body,
)
from quorank.search.pages.drawing import draw, static_files
from quorank.search.pages.security import PageGate, refusal, wants_page

Values = Callable[[Pages, views.Given], dict[str, Any]]
VIEWS: dict[str, tuple[str, Values]] = {
    "/": ("search", views.list_values),
    "/learned": ("learned", views.learned_values),
    "/sources": ("sources", views.source_values),
}
"""Template and values of each page."""
FRAGMENTS: dict[str, tuple[str, Values]] = {
    "/list": ("list", partial(views.list_values, typing=True)),
    "/sources/list": ("source_list", views.source_values),
}
"""Parts of pages, for updates while the person types or a source is scanned."""
ANSWERS: dict[str, Values] = {
    "/api/find": views.find_answer,
    "/api/why": views.why_answer,
    "/api/status": views.status_answer,
}
"""Answers for programs."""
_BACK = re.compile(r"(/|/learned|/sources)(\?\S*)?")
_MISSING = frozenset({"document.missing", "source.unknown", "source.missing"})
Endpoint = Callable[[Request], Awaitable[Response]]


def search_app(pages: Pages, token: str, port: int) -> ASGIApp:
    """Return the application for a search, behind its access control."""

    async def page(request: Request) -> Response:
        return await run_in_threadpool(_draw_page, pages, request.url.path, request.query_params)

    async def fragment(request: Request) -> Response:
        template, values = FRAGMENTS[request.url.path]
        return draw(template, **await run_in_threadpool(values, pages, request.query_params))

    async def answer(request: Request) -> Response:
        found = await run_in_threadpool(ANSWERS[request.url.path], pages, request.query_params)
        return JSONResponse(found)

    async def change(request: Request) -> Response:
        return await _change(pages, request)

    routes = [
        *(Route(path, _report_errors(page)) for path in VIEWS),
        *(Route(path, _report_errors(fragment)) for path in FRAGMENTS),
        *(Route(path, _report_errors(answer)) for path in ANSWERS),
        *(Route(path, _report_errors(change), methods=["POST"]) for path in CHANGES),
        Route("/static/{name}", _static),
        Route("/{path:path}", _missing, methods=["GET", "POST", "PUT", "DELETE", "PATCH"]),
    ]
    return PageGate(Starlette(routes=routes), token, port)


def _draw_page(
    pages: Pages, path: str, given: views.Given, problem: BadInput | None = None, status: int = 200
) -> Response:
    template, values = VIEWS[path]
    notice = MESSAGES.get(given.get("done", ""), "")
    return draw(template, status, here=template, notice=notice, problem=problem, **values(pages, given))


async def _change(pages: Pages, request: Request) -> Response:
    """Apply a change; a form is answered by the page in its field `back`, a program by the result."""
    kind, change = request.headers.get("content-type", "").partition(";")[0].strip().lower(), CHANGES[request.url.path]
    if kind == "application/json":
        return await _apply(pages, request, change_of_json(await read_body(request), change), "/")
    sentence = "expected the fields of a form or application/json"
    require(kind == "application/x-www-form-urlencoded", "request.wrong-type", sentence)
    fields = parse_form(await read_body(request))
    back = fields.get("back", "/")
    back = back if _BACK.fullmatch(back) else "/"
    try:
        return await _apply(pages, request, change_of_form(fields, change), back)
    except BadInput as error:
        if not wants_page(request):
            raise
        page = urlsplit(back)
        given = dict(parse_qsl(page.query)) | {"path": fields.get("path", "")}
        return await run_in_threadpool(_draw_page, pages, page.path, given, error, _status_of(error))


async def _apply(pages: Pages, request: Request, change: Change, back: str) -> Response:
    result, message = await run_in_threadpool(change, pages)
    if not wants_page(request):
        return JSONResponse(result)
    done = f"{'&' if '?' in back else '?'}done={message}" if message else ""
    return RedirectResponse(f"{back}{done}", status_code=303)


def _status_of(error: BadInput) -> int:
    return 404 if error.code in _MISSING else 400


def _report_errors(answer: Endpoint) -> Endpoint:
    """Respond to errors with a sentence; unexpected ones are logged as well."""

    async def safe(request: Request) -> Response:
        try:
            return await answer(request)
        except BadInput as error:
            return refusal(request, error, _status_of(error))
        except OSError as error:
            found = BadInput("page.files", f"files cannot be read or written now ({first_line(error)})")
        except Exception:
            logging.getLogger(__name__).exception("unexpected error of a page")
            found = BadInput("page.failed", "unexpected error; the terminal of `quorank search serve` shows it")
        return refusal(request, found, 500)

    return safe


async def _static(request: Request) -> Response:
    found: Any = static_files().get(request.path_params["name"])
    return await _missing(request) if found is None else Response(found[0], media_type=found[1])


async def _missing(request: Request) -> Response:
    return refusal(request, BadInput("page.missing", "there is no such page"), 404)
