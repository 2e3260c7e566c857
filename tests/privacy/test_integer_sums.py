"""Secure sums inside a run: the right total, the same noise from clients and coordinator, clean failures."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from quorank.errors import BadInput
from quorank.federation import Federation, Krum
from quorank.privacy import ClippedGaussian, SecureSum, Setting
from quorank.privacy.mechanisms import integer_sums

SETTING = Setting(40, 40, 60, parameters=6)


def round_of(part, updates, round_=1, setting=SETTING, seed=3):
    """One round of a mechanism on these updates."""
    mechanism = part.mechanism(setting, seed)
    rows = updates.copy()
    clients = np.arange(len(rows))
    half = len(rows) // 2
    for piece in (slice(half, None), slice(0, half)):  # in two chunks, the later clients first
        mechanism.release(rows[piece], np.zeros(rows.shape[1]), round_, clients[piece], {})
    return mechanism, mechanism.finish(rows.sum(axis=0), 0.0, 0, len(rows), round_, {})


def test_the_sum_is_that_of_the_clipped_updates_to_within_the_rounding() -> None:
    updates = np.random.default_rng(1).normal(size=(40, 6))
    for masks in (True, False):
        mechanism, total = round_of(SecureSum(clip=0.5, masks=masks), updates)
        clipped = updates * np.minimum(1.0, 0.5 / np.linalg.norm(updates, axis=1))[:, None]
        np.testing.assert_allclose(total.total, clipped.sum(axis=0), atol=40 / mechanism.scale)
        assert total.weight == 40


def test_masks_change_no_bit() -> None:
    updates = np.random.default_rng(1).normal(size=(40, 6))
    part = {"noise_multiplier": 1.0, "sum": "secure", "dropouts": 0.3}
    _, with_masks = round_of(ClippedGaussian(**part), updates)
    _, without = round_of(ClippedGaussian(**part, masks=False), updates)
    assert with_masks.total.tobytes() == without.total.tobytes()
    assert 20 < with_masks.participants < 40


def test_who_leaves_before_sending_is_not_in_the_sum() -> None:
    updates = np.eye(40)  # client i moves coordinate i
    setting = Setting(40, 40, 60, parameters=40)
    for masks in (True, False):
        mechanism, total = round_of(SecureSum(clip=1.0, masks=masks, dropouts=0.3), updates, setting=setting)
        gone = mechanism._leaving(np.arange(40), 1) == integer_sums.BEFORE
        assert 1 < gone.sum() < 20
        np.testing.assert_allclose(total.total, ~gone, atol=1e-6)
        assert total.weight == 40 - gone.sum()


def noise_of(part, rounds=400, setting=SETTING):
    """(rounds, 6) noise on a sum of nothing, in integer units."""
    mechanism = part.mechanism(setting, 3)
    found = []
    for t in range(rounds):
        rows = np.zeros((setting.cohort, 6))
        mechanism.release(rows, np.zeros(6), t, np.arange(setting.cohort), {})
        found.append(mechanism.finish(rows.sum(axis=0), 0.0, 0, len(rows), t, {}).total * mechanism.scale)
    return mechanism, np.array(found)


def test_noise_in_shares_and_noise_of_the_coordinator_have_the_same_distribution() -> None:
    """Both are Skellam with the variance that was accounted; a small scale makes its atoms visible."""
    setting = Setting(40, 40, 60, parameters=6)
    samples = {}
    for noise_by in ("clients", "coordinator"):
        part = ClippedGaussian(noise_multiplier=1.5, sum="secure", masks=False, noise_by=noise_by)
        mechanism = part.mechanism(setting, 3)
        coarse = type(mechanism)(
            setting, 3, 0.1, 10.0, (1.5 * 0.1 * 10.0) ** 2, noise_by, False, 0.0, part=part, longest=3.0
        )
        found = []
        for t in range(600):
            rows = np.zeros((40, 6))
            coarse.release(rows, np.zeros(6), t, np.arange(40), {})
            found.append(coarse.finish(rows.sum(axis=0), 0.0, 0, 40, t, {}).total * 10.0)
        samples[noise_by] = np.rint(np.array(found)).astype(int).ravel()
        law = stats.skellam(1.5**2 / 2, 1.5**2 / 2)
        support = np.arange(-5, 6)
        observed = [np.count_nonzero(samples[noise_by] == k) for k in support]
        expected = law.pmf(support) * samples[noise_by].size
        rest = samples[noise_by].size - sum(observed), samples[noise_by].size - expected.sum()
        assert stats.chisquare([*observed, rest[0]], [*expected, rest[1]]).pvalue > 1e-3
    assert stats.ks_2samp(samples["clients"], samples["coordinator"]).pvalue > 1e-3


def test_the_noise_is_of_the_stated_size_whoever_leaves() -> None:
    part = ClippedGaussian(noise_multiplier=2.0, sum="secure", masks=False, dropouts=0.3)
    mechanism, sample = noise_of(part)
    asked = 2.0 * part.clip * mechanism.scale
    assert sample.std() >= 0.97 * asked  # those who stay give at least the full noise
    assert mechanism.least < 40
    stated = mechanism.finish(np.zeros(6), 0.0, 0, 0, 0, {})
    assert stated.sensitivity == 0.0  # nobody stayed: nothing is released


def test_a_round_in_which_too_few_stay_reveals_nothing(monkeypatch) -> None:
    monkeypatch.setattr(
        integer_sums.IntegerSums, "_leaving", lambda self, clients, round_: np.ones(len(clients), np.int8)
    )
    updates = np.ones((40, 6))
    for part in (SecureSum(), ClippedGaussian(noise_multiplier=1.0, sum="secure", masks=False)):
        _, total = round_of(part, updates)
        assert not total.total.any() and total.noise == 0.0 and total.sensitivity == 0.0


def test_the_budget_is_kept_and_costs_little_more_than_gaussian_noise() -> None:
    part = ClippedGaussian(epsilon=4.0, sum="secure", masks=False)
    plain = ClippedGaussian(epsilon=4.0, accountant="rdp")
    setting = Setting(500, 500, 100, parameters=20)
    secure, central = part.mechanism(setting, 1), plain.mechanism(setting, 1)
    statement = secure.statement()
    assert statement["epsilon"] <= 4.0 and statement["epsilon"] == pytest.approx(4.0, rel=1e-3)
    assert secure.sum_multiplier == pytest.approx(central.sum_multiplier, rel=0.02)
    assert secure.sum_multiplier > 0.98 * central.sum_multiplier
    sampled = part.mechanism(Setting(5000, 500, 100, "sampled", parameters=20), 1)
    assert sampled.statement()["epsilon"] == pytest.approx(4.0, rel=1e-3)  # as if everyone were in every round


def test_a_rule_that_needs_single_updates_is_refused() -> None:
    for part in (SecureSum(), ClippedGaussian(sum="secure")):
        with pytest.raises(BadInput, match="krum needs to see single updates, and secure sums hide them"):
            Federation(aggregation=Krum(), privacy=part)


def some_leave(monkeypatch, gone) -> None:
    """The first `gone` clients leave before they send."""

    def leaving(self, clients, round_):
        return np.where(clients < gone, integer_sums.BEFORE, 0).astype(np.int8)

    monkeypatch.setattr(integer_sums.IntegerSums, "_leaving", leaving)


@pytest.mark.parametrize(("gone", "released"), [(0, True), (5, True), (9, False), (20, False)])
def test_the_noise_rests_on_enough_shares_or_nothing_is_released(gone, released, monkeypatch) -> None:
    part = ClippedGaussian(noise_multiplier=2.0, sum="secure", masks=False, dropouts=0.05)
    least = part.mechanism(SETTING, 3).least
    assert 40 - 9 < least <= 40 - 5
    some_leave(monkeypatch, gone)
    _, total = round_of(part, np.zeros((40, 6)))
    assert bool(total.total.any()) == released
    if released:
        assert total.weight == 40 and total.participants == 40 - gone
        assert total.noise == pytest.approx(2.0 * part.clip * math.sqrt((40 - gone) / least))
    else:
        assert total.sensitivity == 0.0 and total.participants == 0


@pytest.mark.parametrize("masks", [True, False])
def test_a_round_that_came_to_nothing_leaves_nothing_behind(masks, monkeypatch) -> None:
    part = ClippedGaussian(noise_multiplier=2.0, sum="secure", masks=masks)
    mechanism, theta = part.mechanism(SETTING, 3), np.zeros(6)
    for abandoned in (4, 5):  # another round, and the same one played again
        mechanism.release(np.ones((30, 6)), theta, abandoned, np.arange(30), {})
    rows = np.zeros((10, 6))
    mechanism.release(rows, theta, 6, np.arange(10), {})
    assert not mechanism.finish(rows.sum(axis=0), 0.0, 0, 10, 6, {}).total.any()  # ten of forty came: too few
    rows = np.zeros((40, 6))
    mechanism.release(rows[:20], theta, 7, np.arange(20), {})
    rows[:20] = 0.0
    mechanism.release(rows, theta, 7, np.arange(40), {})  # begun once, then played again from the start
    total = mechanism.finish(rows.sum(axis=0), 0.0, 0, 40, 7, {})
    assert total.participants == 40 and total.noise == pytest.approx(2.0 * part.clip)


def test_the_accounted_sensitivity_is_that_of_the_rounded_update() -> None:
    mechanism = ClippedGaussian(epsilon=4.0, sum="secure", masks=False).mechanism(SETTING, 1)
    assert mechanism.longest > mechanism.clip * mechanism.scale


@pytest.mark.parametrize("part", [SecureSum(), ClippedGaussian(sum="secure")], ids=str)
def test_cohorts_of_unknown_size_or_of_one_are_refused(part) -> None:
    with pytest.raises(BadInput, match="poisson"):
        part.mechanism(Setting(100, 10, 5, "poisson"), 1)
    with pytest.raises(BadInput, match="at least 2"):
        part.mechanism(Setting(100, 1, 5, "sampled"), 1)


def test_many_may_leave_a_large_masked_cohort() -> None:
    """More than the usual tenth: the shares are spread for it, and the round does not fail."""
    setting = Setting(100, 100, 5, parameters=6)
    for round_ in range(2):
        _, total = round_of(SecureSum(dropouts=0.3), np.ones((100, 6)), round_, setting)
        assert 70 < total.participants < 100 and total.total.any()


@pytest.mark.parametrize("kind", ["tree", "square-root", "optimal"])
def test_noise_over_rounds_is_one_release_for_the_whole_run(kind) -> None:
    """The noise that a client's constant update drowns in: whitened by C, its length is σ·sens·clip in every round."""
    part = ClippedGaussian(epsilon=6.0, over_rounds=kind, clip=0.2)
    setting = Setting(100, 100, 12, parameters=400)
    mechanism = part.mechanism(setting, 8)
    noise = np.array([mechanism.finish(np.zeros(400), 0.0, 0, 100, t, mechanism.start()).total for t in range(12)])
    c = np.zeros((12, 12))
    for t in range(12):
        c[t, : t + 1] = mechanism.factor.row(t)
    white = c @ noise / (mechanism.once * mechanism.factor.sensitivity * 0.2)
    assert stats.kstest(white.ravel(), "norm").pvalue > 1e-3
    # one client with the same update of norm 1 in every round moves C·x by the sensitivity
    assert np.linalg.norm(c @ np.ones(12)) == pytest.approx(mechanism.factor.sensitivity)
    assert mechanism.statement()["epsilon"] == pytest.approx(6.0, rel=1e-6)
    spent = [e for _, e in mechanism.spent()]
    assert spent == sorted(spent) and spent[-1] == pytest.approx(6.0, rel=1e-6)
    released = [mechanism.finish(np.zeros(1), 0.0, 0, 100, t, mechanism.start()).noise / 0.2 for t in range(12)]
    assert mechanism.noise_multiplier == pytest.approx(math.sqrt(np.mean(np.square(released))))
    assert mechanism.least_multiplier == pytest.approx(min(released))


def test_noise_over_rounds_is_for_full_participation() -> None:
    with pytest.raises(BadInput, match="everyone in every round"):
        ClippedGaussian(over_rounds="tree").mechanism(Setting(100, 10, 5, "sampled"), 1)
