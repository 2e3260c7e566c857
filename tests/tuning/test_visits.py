"""Visits in CSV files: read as they are, refused by file and line, and searched like a browser's history."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from refusals import refused

from benchmarks.browsing import generate_visits, write_visits
from quorank.data.logs.browser_history import VISIT_TYPES
from quorank.tuning.histories.scenarios import HELD_OUT, SCENARIOS, recorded_scenario
from quorank.tuning.histories.visits import find_searches, read_histories, read_visits
from quorank.tuning.searches import count_searches, join_searches, pick_searches, slice_searches

HEADER = "person,time,url,type,title,bookmarked\n"


def write(tmp_path: Path, text: str, name: str = "visits.csv") -> Path:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    return file


def test_every_column(tmp_path: Path) -> None:
    lines = (
        "ann,1000,https://b.example/,typed,,0\nann,500,https://a.example/,,A title,1\n"
        "bob,1970-01-01T00:00:07+00:00,7,reload,,\nann,1970-01-01T00:33:20,https://a.example/,link,,\n"
    )
    ann, bob = read_visits(write(tmp_path, HEADER + lines))
    assert ann.urls == ("https://b.example/", "https://a.example/") and ann.titles == ("", "A title")
    assert ann.time.tolist() == [500.0, 1000.0, 2000.0] and ann.page.tolist() == [1, 0, 1]
    assert [VISIT_TYPES[kind] for kind in ann.type] == ["link", "typed", "link"] and ann.bookmarked.tolist() == [
        False,
        True,
    ]
    assert bob.urls == ("7",) and bob.time.tolist() == [7.0] and VISIT_TYPES[bob.type[0]] == "reload"


def test_time_and_url_are_enough_and_a_file_may_be_packed(tmp_path: Path) -> None:
    packed = tmp_path / "visits.csv.gz"
    packed.write_bytes(gzip.compress("﻿url,time\nx,3\n\ny,2\n".encode()))
    source, (history,) = read_histories(packed)
    assert source == "csv" and history.counts()["visits"] == 2 and history.urls == ("x", "y")


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("time,type\n1,link\n", "csv.no-column", ":1"),
        (HEADER + "ann,1,u,link,t,0\nann,x,u,link,t,0\n", "visits.not-a-time", ":3"),
        (HEADER + "ann,1e300,u,link,t,0\n", "visits.not-a-time", ":2"),
        (HEADER + "ann,1,u,typd,t,0\n", "visits.unknown-type", ":2"),
        (HEADER + "ann,1,,link,t,0\n", "visits.no-page", ":2"),
        (HEADER + "ann,1,u,link,t,yes\n", "visits.not-a-truth", ":2"),
        (HEADER + "ann,1,u,link\n", "csv.fields", ":2"),
        (HEADER, "visits.empty", ""),
    ],
)
def test_refusals(tmp_path: Path, text: str, code: str, line: str) -> None:
    file = write(tmp_path, text)
    with refused(code, f"{file}{line}"):
        read_visits(file)


def test_files_that_are_no_text(tmp_path: Path) -> None:
    file = tmp_path / "visits.csv"
    with refused("file.missing", str(file)):
        read_visits(file)
    file.write_bytes(b"time,url\n1,\xff\n")
    with refused("csv.not-utf-8", f"{file}:2"):
        read_visits(file)


def test_the_searches_of_a_history_look_the_same_with_ages(tmp_path: Path) -> None:
    write_visits(tmp_path / "v.csv", generate_visits(5, 1, 60))
    (history,) = read_visits(tmp_path / "v.csv")
    shown = find_searches(history)
    plain, aged = shown.suggestions(history), shown.aged(history)
    assert count_searches(plain) == count_searches(aged) > 20
    assert np.array_equal(plain.visits, aged.visits) and np.array_equal(plain.offsets, aged.offsets)
    there = plain.type >= 0
    assert np.array_equal(plain.recency[there] == 0, aged.age[there] <= 4.0)


def test_searches_are_picked_and_joined() -> None:
    items = SCENARIOS["frecency"].searches(1, 6, 0, SCENARIOS["frecency"].heuristic.shipped)
    again = join_searches([slice_searches(items, 0, 2), slice_searches(items, 2, 6)])
    for one, other in zip(items, again, strict=True):
        assert np.array_equal(one, other)
    picked = pick_searches(items, np.array([4, 1, 4]))
    for place, which in enumerate((4, 1, 4)):
        for one, other in zip(
            slice_searches(picked, place, place + 1), slice_searches(items, which, which + 1), strict=True
        ):
            assert np.array_equal(one, other)


def test_recorded_searches_are_drawn_and_held_out_ones_kept_apart(tmp_path: Path) -> None:
    write_visits(tmp_path / "v.csv", generate_visits(1, 3, 60))
    histories = read_visits(tmp_path / "v.csv")
    scenario = recorded_scenario(SCENARIOS["decay"], histories)
    shipped = scenario.heuristic.shipped
    all_ages = {row.tobytes() for row in scenario.items.age}
    seen, kept = (scenario.searches(1, 500, first, shipped) for first in (0, HELD_OUT))
    for items in (seen, kept):
        assert count_searches(items) == 500 and {row.tobytes() for row in items.age} <= all_ages
    halves = [
        {part.age.tobytes() for q in range(500) for part in [slice_searches(items, q, q + 1)]} for items in (seen, kept)
    ]
    both = halves[0] & halves[1]
    assert len(both) < 0.1 * len(halves[0])  # equal lists occur, the same search does not
    with refused("heuristic.no-visits"):
        recorded_scenario(replace(SCENARIOS["decay"], recorded=None), histories)
    with refused("visits.too-few-searches"):
        few = tmp_path / "few.csv"
        few.write_text("time,url\n1,x\n")
        recorded_scenario(SCENARIOS["frecency"], read_visits(few))
