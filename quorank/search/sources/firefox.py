"""History and bookmarks of Firefox as a source: the pages of `places.sqlite` that were visited or bookmarked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from quorank.errors import require
from quorank.files.untrusted import ForeignDatabase
from quorank.search.sources.file_names import keep_path, opened_path, shown_name
from quorank.search.sources.history import (
    HistoryPages,
    as_seconds,
    database_of,
    newest_visits,
    profiles_in,
    scan_history,
)
from quorank.search.sources.source import Scanned, Source

PROFILES = (
    "~/.mozilla/firefox",
    "~/snap/firefox/common/.mozilla/firefox",
    "~/.var/app/org.mozilla.firefox/.mozilla/firefox",
)
"""Folders in which Firefox keeps its profiles."""
FILE = "places.sqlite"
_NEEDED = {
    "moz_places": ("id", "url", "title", "hidden"),
    "moz_historyvisits": ("place_id", "visit_date"),
    "moz_bookmarks": ("type", "fk"),
}


def firefox_profiles() -> list[Path]:
    """Return the profiles of Firefox on this machine, the one used last first."""
    return profiles_in(PROFILES, FILE)


@dataclass(frozen=True)
class FirefoxSource(Source):
    """Pages of a profile of Firefox."""

    kind: ClassVar[str] = "firefox"
    rest: ClassVar[float] = 300.0

    path: str = PROFILES[0]  # places.sqlite, the folder of a profile, or that of all profiles

    def __post_init__(self) -> None:
        keep_path(self, "path")

    @property
    def name(self) -> str:
        """The profile's path."""
        return f"Firefox {shown_name(opened_path(self.path))}"

    def watch_paths(self) -> tuple[Path, ...]:
        """Return the database and its log, which changes with every visit."""
        database = database_of(self.path, FILE)
        return database, database.with_name(f"{FILE}-wal")

    def scan(self, known: Mapping[str, str]) -> Iterator[Scanned]:
        """Yield the pages that were visited or bookmarked."""
        yield from scan_history(database_of(self.path, FILE), _read, known)


def _read(database: ForeignDatabase) -> HistoryPages:
    tables = database.columns()
    for table, columns in _NEEDED.items():
        missing = f"the table {table} of Firefox's history is missing or of an unknown version"
        require(set(columns) <= tables.get(table, frozenset()), "database.wrong-schema", missing)
    pages = HistoryPages()
    text = "description" if "description" in tables["moz_places"] else "NULL"
    count = "visit_count" if "visit_count" in tables["moz_places"] else "0"
    for row in database.rows(f"SELECT id, url, title, {text}, {count} FROM moz_places WHERE NOT hidden ORDER BY id"):
        pages.add(*row)
    pages.add_visits(newest_visits(database, "moz_historyvisits", "place_id", "visit_date"))
    marks = tables["moz_bookmarks"]
    fields = ", ".join(name if name in marks else "NULL" for name in ("title", "dateAdded"))
    for page, name, added in database.rows(f"SELECT fk, {fields} FROM moz_bookmarks WHERE type = 1 ORDER BY fk"):
        if isinstance(page, int):
            pages.add_bookmark(page, name, as_seconds(added) or 1.0)
    return pages
