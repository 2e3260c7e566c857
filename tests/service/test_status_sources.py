"""Status of federations that are really played: the figures are those of the coordinator, the tuning and the session."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from devices import coordinator_of, simulator_of
from played_federations import played_session, played_tuning

from quorank.federation import Federation
from quorank.federation.coordinator import RoundLimits
from quorank.federation.participation import Arrivals
from quorank.federation.reply import Reply, encode_reply
from quorank.federation.rounds import Report
from quorank.privacy.mechanisms.metric_response import MetricResponse
from quorank.service.dashboard.page import draw_page
from quorank.service.dashboard.status import MemberCounts, MemberStatus, RoundFigures, Status
from quorank.service.dashboard.status_sources import LEAST_DEVICES, coordinator_status, quality_of, round_figures

BASE = Status(
    "devices", "running", "demo", 1e9, sent_bytes=5, received_bytes=6, counts=MemberCounts(6, 0, 6, 6, late=1),
    members=tuple(MemberStatus(client, f"device-{client}", "present", late=client == 5) for client in range(6)),
)  # fmt: skip


@pytest.fixture
def played(tiny_collection):
    """Two rounds are over, and of the third 4 of 6 clients have answered; one reply came twice, one was too long."""
    simulator = simulator_of(tiny_collection)
    coordinator = coordinator_of(simulator, RoundLimits(minimum_fraction=0.5, deadline=60.0, max_norm=50.0))
    history = []
    for number in range(3):
        task = coordinator.plan()
        replies = simulator.replies(task, np.arange(6 if number < 2 else 4))
        assert all(coordinator.receive(encode_reply(reply)).accepted for reply in replies)
        if number < 2:
            history.append(round_figures(coordinator.advance(), 10.0 + number))
    coordinator.receive(encode_reply(replies[0]))
    coordinator.receive(Reply("run", 2, 5, np.full(simulator.simulation.parameters, 1e3), 3))
    return coordinator, history


def test_the_status_of_an_open_round(played) -> None:
    coordinator, history = played
    found = coordinator_status(BASE, coordinator, history, open_seconds=4.0, refused={"request.time": 3})
    assert (found.rounds, found.rounds_planned, found.cohort, found.needed) == (2, 4, 6, 3)
    assert (found.replies, found.accepted, found.counts.waiting) == (4, 16, 2)
    assert (found.deadline_seconds, found.last_round_seconds) == (56.0, 11.0)
    assert found.seconds_left == pytest.approx(10.5 - 4.0 + 10.5)
    assert found.refused == {"reply.replayed": 1, "reply.norm": 1, "request.time": 3}
    assert [member.client for member in found.members if member.waiting] == [4, 5]
    assert found.quality is None and [point.replies for point in found.history] == [6, 6]
    assert Status.read(found.text()) == found and "Round 3 of 4" in draw_page(found)


def test_what_depends_on_who_took_part_is_withheld(played) -> None:
    coordinator, history = played
    hidden = [replace(point, replies=None) for point in history]
    found = coordinator_status(BASE, coordinator, hidden, open_seconds=4.0, planned=5)
    assert found.withheld and (found.cohort, found.needed) == (5, 3)
    told = (
        found.replies,
        found.accepted,
        found.sent_bytes,
        found.received_bytes,
        found.counts.waiting,
        found.counts.late,
    )
    assert told == (None,) * 6
    assert not any(member.waiting or member.late for member in found.members)
    assert round_figures(coordinator.reports[0], 1.0, planned=5).replies is None


def test_a_run_that_is_done_waits_for_nobody(played) -> None:
    coordinator, history = played
    coordinator.rounds = 2
    found = coordinator_status(replace(BASE, state="done"), coordinator, history)
    assert (found.cohort, found.counts.waiting, found.seconds_left, found.deadline_seconds) == (0, 0, 0.0, None)
    assert "All 2 rounds are done" in draw_page(found)


def test_a_round_that_takes_whoever_comes_says_how_many_end_it(tiny_collection) -> None:
    arrivals = Arrivals(enough=4, least=2, minutes=2.0)
    simulator = simulator_of(tiny_collection, Federation(6, 3, participation=arrivals))
    coordinator = coordinator_of(simulator)
    coordinator.enrolled = range(6)
    task = coordinator.plan()
    for reply in simulator.replies(task, np.arange(3)):
        assert coordinator.receive(encode_reply(reply)).accepted
    found = coordinator_status(BASE, coordinator, [], open_seconds=20.0)
    assert (found.cohort, found.needed, found.replies, found.accepted) == (4, 2, 3, 3)
    assert (found.counts.waiting, found.deadline_seconds) == (0, 100.0)


def test_members_that_cannot_come_are_not_asked(played) -> None:
    coordinator, history = played
    coordinator.set_unavailable([5])
    found = coordinator_status(BASE, coordinator, history)
    assert (found.cohort, found.replies, found.counts.waiting) == (5, 4, 1)
    alone = coordinator_status(replace(BASE, members=()), coordinator, history)
    assert alone.members == (MemberStatus(4, None, "away", waiting=True),), "awaited, though nobody told its name"


def report(round_: int, participants: int, figure: float) -> Report:
    return Report(round_, 4 * participants, figure, 0.0, 0.0, 1.0, participants, float("nan"), 0.0)


def test_quality_is_what_devices_reported_together() -> None:
    figure = MetricResponse(1.0)
    assert quality_of([report(1, 50, 0.5)], None, "q") is None
    few = [report(1, LEAST_DEVICES - 1, 0.4)]
    nothing = quality_of(few, figure, "q")
    assert nothing is not None and nothing.best is None and nothing.least_devices == LEAST_DEVICES
    assert round_figures(few[0], 1.0, figure=figure) == RoundFigures(1, 1.0, LEAST_DEVICES - 1)
    reports = [*few, report(2, 50, 0.6), report(3, 40, 0.5)]
    table, found = quality_of(reports, figure, "q"), quality_of(reports, figure, "q")
    assert table is not None and found is not None
    assert (found.value, found.error, found.round, found.devices) == (0.5, figure.error(40), 3, 40)
    assert found.best == (table.smoothed, table.smoothed_error)
    hidden = quality_of(reports, figure, "q", planned=45)
    assert hidden is not None and (hidden.devices, hidden.error) == (45, figure.error(45))
    point = round_figures(reports[2], 2.0, figure=figure, epsilon=1.5)
    assert (point.quality, point.error, point.epsilon) == (0.5, figure.error(40), 1.5)


@pytest.mark.slow
def test_a_tuning_shows_its_weights_within_their_bounds() -> None:
    found = played_tuning(iterations=4)
    assert found.rounds == 4 and len(found.weights) == 9 and found.accepted == 1600
    assert all(weight.lower <= weight.value <= weight.upper for weight in found.weights)
    assert any(weight.before != weight.value for weight in found.weights)
    assert [point.replies for point in found.history] == [400] * 4 and found.quality.value == found.history[-1].quality
    text = draw_page(Status.read(found.text()))
    assert all(weight.name in text for weight in found.weights) and "Version 4 is current" in text


@pytest.mark.slow
def test_a_session_shows_what_each_party_does(tmp_path) -> None:
    found = played_session(tmp_path)
    assert found.phase in ("training", "end", "done")
    assert found.rounds >= 2 and found.rounds_planned == 6 and found.rehearsal
    assert [member.state for member in found.members] == ["present", "present", "away"]
    assert found.counts.waiting == sum(member.waiting for member in found.members) >= 1
    assert {member.phase for member in found.members} <= {found.phase, "waits for the others"}
    assert found.traffic["hello"]["envelopes"] > 0
    text = draw_page(Status.read(found.text()))
    assert "north" in text and 'aria-current="step"' in text
