"""Histories of browsers as sources: databases that a browser holds locked, with a log, damaged, or with odd rows."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from browser_files import make_chromium, make_places
from scanned_items import ScannedItems

from quorank.data.logs import browser_history
from quorank.data.logs.browser_history import CHROMIUM_EPOCH as EPOCH
from quorank.search.sources import ChromiumSource, FirefoxSource, Source

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
    documents = ScannedItems(FirefoxSource(str(tmp_path)).scan({})).found
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
    address = "https://kept.example/a/b.html?q=1"
    marks = [
        {"type": "url", "url": address, "name": "Kept page", "date_added": f"{START + EPOCH}"},
        {"type": "url", "url": PAGES[0][1], "name": "Snakes", "date_added": "soon"},
    ]
    (profile / "Bookmarks").write_text(json.dumps({"roots": {"bar": {"children": [{"children": marks}]}}}))
    scanned = ScannedItems(ChromiumSource(str(tmp_path / "chromium")).scan({}))  # the folder of all profiles
    documents = scanned.found
    assert len(scanned) == 2 and set(documents) == {PAGES[0][1], address}
    python, kept = documents[PAGES[0][1]], documents[address]
    assert python.visits == (1_700_086_400.0, 1_700_000_000.0)
    assert python.title == "Download Python" and "Snakes" in python.body
    assert (kept.title, kept.name, kept.modified) == ("Kept page", "kept.example b.html", 1_700_000_000.0)
    (profile / "Bookmarks").write_text("{")
    broken = ScannedItems(ChromiumSource(str(profile)).scan({}))
    assert broken.skipped == {"Bookmarks": "bookmarks.damaged"} and set(broken.found) == {PAGES[0][1]}


@pytest.mark.parametrize("source", [FirefoxSource, ChromiumSource])
def test_what_cannot_be_read_keeps_what_is_indexed(
    tmp_path: Path, source: type[Source], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browser_history, "WAIT", 0.0)
    known = {"https://a.example/": "1", "https://b.example/": "2"}
    with closing(sqlite3.connect(tmp_path / "no-history")) as connection:
        connection.execute("CREATE TABLE a (b)")
    os.mkfifo(tmp_path / "unreadable")
    for name, content in (("empty", b""), ("other", b"no database"), ("damaged", b"SQLite format 3\0" + bytes(5000))):
        (tmp_path / name).write_bytes(content)
    codes = {"empty": "wrong-format", "other": "wrong-format"}
    for name in ("missing", "no-history", "unreadable", "empty", "other", "damaged"):
        scanned = ScannedItems(source(str(tmp_path / name)).scan(known))  # type: ignore[call-arg]
        assert scanned.skipped == {name: f"history.{codes.get(name, name)}"} and scanned.unchanged == set(known)


def test_odd_rows_cost_themselves_alone(tmp_path: Path) -> None:
    pages = [
        *PAGES,
        (6, "https://x.example/" + "a" * 9000, "long"),
        (7, "https://y.example/\ud800".encode("utf-8", "surrogatepass"), "z"),
        (8, "HTTPS://U:P@Host.Example", "\0"),
    ]
    odd = [("x", None, 2), (1, 2**62, 1), (1, -5, 1), (1, "soon", 1)]
    visits = [(number, START, 1) for number in (1, 6, 7, 8)] + odd
    make_places(tmp_path / "places.sqlite", pages, visits)  # type: ignore[arg-type]
    scanned = ScannedItems(FirefoxSource(str(tmp_path)).scan({}))
    assert [*scanned.skipped.values()] == ["history.address-too-long"]
    scanned.assert_storable()
    documents = scanned.found
    assert documents[PAGES[0][1]].visits == (1_700_000_000.0,)
    assert documents["HTTPS://U:P@Host.Example"].name == "host.example"
