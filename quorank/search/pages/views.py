"""Values of the pages: the list of a search, what was learned and sent, and the sources; and answers for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Literal, cast, get_args
from urllib.parse import urlencode

from quorank.errors import BadInput, require
from quorank.search.index.query import LONGEST_QUERY
from quorank.search.pages.drawing import share_bars
from quorank.search.pages.upkeep import Upkeep
from quorank.search.personal_search import CANDIDATES, PAGE, Order, SearchResult
from quorank.search.ranking.choice_history import StoredTrial
from quorank.search.ranking.personal_part import LEAST
from quorank.search.ranking.search_features import SEARCH_FEATURES
from quorank.search.sources import ChromiumSource, FirefoxSource

Since = Literal["", "week", "month", "year"]
DAYS = {"week": 7, "month": 31, "year": 366}
SHOWN_CHOICES, SHOWN_TRIALS, SHOWN_RELEASES, SHOWN_LINES = 30, 20, 100, 100
Given = Mapping[str, str]  # parameters of an address or a form

# ---------------------------------------------------------------- the list


@dataclass(frozen=True)
class ListState:
    """State of a list: the query, the filters, the order and the first result."""

    q: str = ""
    source: str = ""  # kind
    since: Since = ""
    order: Order = "relevance"
    first: int = 0

    @classmethod
    def read(cls, given: Given) -> ListState:
        """Read the parameters of an address; unknown values are ignored."""
        since, first = given.get("since", ""), given.get("first", "")
        number = int(first) if first.isascii() and first.isdecimal() and len(first) < 6 else 0
        return cls(
            given.get("q", "")[:LONGEST_QUERY],
            given.get("source", "")[:100],
            cast("Since", since) if since in get_args(Since) else "",
            "date" if given.get("order") == "date" else "relevance",
            min(number, CANDIDATES - PAGE),
        )

    def address(self, **changes: Any) -> str:
        """Return the address of a list with some changes; it begins at the first result unless `first` is changed."""
        values = asdict(self) | {"first": 0} | changes
        shown = {name: value for name, value in values.items() if value and (name, value) != ("order", "relevance")}
        return f"/?{urlencode(shown)}" if shown else "/"

    def within(self, now: datetime) -> str:
        """Return the operators of the filters; they count whole days, so that a list stays the same all day."""
        parts = [f"source:{self.source}"] if self.source and not any(map(str.isspace, self.source)) else []
        if self.since:
            parts.append(f"after:{now - timedelta(days=DAYS[self.since]):%Y-%m-%d}")
        return " ".join(parts)


def _find(upkeep: Upkeep, state: ListState, **options: Any) -> Any:
    within = state.within(datetime.now())
    return upkeep.search.find(state.q, order=state.order, first=state.first, within=within, **options)


def list_values(upkeep: Upkeep, given: Given, *, typing: bool = False) -> dict[str, Any]:
    """Return the values of the search page, or of its list while the person types."""
    state = ListState.read(given)
    found = _find(upkeep, state, typing=typing) if state.q.strip() else None
    return {
        "state": state,
        "found": found,
        "rows": [] if found is None else [{"result": one, "bars": _score_bars(one)} for one in found.results],
        "documents": upkeep.search.index.count(),
        "kinds": upkeep.search.index.kinds(),
        "reading": _is_reading(upkeep),
        "last": 0 if found is None else min(found.found, CANDIDATES),
        "page_size": PAGE,
    }


def _score_bars(result: SearchResult) -> dict[str, Any]:
    return share_bars([(one.feature, one.share, (one.value, one.weight)) for one in result.shares])


def _is_reading(upkeep: Upkeep) -> bool:
    return upkeep.progress is not None or bool(upkeep.waiting)


# ---------------------------------------------------------------- what was learned and sent


def learned_values(upkeep: Upkeep, given: Given) -> dict[str, Any]:
    """Return choices, personal part, received rankers, releases and consent."""
    search, status = upkeep.search, upkeep.search.membership.status()
    choices, trials, shared = search.history.choices(), search.history.trials(), search.shared
    shifts = zip(SEARCH_FEATURES, (search.parameters - shared).tolist(), shared.tolist(), strict=True)
    moved = [(name, shift, (weight,)) for name, shift, weight in shifts if shift != 0.0]
    values: dict[str, Any] = {
        "choices": len(choices),
        "recent": [(choice, search.index.label(*choice.document)) for choice in choices[: -SHOWN_CHOICES - 1 : -1]],
        "weight_changes": share_bars(sorted(moved, key=lambda row: -abs(row[1]))),
        "from_federation": search.history.shared is not None,
        "trials": [(one, trial_sentence(one)) for one in trials[:SHOWN_TRIALS]],
        "taken": sum(one.trial.taken for one in trials),
        "tried": len(trials),
        "contact": upkeep.last_contact,
        "device": status,
        "releases": [],
        "consents": [],
    }
    if status is not None:
        client = search.membership.client
        values["url"], values["privacy"] = client.invitation.url, stated_privacy(client.terms, status["last_round"])
        values["releases"] = client.store.releases()[: -SHOWN_RELEASES - 1 : -1]
        values["consents"] = [{"at": at, "given": given} for at, given in reversed(client.store.consents())]
    return values


@lru_cache(maxsize=4)  # it takes seconds
def stated_privacy(terms: Any, rounds: int) -> dict[str, Any]:
    """Return planned ε, δ and unit of a run, and ε of its first `rounds` rounds; None where the terms state none."""
    try:
        whole = terms.mechanism.statement() or {}
        so_far = (terms.mechanism.statement(rounds) or {}).get("epsilon") if rounds else 0.0
    except BadInput:  # impossible terms: the person must still be able to leave
        whole, so_far = {}, None
    planned = whole.get("epsilon")
    return {
        "kind": terms.privacy.kind,
        "planned": planned,
        "delta": whole.get("delta"),
        "unit": whole.get("unit"),
        "spent": None if planned is None else so_far,
    }


def trial_sentence(one: StoredTrial) -> str:
    """Return whether a received ranker was accepted, and why."""
    trial = one.trial
    if trial.lists < LEAST:
        few = f"{trial.lists} choices are too few for a comparison ({LEAST} are needed)"
        return f"accepted: {few}" if trial.taken else f"rejected: it has invalid numbers; {few}"
    change = f"{trial.difference:+.3f} ± {trial.error:.3f}".replace("-", "−")
    compared = f"on {trial.lists} past choices the mean gain changes by {change}"
    return f"accepted: {compared}, which is not worse" if trial.taken else f"rejected: {compared}"


# ---------------------------------------------------------------- sources


def source_values(upkeep: Upkeep, given: Given) -> dict[str, Any]:
    """Return the sources with their documents, scans and logs, and the browsers that are not sources yet."""
    index = upkeep.search.index
    progress, waiting, stored = upkeep.progress, upkeep.waiting, index.sources()
    rows = []
    for source in stored:
        log = index.skipped(source.id)
        rows.append(
            {
                "source": source,
                "progress": progress if progress is not None and progress.source == source.id else None,
                "waits": source.id in waiting,
                "problem": upkeep.problems.get(source.id, ""),
                "skipped": len(log),
                "groups": Counter(entry.code for entry in log).most_common(),
                "log": log[:SHOWN_LINES],
            }
        )
    known = {str(source.table.get("path")) for source in stored}
    profiles = [(each.title, str(path)) for each in (FirefoxSource, ChromiumSource) for path in each.profiles()]
    return {
        "rows": rows,
        "reading": _is_reading(upkeep),
        "suggestions": [(browser, path) for browser, path in profiles if path not in known],
        "path": given.get("path", "").strip(),
    }


# ---------------------------------------------------------------- programs


def find_answer(upkeep: Upkeep, given: Given) -> dict[str, Any]:
    """Search; with `typing=1` the last word may be unfinished, and filters and order are as on the page."""
    page = _find(upkeep, ListState.read(given), limit=_limit(given), typing=given.get("typing") == "1")
    results = [{"document": one.document} | one.table() | {"modified": one.modified} for one in page.results]
    return {"token": page.token, "results": results, "found": page.found, "milliseconds": round(1000 * page.seconds, 3)}


def why_answer(upkeep: Upkeep, given: Given) -> dict[str, Any]:
    """Explain the position of each result."""
    page = upkeep.search.find(ListState.read(given).q, limit=_limit(given))
    return {"results": [{"document": one.document} | one.explained_table() for one in page.results]}


def status_answer(upkeep: Upkeep, given: Given) -> dict[str, Any]:
    """Return the status of the search, with the scans in progress."""
    progress = upkeep.progress
    return upkeep.search.status() | {
        "reading": None if progress is None else progress._asdict(),
        "waiting": list(upkeep.waiting),
        "problems": {f"{number}": text for number, text in upkeep.problems.items()},
    }


def _limit(given: Given) -> int:
    limit = given.get("limit", str(PAGE))
    valid = limit.isascii() and limit.isdecimal() and len(limit) < 4 and 1 <= int(limit) <= CANDIDATES
    require(valid, "value.out-of-range", f"expected an integer from 1 to {CANDIDATES}", "limit")
    return int(limit)
