"""JSON for programs: finding, choosing, reasons, how it stands, taking part, forgetting; with the token in a header."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from starlette.requests import Request

from quorank.errors import require, require_range
from quorank.files.atomic import expand_home
from quorank.files.documents import Flag, Table, Text, Whole
from quorank.search.index.query import LONGEST_QUERY
from quorank.search.pages.bodies import whole_number
from quorank.search.pages.learned_page import LearnedPage
from quorank.search.pages.search_page import ListState
from quorank.search.pages.upkeep import Upkeep
from quorank.search.personal_search import CANDIDATES, PAGE, PersonalSearch

CHOOSE = Table({"token": Text(longest=100), "document": Whole(0, 2**53)}, closed=True)
JOIN = Table({"invitation": Text(longest=4096)}, closed=True)
CONSENT = Table({"given": Flag()}, closed=True)
NOTHING = Table({}, closed=True)
FORGET = Table({}, {"document": Whole(0, 2**53), "query": Text(longest=LONGEST_QUERY), "all": Flag()}, closed=True)


@dataclass(frozen=True)
class ProgramAnswers:
    """Tables that answer the requests below `/api/`."""

    search: PersonalSearch
    upkeep: Upkeep
    learned: LearnedPage

    def find(self, request: Request) -> dict[str, Any]:
        """Search; `typing=1` lets the last word go on, and chips and order are as on the page."""
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
        """Say what put each result where it is."""
        reasons = self.search.why(ListState.read(request.query_params).q, limit=_limit(request))
        return {"results": [{"document": one.result.document} | one.table() for one in reasons]}

    def status(self, request: Request) -> dict[str, Any]:
        """How the search stands, with what is read now."""
        progress = self.upkeep.progress
        reading = {"reading": None if progress is None else asdict(progress), "waiting": list(self.upkeep.waiting)}
        return self.search.status() | reading | {"problems": {f"{n}": text for n, text in self.upkeep.problems.items()}}

    def choose(self, given: dict[str, Any]) -> dict[str, Any]:
        """Learn from a result that a program opens; returns its path, and opens nothing."""
        return {"path": self.search.choose(given["token"], given["document"])}

    def join(self, given: dict[str, Any]) -> dict[str, Any]:
        """Accept an invitation."""
        found = self.search.membership.join(expand_home(given["invitation"]))
        self.upkeep.talk_soon()
        return found

    def consent(self, given: dict[str, Any]) -> dict[str, Any]:
        """Agree to take part, or pause."""
        self.search.membership.consent(given["given"])
        self.upkeep.talk_soon()
        return self.search.membership.status() or {}

    def sync(self, given: dict[str, Any]) -> dict[str, Any]:
        """Ask the service now."""
        return self.search.membership.sync(force=True).table()

    def leave(self, given: dict[str, Any]) -> dict[str, Any]:
        """Withdraw."""
        return self.search.membership.leave().table()

    def reset(self, given: dict[str, Any]) -> dict[str, Any]:
        """Forget all choices."""
        return {"choices": self.search.reset()}

    def forget(self, given: dict[str, Any]) -> dict[str, Any]:
        """Forget a document, the choices for a query, or everything."""
        sentence = 'expected one of {"document": N}, {"query": TEXT} and {"all": true}'
        require(len(given) == 1 and given.get("all", True), "request.malformed", sentence)
        if "query" in given:
            return {"choices": self.search.forget_query(given["query"])}
        if "all" in given:
            self.learned.erase_all()
            return {"all": True}
        with self.upkeep.writing():
            self.search.forget_document(given["document"])
        return {"documents": 1}


def _limit(request: Request) -> int:
    limit = whole_number(request.query_params.get("limit", str(PAGE)), "limit")
    require_range("limit", limit, least=1, most=CANDIDATES)
    return limit
