"""JSON interface for programs: find, choose, why, status, taking part, forgetting; with the token in a header."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Annotated, Any

from starlette.requests import Request

from quorank.errors import require, require_range
from quorank.files.atomic import expand_home
from quorank.files.codec import Length, Range
from quorank.search.index.query import LONGEST_QUERY
from quorank.search.pages.bodies import read_integer
from quorank.search.pages.learned_page import LearnedPage
from quorank.search.pages.search_page import ListState
from quorank.search.pages.upkeep import Upkeep
from quorank.search.personal_search import CANDIDATES, PAGE, PersonalSearch

Document = Annotated[int, Range(0, 2**53)]


@dataclass(frozen=True)
class ChooseRequest:
    """Body of `/api/choose`."""

    token: Annotated[str, Length(100)]
    document: Document


@dataclass(frozen=True)
class JoinRequest:
    """Body of `/api/join`."""

    invitation: Annotated[str, Length(4096)]


@dataclass(frozen=True)
class ConsentRequest:
    """Body of `/api/consent`."""

    given: bool


@dataclass(frozen=True)
class EmptyRequest:
    """Body of a request without arguments: `{}`."""


@dataclass(frozen=True)
class ForgetRequest:
    """Body of `/api/forget`, with exactly one of its fields."""

    document: Document | None = None
    query: Annotated[str, Length(LONGEST_QUERY)] | None = None
    all: bool = False

    def __post_init__(self) -> None:
        given = sum((self.document is not None, self.query is not None, self.all))
        sentence = 'expected one of {"document": N}, {"query": TEXT} and {"all": true}'
        require(given == 1, "request.malformed", sentence)


@dataclass(frozen=True)
class ProgramAnswers:
    """Handlers of the requests below `/api/`."""

    search: PersonalSearch
    upkeep: Upkeep
    learned: LearnedPage

    def find(self, request: Request) -> dict[str, Any]:
        """Search; with `typing=1` the last word may be unfinished, and filters and order are as on the page."""
        state, limit = ListState.read(request.query_params), _limit(request)
        page = self.search.find(
            state.q,
            limit=limit,
            typing=request.query_params.get("typing") == "1",
            order=state.order,
            first=state.first,
            within=state.within(datetime.fromtimestamp(self.search.clock())),
        )
        results = [{"document": one.document} | one.table() | {"modified": one.modified} for one in page.results]
        return {
            "token": page.token,
            "results": results,
            "found": page.found,
            "milliseconds": round(1000 * page.seconds, 3),
        }

    def why(self, request: Request) -> dict[str, Any]:
        """Explain the position of each result."""
        reasons = self.search.why(ListState.read(request.query_params).q, limit=_limit(request))
        return {"results": [{"document": one.result.document} | one.table() for one in reasons]}

    def status(self, request: Request) -> dict[str, Any]:
        """Return the status of the search, with the scans in progress."""
        progress = self.upkeep.progress
        reading = {"reading": None if progress is None else asdict(progress), "waiting": list(self.upkeep.waiting)}
        return self.search.status() | reading | {"problems": {f"{n}": text for n, text in self.upkeep.problems.items()}}

    def choose(self, given: ChooseRequest) -> dict[str, Any]:
        """Learn from a result that a program opens; return its path, and open nothing."""
        return {"path": self.search.choose(given.token, given.document)}

    def join(self, given: JoinRequest) -> dict[str, Any]:
        """Accept an invitation."""
        found = self.search.membership.join(expand_home(given.invitation))
        self.upkeep.contact_soon()
        return found

    def consent(self, given: ConsentRequest) -> dict[str, Any]:
        """Give or withdraw consent."""
        self.search.membership.consent(given.given)
        self.upkeep.contact_soon()
        return self.search.membership.status() or {}

    def sync(self, given: EmptyRequest) -> dict[str, Any]:
        """Contact the service now."""
        return self.search.membership.sync(force=True).table()

    def leave(self, given: EmptyRequest) -> dict[str, Any]:
        """Withdraw."""
        return self.search.membership.leave().table()

    def reset(self, given: EmptyRequest) -> dict[str, Any]:
        """Forget all choices."""
        return {"choices": self.search.reset()}

    def forget(self, given: ForgetRequest) -> dict[str, Any]:
        """Forget a document, the choices for a query, or everything."""
        if given.query is not None:
            return {"choices": self.search.forget_query(given.query)}
        if given.document is None:
            self.learned.erase_all()
            return {"all": True}
        with self.upkeep.writing():
            self.search.forget_document(given.document)
        return {"documents": 1}


def _limit(request: Request) -> int:
    limit = read_integer(request.query_params.get("limit", str(PAGE)), "limit")
    require_range("limit", limit, least=1, most=CANDIDATES)
    return limit
