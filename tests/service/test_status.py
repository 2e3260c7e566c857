"""Status is one document for all kinds: read back as written, bounded, shown in the terminal and as metrics."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from devices import coordinator_of, simulator_of
from full_status import FULL
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families
from refusals import refused

from quorank.cli.service import show_status
from quorank.experiments import deployment
from quorank.federation import Federation
from quorank.federation.coordinator import RoundLimits
from quorank.federation.participation import Arrivals
from quorank.federation.reply import Reply, encode_reply
from quorank.service.dashboard.page import draw_page, exposition
from quorank.service.dashboard.status import (
    KEPT_EVENTS,
    KEPT_ROUNDS,
    LISTED,
    SIGNIFICANT,
    MemberCounts,
    MemberStatus,
    Problem,
    Quality,
    RoundFigures,
    Status,
    listed,
    seconds_left,
    with_round,
)
from quorank.service.holders.devices import coordinator_status


def test_every_field_is_read_back() -> None:
    assert Status.read(FULL.text()) == FULL
    small = Status("parties", "new", "demo", 0.0)
    assert Status.read(small.text().encode()) == small
    assert Status.read(replace(FULL, epsilon_spent=math.inf, seconds_left=math.nan).text()).epsilon_spent is None


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


def test_lists_are_bounded_and_awaited_members_are_in_them() -> None:
    members = [MemberStatus(number, None, "away", number % 1000 == 7) for number in range(9000)]
    found = listed(members)
    assert len(found) == LISTED and [member.client for member in found] == sorted(member.client for member in found)
    assert {member.client for member in found if member.waiting} == {7 + 1000 * n for n in range(9)}
    history: tuple[RoundFigures, ...] = ()
    for number in range(1, 5 * KEPT_ROUNDS):
        history = with_round(history, RoundFigures(number, 2.0, epsilon=float(number)))
        assert len(history) <= KEPT_ROUNDS and history[-1].round == number
    rounds = [point.round for point in history]
    assert rounds == sorted(set(rounds)) and rounds[0] == 1 and len(rounds) > KEPT_ROUNDS // 2


def test_the_time_left_is_that_of_the_newest_rounds() -> None:
    history = [RoundFigures(n, 100.0) for n in range(1, 50)] + [RoundFigures(n, 10.0) for n in range(50, 70)]
    assert seconds_left(history, 5) == 50.0
    assert seconds_left(history, 5, open_seconds=4.0) == 46.0
    assert seconds_left(history, 5, open_seconds=99.0) == 40.0, "the open round takes longer than the others"
    assert seconds_left(history, 0) == 0.0 and seconds_left([], 5) is None


def test_quality_says_when_it_is_too_little() -> None:
    assert not Quality("q").is_significant
    assert Quality("q", 0.5).is_significant, "without noise"
    assert Quality("q", 0.5, SIGNIFICANT).is_significant and not Quality("q", 0.5, 2 * SIGNIFICANT).is_significant
    assert Quality("q", 0.5, 1.0, smoothed=0.4, smoothed_error=0.01).best == (0.4, 0.01)


# ---------------------------------------------------------------- the terminal


@pytest.mark.parametrize("kind", ["devices", "parties", "tuning", "simulation"])
def test_the_terminal_shows_it_within_80_columns(kind, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    show_status(replace(FULL, kind=kind), as_json=False)
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    assert "disk.full" in text and "running" in text
    assert ("1e-05" in text) == (kind != "parties")
    assert "answered, 3 ms on average" in text and "round.stalled" not in text
    show_status(replace(FULL, kind=kind, open_seconds=900.0), as_json=False)
    assert "round.stalled" in capsys.readouterr().out
    show_status(FULL, as_json=True)
    assert Status.read(capsys.readouterr().out) == FULL


def test_no_control_character_reaches_the_terminal(capsys) -> None:
    hostile = "spring\x1b]0;owned\x07\x9b2J\r\u202e"
    show_status(replace(FULL, run=hostile, withheld=hostile, problems=(Problem("disk.full", hostile),)), as_json=False)
    text = capsys.readouterr().out
    assert "spring" in text and all(line.isprintable() for line in text.splitlines())


def test_the_terminal_says_what_is_withheld_and_what_is_not_known_yet(capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    show_status(replace(FULL, withheld="not told", accepted=None, replies=None), as_json=False)
    text = capsys.readouterr().out
    assert "not told" in text and "accepted" not in text and "without a reply" not in text
    show_status(Status("devices", "new", "demo", 0.0, quality=Quality("nDCG", least_devices=4)), as_json=False)
    text = " ".join(capsys.readouterr().out.split())
    assert "no device has enrolled" in text and "too few reports" in text and "no completed round" in text


# ---------------------------------------------------------------- metrics


def samples(status: Status) -> dict[tuple[str, ...], float]:
    found: dict[tuple[str, ...], float] = {}
    for family in text_string_to_metric_families(exposition(status).decode()):
        assert family.documentation.endswith(".")
        for sample in family.samples:
            key = (sample.name.removeprefix("quorank_"), *sample.labels.values())
            assert sample.name.startswith("quorank_") and key not in found
            found[key] = sample.value
    return found


def test_the_metrics_are_the_status() -> None:
    numbers = {
        "rounds_total": 4, "rounds_planned": 9, "replies_accepted_total": 40, "round_replies": 6, "cohort_clients": 10,
        "sent_bytes_total": 100, "received_bytes_total": 200, "seconds_left": 3.0, "rebuilding_rounds_total": 2,
        "checkpoints_failed_total": 1, "round_open_seconds": 1.0, "last_round_seconds": 4.0, "enrolled_members": 8,
        "invited_members": 1, "seen_members": 7, "waiting_members": 4, "left_members": 1, "revoked_members": 1,
        "epsilon_spent": 1.0, "epsilon_planned": 2.0, "epsilon_delta": 1e-5, "uptime_seconds": 12.5, "well": 0,
        "quality": 0.5, "quality_error": 0.1, "quality_round": 4, "quality_smoothed": 0.45,
        "quality_smoothed_error": 0.02, "requests_total": 1200, "request_seconds_total": 3.6, "stalled": 0,
    }  # fmt: skip
    labelled = {("refused_total", "reply.norm"): 2, ("problem", "disk.full"): 1, ("state", "devices", "running"): 1}
    labelled |= {("member_programs", "0.1"): 2, ("service", "1", "0.1"): 1}
    assert samples(FULL) == {(name,): value for name, value in numbers.items()} | labelled
    assert not any(metric.name.startswith("quorank") for metric in REGISTRY.collect()), "there is no global state"


def test_codes_are_labels_and_unknown_numbers_are_no_metrics() -> None:
    odd = replace(FULL, refused={"reply.norm": 1, "no code\n": 2, "/anna": 3}, problems=(Problem("a.b", "x"),) * 2)
    assert samples(odd)["refused_total", "reply.other"] == 5 and samples(odd)["problem", "a.b"] == 1
    empty = samples(Status("parties", "new", "demo", 0.0, quality=Quality("nDCG")))
    assert empty["well",] == 1 and empty["rounds_total",] == 0
    assert not any(name.startswith("quality") for name, *_ in empty)


def test_the_grafana_dashboard_queries_metrics_that_exist() -> None:
    board = json.loads((Path(__file__).parents[2] / "docs" / "grafana.json").read_text(encoding="utf-8"))
    known = {
        sample.name for family in text_string_to_metric_families(exposition(FULL).decode()) for sample in family.samples
    }
    labels = {"refused_total": "code", "problem": "code", "state": "state", "member_programs": "version"}
    panels = board["panels"]
    assert board["schemaVersion"] >= 39 and len({panel["id"] for panel in panels}) == len(panels) > 15
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        assert panel["title"] and panel["description"].endswith(".") and panel["type"] in ("stat", "timeseries")
        place = panel["gridPos"]
        cells = {(place["x"] + i, place["y"] + j) for i in range(place["w"]) for j in range(place["h"])}
        assert not cells & taken and max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells
        for target in panel["targets"]:
            names = set(re.findall(r"quorank_\w+", target["expr"]))
            assert names and names <= known, names - known
            for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                assert label in {labels.get(name.removeprefix("quorank_")) for name in names}
    asked = " ".join(target["expr"] for panel in panels for target in panel["targets"])
    for name in (
        "rounds_total",
        "replies_accepted_total",
        "refused_total",
        "request_seconds_total",
        "epsilon_spent",
        "problem",
    ):
        assert f"quorank_{name}" in asked
    variables = {variable["name"]: variable for variable in board["templating"]["list"]}
    assert {*re.findall(r"\$\{?(\w+)", json.dumps(panels))} == {*variables}
    assert re.findall(r"quorank_\w+", variables["instance"]["definition"]) == ["quorank_state"]


def test_a_round_that_waits_longer_than_usual_is_stalled() -> None:
    status = replace(FULL, history=tuple(RoundFigures(n, 100.0) for n in (1, 2, 3)), kind="devices")
    assert not replace(status, open_seconds=299.0).is_stalled
    stalled = replace(status, open_seconds=900.0, replies=6, needed=8)
    assert stalled.stall() == (
        "this round has been open for 15 min; the latest took 1 min 40 s on average; 7 members are online; "
        "6 of 8 needed replies were received"
    )
    assert "replies" not in (replace(stalled, withheld="secret").stall() or "")
    assert samples(stalled)["stalled",] == 1
    assert not replace(stalled, state="stopped").is_stalled and not replace(stalled, history=()).is_stalled
    quick = tuple(RoundFigures(n, 0.1) for n in (1, 2))
    assert not replace(status, history=quick, open_seconds=59.0).is_stalled, "short rounds may wait for a minute"
    alone = replace(FULL, counts=MemberCounts(enrolled=3, seen=0))
    assert alone.is_deserted and not FULL.is_deserted and not replace(alone, kind="simulation").is_deserted


# ---------------------------------------------------------------- of a coordinator


BASE = Status("devices", "running", "demo", 1e9, counts=MemberCounts(6, 0, 6, 6), open_seconds=4.0)


@pytest.fixture
def coordinator(tiny_collection):
    """Two rounds are over, and of the third 4 of 6 clients have answered; one reply came twice, one was too long."""
    simulator = simulator_of(tiny_collection)
    made = coordinator_of(simulator, limits=RoundLimits(minimum_fraction=0.5, deadline=60.0, max_norm=50.0))
    for number in range(3):
        replies = simulator.replies(made.plan(), np.arange(6 if number < 2 else 4))
        assert all(made.receive(encode_reply(reply)).accepted for reply in replies)
        if number < 2:
            made.advance()
    made.receive(encode_reply(replies[0]))
    made.receive(Reply("run", 2, 5, np.full(simulator.simulation.parameters, 1e3), 3))
    return made


def test_the_status_of_an_open_round(coordinator) -> None:
    found = coordinator_status(BASE, coordinator)
    assert (found.cohort, found.needed, found.replies, found.accepted) == (6, 3, 4, 16)
    assert (found.counts.waiting, found.deadline_seconds) == (2, 56.0)
    assert found.refused == {"reply.replayed": 1, "reply.norm": 1} and found.quality is None
    assert [member.client for member in found.members] == [4, 5]
    assert Status.read(found.text()) == found and draw_page(found)
    coordinator.set_unavailable([5])
    found = coordinator_status(BASE, coordinator)
    assert (found.cohort, found.replies, found.counts.waiting) == (5, 4, 1), "who cannot come is not asked"
    coordinator.rounds = 2
    found = coordinator_status(BASE, coordinator)
    assert (found.cohort, found.counts.waiting, found.deadline_seconds) == (0, 0, None), "a run that is done"


def test_what_depends_on_who_took_part_is_withheld_and_in_no_metric(coordinator) -> None:
    found = coordinator_status(BASE, coordinator, planned=5, received_bytes=9)
    assert found.withheld and (found.cohort, found.needed, found.members) == (5, 3, ())
    assert (found.replies, found.accepted, found.received_bytes, found.counts.waiting) == (None,) * 4
    names = {name for name, *_ in samples(found)}
    assert not names & {"replies_accepted_total", "round_replies", "received_bytes_total", "waiting_members"}
    assert "cohort_clients" in names and "withheld" in draw_page(found)


def test_a_round_that_takes_whoever_comes_says_how_many_end_it(tiny_collection) -> None:
    arrivals = Arrivals(enough=4, least=2, minutes=2.0)
    simulator = simulator_of(tiny_collection, Federation(6, 3, participation=arrivals))
    coordinator = coordinator_of(simulator)
    coordinator.enrolled = range(6)
    task = coordinator.plan()
    for reply in simulator.replies(task, np.arange(3)):
        assert coordinator.receive(encode_reply(reply)).accepted
    found = coordinator_status(replace(BASE, open_seconds=20.0), coordinator)
    assert (found.cohort, found.needed, found.replies, found.accepted) == (4, 2, 3, 3)
    assert (found.counts.waiting, found.deadline_seconds) == (0, 100.0)


def test_accounting_is_done_ahead_only_where_it_stays_slow(monkeypatch) -> None:
    """A ledger is written only where all its rounds are counted; the first count after a start loads the accountant."""
    asked: list[int] = []

    def statement(rounds: int) -> dict[str, float]:
        asked.append(rounds)
        return {"epsilon": 1.0, "delta": 1e-5}

    monkeypatch.setattr(deployment, "STATEMENT_SECONDS", 1e-12)  # every count is slow
    mechanism = SimpleNamespace(statement=statement, loss=lambda rounds: None)
    coordinator = SimpleNamespace(state=SimpleNamespace(round=0), rounds=500, mechanism=mechanism)
    privacy = deployment.DeployedPrivacy(None, coordinator, None, total_epsilon=9.0)
    for round_ in (100, 101, 102, 103):
        coordinator.state.round = round_
        privacy.count()
    assert asked == [100, 101, 102 + 10]
