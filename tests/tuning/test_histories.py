"""Generated suggestions follow §6.1: frequencies, recency, types and choices against their exact distributions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from chance import UNLIKELY, assert_follows, assert_mean
from scipy import stats

from quorank.tuning.histories.generated import LAST, SIGMA, HistorySetting, draw_choices, generate_suggestions
from quorank.tuning.searches import slice_searches

WORLD = generate_suggestions(1, 3000)


def test_visits_are_an_exponential_with_mean_seven_rounded_up() -> None:
    p = {n: math.exp(-(n - 1) / 7) - math.exp(-n / 7) for n in range(1, 400)}
    p[399] += 1 - sum(p.values())
    assert_follows(WORLD.visits.tolist(), p)
    assert WORLD.visits.mean() == pytest.approx(1 / (1 - math.exp(-1 / 7)), rel=0.02)  # 7.51, not 1/7


def test_buckets_and_types_have_their_shares() -> None:
    setting = HistorySetting()
    seen = WORLD.recency >= 0
    assert_follows(WORLD.recency[seen].tolist(), dict(enumerate(setting.recency)))
    assert_follows(WORLD.type[seen].tolist(), dict(enumerate(setting.types)))
    table = np.zeros((5, 7))
    np.add.at(table, (WORLD.recency[seen], WORLD.type[seen]), 1)
    p = stats.chi2_contingency(table[:, table.any(axis=0)]).pvalue
    assert p > UNLIKELY, "recency and type are independent (§6.1)"


def test_the_number_of_suggestions_is_a_clipped_normal() -> None:
    sizes = np.diff(WORLD.offsets)
    cdf = stats.norm(10, 4).cdf
    p = {n: cdf(n + 0.5) - cdf(n - 0.5) for n in range(3, 20)} | {2: cdf(2.5), 20: 1 - cdf(19.5)}
    assert_follows(sizes.tolist(), p)


def test_sampled_visits_are_the_last_ten_and_nothing_else_is_filled() -> None:
    assert np.array_equal(WORLD.sampled, np.minimum(WORLD.visits, LAST))
    there = np.arange(LAST)[None, :] < WORLD.sampled[:, None]
    assert np.array_equal(WORLD.recency >= 0, there) and np.array_equal(WORLD.type >= 0, there)
    assert (WORLD.chosen == -1).all()


@pytest.mark.parametrize("habit", [0.5, 1.0])
def test_habit_keeps_the_shares_and_ties_the_visits_of_a_page(habit: float) -> None:
    setting = HistorySetting(habit=habit)
    world = generate_suggestions(3, 2000, setting=setting)
    assert_follows(world.type[world.sampled == 1, 0].tolist(), dict(enumerate(setting.types)))
    assert_follows(world.recency[world.sampled == 1, 0].tolist(), dict(enumerate(setting.recency)))
    two = world.sampled >= 2
    # both by habit, or one of them not and equal by chance
    by_chance = sum(share**2 for share in setting.types)
    assert_mean(world.type[two, 0] == world.type[two, 1], habit**2 + (1 - habit**2) * by_chance)


def test_choices_without_noise_are_the_best_and_ties_go_to_the_first() -> None:
    scores = np.repeat([1.0], len(WORLD.visits))
    assert (draw_choices(1, WORLD, scores, sigma=0.0).chosen == 0).all()
    scores = np.random.default_rng(5).random(len(WORLD.visits))
    best = [int(scores[a:b].argmax()) for a, b in zip(WORLD.offsets, WORLD.offsets[1:], strict=False)]
    assert draw_choices(1, WORLD, scores, sigma=0.0).chosen.tolist() == best


def test_choices_between_two_follow_the_normal_distribution() -> None:
    pairs = generate_suggestions(1, 20000, setting=HistorySetting(suggestions=2, spread=0, most=2))
    scores = np.tile([0.0, 6.0], 20000)
    chosen = draw_choices(9, pairs, scores).chosen
    assert_mean(chosen, stats.norm.cdf(6.0 / (SIGMA * math.sqrt(2))))
    assert pytest.approx(30.0) == SIGMA**2
    part = draw_choices(9, slice_searches(pairs, 100, 200), scores[200:400], first=100)
    assert np.array_equal(part.chosen, chosen[100:200])
