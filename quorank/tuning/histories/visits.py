"""Recorded visits: histories of browsers and CSV files, and the searches in them.

A history does not contain what was typed into the address bar, only that a page was visited by typing. A search for
learning is such a visit to a known page (§5.1 of Hartmann et al. 2019: what a person selects labels the ranking): the
suggestions are the pages known at that moment that match its first letters, and the chosen one is the visited page.
Firefox remembers the typed text of some pages (its input history); otherwise the first `LETTERS` letters of the
site's name are used.

In a CSV file a line is a visit: `time,url,type`, and optionally `person`, `title` and `bookmarked`. Time is in
seconds since 1970 or an ISO date (`2026-03-01T12:00:00`, in UTC without a zone); type is one of `VISIT_TYPES`, by
default a link; bookmarked is 1 or 0, of the page. A page may also be a number instead of its address: suggestions are
then matched by title.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from quorank.data.logs.browser_history import (
    VISIT_TYPES,
    BrowserBookmark,
    BrowserHistory,
    BrowserPage,
    database_in,
    read_browser_history,
)
from quorank.data.logs.csv_table import named_records
from quorank.errors import BadInput, brief, require, suggest
from quorank.kernels.arrays import Booleans, Doubles, Int8s, Int32s, Integers
from quorank.kernels.compiled import kernel
from quorank.tuning.heuristics.frecency import PLACES, AgedSuggestions
from quorank.tuning.histories.generated import LAST, Suggestions, recency_bucket

DAY = 86400.0  # seconds
SHOWN = 10  # maximum number of pages of a search
LETTERS = 2  # letters of a site's name that replace unrecorded typed text

_LINK, _TYPED, _BOOKMARK = (VISIT_TYPES.index(name) for name in ("link", "typed", "bookmark"))
_SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*:(//)?(www\.)?")
_BREAK = re.compile(r"[\W_]+")


@dataclass(frozen=True, eq=False)
class History:
    """Pages and their visits, from old to new. It stays on the machine: only counts are printed."""

    urls: tuple[str, ...]
    titles: tuple[str, ...]
    bookmarked: Booleans  # (pages,)
    hidden: Booleans  # (pages,): never suggested (frames, pages that redirect)
    page: Integers  # (visits,): which page was visited
    time: Doubles  # (visits,): seconds since 1970
    type: Int8s  # (visits,): index into VISIT_TYPES
    typed: dict[int, str] = field(default_factory=dict)  # page → most frequent typed text
    skipped: int = 0  # visits of an unknown type, or to no page

    @cached_property
    def by_page(self) -> tuple[Integers, Doubles, Int8s]:
        """(starts, times, types): the visits of page x, from old to new, are starts[x] to starts[x + 1]."""
        order = np.argsort(self.page, kind="stable")
        starts = np.searchsorted(self.page[order], np.arange(len(self.urls) + 1)).astype(np.int64)
        return starts, self.time[order], self.type[order]

    @classmethod
    def of(cls, found: BrowserHistory) -> History:
        """Return a browser's history; visits to no page, or of an unknown type, are counted as skipped."""
        number = {page.number: i for i, page in enumerate(found.pages)}
        known = [visit for visit in found.visits if visit[0] in number and visit[2] >= 0]
        page = np.array([number[visit[0]] for visit in known], np.int64)
        time = np.array([visit[1] for visit in known], np.float64)
        type_ = np.array([visit[2] for visit in known], np.int8)
        order = np.argsort(time, kind="stable")
        marked = {mark.page for mark in found.bookmarks}
        return cls(
            tuple(page.address for page in found.pages),
            tuple(page.title for page in found.pages),
            np.array([page.number in marked or page.address in marked for page in found.pages], np.bool_),
            np.array([page.hidden for page in found.pages], np.bool_),
            page[order],
            time[order],
            type_[order],
            {number[i]: text for i, text in found.typed.items() if i in number},
            found.skipped + len(found.visits) - len(known),
        )

    def counts(self) -> dict[str, Any]:
        """Return the counts that may be printed: none reveals which pages are in the history."""
        times, types = self.time, np.bincount(self.type, minlength=len(VISIT_TYPES)).tolist()
        return {
            "pages": len(self.urls),
            "bookmarked": int(self.bookmarked.sum()),
            "visits": len(times),
            "skipped": self.skipped,
            "span_days": float(times[-1] - times[0]) / DAY if len(times) else 0.0,
            "types": {name: count for name, count in zip(VISIT_TYPES, types, strict=True) if count},
        }


def page_words(url: str, title: str) -> str:
    """Return the words for matching: of the address without its scheme, then of the title."""
    address = _SCHEME.sub("", url.lower())
    return f"{_BREAK.sub(' ', address).strip()} {_BREAK.sub(' ', title.lower()).strip()}".strip()


class ShownPages(NamedTuple):
    """Pages shown at many moments, in blocks that begin with the chosen page."""

    pages: Integers  # (items,)
    offsets: Integers  # (moments + 1,)
    visits: Int32s
    sampled: Int8s
    type: Int8s  # (items, 10): index into VISIT_TYPES, −1 without a visit
    days: Doubles  # (items, 10): since the visit, NaN without a visit

    def suggestions(self, history: History) -> Suggestions:
        """Return them as frecency (§4) sees them.

        A link to a bookmarked page counts as visited by its bookmark: §4 asks whether "the URL is bookmarked".
        """
        recency, there = np.full(self.type.shape, -1, np.int8), self.type >= 0
        recency[there] = recency_bucket(self.days[there])
        by_bookmark = (self.type == _LINK) & history.bookmarked[self.pages][:, None]
        type_ = np.where(by_bookmark, _BOOKMARK, self.type).astype(np.int8)
        return Suggestions(self.offsets, self.visits, self.sampled, recency, type_, self._chosen)

    def aged(self, history: History) -> AgedSuggestions:
        """Return them with ages, as the formulas of Firefox see them."""
        age = np.where(self.type >= 0, self.days, 0.0).astype(np.float32)
        bonus = PLACES[np.maximum(self.type, 0)].astype(np.int8)
        marked = history.bookmarked[self.pages]
        return AgedSuggestions(self.offsets, self.visits, self.sampled, age, bonus, marked, self._chosen)

    @property
    def _chosen(self) -> Integers:
        return np.zeros(len(self.offsets) - 1, np.int64)


def find_searches(history: History) -> ShownPages:
    """Return all searches of a history for learning, each with the chosen page first and at least one other.

    Of more than `SHOWN` matching pages, the most recently visited ones count as shown.
    """
    texts = [page_words(url, title) for url, title in zip(history.urls, history.titles, strict=True)]
    padded = [f" {text}" for text in texts]
    suggested = np.flatnonzero(~history.hidden).tolist()
    matching: dict[str, Integers] = {}
    last_visit = np.full(len(texts), -np.inf)
    blocks: list[Integers] = []
    times: list[float] = []
    for page, time, type_ in zip(history.page.tolist(), history.time.tolist(), history.type.tolist(), strict=True):
        if type_ == _TYPED and last_visit[page] > -np.inf and not history.hidden[page]:
            query = " " + (_BREAK.sub(" ", history.typed.get(page, "").lower()).strip() or texts[page][:LETTERS])
            if query not in matching:
                matching[query] = np.array([other for other in suggested if query in padded[other]], np.int64)
            others = matching[query]
            others = others[(last_visit[others] > -np.inf) & (others != page)]
            if len(others):
                newest = np.argsort(-last_visit[others], kind="stable")[: SHOWN - 1]
                blocks.append(np.concatenate(([page], others[newest])))
                times.append(time)
        last_visit[page] = time
    return pages_at(history, blocks, times)


def pages_at(history: History, blocks: list[Integers], times: list[float]) -> ShownPages:
    """Return blocks of pages with their visits before the time of each block."""
    sizes = np.array([len(block) for block in blocks], np.int64)
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
    pages = np.concatenate([np.empty(0, np.int64), *blocks])
    moments = np.repeat(np.array(times, np.float64), sizes)
    visits, sampled = np.zeros(len(pages), np.int32), np.zeros(len(pages), np.int8)
    type_, days = np.full((len(pages), LAST), -1, np.int8), np.full((len(pages), LAST), np.nan)
    made = ShownPages(pages, offsets, visits, sampled, type_, days)
    _fill_visits(moments, *history.by_page, made)
    return made


@kernel
def _fill_visits(moments: Doubles, starts: Integers, time: Doubles, type_: Int8s, made: ShownPages) -> None:
    """Fill in the visits of each page before its moment: their number, and days since and types of the last ten."""
    pages = made.pages
    for i in range(len(pages)):
        begin, end = starts[pages[i]], starts[pages[i] + 1]
        made.visits[i] = np.searchsorted(time[begin:end], moments[i])
        made.sampled[i] = min(made.visits[i], LAST)
        for v in range(made.sampled[i]):
            at = begin + made.visits[i] - 1 - v
            made.days[i, v] = (moments[i] - time[at]) / DAY
            made.type[i, v] = type_[at]


NEEDED = ("time", "url")
EXPECTED = f"a CSV of visits with the columns {', '.join(NEEDED)}, and type, title, bookmarked, person where known"
MOST_VISITS = 20_000_000
_MOST_SECONDS = 2.0**40


def read_histories(path: Path) -> tuple[str, list[History]]:
    """Read ("firefox", "chromium" or "csv", the histories) from a browser's profile or a CSV of visits."""
    if "".join(path.suffixes).lower().endswith((".csv", ".csv.gz")):
        return "csv", read_visits(path)
    database = database_in(path)
    missing = "there is no places.sqlite and no History in this folder; expected a profile of Firefox or Chromium"
    require(database.exists() or not path.is_dir(), "profile.no-history", missing, str(path))
    found = read_browser_history(database)
    return found.browser, [History.of(found)]


def read_visits(path: Path) -> list[History]:
    """Read the histories of all persons in a CSV of visits, in the order in which they appear."""
    persons, numbers = dict[str, BrowserHistory](), dict[tuple[str, str], int]()
    for count, (where, row) in enumerate(named_records(path, NEEDED, f"expected {EXPECTED}")):
        person, url, kind = row.get("person", ""), row["url"], row.get("type") or "link"
        marked = row.get("bookmarked") or "0"
        require(count < MOST_VISITS, "visits.too-many", f"there are more than {MOST_VISITS:,} visits", where)
        if kind not in VISIT_TYPES:
            known = f"{suggest(kind, VISIT_TYPES)}; known: {', '.join(VISIT_TYPES)}"
            raise BadInput("visits.unknown-type", f"unknown type of visit {brief(kind)}{known}", where)
        require(url, "visits.no-page", "this visit is to no page: its url is empty", where)
        require(marked in ("0", "1"), "visits.not-a-truth", "bookmarked must be 1 or 0", where)
        found = persons.setdefault(person, BrowserHistory("csv", [], [], []))
        number = numbers.setdefault((person, url), len(found.pages))
        if number == len(found.pages):
            found.pages.append(BrowserPage(number, url, "", False, "", 0))
        if row.get("title"):
            found.pages[number] = found.pages[number]._replace(title=row["title"])
        if marked == "1":
            found.bookmarks.append(BrowserBookmark(number, "", 0.0))
        found.visits.append((number, _seconds(row["time"], where), VISIT_TYPES.index(kind)))
    require(persons, "visits.empty", f"there is no visit in this file; expected {EXPECTED}", str(path))
    return [History.of(found) for found in persons.values()]


def _seconds(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text)
            value = (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            value = math.nan
    wrong = f"time must be seconds since 1970 or an ISO date such as 2026-03-01T12:00:00, got {brief(text)}"
    require(abs(value) <= _MOST_SECONDS, "visits.not-a-time", wrong, where)
    return value
