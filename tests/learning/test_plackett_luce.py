"""The compiled sampler against eq. 2, also where one document carries nearly all of the mass."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal, localcontext

import equations
import numpy as np
import pytest
from chance import assert_follows
from equations import document_probabilities, list_probability
from hypothesis import given
from hypothesis import strategies as st
from lists import Sampler

from quorank.learning.plackett_luce import fast_exp

VECTORS = {
    "ties": [0.0, 0.0, 0.0, 0.0],
    "mild": [0.3, -0.2, 1.1, 0.0],
    "peaked": [4.0, 0.0, -3.0, 2.0],
    "very peaked": [9.0, 0.0, 1.0, -6.0],
    "negative": [-1000.0, -1001.0, -999.5, -1000.25],
    "single": [3.0],
    "pair": [0.0, 1.0],
    "five": [0.5, 0.25, -0.5, 0.0, 1.0],
}


@pytest.mark.parametrize("scores", VECTORS.values(), ids=VECTORS)
def test_rankings_follow_equation_2(scores) -> None:
    k = min(len(scores), 4)
    assert_follows(Sampler(scores, k).many(30_000), equations.ranking_probabilities(scores, k))
    assert Sampler(scores, 1).draw(7) == Sampler(scores, k).draw(7)[:1]


@pytest.mark.parametrize("gap", [30.0, 65.0, 75.0, 200.0, 800.0, 5e3, 1e6])
def test_what_is_left_by_a_dominating_document_follows_its_own_distribution(gap) -> None:
    """[gap, 0, ½, 1]: the first is always drawn first, then the others as if it had never been there."""
    rest = [0.0, 0.5, 1.0]
    exact = {(0, *(d + 1 for d in r)): p for r, p in equations.ranking_probabilities(rest, 3).items()}
    assert_follows(Sampler([gap, *rest], 4).many(20_000), exact)


def test_tenth_position_of_a_long_list_with_ties_is_uniform() -> None:
    assert_follows([shown[9] for shown in Sampler(np.zeros(40), 10).many(20_000)], dict.fromkeys(range(40), 1 / 40))


@given(
    scores=st.lists(
        st.floats(-(2.0**127), 2.0**127, width=32) | st.floats(-1e3, 1e3, width=32), min_size=1, max_size=40
    ),
    client=st.integers(0, 1000),
)
def test_any_finite_scores_give_a_list_without_repetition(scores, client) -> None:
    sampler = Sampler(scores, min(len(scores), 10))
    shown = sampler.draw(client)
    assert len(set(shown)) == len(shown)
    assert set(shown) <= set(range(len(scores)))


@pytest.mark.parametrize("step", [1e3, 1e4, 1e6])
def test_huge_differences_sort(step) -> None:
    for client in range(200):
        order = np.random.default_rng(client).permutation(25)
        assert Sampler(order * step, 10).draw(client) == tuple(np.argsort(-order)[:10].tolist())


def test_a_list_depends_on_its_address_alone() -> None:
    """Not on what was drawn before; and every part of the address makes another list."""
    scores = np.random.default_rng(3).normal(size=40)
    addresses = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (2**31, 0, 0), (0, 0, 2**20), (5, 5, 5)]
    used = Sampler(scores, 10)
    lists = [used.draw(*address) for address in addresses]
    assert len(set(lists)) == len(lists)
    assert [used.draw(*address) for address in reversed(addresses)] == lists[::-1]
    assert [Sampler(scores, 10).draw(*address) for address in addresses] == lists
    assert Sampler(scores, 10, seed=2).draw(0, 0, 0) != lists[0]


def test_shown_weights_and_rest_are_the_masses_of_equation_1() -> None:
    scores = np.random.default_rng(5).normal(size=30).astype(np.float32)
    sampler = Sampler(scores, 10)
    shown = list(sampler.draw(0))
    weights = np.exp(scores.astype(np.float64) - float(scores.max()))
    np.testing.assert_allclose(sampler.shown_weights, weights[shown], rtol=1e-14)
    assert sampler.rest == pytest.approx(np.delete(weights, shown).sum(), rel=1e-13)


def test_fast_exp_is_within_two_units_in_the_last_place() -> None:
    random = np.random.default_rng(2)
    points = [0.0, -1e-300, -1e-17, -math.log(2) / 2, -701.0, -700.999]
    points += (-(10 ** random.uniform(-12, np.log10(701), 1500))).tolist() + (-701 * random.random(1500)).tolist()
    with localcontext() as context:
        context.prec = 40
        for x in points:
            exact, found = Decimal(x).exp(), fast_exp(x)
            assert abs(Decimal(found) - exact) <= 2 * Decimal(math.ulp(float(exact))), x
    assert fast_exp(0.0) == 1.0


def test_fast_exp_never_loses_a_weight() -> None:
    for x in (-702.0, -800.0, -1e6, -1e308, -math.inf):
        assert fast_exp(x) == fast_exp(-701.0) > 0


def test_the_reference_functions_are_equations_1_and_2() -> None:
    scores = [1.0, 0.0, 2.0]
    e = [math.exp(s) for s in scores]
    np.testing.assert_allclose(document_probabilities(scores), [w / sum(e) for w in e])
    assert list_probability([2, 0], scores) == pytest.approx(e[2] / sum(e) * e[0] / (e[0] + e[1]))
    assert sum(list_probability(r, scores) for r in itertools.permutations(range(3))) == pytest.approx(1)
    assert list_probability([0, 1], [800.0, 0.0, 0.0]) == pytest.approx(0.5)


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_scores_that_are_no_numbers_still_give_a_list(odd) -> None:
    for scores in ([odd] * 4, [0.0, odd, 1.0, 2.0]):
        assert sorted(Sampler(scores, 4).draw(0)) == [0, 1, 2, 3]
