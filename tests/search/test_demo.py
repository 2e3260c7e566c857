"""`quorank search demo`: clicks through real pages end in rounds of a real service, and no text is in its folder."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest
from command_line import as_process
from refusals import refused

from quorank.rankers.ranker_file import read_ranker
from quorank.search.demo.demonstration import DemoPlan
from quorank.search.demo.made_up_persons import generated_persons, sources_of, write_machine
from quorank.search.personal_search import PersonalSearch
from quorank.search.ranking.search_features import shipped_parameters
from quorank.service.home import Home
from quorank.service.overview import Overview

NOW = 1.8e9
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

    for person in told["persons"]:
        with PersonalSearch.open(out / "persons" / person["name"] / "search") as search:
            releases = search.membership.client.log()["releases"]
            choices, trials = search.history.choices(), search.history.trials()
        assert len(releases) == person["releases"] >= status.rounds
        assert [one["round"] for one in releases] == [*range(1, len(releases) + 1)]
        assert sum(one["bytes"] for one in releases) == person["bytes_sent"]
        assert sum(one["interactions"] for one in releases) <= len(choices) == person["choices"]
        assert trials[0].round >= status.rounds  # the ranker of the last round came back, and was tried
        for measured in (person["shown"], person["held_out"]):
            assert all(0.0 < measured[moment] <= 1.0 for moment in ("first", "before", "alone", "together"))

    plan = DemoPlan(2, 60, 6, 1, 2)
    texts = [
        f"{text}\n".encode()
        for person in plan.make_persons()
        for text in (
            *(query.text for query in person.queries),
            *(text for one in person.documents for text in (one.document.title, one.document.body)),
        )
    ]
    private = word_pairs(texts)
    kept, served = word_pairs(bytes_below(out / "persons")), word_pairs(bytes_below(out / "service"))
    assert (
        len(private & kept) > 0.8 * len(private) > 5000
    )  # so they would be found; pages have no more than a beginning
    assert private & served == set()


@pytest.mark.parametrize(
    "plan", [{"persons": 1}, {"persons": 7}, {"documents": 3}, {"queries": 0}, {"days_alone": 0}, {"days_joined": 0}]
)
def test_what_cannot_be_played_is_refused(plan: dict[str, int]) -> None:
    with refused("value.out-of-range"):
        DemoPlan(**plan).make_persons()


@pytest.mark.slow
def test_the_search_has_every_document_of_the_machine(tmp_path: Path) -> None:
    """Notes and mail with their text and time; of pages title, address, visits and the beginning of the text."""
    (person, _) = generated_persons(2, 50, 4, seed=3)
    made = write_machine(person, tmp_path / "machine", NOW, seed=3)
    assert sorted(made.values()) == sorted(one.document.id for one in person.documents)
    assert set(Counter(kind for kind, _ in made)) == {"folder", "mail", "firefox"}
    known = {one.document.id: one for one in person.documents}
    with PersonalSearch.open(tmp_path / "home") as search:
        for source in sources_of(tmp_path / "machine"):
            number = search.add(source)
            report = search.update(number)
            assert report.skipped == 0
            keys = [key for kind, key in made if kind == source.kind]
            stored = search.index.documents(number, keys)
            assert len(stored) == len(keys) > 0
            for key, found in zip(keys, stored, strict=True):
                one = known[made[source.kind, key]]
                if not found.path.endswith(".txt"):  # whose title is the name
                    assert found.title == one.document.title
                words = one.document.body.split()
                if source.kind == "firefox":
                    assert " ".join(words)[:200] in found.body
                    assert found.visits == pytest.approx([NOW - age for age in one.ages], abs=1e-3)
                else:
                    assert " ".join(words) in " ".join(found.body.split())
                assert found.modified == pytest.approx(NOW - one.ages[0], abs=1.0)
