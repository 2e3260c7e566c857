"""`quorank search demo`: clicks through real pages end in rounds of a real service, and no text is in its folder."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest
from command_line import as_process
from refusals import refused

from quorank.rankers.ranker_file import read_ranker
from quorank.search.demo.demonstration import DemoPlan
from quorank.search.demo.made_up_persons import generated_persons
from quorank.search.personal_search import PersonalSearch
from quorank.search.ranking.search_features import shipped_parameters
from quorank.service.home import Home
from quorank.service.overview import Overview

SMALL = ("--persons", 2, "--documents", 60, "--queries", 6, "--days-alone", 1, "--days", 2)
WORD = re.compile(rb"[a-z]+")


def word_pairs(contents: Iterable[bytes]) -> set[tuple[bytes, bytes]]:
    """All words that follow each other, whatever stands between them."""
    return {pair for content in contents for pair in pairwise(WORD.findall(content.lower()))}


def bytes_below(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()]


@pytest.mark.slow
def test_clicks_end_in_rounds_and_no_text_leaves(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    done = as_process(tmp_path, tmp_path / "home", "search", "demo", *SMALL, "--out", out, "--once", "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert [person["name"] for person in told["persons"]] == ["ann", "ben"]

    home = Home.open(out / "service")
    status = Overview(home).read()
    assert home.process() is None  # it has ended with the demonstration
    assert status.rounds == told["service"]["rounds"] >= 1
    assert status.counts.enrolled == 2
    moved = read_ranker(out / "service" / "ranker.json").theta - shipped_parameters()
    assert 0.0 < abs(moved).max() < 10.0

    persons = generated_persons(2, 60, 6, seed=1)
    for person, shown in zip(persons, told["persons"], strict=True):
        with PersonalSearch.open(out / "persons" / person.name) as search:
            releases = search.membership.client.log()["releases"]
            choices, trials = search.history.choices(), search.history.trials()
            assert search.index.count() == len(person.notes) == 60
        assert len(releases) == shown["releases"] >= status.rounds
        assert [one["round"] for one in releases] == [*range(1, len(releases) + 1)]
        assert sum(one["bytes"] for one in releases) == shown["bytes_sent"]
        assert sum(one["interactions"] for one in releases) <= len(choices)
        assert trials[0].round >= status.rounds  # the ranker of the last round came back, and was tried
        assert all(0.0 < shown[moment] <= 1.0 for moment in ("first", "alone", "together"))

    texts = [text.encode() for person in persons for text in (*person.queries, *(note.text for note in person.notes))]
    private = word_pairs(texts)
    kept, served = word_pairs(bytes_below(out / "persons")), word_pairs(bytes_below(out / "service"))
    assert len(private & kept) > 0.95 * len(private) > 5000  # so they would be found
    assert private & served == set()


@pytest.mark.parametrize(
    "plan", [{"persons": 1}, {"persons": 7}, {"documents": 3}, {"queries": 0}, {"days_alone": 0}, {"days_joined": 0}]
)
def test_what_cannot_be_played_is_refused(plan: dict[str, int]) -> None:
    with refused("value.out-of-range"):
        DemoPlan(**plan)
