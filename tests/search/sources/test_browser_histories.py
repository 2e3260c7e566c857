"""Histories of browsers as sources: databases that a browser holds locked, with a log, damaged, or with odd rows."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from browser_files import make_chromium, make_places

from quorank.data.logs import browser_history
from quorank.data.logs.browser_history import CHROMIUM_EPOCH as EPOCH
from quorank.search.sources import (
    ChromiumSource,
    FirefoxSource,
    FoundDocument,
    Scanned,
    SkippedDocument,
    Source,
    UnchangedDocument,
)

DAY = 86_400_000_000
START = 1_700_000_000_000_000
PAGES = [
    (1, "https://www.python.org/downloads/", "Download Python"),
    (2, "https://example.org/caf%C3%A9", None),
    (3, "about:config", "x"),
]
OWN = [
    (6, "http://127.0.0.1:8012/?q=my+secret", "Quorank"),
    (7, "http://localhost/?q=my+secret", "Quorank"),
    (8, "http://[::1]:8012/?q=my+secret", "Quorank"),
]
"""Pages of this machine, a search's own among them."""


def found(scanned: list[Scanned]) -> dict[str, FoundDocument]:
    return {item.key: item for item in scanned if isinstance(item, FoundDocument)}


def test_pages_of_firefox(tmp_path: Path) -> None:
    visits = [(1, START + day * DAY, 1) for day in range(12)] + [(2, START, 2), (3, START, 1), (9, START, 1)]
    database = make_places(
        tmp_path / "places.sqlite",
        [*PAGES, (4, "https://kept.example/", "Kept"), (5, "https://never.example/", ""), *OWN],
        [*visits, *((number, START, 1) for number, _, _ in OWN)],
        [4],
    )
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript(
            "ALTER TABLE moz_places ADD COLUMN description TEXT; ALTER TABLE moz_bookmarks ADD COLUMN dateAdded INTEGER;"
            "UPDATE moz_places SET description = 'The official home' WHERE id = 1;"
            f"UPDATE moz_bookmarks SET dateAdded = {START}, title = 'My mark'"
        )
    documents = found(list(FirefoxSource(str(tmp_path)).scan({})))
    assert set(documents) == {PAGES[0][1], PAGES[1][1], "https://kept.example/"}
    python = documents[PAGES[0][1]]
    assert python.title == "Download Python" and python.name == "python.org downloads" and python.path == python.key
    assert python.body == f"The official home\n{PAGES[0][1]}"
    assert python.visits == tuple(1_700_000_000.0 + day * 86_400 for day in range(11, 1, -1))
    assert python.modified == python.visits[0]
    cafe = documents[PAGES[1][1]]
    assert cafe.title == "https://example.org/café" and cafe.name == "example.org café"
    kept = documents["https://kept.example/"]
    assert kept.visits == () and kept.modified == 1_700_000_000.0 and "My mark" in kept.body


def test_pages_of_chromium_with_bookmarks(tmp_path: Path) -> None:
    profile = tmp_path / "chromium" / "Default"
    profile.mkdir(parents=True)
    make_chromium(
        profile / "History", PAGES, [(1, START + EPOCH, 1), (1, START + EPOCH + DAY, 0), (3, START + EPOCH, 0)]
    )
    marks = [
        {
            "type": "url",
            "url": "https://kept.example/a/b.html?q=1",
            "name": "Kept page",
            "date_added": f"{START + EPOCH}",
        },
        {"type": "url", "url": PAGES[0][1], "name": "Snakes", "date_added": "soon"},
    ]
    (profile / "Bookmarks").write_text(json.dumps({"roots": {"bar": {"children": [{"children": marks}]}}}))
    scanned = list(ChromiumSource(str(tmp_path / "chromium")).scan({}))  # the folder of all profiles
    documents = found(scanned)
    assert len(scanned) == 2 and set(documents) == {PAGES[0][1], marks[0]["url"]}
    python, kept = documents[PAGES[0][1]], documents[marks[0]["url"]]
    assert (
        python.visits == (1_700_086_400.0, 1_700_000_000.0)
        and python.title == "Download Python"
        and "Snakes" in python.body
    )
    assert (kept.title, kept.name, kept.modified) == ("Kept page", "kept.example b.html", 1_700_000_000.0)
    (profile / "Bookmarks").write_text("{")
    broken = list(ChromiumSource(str(profile)).scan({}))
    assert [item.code for item in broken if isinstance(item, SkippedDocument)] == ["bookmarks.damaged"]
    assert set(found(broken)) == {PAGES[0][1]}


@pytest.mark.parametrize("source", [FirefoxSource, ChromiumSource])
def test_what_cannot_be_read_keeps_what_is_indexed(
    tmp_path: Path, source: type[Source], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browser_history, "WAIT", 0.0)
    known = {"https://a.example/": "1", "https://b.example/": "2"}
    kept = [UnchangedDocument(key) for key in known]
    for content, code in (
        (None, "history.missing"),
        (b"no database", "history.wrong-format"),
        (b"SQLite format 3\0" + bytes(5000), "history.damaged"),
        (b"", "history.wrong-format"),
    ):
        path = tmp_path / "database"
        if content is not None:
            path.write_bytes(content)
        first, *others = source(str(path)).scan(known)  # type: ignore[call-arg]
        assert isinstance(first, SkippedDocument) and first.code == code and others == kept
    with closing(sqlite3.connect(tmp_path / "other")) as connection:
        connection.execute("CREATE TABLE a (b)")
    first, *others = source(str(tmp_path / "other")).scan(known)  # type: ignore[call-arg]
    assert isinstance(first, SkippedDocument) and first.code == "history.no-history" and others == kept
    os.mkfifo(tmp_path / "pipe")
    first, *others = source(str(tmp_path / "pipe")).scan(known)  # type: ignore[call-arg]
    assert isinstance(first, SkippedDocument) and first.code == "history.unreadable" and others == kept


def test_odd_rows_cost_themselves_alone(tmp_path: Path) -> None:
    pages = [
        *PAGES,
        (6, "https://x.example/" + "a" * 9000, "long"),
        (7, "https://y.example/\ud800".encode("utf-8", "surrogatepass"), "z"),
        (8, "HTTPS://U:P@Host.Example", "\0"),
    ]
    visits = [(number, START, 1) for number in (1, 6, 7, 8)] + [
        ("x", None, 2),
        (1, 2**62, 1),
        (1, -5, 1),
        (1, "soon", 1),
    ]
    make_places(tmp_path / "places.sqlite", pages, visits)  # type: ignore[arg-type]
    scanned = list(FirefoxSource(str(tmp_path)).scan({}))
    assert [item.code for item in scanned if isinstance(item, SkippedDocument)] == ["history.address-too-long"]
    documents = found(scanned)
    assert documents[PAGES[0][1]].visits == (1_700_000_000.0,)
    assert documents["HTTPS://U:P@Host.Example"].name == "host.example"
    for document in documents.values():
        for text in (document.key, document.title, document.name, document.body):
            text.encode()
            assert "\0" not in text
