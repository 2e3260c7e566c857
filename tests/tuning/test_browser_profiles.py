"""Histories of browsers: what is read, that nothing is touched, and damaged, odd or endless databases."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import sqlite3
import stat
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser_files import make_chromium, make_places
from damaged_files import mutations, refusals
from refusals import refused

from quorank.data.logs import browser_history
from quorank.data.logs.browser_history import VISIT_TYPES, read_bookmarks, transition_type
from quorank.errors import BadInput
from quorank.files.untrusted_database import UntrustedDatabase
from quorank.search.sources.browsers import FirefoxSource
from quorank.tuning.histories.generated import Suggestions
from quorank.tuning.histories.visits import History, find_searches, pages_at, read_histories

DAY = 86_400_000_000  # microseconds
NOW = 1_700_000_000_000_000
PAGES = [
    (1, "https://www.alpaca.org/wool", "About wool"),
    (2, "https://alpenrose.ch/", "Mountain roses"),
    (7, "https://news.example/", None),
    (9, None, "a page without an address"),
]
VISITS = [
    (1, NOW - 100 * DAY, 1),
    (1, NOW - 20 * DAY, 2),
    (2, NOW - 15 * DAY, 1),
    (7, NOW - 10 * DAY, 6),
    (1, NOW - 2 * DAY, 2),
    (404, NOW - DAY, 1),  # no such page
    (2, NOW - DAY, 77),  # no such type
    (2, "yesterday", 1),  # no such time
    (9, NOW, 1),
]


def suggestions_at(history: History, pages: list[int], time: float) -> Suggestions:
    return pages_at(history, [np.array(pages)], [time]).suggestions(history)


def read_file(file: Path) -> History:
    return read_histories(file)[1][0]


@pytest.fixture
def places(tmp_path: Path) -> Path:
    return make_places(tmp_path / "places.sqlite", PAGES, VISITS, bookmarks=[2], inputs=[(1, "al", 2.0)])


def test_pages_visits_bookmarks_and_input_history(places: Path) -> None:
    history = read_file(places)
    assert history.urls == tuple(url for _, url, _ in PAGES[:3])
    assert history.titles == ("About wool", "Mountain roses", "")
    assert history.bookmarked.tolist() == [False, True, False]
    assert history.page.tolist() == [0, 0, 1, 2, 0]
    assert np.allclose(history.time * 1e6, [NOW - d * DAY for d in (100, 20, 15, 10, 2)])
    assert [VISIT_TYPES[t] for t in history.type] == ["link", "typed", "link", "redirect-temporary", "typed"]
    assert history.typed == {0: "al"} and history.skipped == 4
    counts = history.counts()
    assert counts["pages"] == 3 and counts["visits"] == 5 and counts["span_days"] == pytest.approx(98)
    assert counts["types"] == {"link": 2, "typed": 2, "redirect-temporary": 1}


@pytest.mark.parametrize("pack", [gzip, lzma])
def test_a_packed_database_is_read_like_the_plain_one(places: Path, tmp_path: Path, pack: Any) -> None:
    packed = tmp_path / "places.sqlite.gz"
    packed.write_bytes(pack.compress(places.read_bytes()))
    assert read_file(packed).counts() == read_file(places).counts()
    found = FirefoxSource(str(packed)).scan({})
    assert [each.key for each in found] == [each.key for each in FirefoxSource(str(places)).scan({})]
    packed.write_bytes(packed.read_bytes()[:-20])
    with refused("file.damaged"):
        read_file(packed)


def test_suggestions_at_a_moment_see_only_what_was_before(places: Path) -> None:
    history = read_file(places)
    block = suggestions_at(history, [0, 1, 2], NOW / 1e6 - 2 * 86400)
    assert block.visits.tolist() == [2, 1, 1] and block.sampled.tolist() == [2, 1, 1]
    assert block.recency[0, :3].tolist() == [2, 4, -1]  # 18 and 98 days before, the newest first
    assert block.type[0, :3].tolist() == [1, 0, -1]
    assert VISIT_TYPES[block.type[1, 0]] == "bookmark", "a link to a bookmarked page"
    later = suggestions_at(history, [0], NOW / 1e6)
    assert later.visits.tolist() == [3] and later.recency[0, 0] == 0


def test_the_one_search_of_this_history(places: Path) -> None:
    """Typed again on day −2, when alpenrose.ch was known and also matches "al"; on day −20 nothing else was."""
    history = read_file(places)
    found = find_searches(history).suggestions(history)
    assert found.offsets.tolist() == [0, 2] and found.chosen.tolist() == [0]
    assert found.visits.tolist() == [2, 1]


def test_only_the_last_ten_visits_are_sampled(tmp_path: Path) -> None:
    visits = [(1, NOW - d * DAY, 2 if d < 5 else 1) for d in range(1, 31)]
    history = read_file(make_places(tmp_path / "p", [(1, "http://a.example/", "")], visits))
    block = suggestions_at(history, [0], NOW / 1e6)
    assert block.visits.tolist() == [30] and block.sampled.tolist() == [10]
    assert block.recency[0].tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 1, 1]
    assert block.type[0].tolist() == [1] * 4 + [0] * 6


def test_reading_touches_nothing(places: Path) -> None:
    places.chmod(0o400)
    before = (places.read_bytes(), places.stat().st_mtime_ns, sorted(places.parent.iterdir()))
    read_file(places)
    assert (places.read_bytes(), places.stat().st_mtime_ns, sorted(places.parent.iterdir())) == before


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_a_running_browser_is_no_obstacle_and_its_newest_visits_count(places: Path, mode: str) -> None:
    browser = sqlite3.connect(places)
    browser.execute("PRAGMA locking_mode = EXCLUSIVE")
    assert browser.execute(f"PRAGMA journal_mode = {mode}").fetchone() == (mode,)
    browser.execute("PRAGMA wal_autocheckpoint = 0")
    browser.execute("PRAGMA synchronous = OFF")
    for n in range(300):
        browser.execute(
            "INSERT INTO moz_places (url, title) VALUES (?, ?)", (f"https://page-{n}.example/" + "x" * 200, "new")
        )
        browser.commit()
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        sqlite3.connect(f"file:{places}?mode=ro", uri=True, timeout=0).execute("SELECT * FROM moz_places")
    names = sorted(places.parent.iterdir())
    assert len(read_file(places).urls) == 303
    assert sorted(places.parent.iterdir()) == names
    if mode == "wal":
        browser.execute("INSERT INTO moz_places (url) VALUES ('https://unfinished.example/')")
        assert len(read_file(places).urls) == 303, "a transaction that is not committed does not count"
    browser.close()


def test_a_log_that_is_torn_counts_up_to_the_tear(places: Path, tmp_path: Path) -> None:
    writer = sqlite3.connect(places)
    writer.execute("PRAGMA journal_mode = wal")
    writer.execute("PRAGMA wal_autocheckpoint = 0")
    lengths = []
    log = places.with_name(places.name + "-wal")
    for n in range(3):
        writer.execute("INSERT INTO moz_places (url) VALUES (?)", (f"https://{n}.example/",))
        writer.commit()
        lengths.append(log.stat().st_size)
    content, whole = places.read_bytes(), log.read_bytes()
    writer.close()

    def pages(torn: bytes) -> int:
        (tmp_path / "torn").write_bytes(content)
        (tmp_path / "torn-wal").write_bytes(torn)
        return len(read_file(tmp_path / "torn").urls)

    assert pages(whole) == 6 and pages(b"") == 3
    assert pages(whole[: lengths[0]]) == 4 and pages(whole[: lengths[1] + 100]) == 5
    flipped = bytearray(whole)
    flipped[lengths[0] + 500] ^= 1
    assert pages(bytes(flipped)) == 4
    assert pages(b"\0" * 5000) == 3 and pages(whole[:20]) == 3


def test_the_copy_is_private_and_does_not_stay(places: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    modes = []
    load = browser_history.UntrustedDatabase

    def watched(copy: Path) -> UntrustedDatabase:
        assert copy.parent.parent == temporary
        modes.append(stat.S_IMODE(copy.parent.stat().st_mode))
        return load(copy)

    monkeypatch.setattr(browser_history, "UntrustedDatabase", watched)
    read_file(places)
    assert modes == [0o700] and list(temporary.iterdir()) == []


@pytest.mark.parametrize("writes", [1, 99])
def test_a_copy_taken_during_a_write_is_taken_again(places: Path, monkeypatch: pytest.MonkeyPatch, writes: int) -> None:
    """The browser adds a page while the file is copied: once, or each time."""
    copy, done = browser_history.copy_files, []

    def copy_while_written(path: Path, to: Path) -> bytes:
        found = copy(path, to)
        if len(done) < writes:
            done.append(path)
            connection = sqlite3.connect(path)
            connection.execute("INSERT INTO moz_places (url) VALUES (?)", (f"https://{len(done)}.example/" * 99,))
            connection.commit()
            connection.close()
        return found

    monkeypatch.setattr(browser_history, "copy_files", copy_while_written)
    monkeypatch.setattr(browser_history, "WAIT", 0.0)
    if writes == 1:
        assert len(read_file(places).urls) == 4
    else:
        with pytest.raises(BadInput, match="writing to this file") as refused:
            read_file(places)
        assert refused.value.code == "file.busy" and len(done) == browser_history.TRIES


def test_a_journal_of_an_unfinished_write_is_waited_for(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser_history, "WAIT", 0.0)
    journal = places.with_name(places.name + "-journal")
    journal.write_bytes(bytes.fromhex("d9d505f920a163d7") + bytes(504))
    with pytest.raises(BadInput, match="writing to this file"):
        read_file(places)
    journal.write_bytes(bytes(512))  # a finished one, kept for the next time
    assert len(read_file(places).urls) == 3


def test_what_cannot_be_used_is_one_sentence(tmp_path: Path, places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser_history, "WAIT", 0.0)
    for content, words, code in (
        (b"", "not an SQLite database", "database.wrong-format"),
        (b"hello", "not an SQLite database", "database.wrong-format"),
        (places.read_bytes()[:5000], "damaged", "file.damaged"),
        (places.read_bytes()[:100] + os.urandom(20000), "damaged", "file.damaged"),
    ):
        file = tmp_path / "bad.sqlite"
        file.write_bytes(content)
        with pytest.raises(BadInput, match=words) as refused:
            read_file(file)
        assert refused.value.code == code and refused.value.where == str(file)
        assert "\n" not in str(refused.value)
    with pytest.raises(BadInput, match="no such file"):
        read_file(tmp_path / "missing")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadInput, match="not a file"):
        read_file(tmp_path / "pipe")
    empty = tmp_path / "home"
    empty.mkdir()
    with pytest.raises(BadInput, match=r"no places\.sqlite and no History"):
        read_histories(empty)


CHROMIUM_PAGES = [(1, "https://a.example/", "A"), (2, "https://b.example/", "B")]
FIRST = 13_344_473_600_000_000  # microseconds from 1601 to 1,700,000,000 seconds after 1970
SIGNED = {0xA0000000 - 2**32: "redirect-temporary", 0x30000001: "typed"}  # server redirect; typed, start and end


@pytest.mark.parametrize(
    ("transition", "kind"),
    [
        (0, "link"), (1, "typed"), (2, "bookmark"), (3, "embed"), (4, "framed-link"), (5, "link"), (6, "link"),
        (7, "link"), (8, "reload"), (9, "typed"), (10, "link"), (11, None), (0x30000002, "bookmark"),
        (0x40000000, "redirect-temporary"), *SIGNED.items(),
    ],
)  # fmt: skip
def test_transitions(transition: int, kind: str | None) -> None:
    assert transition_type(transition) == kind


def test_pages_and_visits_of_chromium(tmp_path: Path) -> None:
    visits = [(2, FIRST + 10, 0), (1, FIRST, 0x30000001), (1, FIRST + 20, 11), (5, FIRST, 0)]
    file = make_chromium(tmp_path / "History", CHROMIUM_PAGES, visits)
    tree = {"roots": {"bookmark_bar": {"children": [{"type": "folder", "children": [{"url": CHROMIUM_PAGES[1][1]}]}]}}}
    (tmp_path / "Bookmarks").write_text(json.dumps(tree))
    history = read_file(file)
    assert history.page.tolist() == [0, 1] and history.time.tolist() == [1.7e9, 1.7e9 + 1e-5]
    assert [VISIT_TYPES[t] for t in history.type] == ["typed", "link"]
    assert history.skipped == 2 and history.bookmarked.tolist() == [False, True]
    assert read_histories(tmp_path)[0] == "chromium"


ODD = [None, "text", "", b"blob", 2**63 - 1, -(2**63), 1.5, 1e300, -1, 0, "7", b"\xff" * 3]
ODD_PAGES = [(page, f"https://one.example/{page}", title) for page, title in ((1, "One"), (2, "Other"), (3, None))]
ODD_VISITS = [(page, 10**15 + 10**12 * day, 2) for day, page in enumerate((1, 2, 3, 1, 2, 3, 1))]


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser_history, "WAIT", 0.0)


def without_types(path: Path) -> None:
    """The same tables with columns of no type, so that each keeps what it is given."""
    connection = sqlite3.connect(path)
    tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for table in (name for name in tables if not name.startswith("sqlite_")):
        names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        connection.execute(f"ALTER TABLE {table} RENAME TO old")
        connection.execute(f"CREATE TABLE {table} ({', '.join(names)})")
        connection.execute(f"INSERT INTO {table} SELECT * FROM old")
        connection.execute("DROP TABLE old")
    connection.commit()
    connection.close()


COLUMNS = {
    "firefox": [
        *(("moz_places", column) for column in ("id", "url", "title", "hidden")),
        *(("moz_historyvisits", column) for column in ("place_id", "visit_date", "visit_type")),
        *(("moz_bookmarks", column) for column in ("type", "fk")),
        *(("moz_inputhistory", column) for column in ("place_id", "input", "use_count")),
    ],
    "chromium": [
        *(("urls", column) for column in ("id", "url", "title", "hidden")),
        *(("visits", column) for column in ("url", "visit_time", "transition")),
    ],
}


@pytest.mark.parametrize("browser", COLUMNS)
def test_anything_may_stand_in_a_column(tmp_path: Path, browser: str) -> None:
    for at, (table, column) in enumerate(COLUMNS[browser]):
        path = tmp_path / f"{at}.sqlite"
        if browser == "firefox":
            make_places(path, ODD_PAGES, ODD_VISITS, [1], [(1, "on", 1.0)])
        else:
            make_chromium(path, ODD_PAGES, [(page, 11_644_473_600_000_000 + when, 1) for page, when, _ in ODD_VISITS])
        without_types(path)
        connection = sqlite3.connect(path)
        for value in ODD:
            others = [row[1] for row in connection.execute(f"PRAGMA table_info({table})") if row[1] != column]
            names = ", ".join(others)
            connection.execute(
                f"INSERT INTO {table} ({column}, {names}) SELECT ?, {names} FROM {table} LIMIT 1", (value,)
            )
        connection.commit()
        connection.close()
        found, (history,) = read_histories(path)
        assert found == browser
        assert len(history.urls) >= 3 and np.isfinite(history.time).all()
        assert len(find_searches(history).offsets) >= 2
        history.counts()


def test_damaged_copies_are_read_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser_history, "TRIES", 1)
    sources = [
        make_places(tmp_path / "a", ODD_PAGES, ODD_VISITS * 30, [1], [(1, "on", 1.0)]).read_bytes(),
        make_chromium(tmp_path / "b", ODD_PAGES, ODD_VISITS * 30).read_bytes(),
    ]
    path = tmp_path / "places.sqlite"
    assert refusals(lambda content: path.write_bytes(content) and read_histories(path), mutations(sources, 100)) > 15


ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"


def test_a_view_for_a_table_is_not_asked(tmp_path: Path) -> None:
    path = make_places(tmp_path / "places.sqlite", ODD_PAGES, ODD_VISITS)
    connection = sqlite3.connect(path)
    connection.execute("DROP TABLE moz_places")
    connection.execute(
        f"CREATE VIEW moz_places AS {ENDLESS} SELECT x AS id, 'u' AS url, '' AS title, 0 AS hidden FROM n"
    )
    connection.commit()
    connection.close()
    with refused("profile.no-history"):
        read_histories(path)


def test_a_question_has_a_time_limit(tmp_path: Path) -> None:
    path = make_places(tmp_path / "places.sqlite", ODD_PAGES, ODD_VISITS)
    database = UntrustedDatabase(path, seconds=0.3)
    start = time.monotonic()
    with refused("file.too-slow"):
        database.rows(f"{ENDLESS} SELECT count(x) FROM n")
    assert time.monotonic() - start < 5
    database.close()


def test_a_schema_cannot_call_functions(tmp_path: Path) -> None:
    """An index over an expression, a check and a trigger: what is not harmless does not run, and nothing is written."""
    path = make_places(tmp_path / "places.sqlite", ODD_PAGES, ODD_VISITS)
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE other (x CHECK (load_extension('x') IS NULL))")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    assert read_histories(path)[0] == "firefox"
    assert path.read_bytes() == before
    database = UntrustedDatabase(path)
    with refused("file.damaged"):
        database.rows("INSERT INTO other VALUES (1)")
    database.close()


def test_bookmarks_that_cannot_be_read_are_refused_or_none(tmp_path: Path) -> None:
    path = tmp_path / "Bookmarks"
    for content in (b"[]", b'{"roots": 7}'):
        path.write_bytes(content)
        assert read_bookmarks(path) == []
    bad = (b"[" * 10**6, b'{"roots": ' * 3000, b"\xff", b'{"roots": ' + b"1" * 5000 + b"}", b"", b"{")
    for content in bad:
        path.write_bytes(content)
        with pytest.raises(BadInput):
            read_bookmarks(path)
    path.unlink()
    os.mkfifo(path)
    with refused("file.unreadable"):
        read_bookmarks(path)
