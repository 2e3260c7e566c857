"""A coordinator that takes private figures with its replies: their mean, what it refuses, and after a restart."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from devices import MemoryStorage

from quorank.federation import Federation
from quorank.federation.coordinator import Coordinator
from quorank.federation.reply import Reply, encode_reply
from quorank.federation.rules import Mean, Median
from quorank.privacy import ClippedGaussian, NoPrivacy, Setting, Signs
from quorank.privacy.mechanisms.randomised_response import MetricResponse

CLIENTS, SIZE, FIGURE = 5, 3, MetricResponse(3.0)
SENT = [0, 3, 1, 3, 2]  # of 0 to 3 steps


def coordinator_of(storage=None, privacy=NoPrivacy(), **parts) -> Coordinator:  # noqa: B008
    federation = Federation(CLIENTS, 4, privacy=privacy, **parts)
    mechanism = privacy.mechanism(Setting(CLIENTS, CLIENTS, 2, parameters=SIZE), 5)
    state = replace(federation.start(np.zeros(SIZE)), private=mechanism.start())
    return Coordinator(federation, mechanism, state, 2, storage=storage, metric_response=FIGURE)


def reply(client: int, *statistics: float, round_: int = 0, interactions: int = 4) -> Reply:
    release = np.full(SIZE, 0.01)
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
    coordinator = coordinator_of(privacy=privacy, aggregation=rule)
    assert FIGURE.steps == 3
    coordinator.plan()
    unit = coordinator.mechanism.unit_of(coordinator.state.private)
    size = 0.01 if isinstance(privacy, Signs) else 0.001 if unit == 1.0 else round(0.001 * unit)
    for client, steps in enumerate(SENT):
        row = Reply("run", 0, client, np.full(SIZE, float(size)), 4, False, (float(steps), 0.0, 0.0))
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
    coordinator = coordinator_of()
    coordinator.plan()
    verdict = coordinator.receive(reply(0, *statistics))
    assert not verdict.accepted and ("metric" in verdict.reason or "finite" in verdict.reason)
    assert str(statistics[0]) not in verdict.reason, "nothing of a reply is quoted"
    assert coordinator.receive(reply(0, 3.0)).accepted, "the client may correct itself"


def test_a_coordinator_that_is_killed_goes_on_to_the_same_figure() -> None:
    storage = MemoryStorage()
    for round_ in (0, 1):
        coordinator = coordinator_of(storage)
        coordinator.plan()
        for client, steps in enumerate(SENT):
            assert coordinator.receive(reply(client, float(steps), round_=round_)).accepted
        coordinator.advance()
    first, second = coordinator_of(storage).reports
    assert first.online_ndcg == second.online_ndcg != 0.0
