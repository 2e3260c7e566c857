"""Visits in a CSV file, of one person or of many, and a generator of such visits.

A line is a visit: `time,url,type`, and optionally `person`, `title` and `bookmarked`. Time is in seconds since 1970 or
an ISO date (`2026-03-01T12:00:00`, in UTC without a zone); type is one of `VISIT_TYPES`, by default a link; bookmarked
is 1 or 0, of the page. A page may also be a number instead of its address: suggestions are then matched by title.

Generated people browse sites from day to day: they type the addresses of sites that they return to and follow links
from there, so most pages of a history were only reached by links. The choices follow no score, as those of real
visits.
"""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

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
from quorank.errors import BadInput, brief, require, require_range, suggest
from quorank.files.atomic import write_whole
from quorank.kernels.draws import Purpose, uniforms
from quorank.tuning.histories.browser import DAY, LETTERS, History
from quorank.tuning.histories.generated import vocabulary

COLUMNS = ("person", "time", "url", "type", "title", "bookmarked")
NEEDED = ("time", "url")
EXPECTED = f"a CSV of visits with the columns {', '.join(NEEDED)}, and type, title, bookmarked, person where known"
MOST_VISITS = 20_000_000
SITES = 30  # maximum for a generated person
TYPED_SITES = 0.5  # share of them whose first page is typed; to the others people return by one page
RETYPED = 0.2  # share of visits to that page by typing
_MOST_SECONDS = 2.0**40
_START = 1_767_225_600.0  # 2026-01-01: when generated visits begin

Row = tuple[str, float, str, int, str, bool]
"""(person, seconds, url, index into VISIT_TYPES, title, bookmarked)."""


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
    persons: dict[str, _Rows] = {}
    for person, seconds, url, type_, title, bookmarked in _rows(path):
        persons.setdefault(person, _Rows()).add(seconds, url, type_, title, bookmarked)
    require(persons, "visits.empty", f"there is no visit in this file; expected {EXPECTED}", str(path))
    return [rows.history() for rows in persons.values()]


def write_visits(path: Path, rows: Iterator[Row]) -> int:
    """Write visits as a CSV, and return their number."""
    out, count = io.StringIO(), 0
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for person, seconds, url, type_, title, bookmarked in rows:
        writer.writerow((person, f"{seconds:.0f}", url, VISIT_TYPES[type_], title, int(bookmarked)))
        count += 1
    write_whole(path, out.getvalue())
    return count


class _Rows:
    """Visits of one person as they are read."""

    def __init__(self) -> None:
        self.pages: dict[str, BrowserPage] = {}
        self.marks: list[BrowserBookmark] = []
        self.visits: list[tuple[int, float, int]] = []

    def add(self, seconds: float, url: str, type_: int, title: str, bookmarked: bool) -> None:
        page = self.pages.setdefault(url, BrowserPage(len(self.pages), url, "", False, "", 0))
        if title:
            self.pages[url] = page._replace(title=title)
        if bookmarked:
            self.marks.append(BrowserBookmark(page.number, "", 0.0))
        self.visits.append((page.number, seconds, type_))

    def history(self) -> History:
        return History.of(BrowserHistory("csv", [*self.pages.values()], self.visits, self.marks))


def _rows(path: Path) -> Iterator[Row]:
    kinds = {name: number for number, name in enumerate(VISIT_TYPES)}
    for count, (where, values) in enumerate(named_records(path, NEEDED, f"expected {EXPECTED}")):
        require(count < MOST_VISITS, "visits.too-many", f"there are more than {MOST_VISITS:,} visits", where)
        kind = values.get("type") or "link"
        if kind not in kinds:
            unknown = f"unknown type of visit {brief(kind)}{suggest(kind, VISIT_TYPES)}"
            raise BadInput("visits.unknown-type", f"{unknown}; known: {', '.join(VISIT_TYPES)}", where)
        require(values["url"], "visits.no-page", "this visit is to no page: its url is empty", where)
        marked = values.get("bookmarked") or "0"
        wrong = f"bookmarked must be 1 or 0, got {brief(marked)}"
        require(marked in ("0", "1"), "visits.not-a-truth", wrong, where)
        moment = _seconds(values["time"], where)
        yield values.get("person", ""), moment, values["url"], kinds[kind], values.get("title", ""), marked == "1"


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


def generate_visits(seed: int, persons: int, days: int = 90) -> Iterator[Row]:
    """Generate the visits of some persons over some days."""
    require_range("persons", persons, least=1, most=1_000_000)
    require_range("days", days, least=1, most=3650)
    letters, ends = vocabulary(seed)
    text, begins = letters.tobytes().decode(), ends - np.diff(ends, prepend=0)
    words = [text[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
    for person in range(persons):
        yield from _browse(seed, person, days, words)


def _browse(seed: int, person: int, days: int, words: list[str]) -> Iterator[Row]:
    """Yield one person's visits: about two sites a day, entered by typing or a link, and the pages read there."""
    draws = _draws(seed, person)

    def below(count: int) -> int:
        return int(next(draws) * count)

    names = {
        (word := words[below(len(words))])[:LETTERS]: word for _ in range(SITES)
    }  # distinct in their first letters
    # home, whether it is typed, and the pages that the person has visited
    sites = [(f"{word}.example/", next(draws) < TYPED_SITES, list[str]()) for word in names.values()]
    name, typed, link = f"person-{person}", VISIT_TYPES.index("typed"), VISIT_TYPES.index("link")
    for day in range(days):
        for _ in range(1 + below(3)):
            # of the sites, one with probability proportional to one over its rank
            place = min(int(math.exp(next(draws) * math.log(len(sites) + 1.0))) - 1, len(sites) - 1)
            home, typed_home, pages = sites[place]
            moment = _START + DAY * day + 60.0 * below(16 * 60)
            entered, way = home, typed
            if not typed_home:  # one page of it was found by a link, and is what they come back for
                if not pages:
                    pages.append(f"{home}{words[below(len(words))]}")
                entered, way = pages[0], typed if next(draws) < RETYPED else link
            yield name, moment, f"https://{entered}", way, "", False
            for click in range(below(4)):
                pages.append(f"{home}{len(pages)}")
                yield name, moment + 60.0 * (click + 1), f"https://{pages[-1]}", link, "", False


def _draws(seed: int, person: int) -> Iterator[float]:
    """Yield the uniform draws of one person."""
    for block in itertools.count():
        yield from uniforms(seed, Purpose.HISTORY, 256, round_=_VISITS, client=person, interaction=block).tolist()


_VISITS = 6  # round of Purpose.HISTORY; 0 to 5 are those of `generated` and `people`
