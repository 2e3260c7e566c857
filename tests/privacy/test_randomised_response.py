"""Randomised response: exact transitions, the ε of eq. 6, unbiased rounding, and statements that say all."""

from __future__ import annotations

import math

import numpy as np
import pytest
from chance import assert_follows
from hypothesis import given
from hypothesis import strategies as st

from quorank.errors import BadInput
from quorank.privacy import RandomisedResponse, Setting
from quorank.privacy.mechanisms.randomised_response import metric_values, randomised_response, round_at_random

VALUES = metric_values("maxrr", 10)
SETTING = Setting(50, 50, 100, interactions=4, values=11)


def sent_by(part, x, count, values=VALUES, seed=1, round_=0) -> np.ndarray:
    """(count, 2): what `count` clients send that all measured x (sides, interactions)."""
    measured = np.tile(np.asarray(x, dtype=np.float64), (count, 1, 1))
    return part.privatise(measured, values, seed, round_, np.arange(count))


@pytest.mark.parametrize(("p", "rounded"), [(0.25, 1.2), (0.5, 2.3), (0.9, 4.5)])
def test_epsilon_is_equation_6(p, rounded) -> None:
    epsilon = RandomisedResponse(p=p).epsilon(11)
    assert epsilon == pytest.approx(math.log(p * 10 / (1 - p)), rel=1e-14)
    assert round(epsilon, 1) == rounded


def transitions(p, n) -> np.ndarray:
    """P(answer | truth), exactly: all of the (u, v) square in cells small enough for p and n − 1."""
    fine = 200 * (n - 1)
    matrix = np.zeros((n, n))
    for truth in range(n):
        for i in range(100):
            for j in range(fine // 100):
                answer = randomised_response(truth, n, p, (i + 0.5) / 100, (j + 0.5) / (fine // 100))
                matrix[truth, answer] += 1
    return matrix / (100 * (fine // 100))


@pytest.mark.parametrize("p", [0.25, 0.5, 0.9])
@pytest.mark.parametrize("n", [2, 3, 11])
def test_transition_probabilities_are_exact_and_bounded_by_epsilon(p, n) -> None:
    matrix = transitions(p, n)
    expected = np.full((n, n), (1 - p) / (n - 1))
    np.fill_diagonal(expected, p)
    np.testing.assert_allclose(matrix, expected, atol=1e-12)
    if p > 1 / n:
        ratios = matrix[:, None, :] / matrix[None, :, :]
        assert math.log(ratios.max()) == pytest.approx(RandomisedResponse(p=p).epsilon(n), rel=1e-9)


@pytest.mark.parametrize("p", [0.25, 0.5, 0.9])
@pytest.mark.parametrize("truth", [0, 4, 10])
@pytest.mark.parametrize("per", ["message", "interaction"])
def test_what_is_sent_follows_the_transitions(p, truth, per) -> None:
    other = (truth + 3) % 11
    sent = sent_by(RandomisedResponse(p=p, per=per), [[VALUES[truth]], [VALUES[other]]], 20_000)
    for side, true in enumerate((truth, other)):
        exact = {v: p if i == true else (1 - p) / 10 for i, v in enumerate(VALUES.tolist())}
        assert_follows(sent[:, side].tolist(), exact)
    both = [(a == VALUES[truth], b == VALUES[other]) for a, b in sent.tolist()]
    chance = {True: p, False: 1 - p}
    assert_follows(both, {(a, b): chance[a] * chance[b] for a in chance for b in chance})


@given(st.floats(0, 1))
def test_rounding_keeps_the_mean_exactly(x) -> None:
    low = max(i for i, v in enumerate(VALUES) if v <= x)
    if low == 10 or VALUES[low] == x:
        assert {round_at_random(x, VALUES, u) for u in (0.0, 0.5, 1 - 2.0**-53)} == {low}
        return
    up = (x - VALUES[low]) / (VALUES[low + 1] - VALUES[low])  # the probability whose mean is x
    assert up * VALUES[low + 1] + (1 - up) * VALUES[low] == pytest.approx(x, abs=1e-15)
    assert round_at_random(x, VALUES, max(0.0, up * (1 - 1e-9))) == (low + 1 if up > 0 else low)
    if up * (1 + 1e-9) < 1:
        assert round_at_random(x, VALUES, up * (1 + 1e-9) + 1e-300) == low


def test_per_interaction_averages_single_responses() -> None:
    """Two interactions, each answered on its own: the mean of two independent draws of the transition."""
    p, truth = 0.6, (2, 7)
    sent = sent_by(RandomisedResponse(p=p, per="interaction"), [[VALUES[t] for t in truth], [0.0, 0.0]], 30_000)
    exact: dict[float, float] = {}
    for i, a in enumerate(VALUES):
        for j, b in enumerate(VALUES):
            q = (p if i == truth[0] else (1 - p) / 10) * (p if j == truth[1] else (1 - p) / 10)
            mean = round(float((a + b) / 2), 12)
            exact[mean] = exact.get(mean, 0.0) + q
    assert_follows([round(float(s), 12) for s in sent[:, 0]], exact)


@pytest.mark.parametrize("p", [0.05, 1 / 11])
def test_less_truth_than_chance_is_refused(p) -> None:
    with pytest.raises(BadInput, match="p: must be above 1/11"):
        sent_by(RandomisedResponse(p=p), [[0.0], [0.0]], 1)


def test_epsilon_adds_up_over_everything_that_is_sent() -> None:
    """Two numbers a round per message, B numbers a round per interaction; pure ε, so they add up."""
    once = math.log(0.5 * 10 / 0.5)
    message = RandomisedResponse(p=0.5).mechanism(SETTING, 1).statement()
    assert message["epsilon"] == pytest.approx(once * 2 * 100)
    single = RandomisedResponse(p=0.5, per="interaction").mechanism(SETTING, 1).statement()
    assert single["epsilon"] == pytest.approx(once * 4 * 100)
    assert message["epsilon_per_number_sent"] == pytest.approx(once)
    assert message["delta"] == 0
