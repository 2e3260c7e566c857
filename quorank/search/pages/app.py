"""Application of the pages: which path is answered by what, and how errors are said."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from quorank.errors import BadInput, first_line
from quorank.files.documents import Table
from quorank.search.pages import programs
from quorank.search.pages.bodies import read_form, read_table
from quorank.search.pages.drawing import problem_status, static_answer
from quorank.search.pages.learned_page import LearnedPage
from quorank.search.pages.search_page import SearchPage
from quorank.search.pages.security import PageGate, refusal
from quorank.search.pages.sources_page import SourcesPage
from quorank.search.pages.upkeep import Upkeep
from quorank.search.personal_search import PersonalSearch

Endpoint = Callable[[Request], Awaitable[Response]]
Fields = dict[str, str]


def search_app(search: PersonalSearch, upkeep: Upkeep, token: str, port: int, *, open_files: bool = True) -> ASGIApp:
    """Return the application for a search, behind its gate."""
    found, learned, sources = (
        SearchPage(search, upkeep, open_files),
        LearnedPage(search, upkeep),
        SourcesPage(search, upkeep),
    )
    answers = programs.ProgramAnswers(search, upkeep, learned)
    routes = [
        _page("/", found.page),
        _page("/list", found.fragment),
        _page("/learned", learned.page),
        _page("/sources", sources.page),
        _page("/sources/list", sources.fragment),
        Route("/static/{name}", _static),
        Route("/open", _form(found.open), methods=["POST"]),
        _change("/forget", found.forget),
        _change("/sources/add", sources.add),
        _change("/sources/remove", sources.remove),
        _change("/sources/read", sources.read_again),
        _change("/learned/join", learned.join),
        _change("/learned/consent", learned.consent),
        _change("/learned/sync", learned.talk),
        _change("/learned/leave", learned.leave),
        _change("/learned/forget-query", learned.forget_query),
        _change("/learned/forget-result", learned.forget_result),
        _change("/learned/reset", learned.reset),
        _change("/learned/forget-everything", learned.forget_everything),
        _question("/api/find", answers.find),
        _question("/api/why", answers.why),
        _question("/api/status", answers.status),
        _order("/api/choose", answers.choose, programs.CHOOSE),
        _order("/api/join", answers.join, programs.JOIN),
        _order("/api/consent", answers.consent, programs.CONSENT),
        _order("/api/sync", answers.sync, programs.NOTHING),
        _order("/api/leave", answers.leave, programs.NOTHING),
        _order("/api/reset", answers.reset, programs.NOTHING),
        _order("/api/forget", answers.forget, programs.FORGET),
        Route("/{path:path}", _nothing, methods=["GET", "POST", "PUT", "DELETE", "PATCH"]),
    ]
    return PageGate(Starlette(routes=routes), token, port)


def _page(path: str, draw: Callable[[Request], Response]) -> Route:
    async def answer(request: Request) -> Response:
        return await run_in_threadpool(draw, request)

    return Route(path, _told(answer))


def _form(work: Callable[[Request, Fields], Response]) -> Endpoint:
    async def answer(request: Request) -> Response:
        return await run_in_threadpool(work, request, await read_form(request))

    return _told(answer)


def _change(path: str, work: Callable[[Fields], Response]) -> Route:
    return Route(path, _form(lambda _, fields: work(fields)), methods=["POST"])


def _question(path: str, ask: Callable[[Request], dict[str, Any]]) -> Route:
    async def answer(request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(ask, request))

    return Route(path, _told(answer))


def _order(path: str, work: Callable[[dict[str, Any]], dict[str, Any]], shape: Table) -> Route:
    async def answer(request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(work, await read_table(request, shape)))

    return Route(path, _told(answer), methods=["POST"])


def _told(answer: Endpoint) -> Endpoint:
    """Answer errors with a sentence; what nobody expected goes to the log of this process, and a sentence to the page."""

    async def safe(request: Request) -> Response:
        try:
            return await answer(request)
        except BadInput as error:
            return refusal(request, error, problem_status(error))
        except OSError as error:
            return refusal(
                request, BadInput("page.files", f"files cannot be read or written now ({first_line(error)})"), 500
            )
        except Exception:
            logging.getLogger(__name__).exception("a page could not be answered")
            sentence = "something went wrong here; the terminal of `quorank search serve` says what"
            return refusal(request, BadInput("page.failed", sentence), 500)

    return safe


async def _static(request: Request) -> Response:
    return static_answer(request.path_params["name"]) or await _nothing(request)


async def _nothing(request: Request) -> Response:
    return refusal(request, BadInput("page.missing", "there is no such page"), 404)
