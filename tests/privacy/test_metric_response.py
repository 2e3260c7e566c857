"""Reports of a metric by randomised response: their law, their variance, the choice of steps, and what they cost."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given
from hypothesis import strategies as st

from quorank.privacy.mechanisms.randomised_response import (
    LEAST,
    MOST,
    MetricResponse,
    other_probability,
    true_probability,
    variance_at,
    worst_variance,
)

EPSILONS = st.floats(LEAST, MOST)
FIGURES = st.floats(0.0, 1.0)


def law(x: float, epsilon: float, m: int) -> dict[int, float]:
    """The chance of each number of steps, by going through both roundings and all answers."""
    chances = dict.fromkeys(range(m + 1), 0.0)
    low = min(int(x * m), m - 1)
    up = x * m - low
    for rounded, chance in ((low, 1.0 - up), (low + 1, up)):
        for sent in range(m + 1):
            weight = math.exp(epsilon) if sent == rounded else 1.0
            chances[sent] += chance * weight / (math.exp(epsilon) + m)
    return chances


@given(EPSILONS, FIGURES, FIGURES)
def test_no_two_metrics_are_told_apart_by_more_than_epsilon(epsilon: float, x: float, y: float) -> None:
    m = MetricResponse(epsilon).steps
    one, two = law(x, epsilon, m), law(y, epsilon, m)
    for sent in range(m + 1):
        assert one[sent] <= math.exp(epsilon) * two[sent] * (1 + 1e-9)
    assert true_probability(epsilon, m) / other_probability(epsilon, m) == pytest.approx(math.exp(epsilon))
    assert true_probability(epsilon, m) + m * other_probability(epsilon, m) == pytest.approx(1.0)


@given(EPSILONS, FIGURES, st.integers(1, 12))
def test_a_report_is_unbiased_and_its_variance_is_the_stated_one(epsilon: float, x: float, m: int) -> None:
    response = MetricResponse(epsilon)
    response.__dict__["steps"] = m
    chances = law(x, epsilon, m)
    mean = sum(chance * response.unbiased(sent) for sent, chance in chances.items())
    assert mean == pytest.approx(x, abs=1e-9 * response.unbiased(m))
    variance = sum(chance * (response.unbiased(sent) - x) ** 2 for sent, chance in chances.items())
    assert variance == pytest.approx(variance_at(x, epsilon, m), rel=1e-6, abs=1e-9)
    assert variance <= worst_variance(epsilon, m) * (1 + 1e-6)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 8.0])
def test_the_worst_variance_is_reached_and_no_other_number_of_steps_nor_laplace_noise_has_less(epsilon) -> None:
    response, grid = MetricResponse(epsilon), np.linspace(0.0, 1.0, 5001)
    for m in (response.steps, 1, 2, 7):
        highest = max(variance_at(float(x), epsilon, m) for x in grid)
        assert highest <= worst_variance(epsilon, m) <= highest * 1.001
    assert response.variance == min(worst_variance(epsilon, m) for m in range(1, 65))
    c = (math.exp(epsilon) + 1.0) / (math.exp(epsilon) - 1.0)
    assert worst_variance(epsilon, 1) == pytest.approx(c * c / 4.0), "one bit is Duchi's mechanism"
    assert response.variance < 0.7 * 2.0 / epsilon**2, "Laplace noise of scale 1/ε"
    assert response.error(25) == pytest.approx(math.sqrt(response.variance) / 5.0)


@pytest.mark.parametrize(("epsilon", "rounds"), [(0.1, 300), (1.0, 40), (2.0, 9), (4.0, 5)])
def test_many_reports_are_composed_as_the_library_composes_them(epsilon: float, rounds: int) -> None:
    response, delta, step = MetricResponse(epsilon), 1e-5, 1e-4
    k, q = response.steps + 1, other_probability(epsilon, response.steps)
    loss = pld.from_randomized_response(k * q, k, value_discretization_interval=step)
    bound = loss.self_compose(rounds).get_epsilon_for_delta(delta)
    found = response.epsilon_of(rounds, delta)
    assert found - 1e-6 <= bound <= found + rounds * step + 1e-6, "the library rounds each loss up by less than a step"
    assert found <= epsilon * rounds


def test_the_statement_names_unit_delta_and_horizon() -> None:
    stated = MetricResponse(0.5).statement(200, 1e-6)
    assert stated["epsilon_per_report"] == 0.5 and stated["epsilon"] == 100.0 and stated["delta"] == 0.0
    assert stated["unit"] == "client" and "200 reports" in stated["horizon"]
    assert stated["composed"]["delta"] == 1e-6 and stated["composed"]["epsilon"] < 100.0
    assert "1 report, " in MetricResponse(0.5).statement(1, 1e-6)["horizon"]
