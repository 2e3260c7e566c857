"""History and bookmarks of Chromium and of browsers made from it as a source: `History` with `Bookmarks` beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from quorank.errors import BadInput, require
from quorank.files.untrusted import ForeignDatabase, parse_json, read_bounded
from quorank.search.sources.file_names import keep_path, opened_path, shown_name
from quorank.search.sources.history import (
    HistoryPages,
    as_seconds,
    database_of,
    newest_visits,
    profiles_in,
    scan_history,
)
from quorank.search.sources.source import Scanned, SkippedDocument, Source
from quorank.tuning.histories.profiles import EPOCH, MOST_BOOKMARKS, bookmark_nodes

PROFILES = (
    "~/.config/chromium",
    "~/.config/google-chrome",
    "~/.config/BraveSoftware/Brave-Browser",
    "~/.config/microsoft-edge",
    "~/.config/vivaldi",
    "~/snap/chromium/common/chromium",
)
"""Folders in which browsers made from Chromium keep their profiles."""
FILE, BOOKMARKS = "History", "Bookmarks"
_NEEDED = {"urls": ("id", "url", "title", "hidden"), "visits": ("url", "visit_time")}


def chromium_profiles() -> list[Path]:
    """Return the profiles of Chromium and its kin on this machine, the one used last first."""
    return profiles_in(PROFILES, FILE)


@dataclass(frozen=True)
class ChromiumSource(Source):
    """Pages of a profile of Chromium, or of a browser made from it."""

    kind: ClassVar[str] = "chromium"
    rest: ClassVar[float] = 300.0

    path: str = PROFILES[0]  # History, the folder of a profile, or that of all profiles

    def __post_init__(self) -> None:
        keep_path(self, "path")

    @property
    def name(self) -> str:
        """The profile's path."""
        return f"Chromium {shown_name(opened_path(self.path))}"

    def watch_paths(self) -> tuple[Path, ...]:
        """Return the database and the file of bookmarks."""
        database = database_of(self.path, FILE)
        return database, database.with_name(BOOKMARKS)

    def scan(self, known: Mapping[str, str]) -> Iterator[Scanned]:
        """Yield the pages that were visited or bookmarked."""
        database = database_of(self.path, FILE)
        nodes: list[dict[str, Any]] = []
        bookmarks = database.with_name(BOOKMARKS)
        if bookmarks.is_file():
            try:
                nodes = bookmark_nodes(parse_json(bytes(read_bounded(bookmarks, MOST_BOOKMARKS))))
            except (BadInput, ValueError) as error:
                why = error.sentence if isinstance(error, BadInput) else "it is no sound JSON"
                yield SkippedDocument(BOOKMARKS, "bookmarks.damaged", f"the bookmarks cannot be read ({why})")

        def read(copy: ForeignDatabase) -> HistoryPages:
            pages = _read(copy)
            for node in nodes:
                digits = f"{node.get('date_added', '')}"[:20]
                added = as_seconds(int(digits), EPOCH) if digits.isascii() and digits.isdecimal() else 0.0
                pages.add_bookmark(node["url"], node.get("name"), added or 1.0)
            return pages

        yield from scan_history(database, read, known)


def _read(database: ForeignDatabase) -> HistoryPages:
    tables = database.columns()
    for table, columns in _NEEDED.items():
        missing = f"the table {table} of Chromium's history is missing or of an unknown version"
        require(set(columns) <= tables.get(table, frozenset()), "database.wrong-schema", missing)
    pages = HistoryPages()
    count = "visit_count" if "visit_count" in tables["urls"] else "0"
    for row in database.rows(f"SELECT id, url, title, NULL, {count} FROM urls WHERE NOT hidden ORDER BY id"):
        pages.add(*row)
    pages.add_visits(newest_visits(database, "visits", "url", "visit_time"), EPOCH)
    return pages
