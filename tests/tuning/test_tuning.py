"""Whole tunings on made-up people: they find what people follow, harm nobody on the way, and can be repeated."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from quorank.errors import BadInput
from quorank.tuning.coordinator import OPTIMISER_DEFAULTS
from quorank.tuning.heuristics.constraints import violations
from quorank.tuning.histories.scenarios import SCENARIOS, find_scenario
from quorank.tuning.rules import Count, ImmediateGuard, SignRelease, Stable, Time
from quorank.tuning.searches import slice_searches
from quorank.tuning.simulation import DAY, SearchTimes, Traffic, Tuning, simulate_tuning


@pytest.mark.parametrize("name", ["frecency", "decay"])
def test_random_weights_become_as_good_as_the_true_ones(name: str) -> None:
    course = simulate_tuning(Tuning(name, start="random", held_out=4000))
    assert course.accuracy[0] < 0.9 * course.true_accuracy
    assert course.accuracy[-1] >= 0.99 * course.true_accuracy
    assert course.violations == 0 and len(course.weights) == 49
    heuristic = SCENARIOS[name].heuristic
    for before, after in zip(course.weights[:-1], course.weights[1:], strict=True):
        assert violations(heuristic, after, before) == []


@pytest.mark.parametrize("name", ["frecency", "decay"])
def test_shipped_weights_that_are_right_stay_right(name: str) -> None:
    course = simulate_tuning(Tuning(name, held_out=4000, seed=2))
    assert course.accuracy[0] == course.true_accuracy
    assert course.worst_drop() <= 0.01


def test_where_people_follow_other_weights_the_product_gets_better() -> None:
    course = simulate_tuning(Tuning(people="others", held_out=4000, seed=3))
    assert course.accuracy[-1] > 1.1 * course.accuracy[0]
    assert course.accuracy[-1] >= 0.98 * course.true_accuracy
    assert course.worst_drop() <= 0.01


@pytest.mark.parametrize(
    ("tuning", "digest"),
    [
        (Tuning(iterations=20), "c06c12f14d51c088"),
        (Tuning("decay", people="others", release=SignRelease(), iterations=20), "295747fdb85bda7a"),
        (Tuning("firefox", people="others", iterations=12), "bf749432a2418964"),
    ],
    ids=["frecency", "decay-signs", "firefox"],
)
def test_published_versions_have_the_bits_that_they_always_had(tuning: Tuning, digest: str) -> None:
    course = simulate_tuning(replace(tuning, held_out=50, guard=ImmediateGuard()))
    assert hashlib.sha256(np.array(course.weights).tobytes()).hexdigest()[:16] == digest


@pytest.mark.parametrize("word", OPTIMISER_DEFAULTS)
def test_every_optimiser_lowers_the_loss_and_breaks_nothing(word: str) -> None:
    course = simulate_tuning(Tuning(start="random", optimiser=OPTIMISER_DEFAULTS[word], iterations=15, held_out=1000))
    assert course.loss[-1] < 0.7 * course.loss[0]
    assert course.violations == 0


def test_stable_iterations_need_fewer_updates_than_half_hours() -> None:
    shares = []
    for seed in (1, 2, 3):
        common = Tuning(start="random", seed=seed, traffic=Traffic(swing=0.9), held_out=2000)
        fixed = simulate_tuning(replace(common, closing=Time()))
        loss, budget = 1.1 * fixed.loss[-1], sum(fixed.updates)
        adaptive = replace(common, closing=Stable(), iterations=999)
        course = simulate_tuning(adaptive, lambda c: c.loss[-1] <= loss or sum(c.updates) >= budget)  # noqa: B023
        assert len(course.models) < 999
        first = int(np.flatnonzero(np.array(fixed.loss) <= loss)[0])
        shares.append(sum(course.updates) / sum(fixed.updates[: first + 1]))
    assert np.median(shares) <= 0.7


@pytest.mark.parametrize("traffic", [Traffic(500.0), Traffic(900.0, swing=1.0, peak=3.0)], ids=str)
def test_arrivals_are_a_poisson_process_of_the_stated_rate(traffic: Traffic) -> None:
    when = SearchTimes(traffic, 1).upcoming(50_000)
    assert np.all(np.diff(when) >= 0)
    hours = np.arange(24 * int(when[-1] // DAY) + 1) * 3600.0
    counts, _ = np.histogram(when, hours)
    middle = np.linspace(0, 3600.0, 60, endpoint=False) + 30.0
    expected = np.array([traffic.rate(middle + hour).mean() * 3600.0 for hour in hours[:-1]])
    busy = expected > 5
    statistic = (((counts - expected) ** 2) / np.maximum(expected, 1e-9))[busy].sum()
    low, high = stats.chi2.ppf([1e-4, 1 - 1e-4], busy.sum())
    assert low < statistic < high  # Poisson: as far from the mean as chance, and no nearer
    for bad in ({"per_hour": 0.0}, {"swing": 1.5}, {"peak": 25.0}):
        with pytest.raises(BadInput, match=next(iter(bad))):
            replace(traffic, **bad)


def test_iterations_close_as_configured() -> None:
    common = {"iterations": 3, "held_out": 50, "guard": ImmediateGuard()}
    assert simulate_tuning(Tuning(closing=Count(37), **common)).updates[1:] == [37, 37, 37]
    course = simulate_tuning(Tuning(closing=Time(600.0), **common))
    assert course.hours == pytest.approx([0.0, 1 / 6, 1 / 3, 1 / 2])
    assert sum(course.updates) == course.gradients
    assert 300 < sum(course.updates) < 500  # 800 an hour, for half an hour
    assert all(50 <= n <= 400 for n in simulate_tuning(Tuning(closing=Stable(), **common)).updates[1:])


@pytest.mark.parametrize("name", SCENARIOS)
def test_any_part_of_a_world_can_be_made_alone(name: str) -> None:
    here = find_scenario(name)
    whole = here.searches(9, 40, 100, here.heuristic.shipped)
    some = here.searches(9, 7, 120, here.heuristic.shipped)
    for one, other in zip(some, slice_searches(whole, 20, 27), strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"heuristic": "frequency"}, "did you mean 'frecency'"),
        ({"start": "zero"}, "start: must be random or shipped"),
        ({"iterations": 0}, "iterations"),
        ({"margin": -1.0}, "margin"),
        ({"sigma": float("nan")}, "sigma"),
        ({"held_out": 0}, "held_out"),
        ({"loss": "hinge"}, "relative or published"),
    ],
)
def test_refusals(fields: dict[str, object], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        Tuning(**fields)
