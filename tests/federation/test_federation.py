"""Rounds as pure steps, and combinations that make no sense refused with a sentence."""

from __future__ import annotations

import math

import numpy as np
import pytest
from refusals import refused

from quorank.federation import Add, CohortSum, Federation, Mean, Sampled
from quorank.kernels.exact_sums import ExactSum
from quorank.learning import Evolution
from quorank.privacy import RandomisedResponse

NONSENSE = [
    ({"clients": 0}, "value.out-of-range", "clients"),
    ({"clients": -3}, "value.out-of-range", "clients"),
    ({"clients": 2**31}, "value.out-of-range", "clients"),
    ({"interactions": 0}, "value.out-of-range", "interactions"),
    ({"clients": 10, "participation": Sampled(cohort=11)}, "federation.cohort-too-large", "participation"),
    ({"privacy": RandomisedResponse()}, "privacy.no-metric", "privacy"),
    ({"learner": Evolution(), "interactions": 3}, "evolution.odd-interactions", "interactions"),
    ({"clients": 10, "learner": Evolution(), "client_momentum": 0.5}, "option.conflict", "client_momentum"),
    ({"clients": 10, "client_momentum": 1.0}, "value.out-of-range", "client_momentum"),
]


@pytest.mark.parametrize(("options", "code", "where"), NONSENSE)
def test_nonsense_is_refused(options, code, where) -> None:
    with refused(code, where):
        Federation(**options)


def test_the_mean_is_weighted_by_interactions() -> None:
    """Algorithm 2: Σ_c (n_c / n) θ_c, here with θ_c = θ + update_c."""
    updates, weights = np.array([[1.0, 0.0], [4.0, -2.0], [-2.0, 6.0]]), np.array([1.0, 2.0, 5.0])
    running = ExactSum(2)
    running.add(updates, weights, 2)
    mean = Mean().combine(running.value(), weights.sum())
    expected = [(1 * 1 + 2 * 4 + 5 * -2) / 8, (2 * -2 + 5 * 6) / 8]
    np.testing.assert_allclose(mean, expected, rtol=1e-15)
    theta = np.array([0.5, 0.25])
    federation = Federation(clients=3)
    state, _ = federation.round(federation.start(theta), gathered(running.value(), 8))
    of_weights = sum(n * (theta + u) for n, u in zip(weights, updates, strict=True)) / 8
    np.testing.assert_allclose(state.theta, of_weights, rtol=1e-15)


def gathered(total, weight, clients=3) -> CohortSum:
    return CohortSum(np.asarray(total, dtype=np.float64), float(weight), clients, int(weight), 4.0, 2.0, 16.0, {})


def test_a_round_and_its_report() -> None:
    federation = Federation(clients=3, server=Add(step=0.5))
    start = federation.start(np.array([1.0, 2.0]))
    assert start.round == 0
    state, report = federation.round(start, gathered([24.0, -32.0], 8))
    assert state.round == report.round == 1
    assert state.theta.tolist() == [1.0 + 0.5 * 3.0, 2.0 - 0.5 * 4.0]
    assert (report.interactions, report.online_ndcg, report.online_maxrr, report.clicks) == (8, 0.5, 0.25, 2.0)
    assert report.update_norm == math.sqrt(3.0**2 + 4.0**2)
    assert start.theta.tolist() == [1.0, 2.0]
