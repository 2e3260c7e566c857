"""The guard of a client: pairs and weights by brute force, and which rankers it refuses."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from equations import list_probability

from quorank.learning import OnlineRanker
from quorank.learning.online import ClickGuard, agreement, list_evidence, weighted_pairs
from quorank.rankers import Linear, scores

TRUTH = np.array([2.0, -1.0, 0.5, 0.0, 1.0])


def searches(count: int, seed: int = 1, theta: np.ndarray = TRUTH):
    """Lists that θ drew, and clicks of a user who clicks what is relevant with 0.8 and the rest with 0.2."""
    random = np.random.default_rng(seed)
    online = OnlineRanker(theta, 5, Linear(), seed=seed)
    found = []
    for _ in range(count):
        features = random.normal(size=(15, 5)).astype(np.float32)
        shown = online.rank(features)
        relevant = features[shown.order] @ TRUTH > 1.0
        found.append((shown, random.random(10) < np.where(relevant, 0.8, 0.2)))
    return found


def test_pairs_and_weights_are_those_of_equation_6() -> None:
    """ρ = P(R*)/(P(R) + P(R*)) with both lists' probabilities multiplied out, up to one past the last click."""
    (shown, _), *_ = searches(1, theta=0.3 * TRUTH)
    clicked = np.array([0, 1, 0, 0, 1, 0, 0, 0, 0, 0], dtype=bool)
    better, worse, rho = weighted_pairs(shown, clicked)
    expected = {}
    for a, b in itertools.combinations(range(6), 2):
        if clicked[a] != clicked[b]:
            swapped = shown.order.copy()
            swapped[[a, b]] = swapped[[b, a]]
            here, there = (list_probability(order.tolist(), shown.scores) for order in (shown.order, swapped))
            expected[(a, b) if clicked[a] else (b, a)] = there / (here + there)
    found = dict(zip(zip(better.tolist(), worse.tolist(), strict=True), rho.tolist(), strict=True))
    assert found.keys() == expected.keys()
    for pair, weight in expected.items():
        assert found[pair] == pytest.approx(weight, rel=1e-5)


def test_agreement_and_evidence_written_out() -> None:
    values = np.array([3.0, 1.0, 2.0])
    found = agreement(values, np.array([0, 1]), np.array([1, 2]))
    spread = math.sqrt(2.0 / 3.0)
    assert found.tolist() == pytest.approx([math.tanh(2.0 / spread), math.tanh(-1.0 / spread)])
    assert not agreement(np.ones(3), np.array([0]), np.array([1])).any()
    (shown, clicks), *_ = searches(1)
    better, worse, rho = weighted_pairs(shown, clicks)
    new = np.array([-1.0, 0.0, 1.0, 1.0, 0.0])
    own = [scores(Linear(), theta, shown.padded_features[:, :5])[shown.order].astype(float) for theta in (new, TRUTH)]
    gain = sum(
        w * (math.tanh((own[0][i] - own[0][j]) / own[0].std()) - math.tanh((own[1][i] - own[1][j]) / own[1].std()))
        for i, j, w in zip(better, worse, rho, strict=True)
    )
    assert list_evidence(Linear(), new, shown, clicks) == pytest.approx(gain / rho.sum(), rel=1e-5)


def test_poisoned_rankers_are_refused_and_honest_ones_taken() -> None:
    guard, random = ClickGuard(), np.random.default_rng(2)
    honest, turned = 0, 0
    for seed in range(8):
        lists = searches(40, seed)
        honest += guard.judge(Linear(), TRUTH + 0.1 * random.normal(size=5), lists).accepted
        turned += guard.judge(Linear(), -TRUTH, lists).accepted
    assert honest == 8
    assert turned == 0


def test_few_lists_decide_nothing_and_bad_numbers_are_refused() -> None:
    guard = ClickGuard(least=8)
    assert guard.judge(Linear(), -TRUTH, searches(7)).accepted
    assert guard.judge(Linear(), -TRUTH, []) == (True, 0, 0.0, math.inf)
    assert not guard.judge(Linear(), np.full(5, np.nan), []).accepted
    assert guard.decide([-1.0] * 8).accepted is False
    assert guard.decide([None] * 90 + [-1.0] * 7).accepted


def test_the_bound_is_a_one_sided_t_test() -> None:
    from scipy.stats import t

    values = [0.1, -0.4, -0.2, 0.0, -0.3, -0.1, 0.2, -0.5]
    verdict = ClickGuard(error=0.1, margin=0.0).decide(values)
    expected = np.mean(values) + t.ppf(0.9, 7) * np.std(values, ddof=1) / math.sqrt(8)
    assert verdict.bound == pytest.approx(expected)
    assert verdict.accepted == (expected >= 0.0)


def test_a_ranker_that_is_led_astray_slowly_is_held_against_older_lists() -> None:
    """Each step alone is within the margin; lists of the first steps refuse the last ones."""
    away = np.array([0.0, 1.0, 0.0, 1.0, -1.0])
    lists, accepted, refusals = searches(60), TRUTH, 0
    for step in range(1, 21):
        new = TRUTH + 0.3 * step * away
        verdict = ClickGuard().judge(Linear(), new, lists[-100:])
        refusals += not verdict.accepted
        accepted = new if verdict.accepted else accepted
        lists += searches(5, 100 + step, accepted)
    assert refusals > 3
    assert np.linalg.norm(accepted - TRUTH) < np.linalg.norm(new - TRUTH)
