"""Browser history as documents: what Firefox and Chromium have in common.

The browser's database is copied with its log and read from the copy (quorank/tuning/histories/profiles.py), so that a
running browser is no obstacle and its files are only read. Where that fails, what is indexed stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from zlib import crc32

from quorank.errors import BadInput
from quorank.files.untrusted import ForeignDatabase, home_expanded
from quorank.search.sources.file_names import absolute_path, stored_path
from quorank.search.sources.source import (
    MOST_VISITS,
    FoundDocument,
    Scanned,
    SkippedDocument,
    UnchangedDocument,
    plain_text,
    unchanged_below,
)
from quorank.tuning.histories.profiles import open_copy

LONGEST_ADDRESS = 8000
"""Characters of an address that is kept."""
MOST_TEXT = 10_000
"""Characters of a title, of a description and of a bookmark's name."""
_PAGE = re.compile(r"https?://(?:[^/?#@]{0,1000}@)?(?:www\.)?([^/?#]{1,1000})([^?#]*)", re.IGNORECASE)
_LOOPBACK = re.compile(r"(localhost|127\.[0-9.]+|\[::1\])(:[0-9]*)?", re.IGNORECASE)
_MOST_SECONDS = 2.0**40


@dataclass
class BrowsedPage:
    """A page that was visited or bookmarked."""

    address: str
    title: str = ""
    text: str = ""  # what else there is to search: a description, the names of bookmarks
    visits: tuple[float, ...] = ()  # newest first
    visit_count: int = 0
    added: float = 0.0  # when it was bookmarked; 0 where it was not

    def scanned(self, known: Mapping[str, str]) -> Scanned | None:
        """Return what a scan says of the page; None where it is no page of the web, or one of this machine's own.

        Pages of this machine are those of a search itself too, whose addresses may hold what was searched for.
        """
        parts = _PAGE.match(self.address)
        if parts is None or _LOOPBACK.fullmatch(parts[1]):
            return None
        key = plain_text(self.address)
        if len(key) > LONGEST_ADDRESS:
            sentence = f"this address has more than {LONGEST_ADDRESS:,} characters"
            return SkippedDocument(f"{key[:200]}…", "history.address-too-long", sentence)
        modified = max(*self.visits[:1], self.added, 0.0)
        texts = crc32(f"{self.title}\n{self.text}".encode(errors="replace"))
        fingerprint = f"{modified:.6f}-{self.visit_count}-{texts:08x}"
        if known.get(key) == fingerprint:
            return UnchangedDocument(key)
        host, path = parts[1].lower(), parts[2]
        last = path.rstrip("/").rpartition("/")[2]
        readable = plain_text(unquote(self.address, errors="replace"))
        title = plain_text(" ".join(self.title.split())) or readable
        name = plain_text(" ".join(filter(None, (host, unquote(last, errors="replace")))))
        body = plain_text("\n".join(filter(None, (self.text, readable))))
        return FoundDocument(key, fingerprint, key, title, name, body, modified, self.visits, self.visit_count)


class HistoryPages:
    """Pages of a history as they are collected, by their number in the database and by their address."""

    def __init__(self) -> None:
        self._pages: dict[str, BrowsedPage] = {}
        self._numbers: dict[int, BrowsedPage] = {}

    def add(self, number: object, address: object, title: object, text: object, count: object) -> None:
        """Add a row of the table of pages; SQLite keeps any value in any column, and what is no page is left out."""
        if isinstance(number, int) and isinstance(address, str):
            page = self._pages.setdefault(address, BrowsedPage(address))
            page.title, page.text = as_text(title), as_text(text)
            page.visit_count = max(0, min(count, 1 << 40)) if isinstance(count, int) else 0
            self._numbers[number] = page

    def add_visits(self, rows: Iterable[tuple[Any, ...]], epoch: int = 0) -> None:
        """Add rows (page, microseconds since `epoch`), the newest of each page first."""
        found: dict[int, list[float]] = {}
        for number, moment in rows:
            if isinstance(number, int) and isinstance(moment, int) and number in self._numbers:
                times = found.setdefault(number, [])
                seconds = as_seconds(moment, epoch)
                if seconds > 0 and len(times) < MOST_VISITS:
                    times.append(seconds)
        for number, times in found.items():
            page = self._numbers[number]
            page.visits = tuple(sorted((*page.visits, *times), reverse=True)[:MOST_VISITS])
            page.visit_count = max(page.visit_count, len(page.visits))

    def add_bookmark(self, page: int | str, name: object, added: float) -> None:
        """Add a bookmark of the page of a number, or of an address that need not have been visited."""
        known = self._numbers.get(page) if isinstance(page, int) else self._pages.setdefault(page, BrowsedPage(page))
        if known is not None:
            known.added = max(known.added, added)
            known.title = known.title or as_text(name)
            if (text := as_text(name)) and text not in (known.title, known.text) and len(known.text) < MOST_TEXT:
                known.text = f"{text}\n{known.text}".strip()

    def visited_or_bookmarked(self) -> Iterator[BrowsedPage]:
        """Yield the pages that a person went to or kept, in the order of the database."""
        return (page for page in self._pages.values() if page.visits or page.visit_count or page.added)


def as_text(value: object) -> str:
    """Return a value of a database as text; nothing where it is none."""
    return value[:MOST_TEXT] if isinstance(value, str) else ""


def as_seconds(microseconds: object, epoch: int = 0) -> float:
    """Return a time of a browser in seconds since 1970; 0 where it is none."""
    seconds = (microseconds - epoch) / 1e6 if isinstance(microseconds, int) else 0.0
    return seconds if 0 < seconds < _MOST_SECONDS else 0.0


def database_of(path: str, file: str) -> Path:
    """Return the path of a browser's database, given itself, its profile's folder, or the folder of all profiles."""
    given = absolute_path(path)
    if not given.is_dir():
        return given
    profiles = [given] if (given / file).is_file() else profiles_in([given], file)
    return (profiles[0] if profiles else given) / file


def profiles_in(folders: Iterable[Path | str], file: str) -> list[Path]:
    """Return the profiles in some folders that have a database, the one used last first."""
    found = [path for folder in folders for path in home_expanded(folder).glob(f"*/{file}") if path.is_file()]
    return [path.parent for path in sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)]


def scan_history(
    database: Path, read: Callable[[ForeignDatabase], HistoryPages], known: Mapping[str, str]
) -> Iterator[Scanned]:
    """Yield the pages that `read` finds in a copy of a browser's database."""
    try:
        with closing(open_copy(database)) as copy:
            pages = read(copy)
    except BadInput as error:
        sentence = f"{error.sentence}; what is indexed of it stays"
        yield SkippedDocument(stored_path(database.name), f"history.{error.code.rpartition('.')[2]}", sentence)
        yield from unchanged_below(known)
        return
    for page in pages.visited_or_bookmarked():
        found = page.scanned(known)
        if found is not None:
            yield found


def newest_visits(database: ForeignDatabase, table: str, page: str, time: str) -> list[tuple[Any, ...]]:
    """Return the rows (page, time) of the newest visits of each page."""
    inner = f"SELECT {page}, {time}, row_number() OVER (PARTITION BY {page} ORDER BY {time} DESC) AS place FROM {table}"
    return database.rows(f"SELECT {page}, {time} FROM ({inner}) WHERE place <= {MOST_VISITS}")
