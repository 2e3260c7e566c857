"""Sum of a round's replies: the weighted mean, bounds on what can be summed, private metrics, memory that does not grow."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from devices import MemoryStorage

from quorank.federation import Federation
from quorank.federation.coordinator import Coordinator, RoundLimits
from quorank.federation.reply import Reply, encode_reply
from quorank.federation.rules import Mean, Median
from quorank.privacy import ClippedGaussian, NoPrivacy, Plain, Setting, Signs
from quorank.privacy.mechanisms.randomised_response import MetricResponse

SIZE = 7


def coordinator_of(clients=8, size=SIZE, federation=None, **options) -> Coordinator:
    federation = federation or Federation(clients, 4)
    start = federation.start(np.zeros(size))
    return Coordinator(federation, Plain(), start, 3, **options)


def reply_of(client: int, size: int = SIZE, **changes) -> Reply:
    release = np.random.default_rng(client).normal(size=size)
    return replace(Reply("run", 0, client, release, 1 + client % 4, False, (1.0, 0.5, 2.0)), **changes)


def test_the_round_s_update_is_the_weighted_mean_of_the_replies() -> None:
    coordinator = coordinator_of(8)
    coordinator.plan()
    replies = [reply_of(client) for client in range(8)]
    assert all(coordinator.receive(reply).accepted for reply in replies)
    report = coordinator.advance()
    weights = np.array([reply.interactions for reply in replies], dtype=float)
    expected = weights @ np.array([reply.release for reply in replies]) / weights.sum()
    np.testing.assert_allclose(coordinator.state.theta, expected, atol=1e-14)
    assert report.interactions == weights.sum()
    assert report.clicks == pytest.approx(8 * 2.0 / weights.sum())


@pytest.mark.parametrize("statistics", [(1e30, 0.0, 0.0), (0.0, -1e12, 0.0)])
def test_statistics_that_cannot_be_summed_do_not_end_the_run(statistics) -> None:
    coordinator = coordinator_of(2)
    coordinator.plan()
    verdict = coordinator.receive(reply_of(0, statistics=statistics))
    assert "too large to be summed" in verdict.reason
    assert coordinator.receive(reply_of(0)).accepted and coordinator.receive(reply_of(1)).accepted
    assert coordinator.advance().participants == 2


def test_no_cohort_of_accepted_replies_is_too_large_to_be_summed() -> None:
    coordinator = coordinator_of(5, limits=RoundLimits(max_norm=1e300, max_interactions=4))
    coordinator.plan()
    largest = (2.0**36 - 1.0) / 4.0
    for client in range(5):
        release = np.full(SIZE, largest)
        assert coordinator.receive(reply_of(client, release=release, interactions=4)).accepted
    coordinator.advance()
    np.testing.assert_allclose(coordinator.state.theta, largest)


def peak_of(clients: int, federation: Federation) -> int:
    """The most memory that a round's replies, made one by one, held."""
    size = 2000
    coordinator = coordinator_of(clients, size=size, federation=federation)
    coordinator.plan()
    tracemalloc.start()
    for client in range(clients):
        coordinator.receive(Reply("run", 0, client, np.full(size, 0.1), 4))
    coordinator.cohort_sum()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_the_memory_of_a_mean_does_not_grow_with_its_cohort() -> None:
    peak_of(2, Federation(2, 4))  # what is compiled is loaded
    few, many = peak_of(20, Federation(20, 4)), peak_of(400, Federation(400, 4))
    assert many < few + 400 * 1000  # a client's number, not its 16,000 bytes
    kept = peak_of(400, Federation(400, 4, aggregation=Median()))
    assert kept > 400 * 16_000  # rules that look at single updates do keep them


CLIENTS, FEW, FIGURE = 5, 3, MetricResponse(3.0)
SENT = [0, 3, 1, 3, 2]  # of 0 to 3 steps


def reporting_coordinator(storage=None, privacy=NoPrivacy(), **parts) -> Coordinator:  # noqa: B008
    federation = Federation(CLIENTS, 4, privacy=privacy, **parts)
    mechanism = privacy.mechanism(Setting(CLIENTS, CLIENTS, 2, parameters=FEW), 5)
    state = replace(federation.start(np.zeros(FEW)), private=mechanism.start())
    return Coordinator(federation, mechanism, state, 2, storage=storage, metric_response=FIGURE)


def reply(client: int, *statistics: float, round_: int = 0, interactions: int = 4) -> Reply:
    release = np.full(FEW, 0.01)
    return Reply("run", round_, client, release, interactions, False, (*statistics, 0.0, 0.0)[:3])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("privacy", "rule"),
    [
        (NoPrivacy(), Mean()),
        (Signs(p=0.7), Mean()),
        (ClippedGaussian(noise_multiplier=0.5), Mean()),
        (NoPrivacy(), Median()),
    ],
)
def test_a_round_s_figure_is_the_mean_of_the_unbiased_reports(privacy, rule) -> None:
    coordinator = reporting_coordinator(privacy=privacy, aggregation=rule)
    assert FIGURE.steps == 3
    coordinator.plan()
    unit = coordinator.mechanism.unit_of(coordinator.state.private)
    size = 0.01 if isinstance(privacy, Signs) else 0.001 if unit == 1.0 else round(0.001 * unit)
    for client, steps in enumerate(SENT):
        row = Reply("run", 0, client, np.full(FEW, float(size)), 4, False, (float(steps), 0.0, 0.0))
        assert coordinator.receive(encode_reply(row)).accepted
    report = coordinator.advance()
    one = math.exp(-3.0)
    p, q = 1.0 / (1.0 + 3.0 * one), one / (1.0 + 3.0 * one)
    figures = [(steps / 3.0 - q * (0.0 + 1 / 3 + 2 / 3 + 1.0)) / (p - q) for steps in SENT]
    assert report.online_ndcg == pytest.approx(np.mean(figures), rel=1e-12)
    assert (report.participants, report.online_maxrr, report.clicks) == (CLIENTS, 0.0, 0.0)


@pytest.mark.parametrize(
    "statistics", [(0.5,), (-1.0,), (4.0,), (1e300,), (math.nan,), (math.inf,), (1.0, 1.0), (0.0, 0.0, -1.0)]
)
def test_figures_that_no_device_sends_are_refused(statistics) -> None:
    coordinator = reporting_coordinator()
    coordinator.plan()
    verdict = coordinator.receive(reply(0, *statistics))
    assert not verdict.accepted and ("metric" in verdict.reason or "finite" in verdict.reason)
    assert str(statistics[0]) not in verdict.reason, "nothing of a reply is quoted"
    assert coordinator.receive(reply(0, 3.0)).accepted, "the client may correct itself"


def test_a_coordinator_that_is_killed_goes_on_to_the_same_figure() -> None:
    storage = MemoryStorage()
    for round_ in (0, 1):
        coordinator = reporting_coordinator(storage)
        coordinator.plan()
        for client, steps in enumerate(SENT):
            assert coordinator.receive(reply(client, float(steps), round_=round_)).accepted
        coordinator.advance()
    first, second = reporting_coordinator(storage).reports
    assert first.online_ndcg == second.online_ndcg != 0.0
