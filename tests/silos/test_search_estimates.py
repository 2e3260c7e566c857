"""Estimates of a search: noise within e^ε of a cell, the posterior as it is written, settings that make sense."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from refusals import refused

from quorank.parts import Family
from quorank.silos.discrete_laplace import scale_for
from quorank.silos.search.estimates import (
    BM25,
    MOST_COUNT,
    count_prior,
    estimated_frequency,
    expected_count,
    expected_frequency,
    posterior,
    shrink_lengths,
)
from quorank.silos.search.settings import SearchTerms


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 8.0, 16.0])
def test_the_likelihood_ratio_of_a_cell_and_a_length_reaches_epsilon_and_never_passes_it(epsilon) -> None:
    """One occurrence changes one cell and one length by one: the worst pair of outputs has exactly ε_c + ε_L ≤ ε."""
    terms = SearchTerms(epsilon=epsilon)
    worst = 0.0
    for part in (terms.cell_epsilon, terms.length_epsilon):
        scale = scale_for(1, part)
        log_p = [-abs(x) / scale for x in range(-60, 61)]  # exact fractions, without their common constant
        ratios = [abs(one - other) for one, other in zip(log_p[1:], log_p, strict=False)]
        assert max(ratios) == 1 / scale <= Fraction(str(part))
        worst += float(max(ratios))
    assert epsilon - 3e-6 <= worst <= epsilon


def brute_posterior(v: int, df: float, cf: float, n: float, q: float, collide: float) -> list[float]:
    pi, r = min(max(df, 0.5) / n, 0.999), min(max(1 - df / cf, 0.02), 0.9)
    weights = []
    for c in range(MOST_COUNT + 1):
        prior = 1 - pi if c == 0 else pi * (1 - r) * r ** (c - 1)
        weights.append(prior * ((1 - collide) * q ** abs(v - c) + collide * q ** abs(v - c - 1)))
    return [weight / sum(weights) for weight in weights]


@pytest.mark.parametrize("collide", [0.0, 1e-3])
@pytest.mark.parametrize("epsilon", [1.0, 7.0])
def test_posterior_against_brute_force(epsilon, collide) -> None:
    q, prior = math.exp(-epsilon), count_prior(7.0, 12.0, 350.0)
    values, lengths = np.array([1, 2, 3, 9, 24]), np.array([0.3, 1.0, 1.0, 2.0, 0.7])
    found, frequency = posterior(values, prior, q, collide), expected_frequency(values, lengths, prior, q, collide)
    for at, v in enumerate(values.tolist()):
        expected = brute_posterior(v, 7.0, 12.0, 350.0, q, collide)
        assert np.allclose(found[at], expected, rtol=1e-12)
        saturation = BM25.k1 * (1 - BM25.b + BM25.b * lengths[at])
        mean = sum(p * c * (BM25.k1 + 1) / (c + saturation) for c, p in enumerate(expected))
        assert math.isclose(frequency[at], mean, rel_tol=1e-12)
        assert math.isclose(expected_count(values, prior, q, collide)[at], sum(c * p for c, p in enumerate(expected)))


def test_without_noise_a_cell_is_its_count_and_huge_cells_are_read() -> None:
    prior = count_prior(3.0, 5.0, 100.0)
    assert np.allclose(expected_count([1, 2, 24], prior, 0.0), [1, 2, 24])
    assert np.allclose(expected_count([25, 65_535], prior, 0.0), 24)
    assert np.isfinite(expected_count([65_535], prior, math.exp(-56.0))).all()


def test_a_prior_is_a_distribution_for_whatever_statistics() -> None:
    for df, cf, n in ((0, 0, 0), (1, 1, 1), (5, 3, 2), (1e6, 2e6, 10), (3, 300, 100)):
        prior = count_prior(df, cf, n)
        assert (prior > 0).all()
        assert 0.9 < prior.sum() <= 1 + 1e-12


def test_frequency_of_a_column_without_bias() -> None:
    q, n, df = math.exp(-1.0), 1000, 200
    phi = q / (1 + q)
    named = df * (1 - phi) + (n - df) * phi  # P(c + X ≥ 1) = 1 − φ for c = 1
    assert math.isclose(estimated_frequency(named, n, q), df)
    assert estimated_frequency(0, n, q) == 0.5
    assert estimated_frequency(n, n, q) == n


def test_lengths_keep_the_share_of_their_spread_that_is_no_noise() -> None:
    told = np.array([10.0, 20.0, 30.0, 40.0])
    q, mean, spread = math.exp(-0.5), 25.0, 125.0
    kept = (spread - 2 * q / (1 - q) ** 2) / spread
    assert np.allclose(shrink_lengths(told, 0.5), mean + (told - mean) * kept)
    assert np.allclose(shrink_lengths(told, 0.01), mean)  # all of it could be noise
    assert shrink_lengths([-3, 0], None).tolist() == [1.0, 1.0]
    assert len(shrink_lengths([], 1.0)) == 0


def test_settings_print_and_read_back_and_refuse_nonsense() -> None:
    family = Family("search", SearchTerms)
    for terms in (SearchTerms(), SearchTerms("none", among=1), SearchTerms(epsilon=0.7, share=0.01, k=3)):
        assert family.parse(str(terms)) == terms
    assert (SearchTerms().cell_epsilon, SearchTerms().length_epsilon) == (7.0, 1.0)
    assert SearchTerms().statement()["epsilon"] == 8.0
    assert SearchTerms("none").statement()["epsilon"] is None
    for name, value in (
        ("epsilon", 0.0),
        ("epsilon", math.nan),
        ("k", 0),
        ("among", 17),
        ("share", 0.0),
        ("columns", 1),
    ):
        with refused("value.out-of-range", name):
            SearchTerms(**{name: value})
    with refused("option.conflict", "share_of_all"):
        SearchTerms(share=0.2)
