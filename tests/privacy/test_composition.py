"""Losses of several mechanisms composed: against the library, against numerical convolution, and by the laws of any ε."""

from __future__ import annotations

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting import pld
from privacy_losses import epsilon_of, gaussian_losses, poisson_losses
from refusals import refused

from quorank.privacy import ClippedGaussian, NoPrivacy, PublishedLaplace, RandomisedResponse, SecureSum, Setting, Signs
from quorank.privacy.composition import Loss, compose, gaussian_loss, total_loss

EVERYONE = Setting(300, 300, 12, parameters=5)
SOME = Setting(300, 60, 12, "poisson", parameters=5)
FIXED = Setting(300, 60, 12, "sampled", parameters=5)
ACCOUNTED = [
    (ClippedGaussian(3.0), EVERYONE),
    (ClippedGaussian(noise_multiplier=4.0), SOME),
    (ClippedGaussian(noise_multiplier=6.0), FIXED),
    (ClippedGaussian(3.0, sum="secure"), EVERYONE),
    (Signs(p=0.7), EVERYONE),
    (RandomisedResponse(p=0.5), EVERYONE),
]


@pytest.mark.parametrize(("part", "setting"), ACCOUNTED)
def test_the_loss_of_one_mechanism_is_what_it_states(part, setting) -> None:
    mechanism = part.mechanism(setting, 1)
    for rounds in (1, 12) if setting is EVERYONE else (12,):
        stated = mechanism.statement(rounds)
        found = compose(mechanism.loss(rounds), stated["delta"])
        assert found.epsilon == pytest.approx(stated["epsilon"], rel=1e-9)
    assert compose(mechanism.loss(0), 1e-5).epsilon == 0.0


@pytest.mark.parametrize("part", [NoPrivacy(), SecureSum(), Signs(p=1.0), PublishedLaplace()], ids=lambda p: p.kind)
def test_where_no_epsilon_is_stated_there_is_no_loss(part) -> None:
    assert part.mechanism(EVERYONE, 1).loss(3) is None


def test_gaussian_releases_of_different_noise_are_one_release() -> None:
    """Against the library's own distributions of both, convolved."""
    both = gaussian_loss(EVERYONE, 5.0, 12) + gaussian_loss(EVERYONE, 9.0, 40)
    assert both.gaussian == 12 / 25 + 40 / 81
    library = pld.PLDAccountant()
    library.compose(dp.GaussianDpEvent(5.0), 12).compose(dp.GaussianDpEvent(9.0), 40)
    assert compose(both, 1e-5).epsilon == pytest.approx(library.get_epsilon(1e-5), rel=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_mixed_participations_lie_just_above_a_numerical_convolution(seed) -> None:
    """Losses of everyone and of Poisson cohorts, each on a grid rounded down: a lower bound that is nearly tight."""
    draw = np.random.default_rng(seed)
    z, w, rate = draw.uniform(2.0, 6.0), draw.uniform(0.8, 3.0), draw.integers(5, 60) / 100
    rounds, more, delta = int(draw.integers(1, 6)), int(draw.integers(1, 8)), 10.0 ** -int(draw.integers(3, 7))
    some = Setting(100, round(100 * rate), 1, "poisson")
    found = compose(gaussian_loss(EVERYONE, z, rounds) + gaussian_loss(some, w, more), delta).epsilon
    lower = epsilon_of([*[gaussian_losses(z)] * rounds, *[poisson_losses(w, rate)] * more], delta)
    assert lower <= found <= lower + 0.02 + 0.01 * lower


def test_one_delta_is_not_given_twice() -> None:
    """ε of two runs is more than at δ each, less than the sum of both, and at most what both give at half of δ."""
    run, again = ClippedGaussian(3.0), ClippedGaussian(2.0, sum="secure")
    one, two = run.mechanism(EVERYONE, 1), again.mechanism(EVERYONE, 1)
    both = compose(one.loss(12) + two.loss(12), 1e-5).epsilon
    assert 3.0 < both < 5.0
    halves = compose(one.loss(12), 5e-6).epsilon + compose(two.loss(12), 5e-6).epsilon
    assert both < halves
    cohorts = ClippedGaussian(noise_multiplier=3.0).mechanism(SOME, 1)
    mixed = compose(cohorts.loss(12) + two.loss(12), 1e-5)
    halves = compose(cohorts.loss(12), 5e-6).epsilon + compose(two.loss(12), 5e-6).epsilon
    assert mixed.epsilon <= halves * (1.0 + 1e-6)  # what is set aside for discreteness is of δ or of its halves
    assert mixed.epsilon > max(compose(each.loss(12), 1e-5).epsilon for each in (cohorts, two))


def test_pure_epsilon_is_added() -> None:
    loss = total_loss([Loss(pure=0.5), Loss(pure=0.25)])
    assert compose(loss, 0.0) == (0.75, 0.0, "pure ε is added")
    both = compose(loss + gaussian_loss(EVERYONE, 5.0, 1), 1e-5)
    assert both.epsilon == 0.75 + compose(gaussian_loss(EVERYONE, 5.0, 1), 1e-5).epsilon
    with refused("privacy.delta-used-up", "delta"):
        compose(gaussian_loss(EVERYONE, 5.0, 1), 0.0)
