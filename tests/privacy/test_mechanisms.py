"""What every mechanism does to updates: clipping, noise of the stated size, honest statements, refusals by name."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from part_examples import EXAMPLES
from scipy import stats

from quorank.errors import BadInput
from quorank.privacy import ClippedGaussian, NoPrivacy, PublishedLaplace, Setting, Signs
from quorank.privacy.mechanisms.clipping import ReleaseBound, clip_updates, norm

SETTING = Setting(200, 200, 200, parameters=7)
SECRET = bytes(range(32))


def mechanism_of(part, setting=SETTING, seed=5):
    return part.mechanism(setting, seed)


@pytest.mark.parametrize("part", EXAMPLES["privacies"], ids=str)
def test_no_epsilon_without_unit_delta_and_horizon(part) -> None:
    mechanism = mechanism_of(part)
    statement = mechanism.statement()
    if statement is None:
        assert isinstance(part, NoPrivacy) and mechanism.spent() == []
        return
    assert statement["kind"] == part.kind
    assert statement["unit"] == "client" and statement["delta"] >= 0 and statement["rounds"] == 200
    assert "200 rounds" in statement["horizon"]
    if statement["epsilon"] is None:
        assert "warning" in statement
        return
    assert statement["epsilon"] > 0
    last = mechanism.spent()[-1]
    assert last[0] == 200 and last[1] == pytest.approx(statement["epsilon"], rel=1e-6)
    half = mechanism.statement(100)
    assert half["epsilon"] < statement["epsilon"] and "100 rounds" in half["horizon"]


@pytest.mark.parametrize("part", EXAMPLES["privacies"], ids=str)
def test_a_release_depends_on_its_client_and_round_only(part) -> None:
    """Cohort order and company change nothing: rows in another order, or alone, get the same release."""
    mechanism = mechanism_of(part)
    memory, theta = mechanism.start(), np.zeros(7)
    clients = np.array([3, 150, 0, 77])
    raw = np.random.default_rng(1).normal(size=(4, 7))
    together = raw.copy()
    within = mechanism.release(together, theta, 9, clients, memory)
    order = np.array([2, 0, 3, 1])
    shuffled = raw[order]
    assert mechanism.release(shuffled, theta, 9, clients[order], memory) == within
    assert shuffled.tobytes() == together[order].tobytes()
    alone = raw[2:3].copy()
    mechanism.release(alone, theta, 9, clients[2:3], memory)
    assert alone.tobytes() == together[2:3].tobytes()


@pytest.mark.parametrize("part", [p for p in EXAMPLES["privacies"] if p.kind in ("gaussian", "signs")], ids=str)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_refused_by_name(part, bad) -> None:
    updates = np.ones((3, 7))
    updates[1, 4] = bad
    with pytest.raises(BadInput, match="client 42 holds a number that is not finite"):
        mechanism_of(part).release(updates, np.zeros(7), 0, np.array([7, 42, 9]), mechanism_of(part).start())


@given(arrays(np.float64, (4, 5), elements=st.floats(-1e3, 1e3)), st.floats(1e-3, 1e3))
def test_clipping_shortens_and_keeps_the_direction(updates, clip) -> None:
    raw = updates.copy()
    within = clip_updates(updates, clip, np.arange(4))
    lengths = np.linalg.norm(raw, axis=1)
    assert within == np.count_nonzero(lengths <= clip * (1 + 1e-12)) or np.any(np.isclose(lengths, clip))
    for before, after, length in zip(raw, updates, lengths, strict=True):
        np.testing.assert_allclose(after, before * min(1.0, clip / max(length, 1e-300)), rtol=1e-12, atol=1e-300)
        assert norm(after) <= clip * (1 + 1e-12)
    ReleaseBound(clip).check(updates, np.arange(4))


def noises(mechanism, rounds, size=7):
    return np.array([mechanism.finish(np.zeros(size), 1.0, 0, 200, t, mechanism.start()).total for t in range(rounds)])


@pytest.mark.parametrize("part", [ClippedGaussian(noise_multiplier=2.0, clip=0.3), ClippedGaussian(2.0, clip=3.0)])
def test_the_noise_on_a_sum_is_gaussian_with_the_stated_deviation(part) -> None:
    mechanism = mechanism_of(part, Setting(50, 50, 400, parameters=7))
    sample = noises(mechanism, 400)
    stated = mechanism.finish(np.zeros(7), 1.0, 0, 50, 0, mechanism.start())
    assert stated.sensitivity == part.clip
    assert stated.noise == pytest.approx(mechanism.statement()["noise_multiplier"] * part.clip)
    assert stats.kstest(sample.ravel() / stated.noise, "norm").pvalue > 1e-3
    correlation = np.corrcoef(sample.T) - np.eye(7)
    assert np.abs(correlation).max() < 0.25
    assert stated.weight == 50
    assert (
        mechanism.finish(np.zeros(7), 1.0, 0, 37, 0, mechanism.start()).weight == 50
    )  # the planned cohort, whoever came


def test_a_clip_that_follows_a_quantile_finds_it_and_pays_for_it() -> None:
    """Norms are |N(0, 1)|·√… of five numbers: the clip must end at their 80 % quantile, at no further ε."""
    part = ClippedGaussian(noise_multiplier=4.0, clip=0.1, quantile=0.8)
    setting = Setting(2000, 2000, 300, parameters=5)
    mechanism = mechanism_of(part, setting)
    memory, random = mechanism.start(), np.random.default_rng(2)
    for t in range(120):
        updates = random.normal(size=(2000, 5))
        within = mechanism.release(updates, np.zeros(5), t, np.arange(2000), memory)
        memory = mechanism.finish(updates.sum(axis=0), 1.0, within, 2000, t, memory).memory
    assert memory["clip"][0] == pytest.approx(stats.chi(5).ppf(0.8), rel=0.05)
    fixed = mechanism_of(ClippedGaussian(noise_multiplier=4.0), setting)
    assert mechanism.statement()["epsilon"] == pytest.approx(fixed.statement()["epsilon"], rel=1e-9)
    sigma, alone = mechanism.count_noise, mechanism.sum_multiplier
    assert alone > 4.0
    # sum/clip has sensitivity 1 and the centred count ½: together one Gaussian release with multiplier 4
    assert math.hypot(1 / alone, 0.5 / sigma) == pytest.approx(1 / 4.0)


def test_the_count_and_the_sum_have_noise_of_their_own() -> None:
    """The draw behind the clip's step is none of those on the sum."""
    part = ClippedGaussian(noise_multiplier=1.0, clip=1.0, quantile=0.5, clip_rate=1.0)
    mechanism = mechanism_of(part, Setting(100, 100, 50, parameters=4))
    found = []
    for t in range(50):
        done = mechanism.finish(np.zeros(4), 0.0, 50, 100, t, mechanism.start())
        count = -math.log(float(done.memory["clip"][0])) * 100 / mechanism.count_noise
        found.append([count, *(done.total / done.noise)])
    correlation = np.corrcoef(np.array(found).T)[0, 1:]
    assert np.abs(correlation).max() < 0.5
    assert 0.7 < np.std([row[0] for row in found]) < 1.3


@pytest.mark.parametrize(("n", "seed"), [(1, 5), (3, SECRET), (40, 5)])
def test_shares_of_all_clients_add_up_to_laplace_noise(n, seed) -> None:
    """Eq. 15: Σ (γ − γ') over n clients is Laplace with scale Δ/ε."""
    part = PublishedLaplace(epsilon=2.0, sensitivity=3.0)
    mechanism = mechanism_of(part, Setting(n, n, 10, parameters=2000), seed)
    updates = np.zeros((n, 2000))
    mechanism.release(updates, np.zeros(2000), 3, np.arange(n), {})
    assert mechanism.bound == 1.5
    assert stats.kstest(updates.sum(axis=0), stats.laplace(scale=1.5).cdf).pvalue > 1e-3
    stated = mechanism.finish(updates.sum(axis=0), float(n), 0, n, 3, {}).noise
    assert stated == pytest.approx(stats.laplace(scale=1.5).std())


@pytest.mark.parametrize("d", [1, 2, 5])
def test_what_exact_laplace_noise_would_cost_is_reached_and_never_passed(d) -> None:
    """Two points of the ball of radius Δ/2: the largest log ratio of densities under Laplace noise of scale Δ/ε is √d·ε."""
    part = PublishedLaplace(epsilon=2.3, sensitivity=3.0)
    mechanism = mechanism_of(part, Setting(10, 10, 1, parameters=d))
    draw = np.random.default_rng(d)
    pairs = draw.normal(size=(2000, 2, d))
    pairs *= mechanism.bound / np.linalg.norm(pairs, axis=2, keepdims=True)
    pairs[0] = np.full(d, mechanism.bound / math.sqrt(d)), np.full(d, -mechanism.bound / math.sqrt(d))
    shown = 20.0 * draw.normal(size=(2000, 1, d))
    shown[0] = 100.0
    density = -np.abs(shown - pairs).sum(axis=2) / mechanism.scale
    ratios = np.abs(density[:, 0] - density[:, 1])
    bound = mechanism.statement(1)["exact_noise_epsilon"]
    assert ratios.max() <= bound * (1 + 1e-12) and ratios[0] == pytest.approx(bound)


@pytest.mark.parametrize("seed", [5, SECRET])
def test_signs_are_flipped_as_often_as_said_and_debiased(seed) -> None:
    part = Signs(p=0.8, size=0.5)
    mechanism = mechanism_of(part, Setting(3000, 3000, 10, parameters=3), seed)
    updates = np.tile([2.0, -1e-9, 0.0], (3000, 1))
    mechanism.release(updates, np.zeros(3), 1, np.arange(3000), {})
    assert set(np.unique(updates)) == {-0.5, 0.5}
    for column, p in enumerate((0.8, 0.2, 0.5)):
        up = np.count_nonzero(updates[:, column] > 0)
        assert stats.binomtest(int(up), 3000, p).pvalue > 1e-3
    total = mechanism.finish(updates.sum(axis=0), 3000.0, 0, 3000, 1, {})
    np.testing.assert_allclose(total.total / total.weight, [0.5, -0.5, 0.0], atol=0.06)
    assert mechanism.statement()["epsilon"] == pytest.approx(math.log(4.0) * 3 * 10)
