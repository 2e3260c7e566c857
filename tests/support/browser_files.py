"""Histories of browsers in the schemas that Firefox and Chromium have, filled by a test."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path

PLACES = """
CREATE TABLE moz_places (
  id INTEGER PRIMARY KEY, url LONGVARCHAR, title LONGVARCHAR, rev_host LONGVARCHAR, visit_count INTEGER DEFAULT 0,
  hidden INTEGER DEFAULT 0 NOT NULL, typed INTEGER DEFAULT 0 NOT NULL, frecency INTEGER DEFAULT -1 NOT NULL,
  last_visit_date INTEGER, guid TEXT, foreign_count INTEGER DEFAULT 0 NOT NULL, url_hash INTEGER DEFAULT 0 NOT NULL);
CREATE TABLE moz_historyvisits (
  id INTEGER PRIMARY KEY, from_visit INTEGER, place_id INTEGER, visit_date INTEGER, visit_type INTEGER, session INTEGER);
CREATE TABLE moz_inputhistory (
  place_id INTEGER NOT NULL, input LONGVARCHAR NOT NULL, use_count INTEGER, PRIMARY KEY (place_id, input));
CREATE TABLE moz_bookmarks (
  id INTEGER PRIMARY KEY, type INTEGER, fk INTEGER DEFAULT NULL, parent INTEGER, position INTEGER, title LONGVARCHAR);
"""

CHROMIUM = """
CREATE TABLE urls (
  id INTEGER PRIMARY KEY AUTOINCREMENT, url LONGVARCHAR, title LONGVARCHAR, visit_count INTEGER DEFAULT 0 NOT NULL,
  typed_count INTEGER DEFAULT 0 NOT NULL, last_visit_time INTEGER NOT NULL DEFAULT 0, hidden INTEGER DEFAULT 0 NOT NULL);
CREATE TABLE visits (
  id INTEGER PRIMARY KEY, url INTEGER NOT NULL, visit_time INTEGER NOT NULL, from_visit INTEGER,
  transition INTEGER DEFAULT 0 NOT NULL, segment_id INTEGER, visit_duration INTEGER DEFAULT 0 NOT NULL);
"""

Page = tuple[int, str | None, str | None]


def make_places(
    path: Path,
    pages: Iterable[Page],
    visits: Iterable[tuple[object, object, object]],
    bookmarks: Iterable[int] = (),
    inputs: Iterable[tuple[int, str, float]] = (),
) -> Path:
    """visits: (page, microseconds since 1970, type 1..9)."""
    connection = sqlite3.connect(path)
    connection.executescript(PLACES)
    connection.executemany("INSERT INTO moz_places (id, url, title) VALUES (?, ?, ?)", pages)
    connection.executemany("INSERT INTO moz_historyvisits (place_id, visit_date, visit_type) VALUES (?, ?, ?)", visits)
    connection.executemany("INSERT INTO moz_bookmarks (type, fk) VALUES (1, ?)", ((b,) for b in bookmarks))
    connection.execute("INSERT INTO moz_bookmarks (type, fk) VALUES (2, NULL)")
    connection.executemany("INSERT INTO moz_inputhistory VALUES (?, ?, ?)", inputs)
    connection.commit()
    connection.close()
    return path


def make_chromium(path: Path, pages: Iterable[Page], visits: Iterable[tuple[object, object, object]]) -> Path:
    """visits: (page, microseconds since 1601, transition)."""
    connection = sqlite3.connect(path)
    connection.executescript(CHROMIUM)
    connection.executemany("INSERT INTO urls (id, url, title) VALUES (?, ?, ?)", pages)
    connection.executemany("INSERT INTO visits (url, visit_time, transition) VALUES (?, ?, ?)", visits)
    connection.commit()
    connection.close()
    return path
