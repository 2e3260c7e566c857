"""Browsers' databases with anything in any column, of other schemas, damaged, or made to run for ever."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

import numpy as np
import pytest
from browser_files import make_chromium, make_places
from damaged_files import mutations, refusals
from refusals import refused

from quorank.data.logs import browser_history
from quorank.data.logs.browser_history import read_bookmarks
from quorank.errors import BadInput
from quorank.files.untrusted_database import UntrustedDatabase
from quorank.tuning.histories.visits import find_searches, read_histories

ODD = [None, "text", "", b"blob", 2**63 - 1, -(2**63), 1.5, 1e300, -1, 0, "7", b"\xff" * 3]
PAGES = [(page, f"https://one.example/{page}", title) for page, title in ((1, "One"), (2, "Other"), (3, None))]
VISITS = [(page, 10**15 + 10**12 * day, 2) for day, page in enumerate((1, 2, 3, 1, 2, 3, 1))]


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
            make_places(path, PAGES, VISITS, [1], [(1, "on", 1.0)])
        else:
            make_chromium(path, PAGES, [(page, 11_644_473_600_000_000 + when, 1) for page, when, _ in VISITS])
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
        make_places(tmp_path / "a", PAGES, VISITS * 30, [1], [(1, "on", 1.0)]).read_bytes(),
        make_chromium(tmp_path / "b", PAGES, VISITS * 30).read_bytes(),
    ]
    path = tmp_path / "places.sqlite"
    assert refusals(lambda content: path.write_bytes(content) and read_histories(path), mutations(sources, 100)) > 15


ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"


def test_a_view_for_a_table_is_not_asked(tmp_path: Path) -> None:
    path = make_places(tmp_path / "places.sqlite", PAGES, VISITS)
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
    path = make_places(tmp_path / "places.sqlite", PAGES, VISITS)
    database = UntrustedDatabase(path, seconds=0.3)
    start = time.monotonic()
    with refused("file.too-slow"):
        database.rows(f"{ENDLESS} SELECT count(x) FROM n")
    assert time.monotonic() - start < 5
    database.close()


def test_a_schema_cannot_call_functions(tmp_path: Path) -> None:
    """An index over an expression, a check and a trigger: what is not harmless does not run, and nothing is written."""
    path = make_places(tmp_path / "places.sqlite", PAGES, VISITS)
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
