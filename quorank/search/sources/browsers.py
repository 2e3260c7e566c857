"""Browsing history and bookmarks as sources: Firefox, and Chromium with the browsers made from it.

The browser's database is read from a copy (`data.logs.browser_history`), so a running browser is no obstacle and its
files are only read. Where that fails, the indexed pages stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote
from zlib import crc32

from quorank.data.logs.browser_history import (
    BOOKMARKS_FILE,
    CHROMIUM_FILE,
    FIREFOX_FILE,
    BrowserHistory,
    database_in,
    profiles_in,
    read_browser_history,
)
from quorank.errors import BadInput
from quorank.search.sources.source import (
    MOST_VISITS,
    FoundDocument,
    PathSource,
    Scanned,
    SkippedDocument,
    UnchangedDocument,
    plain_text,
    stored_path,
    unchanged_below,
)

LONGEST_ADDRESS = 8000  # characters of the longest address that is kept
MOST_TEXT = 10_000  # characters of a title, of a description and of the names of bookmarks
_PAGE = re.compile(r"https?://(?:[^/?#@]{0,1000}@)?(?:www\.)?([^/?#]{1,1000})([^?#]*)", re.IGNORECASE)
_LOOPBACK = re.compile(r"(localhost|127\.[0-9.]+|\[::1\])(:[0-9]*)?", re.IGNORECASE)


@dataclass(frozen=True)
class BrowserSource(PathSource):
    """Pages of a browser's profile that were visited or bookmarked.

    Pages of this machine are left out: those of a search have addresses that may hold queries.
    """

    rest: ClassVar[float] = 300.0
    title: ClassVar[str]
    file: ClassVar[str]  # name of the database
    second_file: ClassVar[str]  # name of the other file that changes with visits or bookmarks
    folders: ClassVar[tuple[str, ...]]  # usual folders of the profiles

    @classmethod
    def profiles(cls) -> list[Path]:
        """Return the profiles on this machine, the most recently used first."""
        return profiles_in(cls.folders, cls.file)

    @property
    def database(self) -> Path:
        """The browser's database."""
        return database_in(self.place, (self.file,))

    @property
    def name(self) -> str:
        """The browser and the path of the profile."""
        return f"{self.title} {super().name}"

    def watch_paths(self) -> tuple[Path, ...]:
        """Return the files that change with visits or bookmarks."""
        return self.database, self.database.with_name(self.second_file)

    def scan(self, known: Mapping[str, str]) -> Iterator[Scanned]:
        """Yield the pages that were visited or bookmarked."""
        database = self.database
        try:
            history = read_browser_history(database, MOST_VISITS)
        except BadInput as error:
            sentence = f"{error.sentence}; its indexed pages stay"
            yield SkippedDocument(stored_path(database.name), f"history.{error.code.rpartition('.')[2]}", sentence)
            yield from unchanged_below(known)
            return
        if history.problem:
            sentence = f"the bookmarks cannot be read ({history.problem})"
            yield SkippedDocument(BOOKMARKS_FILE, "bookmarks.damaged", sentence)
        for page in _browsed_pages(history):
            parts = _PAGE.match(page.address)
            if (page.visits or page.visit_count or page.added) and parts and not _LOOPBACK.fullmatch(parts[1]):
                yield _scanned(page, parts[1].lower(), parts[2], known)


@dataclass(frozen=True)
class FirefoxSource(BrowserSource):
    """Pages of a profile of Firefox.

    Args:
        path: `places.sqlite`, the folder of a profile, or the folder of all profiles.

    >>> FirefoxSource("/people/ann/.mozilla/firefox").name
    'Firefox /people/ann/.mozilla/firefox'
    """

    kind: ClassVar[str] = "firefox"
    title: ClassVar[str] = "Firefox"
    file: ClassVar[str] = FIREFOX_FILE
    second_file: ClassVar[str] = f"{FIREFOX_FILE}-wal"
    folders: ClassVar[tuple[str, ...]] = (
        "~/.mozilla/firefox",
        "~/snap/firefox/common/.mozilla/firefox",
        "~/.var/app/org.mozilla.firefox/.mozilla/firefox",
    )

    path: str = folders[0]


@dataclass(frozen=True)
class ChromiumSource(BrowserSource):
    """Pages of a profile of Chromium, or of a browser made from it.

    Args:
        path: `History`, the folder of a profile, or the folder of all profiles.

    >>> ChromiumSource("/people/ann/.config/chromium").name
    'Chromium /people/ann/.config/chromium'
    """

    kind: ClassVar[str] = "chromium"
    title: ClassVar[str] = "Chromium"
    file: ClassVar[str] = CHROMIUM_FILE
    second_file: ClassVar[str] = BOOKMARKS_FILE
    folders: ClassVar[tuple[str, ...]] = (
        "~/.config/chromium",
        "~/.config/google-chrome",
        "~/.config/BraveSoftware/Brave-Browser",
        "~/.config/microsoft-edge",
        "~/.config/vivaldi",
        "~/snap/chromium/common/chromium",
    )

    path: str = folders[0]


@dataclass
class BrowsedPage:
    """Page that was visited or bookmarked."""

    address: str
    title: str = ""
    text: str = ""  # the description and the names of bookmarks
    visits: tuple[float, ...] = ()  # newest first
    visit_count: int = 0
    added: float = 0.0  # time of the newest bookmark; 0 without one


def _scanned(page: BrowsedPage, host: str, path: str, known: Mapping[str, str]) -> Scanned:
    """Return the item of a scan for a page."""
    key = plain_text(page.address)
    if len(key) > LONGEST_ADDRESS:
        sentence = f"this address has more than {LONGEST_ADDRESS:,} characters"
        return SkippedDocument(f"{key[:200]}…", "history.address-too-long", sentence)
    modified = max(*page.visits[:1], page.added, 0.0)
    digest = crc32(f"{page.title}\n{page.text}".encode(errors="replace"))
    fingerprint = f"{modified:.6f}-{page.visit_count}-{digest:08x}"
    if known.get(key) == fingerprint:
        return UnchangedDocument(key)
    readable, last = (unquote(text, errors="replace") for text in (page.address, path.rstrip("/").rpartition("/")[2]))
    title = " ".join(page.title.split()) or readable
    name, body = f"{host} {last}".strip(), f"{page.text}\n{readable}".strip()
    title, name, body = map(plain_text, (title, name, body))
    return FoundDocument(key, fingerprint, key, title, name, body, modified, page.visits)


def _browsed_pages(history: BrowserHistory) -> Iterable[BrowsedPage]:
    """Return the pages of a history with their visits and bookmarks, in the order of the database."""
    pages: dict[str, BrowsedPage] = {}
    numbers: dict[int, BrowsedPage] = {}
    times: dict[int, list[float]] = {}
    for found in history.pages:
        if not found.hidden:
            page = numbers[found.number] = pages.setdefault(found.address, BrowsedPage(found.address))
            page.title, page.text = found.title[:MOST_TEXT], found.description[:MOST_TEXT]
            page.visit_count = found.visit_count
    for number, moment, _ in history.visits:
        times.setdefault(number, []).append(moment)
    for number in numbers.keys() & times.keys():
        page = numbers[number]
        page.visits = tuple(sorted((*page.visits, *times[number]), reverse=True)[:MOST_VISITS])
    for mark in history.bookmarks:
        if isinstance(mark.page, int):
            known = numbers.get(mark.page)
        else:
            known = pages.setdefault(mark.page, BrowsedPage(mark.page))
        if known is not None:
            text = mark.name[:MOST_TEXT]
            known.added = max(known.added, mark.added or 1.0)
            known.title = known.title or text
            if text not in ("", known.title, known.text) and len(known.text) < MOST_TEXT:
                known.text = f"{text}\n{known.text}".strip()
    return pages.values()
