"""Status is one document for all kinds: what is written is read back, sizes are bounded, and nothing else is believed."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from full_status import FULL
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from quorank.cli.service import show_status
from quorank.service.dashboard.status import (
    KEPT_EVENTS,
    KEPT_ROUNDS,
    LISTED,
    SIGNIFICANT,
    Event,
    MemberStatus,
    Problem,
    Quality,
    RoundFigures,
    Status,
    listed,
    problems_of,
    seconds_left,
    thinned,
    with_round,
)


def test_every_field_is_read_back() -> None:
    assert Status.read(FULL.text()) == FULL
    small = Status("parties", "new", "demo", 0.0)
    assert Status.read(small.text().encode()) == small
    assert json.loads(FULL.text())["format"] == "quorank status"


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=5), st.lists, max_leaves=3), st.data())
def test_a_value_of_another_type_is_refused_or_read_as_it_was(value, data) -> None:
    table = json.loads(FULL.text())
    key = data.draw(st.sampled_from(sorted(table)))
    text = json.dumps(table | {key: value})
    try:
        found = Status.read(text)
    except Exception as error:
        assert getattr(error, "code", "") == "status.malformed"
    else:
        assert json.loads(found.text()) == json.loads(text)


def test_other_versions_unknown_keys_and_long_lists_are_refused() -> None:
    table = json.loads(FULL.text())
    for change in (
        {"version": 2}, {"format": "else"}, {"more": 1}, {"members": table["members"] * (LISTED + 1)},
        {"events": table["events"] * (KEPT_EVENTS + 1)}, {"run": "x" * 3000}, {"kind": "people"},
        {"counts": table["counts"] | {"more": 1}}, {"rounds": -1}, {"refused": {"a.b": "2"}},
    ):  # fmt: skip
        with refused("status.malformed"):
            Status.read(json.dumps(table | change))
    with refused("status.malformed"):
        Status.read(b" " * (1 << 22) + FULL.text().encode())


def test_a_document_is_bounded_whatever_the_federation() -> None:
    members = [MemberStatus(number, f"device-{number}", "present") for number in range(100_000)]
    history = [RoundFigures(number, 1.0, 5.0, 0.5, 0.1, 1.0) for number in range(1, 20_001)]
    events = [Event(1.0, "ready", {"round": 1})] * 1000
    text = replace(FULL, members=tuple(members), history=tuple(history), events=tuple(events)).text()
    found = Status.read(text)
    assert (len(found.members), len(found.events)) == (LISTED, KEPT_EVENTS)
    assert KEPT_ROUNDS // 2 < len(found.history) <= KEPT_ROUNDS and len(text) < 200_000


def test_those_that_are_awaited_are_listed_first() -> None:
    members = [MemberStatus(number, None, "away", number % 1000 == 7, number == 5001) for number in range(9000)]
    found = listed(members)
    assert len(found) == LISTED and [member.client for member in found] == sorted(member.client for member in found)
    assert {member.client for member in found if member.waiting} == {7 + 1000 * n for n in range(9)}
    assert 5001 in {member.client for member in found}


@given(st.lists(st.floats(0.0, 1e6), min_size=1, max_size=60), st.integers(2, 20))
def test_thinning_keeps_the_sums_and_the_newest_round(seconds, most) -> None:
    history = [RoundFigures(number, value) for number, value in enumerate(seconds, start=1)]
    found = thinned(history, most)
    assert len(found) <= most and found[-1].round == len(seconds)
    assert sum(point.rounds for point in found) == len(seconds)
    assert sum(point.seconds * point.rounds for point in found) == pytest.approx(sum(seconds), abs=1e-6)
    rounds = [point.round for point in found]
    assert rounds == sorted(set(rounds))


def test_rounds_are_added_within_the_bound() -> None:
    history: tuple[RoundFigures, ...] = ()
    for number in range(1, 3 * KEPT_ROUNDS):
        history = with_round(history, RoundFigures(number, 2.0, epsilon=float(number)))
        assert len(history) <= KEPT_ROUNDS
    assert history[-1] == RoundFigures(3 * KEPT_ROUNDS - 1, 2.0, epsilon=3.0 * KEPT_ROUNDS - 1)
    assert [point.epsilon for point in history] == [point.round for point in history], (
        "what goes on is that of the last"
    )


def test_the_time_left_is_that_of_the_newest_rounds() -> None:
    history = [RoundFigures(n, 100.0) for n in range(1, 50)] + [RoundFigures(n, 10.0) for n in range(50, 70)]
    assert seconds_left(history, 5) == 50.0
    assert seconds_left(history, 5, open_seconds=4.0) == 46.0
    assert seconds_left(history, 5, open_seconds=99.0) == 40.0, "the open round takes longer than the others"
    assert seconds_left(history, 0) == 0.0 and seconds_left([], 5) is None
    assert seconds_left([RoundFigures(4, 2.0, rounds=3), RoundFigures(5, 10.0)], 1) == (3 * 2.0 + 10.0) / 4


def test_quality_says_when_it_is_too_little() -> None:
    assert not Quality("q").is_significant
    assert Quality("q", 0.5).is_significant, "without noise"
    assert Quality("q", 0.5, SIGNIFICANT).is_significant and not Quality("q", 0.5, 2 * SIGNIFICANT).is_significant
    assert Quality("q", 0.5, 1.0, smoothed=0.4, smoothed_error=0.01).best == (0.4, 0.01)


def test_numbers_that_are_none_become_null() -> None:
    assert Status.read(replace(FULL, epsilon_spent=math.inf, seconds_left=math.nan).text()).epsilon_spent is None


def test_a_fatal_problem_is_not_well() -> None:
    assert not FULL.is_healthy
    assert replace(FULL, problems=(Problem("nobody.seen", "nobody was seen for 9 min"),)).is_healthy


@pytest.mark.parametrize("kind", ["devices", "parties", "tuning", "simulation"])
def test_the_terminal_shows_it_within_80_columns(kind, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    show_status(replace(FULL, kind=kind), as_json=False)
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    assert "disk.full" in text and "running" in text
    assert ("1e-05" in text) == (kind != "parties")
    show_status(FULL, as_json=True)
    assert Status.read(capsys.readouterr().out) == FULL


def test_the_terminal_says_what_is_withheld_and_what_is_not_known_yet(capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    show_status(replace(FULL, withheld="not told", accepted=None, replies=None), as_json=False)
    text = capsys.readouterr().out
    assert "not told" in text and "accepted" not in text and "without a reply" not in text
    show_status(Status("devices", "new", "demo", 0.0, quality=Quality("nDCG", least_devices=4)), as_json=False)
    text = " ".join(capsys.readouterr().out.split())
    assert "no device has come yet" in text and "too few to say" in text and "no round is done" in text


def codes(**measured) -> list[str]:
    return [problem.code for problem in problems_of(**measured)]


def test_problems_follow_from_what_was_measured() -> None:
    well = {"free_bytes": 1 << 40, "certificate_days": 300.0, "enrolled": 100}
    assert codes() == codes(**well) == []
    full = problems_of(**well | {"free_bytes": 1 << 20})
    assert [(one.code, one.fatal) for one in full] == [("disk.full", True)]
    assert [one.fatal for one in problems_of(certificate_days=0.0) + problems_of(certificate_days=29.0)] == [
        True,
        False,
    ]
    assert codes(certificate_days=30.0) == []
    assert codes(**well, unseen_seconds=1801.0) == ["nobody.seen"]
    assert codes(unseen_seconds=1e9, enrolled=0) == [], "nobody has come yet"
    assert codes(**well, copied={4, 9}) == ["identity.copied"]
    assert codes(**well, unanswered=0) == [] and codes(**well, unanswered=7) == ["restore.behind"]
    everything = problems_of(
        free_bytes=0, certificate_days=3.0, unseen_seconds=1e6, enrolled=9, copied=range(9), unanswered=9,
    )  # fmt: skip
    status = replace(FULL, problems=everything)
    assert len(everything) == 5 and Status.read(status.text()) == status
