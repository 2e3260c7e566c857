"""The bound of one-run audits: against its own terms added up, against mechanisms whose guesses are known exactly."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from privacy_losses import gaussian_epsilon
from scipy import stats

from quorank.privacy.audit.bound import epsilon_lower_bound, guess_accuracy, p_value


def tail(r, q, v) -> float:
    """P[Binomial(r, q) ≥ v], term by term."""
    return sum(math.comb(r, j) * q**j * (1 - q) ** (r - j) for j in range(max(v, 0), r + 1))


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 2.0, 7.0])
@pytest.mark.parametrize("r", [1, 7, 40])
def test_without_delta_it_is_the_tail_of_a_binomial(r, epsilon) -> None:
    q = math.exp(epsilon) / (1 + math.exp(epsilon))
    assert guess_accuracy(epsilon) == pytest.approx(q)
    for v in range(r + 1):
        exact = p_value(50, r, v, epsilon, 0.0)
        assert exact == pytest.approx(tail(r, q, v), rel=1e-9)
        assert exact == pytest.approx(stats.binomtest(v, r, q, "greater").pvalue, rel=1e-9)


@given(st.integers(1, 25), st.data(), st.floats(0, 4), st.floats(0, 0.2))
def test_the_delta_term_is_the_best_of_all_numbers_of_failures(m, data, epsilon, delta) -> None:
    r = data.draw(st.integers(0, m))
    v = data.draw(st.integers(0, r))
    q = math.exp(epsilon) / (1 + math.exp(epsilon))
    alpha = max((tail(r, q, v - i) - tail(r, q, v)) / i for i in range(1, m + 1))
    assert p_value(m, r, v, epsilon, delta) == pytest.approx(min(1.0, tail(r, q, v) + 2 * m * delta * alpha), abs=1e-9)


@pytest.mark.parametrize("delta", [0.0, 1e-4, 1e-2])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("m", [1, 10, 60])
def test_mechanisms_that_use_all_of_epsilon_and_delta_stay_below_the_bound(m, epsilon, delta) -> None:
    """Randomised response that tells the truth with probability δ, for each coin alone or for all of them at once."""
    q = guess_accuracy(epsilon)
    for v in range(m + 1):
        bound = p_value(m, m, v, epsilon, delta) + 1e-12
        assert tail(m, delta + (1 - delta) * q, v) <= bound
        assert delta + (1 - delta) * tail(m, q, v) <= bound


def test_nothing_can_be_said_from_half_right_or_from_nothing() -> None:
    assert epsilon_lower_bound(100, 100, 50, 0.0) == 0.0
    assert epsilon_lower_bound(100, 0, 0, 0.0) == 0.0
    assert epsilon_lower_bound(100, 4, 4, 0.0) == 0.0  # 1/16 is not unlikely enough
    assert epsilon_lower_bound(100, 5, 5, 0.0) > 0.0
    assert epsilon_lower_bound(100, 100, 100, 0.5) == 0.0


def exceeds(m, right, epsilon, delta) -> float:
    """P[bound > ε] when each of m guesses is right with this probability, over all outcomes."""
    outcomes = np.arange(m + 1)
    above = np.array([epsilon_lower_bound(m, m, int(v), delta) > epsilon for v in outcomes])
    return float(stats.binom.pmf(outcomes, m, right)[above].sum())


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("m", [20, 200])
def test_randomised_response_is_overrated_in_at_most_five_percent_exactly(m, epsilon) -> None:
    share = exceeds(m, guess_accuracy(epsilon), epsilon, 0.0)
    assert share <= 0.05
    if m == 200:
        assert share >= 0.01  # not by being empty


@pytest.mark.parametrize("mu", [0.3, 1.0, 3.0])
def test_a_gaussian_mechanism_is_not_overrated(mu) -> None:
    epsilon = gaussian_epsilon(mu, 1e-5)
    assert exceeds(150, stats.norm.cdf(mu / 2), epsilon, 1e-5) <= 0.05
