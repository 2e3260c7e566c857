"""Counterfactual learning: unbiased estimates and gradients under position-based clicks, and propensities from swaps."""

from __future__ import annotations

import math

import equations
import numpy as np
import pytest
from chance import assert_mean
from lists import NO_FEATURES, one_query, simulate
from refusals import refused

from quorank.experiments.experiment import Experiment
from quorank.federation import Federation
from quorank.learning import Counterfactual, OnlineRanker
from quorank.learning.inverse_propensity import relevance_estimates, value_coefficients
from quorank.learning.plackett_luce import buffers_for
from quorank.rankers import Linear
from quorank.users import PositionBased

LABELS, SCORES = (1, 0, 2, 1), np.array([2.0, 1.5, 0.5, -1.0], dtype=np.float32)  # the ranking is 0 1 2 3
USERS = PositionBased(eta=1.0)
RELEVANCE = USERS.tables(3, 4).click[list(LABELS)]
PROPENSITY = 1.0 / np.arange(1, 5)


def patterns() -> dict[tuple[bool, ...], float]:
    tables = USERS.tables(3, 4)
    return equations.click_patterns(LABELS, tables.examine, tables.click, tables.stop)


def expected_values(learner) -> np.ndarray:
    total, values = np.zeros(4), np.empty(4)
    for clicked, p in patterns().items():
        relevance_estimates(learner.click_rule(4), np.array(clicked), 4, values)
        total += p * values
    return total


def expected_gradient(learner) -> np.ndarray:
    total, buffers = np.zeros(4), buffers_for(4, 0, NO_FEATURES, 4)
    buffers.shown[:] = np.arange(4)
    for clicked, p in patterns().items():
        buffers.clicked[:] = clicked
        value_coefficients(learner.click_rule(4), SCORES, 4, buffers)
        total += p * buffers.coefficients
    return total


def pairwise(values, reach=3) -> np.ndarray:
    """∇ of Σ_(a,b) v(a)·P(a ≻ b) by the scores, over documents at most `reach` ranks apart."""
    out = np.zeros(4)
    for a in range(4):
        for b in range(4):
            if 0 < abs(a - b) <= reach:
                first, second = math.exp(SCORES[a]), math.exp(SCORES[b])
                slope = first * second / (first + second) ** 2
                out[a] += values[a] * slope
                out[b] -= values[a] * slope
    return out


def listwise(values) -> np.ndarray:
    """∇ of Σ_a v(a)·log softmax(a) by the scores."""
    shares = np.exp(SCORES.astype(float)) / np.exp(SCORES.astype(float)).sum()
    return values - values.sum() * shares


@pytest.mark.parametrize("estimator", ["ips", "dr"])
def test_unclipped_estimates_are_unbiased(estimator) -> None:
    np.testing.assert_allclose(expected_values(Counterfactual(power=1.0, estimator=estimator)), RELEVANCE, rtol=1e-12)


def test_clipping_shrinks_ips_and_leaves_dr_at_its_regression() -> None:
    clip = 0.4
    kept = np.minimum(1.0, PROPENSITY / clip)
    np.testing.assert_allclose(expected_values(Counterfactual(power=1.0, clip=clip)), kept * RELEVANCE, rtol=1e-12)
    looks = PROPENSITY * RELEVANCE
    mean = (looks.sum() - looks) / (
        PROPENSITY.sum() - PROPENSITY
    )  # E of the clicks on the others over their propensities
    wanted = mean + kept * (RELEVANCE - mean)
    np.testing.assert_allclose(
        expected_values(Counterfactual(power=1.0, clip=clip, estimator="dr")), wanted, rtol=1e-12
    )


def test_snips_gives_every_clicked_list_the_same_weight() -> None:
    rule, plain = Counterfactual(power=1.0, estimator="snips").click_rule(4), Counterfactual(power=1.0).click_rule(4)
    for clicked in patterns():
        values, raw = np.empty(4), np.empty(4)
        found = relevance_estimates(rule, np.array(clicked), 4, values)
        assert found == any(clicked) == relevance_estimates(plain, np.array(clicked), 4, raw)
        if found:
            assert values.sum() == pytest.approx(1.0)
            np.testing.assert_allclose(values, raw / raw.sum(), rtol=1e-14)


@pytest.mark.parametrize("estimator", ["ips", "dr"])
def test_the_expected_gradient_is_that_of_the_true_relevance(estimator) -> None:
    for loss, direct in (("pairwise", pairwise), ("listwise", listwise)):
        found = expected_gradient(Counterfactual(power=1.0, estimator=estimator, loss=loss))
        np.testing.assert_allclose(found, direct(RELEVANCE), rtol=1e-6, atol=1e-9)
    assert found.sum() == pytest.approx(0.0, abs=1e-12)
    for reach in (1, 2):
        found = expected_gradient(Counterfactual(power=1.0, estimator=estimator, reach=reach))
        np.testing.assert_allclose(found, pairwise(RELEVANCE, reach), rtol=1e-6, atol=1e-9)


def played(learner, clients=60_000, k=4) -> np.ndarray:
    return simulate(one_query(LABELS, USERS, k), learner, SCORES.astype(float), np.arange(clients), 1)


@pytest.mark.parametrize("loss", ["pairwise", "listwise"])
def test_clients_show_the_ranking_and_follow_that_gradient(loss) -> None:
    rows = played(Counterfactual(power=1.0, eta=0.2, loss=loss))
    assert_mean(rows[:, :4] / 0.2, (pairwise if loss == "pairwise" else listwise)(RELEVANCE))
    np.testing.assert_allclose(rows[:, 4], equations.ndcg(LABELS, LABELS, 4), rtol=1e-12)


def test_propensities_must_cover_the_list() -> None:
    learner = Counterfactual(propensities=(1.0, 0.5))
    with refused("counterfactual.too-few-propensities", "propensities"):
        played(learner, 1)
    with refused("counterfactual.too-few-propensities", "propensities"):
        OnlineRanker(np.zeros(4), 4, Linear(), learner, k=3)
    with refused("counterfactual.too-few-propensities", "learner.propensities"):
        Experiment(federation=Federation(learner=learner))
    given = Counterfactual(propensities=tuple(PROPENSITY.tolist()))
    assert np.array_equal(played(given, 50), played(Counterfactual(power=1.0), 50))
