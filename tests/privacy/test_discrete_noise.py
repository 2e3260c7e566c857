"""Skellam noise: its distribution, its shares, its addresses, and its privacy against the exact Rényi divergence."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import pytest
from chance import UNLIKELY, assert_follows, assert_mean
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import ive, logsumexp

from quorank.errors import BadInput
from quorank.kernels.draws import Purpose, key_of
from quorank.privacy.mechanisms.skellam import (
    l1_bound,
    log_poisson,
    poisson_by_inversion,
    rejection_constants,
    rejection_proposal,
    skellam,
    skellam_epsilon,
    skellam_rdp,
    skellam_rows,
    skellam_variance,
)
from quorank.privacy.streams import key_for

KEY = key_of(7, Purpose.NOISE_SHARE)


def drawn(variance, count, *, key=KEY, round_=0, client=0) -> np.ndarray:
    out = np.empty(count, dtype=np.int64)
    skellam(key, round_, client, variance, out)
    return out


def shares(variance, clients, size, *, round_=0) -> np.ndarray:
    out = np.empty((clients, size), dtype=np.int64)
    skellam_rows(KEY, round_, np.arange(clients), variance, out)
    return out


def assert_skellam(sample, variance) -> None:
    """Chi-square against scipy's pmf; wide distributions in about a hundred bins, cut at whole numbers."""
    law = stats.skellam(variance / 2, variance / 2)
    reach = math.ceil(12 * math.sqrt(variance) + 20)
    values = np.arange(-reach, reach + 1)
    width = max(1, math.ceil(math.sqrt(variance) / 10))
    bins: dict[object, float] = {}
    for value, p in zip(values, law.pmf(values), strict=True):
        bins[int(value // width)] = bins.get(int(value // width), 0.0) + float(p)
    assert np.abs(sample).max() <= reach
    assert_follows((np.asarray(sample) // width).tolist(), bins)


# ---------------------------------------------------------------- the sampler


@pytest.mark.parametrize("variance", [0.001, 0.01, 0.5, 3.0, 19.99, 20.0, 21.0, 50.0, 300.0, 1e4])
def test_draws_follow_the_skellam_distribution(variance) -> None:
    for key in (KEY, key_for(bytes(range(32)), Purpose.NOISE_SHARE)):
        assert_skellam(drawn(variance, 200_000, key=key), variance)


@pytest.mark.parametrize("variance", [0.5, 8.0, 30.0, 1e6, 1e9, 1e14])
def test_draws_have_their_moments_and_far_out_the_normal_shape(variance) -> None:
    sample = drawn(variance, 1_000_000) / math.sqrt(variance)
    assert_mean(sample, 0.0)
    assert_mean(sample**2, 1.0)
    assert_mean(sample**4, 3.0 + 1.0 / variance)
    if variance >= 1e6:  # the distance to the normal is of order 1/variance, the steps 1/√variance
        assert stats.kstest(sample[:100_000], "norm").pvalue > UNLIKELY


@given(st.floats(1e-6, 10.0), st.floats(0, 1, exclude_max=True))
def test_inversion_inverts_the_cumulative_probability(mean, u) -> None:
    k, law = poisson_by_inversion(mean, u), stats.poisson(mean)
    assert law.cdf(k) >= u - 1e-14
    assert k == 0 or law.cdf(k - 1) <= u + 1e-14


@given(st.integers(0, 10_000), st.floats(10, 1e4))
def test_log_poisson_is_the_log_of_the_pmf(k, mean) -> None:
    assert log_poisson(float(k), mean) == pytest.approx(stats.poisson(mean).logpmf(k), rel=1e-10, abs=1e-10)


def under_the_hat(mean) -> tuple[np.ndarray, np.ndarray]:
    """On a fine grid of u: the room 0.5 − |u| to the edge, and the probability with which its k must be accepted."""
    a, b, inverse_alpha, _ = rejection_constants(mean)
    u = (np.arange(50_000) + 0.5) / 50_000 - 0.5
    room = 0.5 - np.abs(u)
    k = rejection_proposal(mean, a, b, u)
    pmf = np.where(k >= 0, stats.poisson(mean).pmf(np.maximum(k, 0)), 0.0)
    return room, pmf * (a / room**2 + b) / inverse_alpha


@pytest.mark.parametrize("mean", [10.0, 10.2, 11.0, 13.24, 15.0, 20.0, 25.0, 34.44, 60.0, 137.0, 1e3, 1e5, 1e8])
def test_rejection_is_exact_everywhere_under_its_hat(mean) -> None:
    """No acceptance probability exceeds 1, the sure region lies inside, and the quick refusal outside."""
    room, accepted = under_the_hat(mean)
    assert accepted.max() <= 1.0
    assert accepted[room >= 0.07].min() >= rejection_constants(mean)[3]
    assert np.all(accepted[room < 0.013] <= room[room < 0.013])


@pytest.mark.parametrize(("variance", "clients"), [(0.5, 50), (3.0, 7), (200.0, 1000), (1e4, 40)])
def test_shares_add_up_to_exactly_the_central_noise(variance, clients) -> None:
    size = 4_000_000 // clients if clients > 40 else 100_000
    together = shares(variance / clients, clients, size).sum(axis=0)
    central = drawn(variance, size, round_=1)
    assert_skellam(together, variance)
    edges = np.unique(np.quantile(central, np.linspace(0.05, 0.95, 19)))
    table = [np.bincount(np.searchsorted(edges, x), minlength=len(edges) + 1) for x in (together, central)]
    kept = np.array(table)[:, np.sum(table, axis=0) > 10]
    assert stats.chi2_contingency(kept).pvalue > UNLIKELY


# ---------------------------------------------------------------- addresses


@given(st.sampled_from([0.01, 4.0, 80.0, 1e7]), st.permutations(range(6)), st.integers(1, 9), st.integers(0, 9))
def test_a_share_depends_on_its_address_only(variance, order, size, round_) -> None:
    clients = np.array(order)
    out = np.empty((6, size), dtype=np.int64)
    skellam_rows(KEY, round_, clients, variance, out)
    for row, client in zip(out, clients, strict=True):
        assert row.tolist() == drawn(variance, 12, round_=round_, client=client)[:size].tolist()


def test_no_variance_is_no_noise_and_bad_variances_are_refused() -> None:
    assert not drawn(0.0, 100).any()
    for variance in (-1.0, math.nan, math.inf, 1e16):
        with pytest.raises(BadInput, match="variance"):
            drawn(variance, 3)


# ---------------------------------------------------------------- privacy


@lru_cache(maxsize=32)
def log_pmf(variance, shift) -> np.ndarray:
    """Of Sk(μ) + Δ: e^−μ I_x−Δ(μ)."""
    x = np.arange(-40_000, 40_001) if variance >= 1000 else np.arange(-4000, 4001)
    with np.errstate(divide="ignore"):
        return np.log(ive(np.abs(x - shift), variance))


def exact_rdp(order, variance, shift) -> float:
    """D_α(Sk(μ) + Δ ‖ Sk(μ)) summed from the pmf, as far out as float64 holds it."""
    p, q = log_pmf(variance, shift), log_pmf(variance, 0)
    seen = np.isfinite(p) & np.isfinite(q) & (np.minimum(p, q) > -690)
    return float(logsumexp(order * p[seen] - (order - 1) * q[seen]) / (order - 1))


def test_the_bound_is_the_published_one() -> None:
    assert skellam_rdp(3, 10, 2, 4) == pytest.approx(3 * 4 / 20 + (5 * 4 + 24) / 400, rel=1e-15)
    assert skellam_rdp(3, 0.5, 2, 4) == pytest.approx(3 * 4 / 1 + 12 / 1, rel=1e-15)


@pytest.mark.parametrize("variance", [0.1, 0.5, 1.0, 3.0, 10.0, 100.0, 1e4])
def test_the_bound_holds_against_the_exact_divergence(variance) -> None:
    for shift in (1, 2, 5, 10):
        for order in (1.1, 1.5, 2, 3, 5, 8, 16):
            exact = exact_rdp(order, variance, shift)
            assert exact <= skellam_rdp(order, variance, shift, shift) * (1 + 1e-9)


def test_the_exact_divergence_of_a_vector_is_within_the_bound_of_its_norms() -> None:
    shifts = [3, 1, 1, 0, 2]
    l2, l1 = math.sqrt(sum(s * s for s in shifts)), sum(shifts)
    for variance in (1.0, 20.0, 500.0):
        for order in (2, 5, 12):
            exact = sum(exact_rdp(order, variance, s) for s in shifts)
            assert exact <= skellam_rdp(order, variance, l2, l1)


@given(st.floats(0.05, 20), st.sampled_from([1e-9, 1e-5, 1e-2]), st.integers(1, 1000), st.floats(1, 1e4))
def test_the_variance_is_the_least_that_keeps_the_promise(epsilon, delta, rounds, l2) -> None:
    l1 = l1_bound(l2, 46)
    variance = skellam_variance(epsilon, delta, rounds, l2, l1)
    assert skellam_epsilon(variance, l2, l1, rounds, delta) <= epsilon
    assert skellam_epsilon(variance * (1 - 1e-6), l2, l1, rounds, delta) > epsilon
