"""Reads a Firefox `places.sqlite`: pages, visits with time and type, bookmarks and what was typed (input history).

Times are microseconds since 1970; visit types run from 1 (link) to 9 (reload) and are TYPES in this order.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from quorank.tuning.histories.browser import History, history
from quorank.tuning.histories.generated import TYPES
from quorank.tuning.histories.sqlite_copy import open_copy, require_columns, rows

WHAT = "places.sqlite of a Firefox profile"
TABLES = {
    "moz_places": ("id", "url", "title", "hidden"),
    "moz_historyvisits": ("place_id", "visit_date", "visit_type"),
    "moz_bookmarks": ("type", "fk"),
    "moz_inputhistory": ("place_id", "input", "use_count"),
}
_BOOKMARK_ROW = 1  # moz_bookmarks.type: 2 is a folder, 3 a separator


def read_places(path: Path) -> History:
    """The history in a Firefox profile's `places.sqlite`, also while Firefox runs."""
    with closing(open_copy(path, WHAT)) as connection:
        return from_places(connection, path)


def from_places(connection: sqlite3.Connection, path: Path) -> History:
    """The history in an open database of Firefox; `path` stands in messages."""
    require_columns(connection, path, WHAT, TABLES)
    pages = [
        (int(i), str(url), str(title or ""), bool(hidden))  # type: ignore[call-overload]
        for i, url, title, hidden in rows(
            connection,
            path,
            "SELECT id, url, title, hidden FROM moz_places WHERE url IS NOT NULL ORDER BY id",
        )
    ]
    found = rows(connection, path, "SELECT place_id, visit_date, visit_type FROM moz_historyvisits")
    visits = [
        (page, date / 1e6, type_ - 1)
        for page, date, type_ in found
        if isinstance(page, int)
        and isinstance(date, int)
        and isinstance(type_, int)
        and 1 <= type_ <= len(TYPES)
    ]
    marked = rows(connection, path, f"SELECT fk FROM moz_bookmarks WHERE type = {_BOOKMARK_ROW}")
    typed = rows(connection, path, "SELECT place_id, input FROM moz_inputhistory ORDER BY use_count, input")
    return history(
        pages,
        visits,
        {page for (page,) in marked if isinstance(page, int)},
        {page: str(text) for page, text in typed if isinstance(page, int)},
        skipped=len(found) - len(visits),
    )
