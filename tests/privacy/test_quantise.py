"""Quantised updates: an exact mean, no wrapping, bounds on the norm by brute force, and refusals by name."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from chance import assert_mean
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from quorank.errors import BadInput
from quorank.kernels.draws import Purpose, key_of, uniforms
from quorank.privacy.mechanisms.skellam import dequantise, quantise, quantised_norm_bound, scale_for
from quorank.privacy.streams import key_for

KEY = key_of(5, Purpose.QUANTISATION)


def signed(rows: np.ndarray) -> np.ndarray:
    return rows.view(np.int32).astype(np.int64)


def test_the_mean_is_exact() -> None:
    x = np.array([0.3, -0.3, 1e-3, -2.75, 0.0, 5.0, 1 / 3])
    scale = 4.0
    for key in (KEY, key_for(bytes(range(32)), Purpose.QUANTISATION)):
        sent = signed(quantise(np.tile(x, (40_000, 1)), scale, key, 3, np.arange(40_000)))
        assert set(np.unique(sent[:, 4])) == {0}
        assert set(np.unique(sent[:, 5])) == {20}
        assert set(np.unique(sent[:, 3])) == {-11}
        assert_mean(sent[:, [0, 1, 2, 6]], x[[0, 1, 2, 6]] * scale)


def test_one_row_from_its_draws() -> None:
    x = np.random.default_rng(1).normal(size=7)
    sent = signed(quantise(x[None, :], 8.0, KEY, 2, np.array([41])))[0]
    u = uniforms(5, Purpose.QUANTISATION, 7, round_=2, client=41)
    assert sent.tolist() == [math.floor(v * 8 + 1 - w) for v, w in zip(x, u, strict=True)]


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=9), st.integers(-20, 20))
def test_dequantise_is_centred(numbers, exponent) -> None:
    total = np.array([z % 2**32 for z in numbers], dtype=np.uint32)
    assert dequantise(total, 2.0**exponent).tolist() == [z / 2.0**exponent for z in numbers]


@given(st.floats(1e-6, 1e6), st.integers(1, 10**6), st.one_of(st.just(0.0), st.floats(1e-6, 1e6)))
def test_the_scale_is_the_largest_power_of_two_that_does_not_wrap(clip, cohort, std) -> None:
    scale = scale_for(clip, cohort, std)
    assert math.frexp(scale)[0] == 0.5
    z = math.sqrt(2 * math.log(2 / 2.0**-80))

    def reach(s: float) -> Fraction:
        return Fraction(s) * (Fraction(clip) * cohort + Fraction(z) * Fraction(std)) + cohort

    assert reach(scale) < 2**31
    assert reach(2 * scale) > (2**31 - 1) * (1 - 1e-12)


def test_the_tail_behind_the_scale() -> None:
    """Room for z·σ: a Gaussian's exact tail and a discrete one's are both below 2^-80, times 2^20 below 2^-60."""
    std = 1.0
    scale = scale_for(1e-9, 1, std)
    z = (2**31 - 2) / scale  # in standard deviations; the power of two leaves up to twice the room
    assert 2 * stats.norm.sf(z) * 2**20 < 2.0**-60
    sigma, k = 30.0, np.arange(-3000, 3001)
    weights = np.exp(-(k**2) / (2 * sigma**2))
    needed = math.sqrt(2 * math.log(2 / 2.0**-80))
    assert weights[np.abs(k) > needed * sigma].sum() / weights.sum() < 2.0**-80


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_largest_sum_does_not_wrap(sign) -> None:
    cohort, clip = 1000, 0.3
    scale = scale_for(clip, cohort, 0.0)
    rows = np.zeros((cohort, 3))
    rows[:, 1] = sign * clip  # the whole norm of each in one number
    total = quantise(rows, scale, KEY, 0, np.arange(cohort)).sum(axis=0, dtype=np.uint32)
    assert dequantise(total, scale)[1] == pytest.approx(sign * clip * cohort, rel=1e-6)
    twice = quantise(np.tile(rows, (2, 1)), 2 * scale, KEY, 0, np.arange(2 * cohort)).sum(0, dtype=np.uint32)
    assert dequantise(twice, 2 * scale)[1] != pytest.approx(sign * clip * 2 * cohort, rel=1e-2)


def longest(c: float, d: int) -> int:
    """max ‖y‖² over ‖x‖ ≤ c with every number rounded away: over all levels y, if Σ (y_j − 1)² < c² (or y = 0)."""
    best = 0
    for y in product(range(math.ceil(c) + 2), repeat=d):
        least = sum((v - 1) ** 2 for v in y if v > 0)  # |x_j| just above y_j − 1
        if least < c * c:
            best = max(best, sum(v * v for v in y))
    return best


@pytest.mark.parametrize("d", [1, 2, 3, 4])
@pytest.mark.parametrize("c", [0.01, 0.5, 1.0, 1.3, 2.0, 2.2, 3.7, 5.0])
def test_the_norm_bound_holds_for_every_update_and_is_nearly_reached(c, d) -> None:
    bound, exact = quantised_norm_bound(c, 1.0, d), longest(c, d)
    assert bound >= math.sqrt(exact)
    assert bound <= (c + math.sqrt(d)) * (1 + 1e-12)
    assert bound**2 <= exact + 2 * math.ceil(c) + 3  # at most one step more
    assert quantised_norm_bound(c / 4, 4.0, d) == bound


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 2.0**31, -(2.0**31), 1e300])
def test_numbers_without_a_place_are_refused_by_client(value) -> None:
    rows = np.zeros((3, 4))
    rows[1, 2] = value
    with pytest.raises(BadInput, match=r"client 77: number 2 of its update is"):
        quantise(rows, 1.0, KEY, 0, np.array([5, 77, 6]))
