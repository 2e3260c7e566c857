"""Application of the pages: routes, and responses to errors."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from quorank.errors import BadInput, first_line
from quorank.search.pages import programs
from quorank.search.pages.bodies import read_form, read_object
from quorank.search.pages.drawing import problem_status, static_answer
from quorank.search.pages.learned_page import LearnedPage
from quorank.search.pages.search_page import SearchPage
from quorank.search.pages.security import PageGate, refusal
from quorank.search.pages.sources_page import SourcesPage
from quorank.search.pages.upkeep import Upkeep
from quorank.search.personal_search import PersonalSearch

Endpoint = Callable[[Request], Awaitable[Response]]
Fields = dict[str, str]
T = TypeVar("T")


def search_app(search: PersonalSearch, upkeep: Upkeep, token: str, port: int, *, open_files: bool = True) -> ASGIApp:
    """Return the application for a search, behind its access control."""
    found, learned, sources = (
        SearchPage(search, upkeep, open_files), LearnedPage(search, upkeep), SourcesPage(search, upkeep),
    )  # fmt: skip
    answers = programs.ProgramAnswers(search, upkeep, learned)
    routes = [
        _page("/", found.page),
        _page("/list", found.fragment),
        _page("/learned", learned.page),
        _page("/sources", sources.page),
        _page("/sources/list", sources.fragment),
        Route("/static/{name}", _static),
        Route("/open", _form(found.open), methods=["POST"]),
        _post_form("/forget", found.forget),
        _post_form("/sources/add", sources.add),
        _post_form("/sources/remove", sources.remove),
        _post_form("/sources/read", sources.read_again),
        _post_form("/learned/join", learned.join),
        _post_form("/learned/consent", learned.consent),
        _post_form("/learned/sync", learned.contact),
        _post_form("/learned/leave", learned.leave),
        _post_form("/learned/forget-query", learned.forget_query),
        _post_form("/learned/forget-result", learned.forget_result),
        _post_form("/learned/reset", learned.reset),
        _post_form("/learned/forget-everything", learned.forget_everything),
        _get_json("/api/find", answers.find),
        _get_json("/api/why", answers.why),
        _get_json("/api/status", answers.status),
        _post_json("/api/choose", answers.choose, programs.ChooseRequest),
        _post_json("/api/join", answers.join, programs.JoinRequest),
        _post_json("/api/consent", answers.consent, programs.ConsentRequest),
        _post_json("/api/sync", answers.sync, programs.EmptyRequest),
        _post_json("/api/leave", answers.leave, programs.EmptyRequest),
        _post_json("/api/reset", answers.reset, programs.EmptyRequest),
        _post_json("/api/forget", answers.forget, programs.ForgetRequest),
        Route("/{path:path}", _missing, methods=["GET", "POST", "PUT", "DELETE", "PATCH"]),
    ]
    return PageGate(Starlette(routes=routes), token, port)


def _page(path: str, draw: Callable[[Request], Response]) -> Route:
    async def answer(request: Request) -> Response:
        return await run_in_threadpool(draw, request)

    return Route(path, _report_errors(answer))


def _form(work: Callable[[Request, Fields], Response]) -> Endpoint:
    async def answer(request: Request) -> Response:
        return await run_in_threadpool(work, request, await read_form(request))

    return _report_errors(answer)


def _post_form(path: str, work: Callable[[Fields], Response]) -> Route:
    return Route(path, _form(lambda _, fields: work(fields)), methods=["POST"])


def _get_json(path: str, work: Callable[[Request], dict[str, Any]]) -> Route:
    async def answer(request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(work, request))

    return Route(path, _report_errors(answer))


def _post_json(path: str, work: Callable[[T], dict[str, Any]], hint: type[T]) -> Route:
    async def answer(request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(work, await read_object(request, hint)))

    return Route(path, _report_errors(answer), methods=["POST"])


def _report_errors(answer: Endpoint) -> Endpoint:
    """Respond to errors with a sentence; unexpected ones are logged as well."""

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
            logging.getLogger(__name__).exception("unexpected error of a page")
            sentence = "unexpected error; the terminal of `quorank search serve` shows it"
            return refusal(request, BadInput("page.failed", sentence), 500)

    return safe


async def _static(request: Request) -> Response:
    return static_answer(request.path_params["name"]) or await _missing(request)


async def _missing(request: Request) -> Response:
    return refusal(request, BadInput("page.missing", "there is no such page"), 404)
