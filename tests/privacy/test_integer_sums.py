"""Secure sums inside a run: the right total, the same noise from clients and coordinator, clean failures."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from quorank.errors import BadInput
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


def test_noise_in_shares_has_the_accounted_distribution() -> None:
    """The sum of all shares is Skellam with the variance that was accounted; a small scale makes its atoms visible."""
    setting, part = Setting(40, 40, 60, parameters=6), ClippedGaussian(noise_multiplier=1.5, sum="secure", masks=False)
    mechanism = part.mechanism(setting, 3)
    coarse = replace(mechanism, clip=0.1, scale=10.0, variance=(1.5 * 0.1 * 10.0) ** 2, longest=3.0)
    found = []
    for t in range(600):
        rows = np.zeros((40, 6))
        coarse.release(rows, np.zeros(6), t, np.arange(40), {})
        found.append(coarse.finish(rows.sum(axis=0), 0.0, 0, 40, t, {}).total * 10.0)
    sample, support = np.rint(np.array(found)).astype(int).ravel(), np.arange(-5, 6)
    observed = [np.count_nonzero(sample == k) for k in support]
    expected = stats.skellam(1.5**2 / 2, 1.5**2 / 2).pmf(support) * sample.size
    rest = sample.size - sum(observed), sample.size - expected.sum()
    assert stats.chisquare([*observed, rest[0]], [*expected, rest[1]]).pvalue > 1e-3


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


@pytest.mark.parametrize("part", [SecureSum(), ClippedGaussian(sum="secure")], ids=str)
def test_cohorts_of_unknown_size_or_of_one_are_refused(part) -> None:
    with pytest.raises(BadInput, match="poisson"):
        part.mechanism(Setting(100, 10, 5, "poisson"), 1)
    with pytest.raises(BadInput, match="at least 2"):
        part.mechanism(Setting(100, 1, 5, "sampled"), 1)


NOISES = {
    "no noise": SecureSum(clip=0.5, masks=False),
    "noise": ClippedGaussian(noise_multiplier=1.0, clip=0.5, sum="secure", masks=False),
}


@pytest.mark.parametrize("part", NOISES.values(), ids=NOISES)
def test_a_sum_that_honest_clients_cannot_reach_is_not_used(part) -> None:
    """All clients at the clip in one direction are still used; one that sends any words is not, nor one a bit too long."""
    same = np.zeros((40, 6))
    same[:, 2] = 0.5
    _, total = round_of(part, same)
    assert not total.stays and total.total[2] == pytest.approx(20.0, abs=6 * total.noise + 1e-4)
    mechanism = part.mechanism(SETTING, 3)
    number, length = mechanism.reach(40, 6)
    for lie, used in (
        (np.full(6, 2.0**30), False),
        (np.array([number + 3.0, 0, 0, 0, 0, 0]), False),
        (np.array([0, 0, 0, 0, 0.0, 1.0]) * min(number, length) * 0.99, True),
        (np.full(6, 0.9 * number), 0.9 * number * math.sqrt(6) <= length),
    ):
        rows = np.zeros((40, 6))
        mechanism.release(rows, np.zeros(6), 1, np.arange(40), {})
        others = rows[1:].sum(axis=0)
        lies = np.rint(lie - others)[None, :]
        mechanism.resend(lies, 1, np.array([0]))
        rows[:1] = lies
        total = mechanism.finish(rows.sum(axis=0), 0.0, 0, 40, 1, {})
        assert total.stays != used, lie
        assert total.dropped == (() if used else (integer_sums.OUT_OF_BOUNDS,))
        assert bool(total.total.any()) == used
        assert total.sensitivity == 0.5 and total.participants == 40  # it was opened: a release all the same


def test_groups_divide_a_cohort_by_lot_and_sum_to_the_same() -> None:
    updates = np.random.default_rng(1).normal(size=(40, 6)) / 10
    whole = round_of(SecureSum(clip=0.5, masks=False), updates)[1]
    for masks in (True, False):
        mechanism, total = round_of(SecureSum(clip=0.5, masks=masks, groups=6), updates)
        groups = mechanism.divide_cohort(np.arange(40), 1)
        assert sorted(len(g) for g in groups) == [6, 6, 7, 7, 7, 7]
        assert sorted(np.concatenate(groups)) == list(range(40))
        assert any(
            a.tolist() != b.tolist() for a, b in zip(groups, mechanism.divide_cohort(np.arange(40), 2), strict=True)
        )
        np.testing.assert_allclose(total.total, whole.total, atol=80 / mechanism.scale)
        for members, mean, size in zip(groups, total.groups, total.sizes, strict=True):
            assert size == len(members)
            np.testing.assert_allclose(mean, updates[members].mean(axis=0), atol=2 / mechanism.scale)
            assert all(mechanism.companions(int(c), np.arange(40), 1)[members].all() for c in members)
    assert total.weight == 40 and not total.dropped


def test_a_liar_spoils_its_own_group_alone() -> None:
    mechanism = SecureSum(clip=0.5, masks=True, groups=8).mechanism(SETTING, 3)
    rows = np.full((40, 6), 0.1)
    mechanism.release(rows, np.zeros(6), 1, np.arange(40), {})
    lies = np.full((1, 6), 2.0**30)
    mechanism.resend(lies, 1, np.array([17]))
    rows[17] = lies
    total = mechanism.finish(rows.sum(axis=0), 0.0, 0, 40, 1, {})
    assert total.dropped == (integer_sums.OUT_OF_BOUNDS,) and total.participants == 35 and not total.stays
    assert total.groups.shape == (7, 6) and np.allclose(total.groups, 0.1, atol=1e-3)
    assert total.weight == 35


def test_every_group_has_the_whole_noise() -> None:
    """A client is in one group, so ε is that of one sum; the sum of all has √groups times the noise."""
    one = ClippedGaussian(noise_multiplier=1.0, clip=0.5, sum="secure", masks=False)
    mechanism, several = one.mechanism(SETTING, 3), replace(one, groups=8).mechanism(SETTING, 3)
    assert several.statement()["epsilon"] == pytest.approx(mechanism.statement()["epsilon"], rel=1e-3)
    assert several.least == several.size == 5 and several.least_multiplier == pytest.approx(1.0)
    assert several.sum_multiplier == pytest.approx(math.sqrt(8))
    found = []
    for t in range(300):
        rows = np.zeros((40, 6))
        several.release(rows, np.zeros(6), t, np.arange(40), {})
        found.append(several.finish(rows.sum(axis=0), 0.0, 0, 40, t, {}).groups * 5)
    assert np.std(found) == pytest.approx(0.5, rel=0.05)
    assert several.finish(np.zeros(6), 0.0, 0, 0, 0, {}).stays
