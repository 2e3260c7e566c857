"""Preference pairs and their weights (eqs 5 and 6) against the product of eq. 2 over both rankings."""

from __future__ import annotations

import itertools
import math

import equations
import numpy as np
import pytest
from equations import list_probability
from hypothesis import given
from hypothesis import strategies as st
from lists import Sampler

from quorank.learning.pdgd import pair_slope, pair_weight

SCORES = st.lists(st.floats(-12, 12, width=32), min_size=1, max_size=60)


def test_pair_weight_is_equation_6() -> None:
    assert pair_weight(0.2, 0.6) == 0.6 / (0.2 + 0.6)
    scores, shown, swapped = [0.3, 1.2, -0.4], [1, 0, 2], [2, 0, 1]
    p, q = list_probability(shown, scores), list_probability(swapped, scores)
    assert pair_weight(p, q) == pytest.approx(equations.rho(shown, scores, 0, 2), rel=1e-14)


@given(st.floats(-600, 600), st.floats(-600, 600))
def test_pair_slope_is_the_middle_of_equation_5(x, y) -> None:
    slope = pair_slope(math.exp(-abs(x - y)))
    top = max(x, y)
    a, b = math.exp(x - top), math.exp(y - top)
    assert slope == pytest.approx(a * b / (a + b) ** 2, rel=1e-13)


@given(
    scores=SCORES | st.lists(st.floats(-1e4, 1e4, width=32) | st.floats(-90, 90, width=32), min_size=1, max_size=20),
    client=st.integers(0, 10**6),
    bits=st.integers(0, 2**10 - 1),
)
def test_coefficients_equal_the_direct_product_of_equation_2(scores, client, bits) -> None:
    """By denominators and by their logarithms, also where scores span more than doubles hold."""
    k = min(len(scores), 10)
    clicked = [bool(bits >> p & 1) for p in range(k)]
    sampler = Sampler(scores, k)
    shown = sampler.draw(client)
    expected = equations.coefficients(shown, scores, clicked)
    for rest in (sampler.rest, -1.0):
        found, coefficients = sampler.coefficients(clicked, rest)
        assert found == bool(equations.preferences(clicked))
        np.testing.assert_allclose(coefficients, expected, rtol=1e-8, atol=1e-12)


def test_a_document_with_nearly_all_of_the_mass() -> None:
    """D_i − e^f(y) + e^f(x) as a difference would cancel here; every swap must still come out right."""
    scores = [36.0, 0.0, 0.5, 1.0, -1.0]
    for client in range(50):
        sampler = Sampler(scores, 5)
        shown = sampler.draw(client)
        for clicked in itertools.product((False, True), repeat=5):
            _, coefficients = sampler.coefficients(clicked)
            expected = equations.coefficients(shown, scores, clicked)
            np.testing.assert_allclose(coefficients, expected, rtol=1e-10, atol=1e-30)


@pytest.mark.parametrize("k", [1, 2, 3, 6])
def test_which_pairs_are_compared(k) -> None:
    """Every click pattern: clicked against unclicked at or above one past the last click (SPEC §1)."""
    for clicked in itertools.product((False, True), repeat=k):
        sampler = Sampler(np.linspace(0, 1, k + 2), k)
        shown = sampler.draw(0)
        found, coefficients = sampler.coefficients(clicked)
        pairs = equations.preferences(clicked)
        assert found == bool(pairs)
        assert {p for p in range(k) if coefficients[p] != 0} == {p for pair in pairs for p in pair}
        np.testing.assert_allclose(
            coefficients, equations.coefficients(shown, sampler.scores.astype(float).tolist(), clicked), rtol=1e-12
        )
        assert sum(coefficients) == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize(
    ("k", "gap", "n"), [(20, 45.0, 31), (15, 68.0, 31), (50, 20.0, 60), (100, 12.0, 101), (100, 0.0, 2000)]
)
def test_long_lists_with_a_dominating_document_have_finite_pair_weights(k, gap, n) -> None:
    """Products of k denominators leave the range of doubles; their quotients do not."""
    sampler = Sampler([0.0] + [-gap] * (n - 1), k)
    sampler.draw(0)
    clicked = np.zeros(k, dtype=bool)
    clicked[-1] = True
    found, fast = sampler.coefficients(clicked)
    assert found and np.isfinite(fast).all()
    _, slow = sampler.coefficients(clicked, rest=-1.0)
    assert fast == pytest.approx(slow, rel=1e-6, abs=1e-12)  # scores are float32
