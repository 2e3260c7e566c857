"""Whole tunings on made-up people: they find what people follow, harm nobody on the way, and can be repeated."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from quorank.errors import BadInput
from quorank.tuning.closing import Count, Stable, Time
from quorank.tuning.coordinator import OPTIMISER_DEFAULTS
from quorank.tuning.guards import ImmediateGuard
from quorank.tuning.heuristics.constraints import violations
from quorank.tuning.heuristics.mail import AGES, FOLDERS, MAIL
from quorank.tuning.histories.scenarios import SCENARIOS, find_scenario
from quorank.tuning.releases import SignRelease
from quorank.tuning.searches import slice_searches
from quorank.tuning.simulation import DayNight, Tuning, last_loss_bound, simulate_tuning, updates_until


@pytest.mark.parametrize("name", ["frecency", "mail"])
def test_random_weights_become_as_good_as_the_true_ones(name: str) -> None:
    course = simulate_tuning(Tuning(name, start="random", held_out=4000))
    assert course.accuracy[0] < 0.9 * course.true_accuracy
    assert course.accuracy[-1] >= 0.99 * course.true_accuracy
    assert course.violations == 0 and len(course.weights) == 49
    heuristic = SCENARIOS[name].heuristic
    for before, after in zip(course.weights[:-1], course.weights[1:], strict=True):
        assert violations(heuristic, after, before) == []


@pytest.mark.parametrize("name", ["frecency", "mail"])
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
        (Tuning("mail", people="others", release=SignRelease(), iterations=20), "a12c3e7bd20c4ffe"),
        (Tuning("firefox", people="others", iterations=12), "bf749432a2418964"),
    ],
    ids=["frecency", "mail-signs", "firefox"],
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
        common = Tuning(start="random", seed=seed, traffic=DayNight(), held_out=2000)
        half_hours = replace(common, closing=Time())
        fixed = simulate_tuning(half_hours)
        loss = last_loss_bound(half_hours, fixed)
        assert fixed.loss[-1] < loss < 1.5 * fixed.loss[-1]
        budget = sum(fixed.updates)
        course = simulate_tuning(replace(common, closing=Stable(), iterations=999, budget=budget, until=loss))
        assert sum(course.updates) <= budget + Stable().most
        shares.append(updates_until(course, loss) / updates_until(fixed, loss))
    assert np.median(shares) <= 0.7


def test_iterations_close_as_configured() -> None:
    common = {"iterations": 3, "held_out": 50, "guard": ImmediateGuard()}
    assert simulate_tuning(Tuning(closing=Count(37), **common)).updates[1:] == [37, 37, 37]
    course = simulate_tuning(Tuning(closing=Time(600.0), **common))
    assert course.hours == pytest.approx([0.0, 1 / 6, 1 / 3, 1 / 2])
    assert sum(course.updates) == course.gradients
    assert 300 < sum(course.updates) < 500  # 800 an hour, for half an hour
    assert all(50 <= n <= 400 for n in simulate_tuning(Tuning(closing=Stable(), **common)).updates[1:])


def test_mail_by_hand() -> None:
    items = find_scenario("mail").show(1, 5, 0)
    weights = np.arange(1.0, 13.0)
    scores = MAIL.score(weights[None, :], items)[0]
    for x in range(items.offsets[-1]):
        expected = weights[items.age[x]] + weights[len(AGES) + items.folder[x]]
        expected += weights[9] * np.log2(1 + items.exchanged[x])
        expected += weights[10] * items.answered[x] + weights[11] * items.flagged[x]
        assert scores[x] == pytest.approx(expected)
    assert len(weights) == len(AGES) + len(FOLDERS) + 3 == len(MAIL.weights)


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
        ({"budget": 0}, "budget"),
    ],
)
def test_refusals(fields: dict[str, object], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        Tuning(**fields)
