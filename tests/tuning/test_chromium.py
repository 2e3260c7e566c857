"""Chromium histories: transitions, times since 1601, bookmarks beside them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from browser_files import make_chromium

from quorank.errors import BadInput
from quorank.tuning.histories.chromium import bookmarks, kind_of, read_chromium
from quorank.tuning.histories.generated import TYPES
from quorank.tuning.histories.profiles import read_history

PAGES = [(1, "https://a.example/", "A"), (2, "https://b.example/", "B")]
FIRST = 13_344_473_600_000_000  # microseconds from 1601 to 1,700,000,000 seconds after 1970
SIGNED = {
    0xA0000000 - 2**32: "redirect-temporary",
    0x30000001: "typed",
}  # server redirect; typed, start and end


@pytest.mark.parametrize(
    ("transition", "kind"),
    [
        (0, "link"), (1, "typed"), (2, "bookmark"), (3, "embed"), (4, "framed-link"), (5, "link"), (6, "link"),
        (7, "link"), (8, "reload"), (9, "typed"), (10, "link"), (11, None), (0x30000002, "bookmark"),
        (0x40000000, "redirect-temporary"), *SIGNED.items(),
    ],
)  # fmt: skip
def test_transitions(transition: int, kind: str | None) -> None:
    assert kind_of(transition) == kind


def test_pages_and_visits(tmp_path: Path) -> None:
    visits = [(2, FIRST + 10, 0), (1, FIRST, 0x30000001), (1, FIRST + 20, 11), (5, FIRST, 0)]
    file = make_chromium(tmp_path / "History", PAGES, visits)
    tree = {"roots": {"bookmark_bar": {"children": [{"type": "folder", "children": [{"url": PAGES[1][1]}]}]}}}
    (tmp_path / "Bookmarks").write_text(json.dumps(tree))
    history = read_chromium(file)
    assert history.page.tolist() == [0, 1] and history.time.tolist() == [1.7e9, 1.7e9 + 1e-5]
    assert [TYPES[t] for t in history.type] == ["typed", "link"]
    assert history.skipped == 2 and history.bookmarked.tolist() == [False, True]
    assert read_history(tmp_path)[0] == "chromium"


@pytest.mark.parametrize("text", ["", "[]", "{", '{"roots": 3}', "[" * 100_000])
def test_bookmarks_that_cannot_be_read_are_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "Bookmarks").write_text(text)
    assert bookmarks(tmp_path / "Bookmarks") == set()
    assert bookmarks(tmp_path / "missing") == set()


def test_another_schema_is_named(tmp_path: Path) -> None:
    file = make_chromium(tmp_path / "History", PAGES, [])
    import sqlite3

    connection = sqlite3.connect(file)
    connection.execute("ALTER TABLE visits DROP COLUMN transition")
    connection.commit()
    connection.close()
    with pytest.raises(BadInput, match="no column transition"):
        read_chromium(file)
