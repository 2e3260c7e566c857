"""Accounting against the library itself, against closed forms, and the laws that any accounting obeys."""

from __future__ import annotations

import math
from dataclasses import replace

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting import pld, rdp
from hypothesis import given, settings
from hypothesis import strategies as st
from privacy_losses import epsilon_of, gaussian_epsilon, gaussian_losses, poisson_losses, replaced_losses
from scipy import optimize, stats

from quorank.errors import BadInput
from quorank.privacy import ClippedGaussian, Setting, accounting
from quorank.privacy.composition import compose

FULL = Setting(1000, 1000, 300)
POISSON = Setting(1000, 100, 50, "poisson")
FIXED = Setting(1000, 100, 50, "sampled")


@pytest.mark.parametrize("z", [10.396, 34.5, 230.0])
def test_full_participation_is_one_gaussian_mechanism(z) -> None:
    found = accounting.epsilon(FULL, z, 1e-5)
    assert found == pytest.approx(gaussian_epsilon(math.sqrt(300) / z, 1e-5), rel=1e-6)
    composed = dp.SelfComposedDpEvent(dp.GaussianDpEvent(z), 300)
    assert found == pytest.approx(pld.PLDAccountant().compose(composed).get_epsilon(1e-5), rel=1e-5)
    by_renyi = rdp.RdpAccountant().compose(composed).get_epsilon(1e-5)
    assert accounting.epsilon(FULL, z, 1e-5, "rdp") == by_renyi
    assert found < by_renyi


@pytest.mark.parametrize(
    ("setting", "accountant", "made"),
    [
        (POISSON, "pld", pld.PLDAccountant()),
        (POISSON, "rdp", rdp.RdpAccountant()),
        (FIXED, "pld", pld.PLDAccountant()),
        (FIXED, "rdp", rdp.RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)),
    ],
)
def test_sampled_cohorts_are_what_the_library_says_of_the_same_events(setting, accountant, made) -> None:
    inner = {
        ("poisson", "pld"): dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(5.0)),
        ("poisson", "rdp"): dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(5.0)),
        ("sampled", "pld"): dp.TruncatedSubsampledGaussianDpEvent(1000, 1.0, 100, 5.0),
        ("sampled", "rdp"): dp.SampledWithoutReplacementDpEvent(1000, 100, dp.GaussianDpEvent(2.5)),
    }[setting.participation, accountant]
    assert accounting.event(setting, 5.0, accountant) == inner
    expected = made.compose(dp.SelfComposedDpEvent(inner, 50)).get_epsilon(1e-5)
    assert accounting.epsilon(setting, 5.0, 1e-5, accountant) == expected


def test_a_cohort_of_fixed_size_is_bounded_by_exact_enumeration() -> None:
    """Three clients, cohorts of two, one number each: the worst likelihood ratio stays within the accounted (ε, δ)."""
    z, delta = 2.0, 1e-3
    bound = accounting.epsilon(Setting(3, 2, 1, "sampled"), z, delta)
    x = np.linspace(-40, 40, 160_001)
    worst, normal = 0.0, {total: stats.norm.pdf(x, total, z) for total in (-2.0, 0.0, 2.0)}
    for rest in ((1.0, 1.0), (-1.0, 1.0), (-1.0, -1.0)):
        density = {}
        for value in (-1.0, 1.0):  # of the client that is replaced
            data, cohorts = (value, *rest), [(0, 1), (0, 2), (1, 2)]
            density[value] = sum(normal[data[i] + data[j]] for i, j in cohorts) / len(cohorts)
        for own in density:
            for other in density:
                hockey = np.maximum(density[own] - math.exp(bound) * density[other], 0.0).sum() * (x[1] - x[0])
                worst = max(worst, hockey)
    assert 0.0 < worst <= delta


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
@pytest.mark.parametrize(("clients", "rounds", "z"), [(10, 1, 2.0), (3, 5, 4.0)])
def test_a_cohort_of_fixed_size_that_is_everyone_moves_by_two_clips(clients, rounds, z, accountant) -> None:
    """One client replaced by another, in a sum of everyone: 4.377 of one round with z = 2, where one clip gives 1.993."""
    everyone = Setting(clients, clients, rounds, "sampled")
    found = accounting.epsilon(everyone, z, 1e-5, accountant)
    assert found == accounting.epsilon(Setting(clients, clients, rounds), z / 2.0, 1e-5, accountant)
    exact = gaussian_epsilon(2.0 * math.sqrt(rounds) / z, 1e-5)
    assert exact <= found * (1 + 1e-9) and (accountant == "rdp" or found == pytest.approx(exact, rel=1e-6))
    less = accounting.epsilon(Setting(clients, clients - 1, rounds, "sampled"), z, 1e-5, accountant)
    assert less <= found * (1 + 1e-9)
    assert accounting.noise_multiplier(everyone, found, 1e-5, accountant) == pytest.approx(z, rel=2e-3)


def random_settings(participation: str, count: int) -> list[tuple[Setting, float, float]]:
    """Settings, multipliers and δ, small enough to be convolved by hand; of cohorts every size up to everyone."""
    draw, found = np.random.default_rng(7), []
    for number in range(count):
        clients = int(draw.integers(2, 30))
        cohort = clients if participation == "full" else max(1, round(clients * (number + 1) / count))
        rounds = int(draw.integers(1, 4))
        setting = Setting(clients, cohort, rounds, participation)  # type: ignore[arg-type]
        found.append((setting, float(draw.uniform(4.0, 10.0)), 10.0 ** -int(draw.integers(2, 7))))
    return found


@pytest.mark.parametrize("participation", ["full", "poisson", "sampled"])
def test_no_epsilon_is_below_that_of_a_pair_of_federations_convolved_by_hand(participation) -> None:
    """20 random settings each; of full and Poisson the pair is the worst one, so ε is hardly above it either."""
    for setting, z, delta in random_settings(participation, 20):
        found = accounting._epsilon(setting, z, delta, "pld", setting.rounds, accounting.COARSE)  # as while searching
        one = {
            "full": lambda z=z: gaussian_losses(z),
            "poisson": lambda z=z, rate=setting.rate: poisson_losses(z, rate),
            "sampled": lambda z=z, rate=setting.rate: replaced_losses(z, rate),
        }[participation]()
        lower = epsilon_of([one] * setting.rounds, delta)
        assert lower <= found + 1e-9, (setting, z, delta)
        assert participation == "sampled" or found <= lower + 0.02 + 0.01 * lower, (setting, z, delta)
        if participation == "sampled":
            twice = gaussian_epsilon(2.0 * math.sqrt(setting.rounds) / z, delta)
            assert found <= twice * (1 + 1e-9)


@pytest.mark.parametrize(
    ("setting", "accountant"),
    [(FULL, "pld"), (FULL, "rdp"), (POISSON, "rdp"), pytest.param(FIXED, "pld", marks=pytest.mark.nightly)],
)
def test_calibrated_noise_just_keeps_the_budget(setting, accountant) -> None:
    z = accounting.noise_multiplier(setting, 2.0, 1e-5, accountant)
    assert 1.99 <= accounting.epsilon(setting, z, 1e-5, accountant) <= 2.0
    assert accounting.epsilon(setting, 0.99 * z, 1e-5, accountant) > 2.0


@settings(max_examples=40)
@given(
    st.floats(0.3, 300.0),
    st.floats(1.01, 3.0),
    st.integers(1, 500),
    st.integers(1, 500),
    st.sampled_from([1e-9, 1e-5, 1e-2]),
)
def test_epsilon_grows_with_rounds_and_falls_with_noise_and_delta(z, factor, rounds, more, delta) -> None:
    setting = Setting(100, 100, rounds + more)
    few, many = (accounting.epsilon(setting, z, delta, rounds=t) for t in (rounds, rounds + more))
    assert few < many or many == few == 0.0
    assert accounting.epsilon(setting, z * factor, delta) < many or many == 0.0
    assert accounting.epsilon(setting, z, delta / 10) >= many


LEAST = 1e-12  # documented smallest δ of a run


def log_gaussian_delta(mu: float, epsilon: float) -> float:
    """log δ of one Gaussian mechanism (Balle and Wang 2018, theorem 8), without the cancellation of small δ."""
    upper, lower = stats.norm.logcdf(mu / 2.0 - epsilon / mu), epsilon + stats.norm.logcdf(-mu / 2.0 - epsilon / mu)
    return float(upper + math.log1p(-math.exp(lower - upper)))


@pytest.mark.parametrize("part", [ClippedGaussian(delta=LEAST), ClippedGaussian(delta=LEAST, noise_multiplier=20.0)])
def test_the_smallest_delta_is_accounted_as_the_closed_form_says(part) -> None:
    mechanism = part.mechanism(FULL, 1)
    stated = mechanism.statement()
    multiplier = stated["noise_multiplier"]
    exact = optimize.brentq(lambda e: log_gaussian_delta(math.sqrt(300) / multiplier, e) - math.log(LEAST), 0.01, 100.0)
    assert stated["delta"] == LEAST and exact < stated["epsilon"] == pytest.approx(exact, rel=1e-6)
    assert part.noise_multiplier is not None or stated["epsilon"] == pytest.approx(part.epsilon, rel=1e-6)


@pytest.mark.parametrize(("z", "rate"), [(1.0, 0.1), (0.6, 0.1), (5.0, 0.5)])
def test_the_smallest_delta_of_a_poisson_sample_is_accounted_as_the_closed_form_says(z, rate) -> None:
    """The densities of N(0, z²) mixed with N(1, z²), and of N(0, z²) alone, have the ratio e^ε at x."""
    found = ClippedGaussian(delta=LEAST, noise_multiplier=z).mechanism(Setting(1000, int(1000 * rate), 1, "poisson"), 1)

    def passed(epsilon: float) -> float:
        x = z**2 * math.log((math.exp(epsilon) - 1.0 + rate) / rate) + 0.5
        return rate * stats.norm.sf((x - 1.0) / z) + (1.0 - rate - math.exp(epsilon)) * stats.norm.sf(x / z)

    exact = optimize.brentq(lambda epsilon: passed(epsilon) - LEAST, 1e-3, 50.0, xtol=1e-12)
    assert exact < found.statement()["epsilon"] < exact + 3e-4


@pytest.mark.parametrize("options", [{}, {"accountant": "rdp"}, {"quantile": 0.5}, {"sum": "secure"}], ids=str)
def test_the_smallest_delta_is_accepted_with_every_option_and_composed(options) -> None:
    part = ClippedGaussian(delta=LEAST, **options)
    mechanism = part.mechanism(FULL, 1)
    loss = mechanism.loss(FULL.rounds)
    assert loss is not None and compose(loss, LEAST).epsilon <= 8.0 * (1.0 + 1e-9)
    with pytest.raises(BadInput, match="delta"):
        replace(part, delta=0.99 * LEAST)


@pytest.mark.parametrize(
    ("act", "word"),
    [
        (lambda: accounting.noise_multiplier(FULL, 0.0, 1e-5), "epsilon"),
        (lambda: accounting.noise_multiplier(FULL, math.nan, 1e-5), "epsilon"),
        (lambda: accounting.noise_multiplier(FULL, 1.0, 0.0), "delta"),
        (lambda: accounting.noise_multiplier(FULL, 1.0, 1.5), "delta"),
        (lambda: accounting.epsilon(FULL, -1.0, 1e-5), "noise multiplier"),
        (lambda: Setting(0, 1, 1), "clients"),
        (lambda: Setting(10, 11, 1, "sampled"), "cohort"),
        (lambda: Setting(10, 5, 1, "full"), "full participation"),
        (lambda: Setting(10, 5, 0, "sampled"), "rounds"),
    ],
)
def test_impossible_plans_are_refused(act, word) -> None:
    with pytest.raises(BadInput, match=word):
        act()
