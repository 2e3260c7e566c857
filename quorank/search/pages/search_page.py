"""Search page: the list while typing, explanations of positions, opening and forgetting a result."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, cast, get_args
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from quorank.errors import BadInput
from quorank.search.index.query import LONGEST_QUERY
from quorank.search.pages.bodies import read_integer
from quorank.search.pages.drawing import ShareBars, draw
from quorank.search.pages.opening import open_document, web_address
from quorank.search.pages.upkeep import Upkeep
from quorank.search.personal_search import CANDIDATES, PAGE, Order, PersonalSearch, Reason

Since = Literal["", "week", "month", "year"]
DAYS = {"week": 7, "month": 31, "year": 366}
NOTICES = {
    "opened": "Opened with the system's program.",
    "forgotten": "Forgotten: it is erased from the index for good.",
}
"""Messages after an action without script."""


@dataclass(frozen=True)
class ListState:
    """State of a list: the query, the filters, the order and the first result."""

    q: str = ""
    source: str = ""  # kind
    since: Since = ""
    order: Order = "relevance"
    first: int = 0

    @classmethod
    def read(cls, given: Any) -> ListState:
        """Read the parameters of an address or a form; unknown values are ignored."""
        since, order, first = given.get("since", ""), given.get("order", ""), given.get("first", "")
        number = int(first) if first.isascii() and first.isdecimal() and len(first) < 6 else 0
        return cls(
            given.get("q", "")[:LONGEST_QUERY],
            given.get("source", "")[:100],
            cast("Since", since) if since in get_args(Since) else "",
            "date" if order == "date" else "relevance",
            min(number, CANDIDATES - PAGE),
        )

    def address(self, **changes: Any) -> str:
        """Return the address of a list with some changes; it begins at the first result unless `first` is changed."""
        values = {"q": self.q, "source": self.source, "since": self.since, "order": self.order, "first": 0} | changes
        shown = {name: value for name, value in values.items() if value and (name, value) != ("order", "relevance")}
        return f"/?{urlencode(shown)}" if shown else "/"

    def within(self, now: datetime) -> str:
        """Return the operators of the filters; they count whole days, so that a list stays the same all day."""
        parts = [f"source:{self.source}"] if self.source and not any(map(str.isspace, self.source)) else []
        if self.since:
            parts.append(f"after:{now - timedelta(days=DAYS[self.since]):%Y-%m-%d}")
        return " ".join(parts)


@dataclass(frozen=True)
class SearchPage:
    """Handlers of the page at `/`."""

    search: PersonalSearch
    upkeep: Upkeep
    open_files: bool = True
    _counted: dict[int, tuple[int, list[str]]] = field(default_factory=dict)

    def page(self, request: Request) -> Response:
        """Draw the whole page."""
        return self.draw(
            ListState.read(request.query_params), notice=NOTICES.get(request.query_params.get("done", ""), "")
        )

    def fragment(self, request: Request) -> Response:
        """Draw only the list, while the person types."""
        return draw("list.html.jinja", **self._list(ListState.read(request.query_params), typing=True))

    def draw(
        self, state: ListState, *, notice: str = "", problem: BadInput | None = None, status: int = 200
    ) -> Response:
        """Draw the page of a list."""
        values = self._list(state, typing=False)
        return draw("search.html.jinja", status, here="search", notice=notice, problem=problem, **values)

    def _list(self, state: ListState, typing: bool) -> dict[str, Any]:
        search, (documents, kinds) = self.search, self._overview()
        found = None
        if state.q.strip():
            within = state.within(datetime.fromtimestamp(search.clock()))
            found = search.find(
                state.q, typing=typing, order=state.order, first=state.first, within=within, reasons=True
            )
        return {
            "state": state,
            "found": found,
            "rows": [] if found is None else [_row(reason) for reason in found.reasons],
            "documents": documents,
            "kinds": kinds,
            "reading": self.upkeep.progress is not None or bool(self.upkeep.waiting),
            "last": 0 if found is None else min(found.found, CANDIDATES),
            "page_size": PAGE,
        }

    def _overview(self) -> tuple[int, list[str]]:
        """Return the number of documents and the kinds of their sources, counted again when the index has changed."""
        version = self.search.index.version
        found = self._counted.get(version)
        if found is None:
            sources = self.search.index.sources()
            found = sum(one.documents for one in sources), sorted({one.kind for one in sources if one.documents})
            self._counted.clear()
            self._counted[version] = found
        return found

    # actions

    def open(self, request: Request, fields: dict[str, str]) -> Response:
        """Open a result with the system's program, and learn from it; a script gets the message as JSON."""
        document = read_integer(fields.get("document", ""), "document")
        path = self.search.choose(fields.get("token", ""), document)
        self.upkeep.contact_soon()
        sentence = ""
        if web_address(path) is None and self.open_files:
            sentence = open_document(self.search, document)
        if "application/json" in request.headers.get("accept", ""):
            return JSONResponse({"sentence": sentence})
        return _back(ListState.read(fields), "opened" if sentence else "")

    def forget(self, fields: dict[str, str]) -> Response:
        """Erase a result from the index, and redirect to the list."""
        document = read_integer(fields.get("document", ""), "document")
        with self.upkeep.writing():
            self.search.forget_document(document)
        return _back(ListState.read(fields), "forgotten")


def _back(state: ListState, done: str) -> Response:
    address = state.address(first=state.first)
    more = f"{'&' if '?' in address else '?'}done={done}" if done else ""
    return RedirectResponse(f"{address}{more}", status_code=303)


def _row(reason: Reason) -> dict[str, Any]:
    """Return a result with its shares as bars."""
    shares = tuple((one.feature, one.share, (one.value, one.weight)) for one in reason.shares)
    return {"result": reason.result, "habit": reason.habit, "bars": ShareBars(shares)}
