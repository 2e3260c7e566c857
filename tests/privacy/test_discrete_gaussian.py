"""The discrete Gaussian: its law, its exactness bit by bit, and what discreteness costs, against brute force."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused
from scipy import stats

from quorank.kernels.draws import Purpose
from quorank.privacy import ClippedGaussian, Setting, accounting
from quorank.privacy.mechanisms.clipping import ReleaseBound, clip_to_grid, grid_unit
from quorank.privacy.mechanisms.discrete_gaussian import (
    ALIAS,
    BLOCKS,
    CUT,
    HEIGHT,
    SURE,
    IntegerNoise,
    discrete_gaussian,
    epsilon_slack,
    gaussian_delta,
    table_for,
)
from quorank.privacy.mechanisms.gaussian import GaussianMechanism
from quorank.privacy.streams import key_for

KEYS = {"seed": key_for(3, Purpose.NOISE), "secret": key_for(bytes(range(32)), Purpose.NOISE)}
SIGMAS = [0.05, 0.3, 1.0, 3.7, 15.9, 16.0, 40.0, 1e3, 2.0**26 * 1.3, 2.0**45]


def drawn(sigma, count, key=KEYS["seed"], round_=0, stream=0, **how) -> np.ndarray:
    out = np.empty(count, dtype=np.int64)
    discrete_gaussian(key, round_, stream, sigma, out, **how)
    return out


def law(sigma, reach=60) -> tuple[np.ndarray, np.ndarray]:
    """Every whole number that matters, and its probability."""
    k = np.arange(-math.ceil(reach * max(sigma, 1.0)), math.ceil(reach * max(sigma, 1.0)) + 1)
    p = np.exp(-0.5 * (k / sigma) ** 2)
    return k, p / p.sum()


# ---------------------------------------------------------------- drawing


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("sigma", [0.3, 1.0, 3.7, 15.9, 16.0, 40.0])
def test_numbers_follow_the_law(sigma, name) -> None:
    """χ² over single numbers, against probabilities by brute force."""
    count = 40_000
    found = drawn(sigma, count, KEYS[name])
    k, p = law(sigma)
    often = p * count >= 5
    observed = np.array([np.count_nonzero(found == number) for number in k[often]])
    expected = p[often] * count
    if observed.sum() < count or expected.sum() < count - 1e-6:
        observed, expected = np.append(observed, count - observed.sum()), np.append(expected, count - expected.sum())
    assert stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > 1e-3


@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("name", KEYS)
def test_exact_arithmetic_draws_the_same_numbers(sigma, name) -> None:
    """With a margin of nearly 1 every number that is not sure by whole numbers is decided by exact arithmetic."""
    count = 400
    assert np.array_equal(drawn(sigma, count, KEYS[name]), drawn(sigma, count, KEYS[name], margin=0.9))


@pytest.mark.parametrize("sigma", SIGMAS)
def test_the_hat_covers_and_adds_up_exactly(sigma) -> None:
    """In rational numbers: the alias table draws block i with probability H_i/2^63, and no probability exceeds its hat."""
    table = table_for(sigma)
    weights = [0] * BLOCKS
    for column in range(BLOCKS):
        cut, alias = int(table.columns[column, CUT]), int(table.columns[column, ALIAS])
        assert 0 <= cut <= 2**54
        weights[column] += cut
        weights[alias] += 2**54 - cut
    assert weights == table.columns[:, HEIGHT].tolist()
    assert sum(weights) == 2**63 and BLOCKS << table.bits >= 32 * sigma
    top, square = int(table.top), Fraction(sigma) ** 2
    assert top == table.top
    with localcontext() as context:
        context.prec = 60

        def bell(k: int) -> Decimal:
            exponent = k * k / (2 * square)
            return (Decimal(-exponent.numerator) / Decimal(exponent.denominator)).exp()

        for block in (*range(40), 100, 255, BLOCKS - 1):
            height, sure = weights[block], int(table.columns[block, SURE])
            assert top * bell(block << table.bits) <= height
            assert sure * height <= top * bell(block + 1 << table.bits) * 2 ** (63 - table.bits)


# ---------------------------------------------------------------- the grid


@settings(deadline=None)
@given(st.floats(1e-9, 1e9), st.integers(1, 10**9))
def test_a_unit_keeps_clips_and_sums_exact(clip, cohort) -> None:
    unit = grid_unit(clip, cohort)
    assert math.frexp(unit)[0] == 0.5
    assert clip * unit < 2**26 and Fraction(clip) * Fraction(unit) * cohort <= 2**49
    assert clip * unit * 2 >= 2**26 or Fraction(clip) * Fraction(unit) * cohort * 4 > 2**49


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.floats(1e-6, 1e6), st.floats(0.2, 5.0))
def test_releases_are_whole_and_never_longer_than_the_clip(seed, size, clip, factor) -> None:
    """In whole numbers of any size, so that nothing is lost to rounding."""
    updates = np.random.default_rng(seed).normal(size=(3, size))
    updates *= factor * clip / np.linalg.norm(updates, axis=1, keepdims=True)
    raw, unit = updates.copy(), grid_unit(clip, 100)
    clip_to_grid(updates, clip, unit, np.arange(3))
    ReleaseBound(clip, unit, True).check(updates, np.arange(3))
    longest = math.floor(Fraction(clip) * Fraction(unit))
    for before, after in zip(raw, updates, strict=True):
        numbers = [int(number) for number in after]
        assert numbers == after.tolist() and sum(number**2 for number in numbers) <= longest**2
        np.testing.assert_allclose(after / unit, before * min(1.0, 1.0 / factor), atol=2.01 / unit, rtol=1e-7)


def test_false_releases_are_refused_by_their_code() -> None:
    unit, names = grid_unit(0.3, 10), np.array([4, 7])
    longest = math.floor(0.3 * unit)
    good = np.zeros((2, 3))
    good[1, 0] = longest
    ReleaseBound(0.3, unit, True).check(good, names)
    for bad, code in (
        (1.0, "update.longer-than-clip"),
        (math.nan, "update.not-finite"),
        (1e300, "update.longer-than-clip"),
    ):
        releases = good.copy()
        releases[1, 1] = bad
        with refused(code):
            ReleaseBound(0.3, unit, True).check(releases, names)
    releases = good.copy()
    releases[0, 1] = 0.5
    with refused("update.not-whole"):
        ReleaseBound(0.3, unit, True).check(releases, names)


# ---------------------------------------------------------------- accounting


def hockey_stick(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    """δ at ε of two laws on the same numbers: Σ max(0, p − e^ε q)."""
    return float(np.maximum(0.0, p - math.exp(epsilon) * q).sum())


@pytest.mark.parametrize(("sigma", "shift"), [(5000.0, 2500), (5000.0, 5000), (5000.0, 12_000), (5000.0, 1)])
def test_the_stated_epsilon_covers_the_exact_divergence(sigma, shift) -> None:
    """One number, one round: the exact δ of the discrete Gaussian at what is stated for it is within δ."""
    k = np.arange(-15 * 5000 - shift, 15 * 5000 + shift + 1)
    p, q = np.exp(-0.5 * (k / sigma) ** 2), np.exp(-0.5 * ((k - shift) / sigma) ** 2)
    p, q = p / p.sum(), q / q.sum()
    for delta in (1e-9, 1e-5, 0.01):
        gaussian = accounting.epsilon(Setting(1, 1, 1), sigma / shift, gaussian_delta(delta))
        stated = gaussian + epsilon_slack([IntegerNoise(sigma, 1)], gaussian, delta)
        assert max(hockey_stick(p, q, stated), hockey_stick(q, p, stated)) <= delta
        assert stated - gaussian < 1e-6 + 1e-6 * gaussian
        if gaussian > 0.01:  # and not by much: a little less is not enough
            assert max(hockey_stick(p, q, 0.999 * gaussian), hockey_stick(q, p, 0.999 * gaussian)) > delta


def test_two_rounds_of_coarse_noise_are_covered_by_the_bounds_of_the_proof() -> None:
    """m = 2 numbers of σ = 3, where the difference is large enough to be seen: P ≤ e^a Q, and Q ≤ e^b P near 0."""
    sigma = 3.0
    k, p = law(sigma, reach=20)
    q = stats.norm.cdf((0.5 - np.abs(k)) / sigma) - stats.norm.cdf((-0.5 - np.abs(k)) / sigma)
    ratio = q[np.abs(k) <= 7 * sigma] / p[np.abs(k) <= 7 * sigma]
    near = k[np.abs(k) <= 7 * sigma]
    assert ratio.min() >= 1.0 - 1.0 / (24 * sigma**2) and ratio.min() < 1.0 - 0.9 / (24 * sigma**2)
    assert np.all(ratio <= np.exp(near**2 / (24 * sigma**4)) * (1 + 1e-12))
    a = 2.0 / (24 * sigma**2 - 1.0)
    joint_p, joint_q = np.outer(p, p).ravel(), np.outer(q, q).ravel()
    assert np.all(joint_p <= math.exp(a) * joint_q + 1e-300)


def test_a_price_beyond_what_is_set_aside_is_calibrated_for() -> None:
    """With as many numbers as no ranker has: more noise, and still within the budget; beyond a quarter of it, refused."""
    part = ClippedGaussian(epsilon=1.0)
    setting = Setting(1000, 1000, 100, parameters=10**13)
    mechanism = GaussianMechanism(part, setting, 0, part.multiplier(setting))
    assert mechanism.slack(100, 1.0) > 1e-6
    assert 0.99 < mechanism.epsilon(100) <= 1.0
    with refused("privacy.too-much-noise", "privacy"):
        part.multiplier(Setting(1000, 1000, 100, parameters=10**20))


def test_a_round_without_its_unit_is_refused() -> None:
    """What a version with floating-point noise carried from round to round."""
    mechanism = ClippedGaussian(noise_multiplier=1.0).mechanism(Setting(50, 50, 20, parameters=9), 1)
    moving = ClippedGaussian(noise_multiplier=1.0, quantile=0.5).mechanism(Setting(50, 50, 20, parameters=9), 1)
    for one, memory in ((mechanism, {}), (moving, {"clip": np.array([0.05])}), (mechanism, {"unit": np.array([1.0])})):
        with refused("privacy.other-noise", "privacy"):
            one.release(np.zeros((1, 9)), np.zeros(9), 0, np.array([0]), memory)
        with refused("privacy.other-noise", "privacy"):
            one.finish(np.zeros(9), 0.0, 0, 1, 0, memory)


def test_sums_are_released_on_their_grid() -> None:
    """Every released number is a whole number of 1/unit, also with a clip that moves."""
    mechanism = ClippedGaussian(noise_multiplier=1.0, clip=0.3, quantile=0.5, clip_rate=1.5).mechanism(
        Setting(50, 50, 20, parameters=9), bytes(32)
    )
    memory, units = mechanism.start(), set()
    for t in range(20):
        unit = mechanism.unit_of(memory)
        rows = np.random.default_rng(t).normal(size=(50, 9))
        within = mechanism.release(rows, np.zeros(9), t, np.arange(50), memory)
        done = mechanism.finish(rows.sum(axis=0), 50.0, within, 50, t, memory)
        assert np.array_equal(done.total * unit, np.rint(done.total * unit)) and done.total.any()
        assert done.noise == pytest.approx(mechanism.sum_multiplier * mechanism.clip(memory))
        memory = done.memory
        units.add(unit)
    assert len(units) > 1
