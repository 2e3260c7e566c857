"""Fang's attacks against their equations, and against the rules that they are made for."""

from __future__ import annotations

import math

import numpy as np
import pytest
from chance import assert_mean
from honest_cohorts import first, honest_updates

from quorank.federation.attacks import Fang
from quorank.federation.attacks.fitted import beyond_extremes, lambda_bound
from quorank.federation.rules import Krum, Median, MultiKrum, TrimmedMean
from quorank.kernels.draws import Purpose, key_of

KEY = key_of(1, Purpose.ATTACK)
BOTH = ("partial", "full")


def test_the_bound_of_lambda_by_hand() -> None:
    """Four honest clients and one malicious: two neighbours, n − 2m − 1 = 2, d = 2."""
    known = np.array([[3.0, 4.0], [3.0, 5.0], [0.0, 4.0], [30.0, 40.0]])
    away = np.array([-1.0, -1.0])
    expected = math.sqrt((1 + 9) / (2 * 2)) + 50 / math.sqrt(2)
    assert lambda_bound(known, away, 1) == pytest.approx(expected)
    none = lambda_bound(np.hstack((known, np.zeros((4, 3)))), np.array([-1.0, -1.0, 0.0, 0.0, 0.0]), 1)
    assert none == lambda_bound(known, away, 1)  # parameters that nobody moves


def squared_krum(updates, m) -> np.ndarray:
    """Krum as Blanchard et al. define it, by squared distances."""
    squared = np.sum((updates[:, None] - updates[None]) ** 2, axis=2)
    return updates[np.argmin(np.sort(squared, axis=1)[:, 1 : len(updates) - m - 1].sum(axis=1))]


@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_beyond_the_bound_krum_by_squared_distances_never_picks(m) -> None:
    """By plain distances, as in eq. 5.2, it may: with four of ten it always does."""
    for seed in range(40):
        updates, _ = honest_updates(seed)
        away = -np.sign(updates.mean(axis=0))
        bound = lambda_bound(updates[m:], away, m)
        for share in (1.001, 1.5, 10.0):
            updates[:m] = share * bound * away
            assert squared_krum(updates, m).tolist() in updates[m:].tolist()
        updates[:m] = 1.001 * bound * away
        picked = Krum(m).combine_all(updates, np.ones(10)).tolist() == updates[0].tolist()
        assert picked == (m == 4)


@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_fang_with_full_knowledge_is_picked_by_krum(m) -> None:
    """All malicious clients send −λ·sign(mean), Krum takes it, and by halving no larger λ would have been taken."""
    taken = 0
    for seed in range(40):
        updates, theta = honest_updates(seed)
        sent = Fang(m, "full").poison(updates, first(m), theta, KEY, 0)
        size = np.abs(sent[0]).max()
        for i in range(m):
            np.testing.assert_array_equal(sent[i], -size * np.sign(updates.mean(axis=0)))
        bound = lambda_bound(updates[m:], np.ones(20), m)
        halvings = math.log2(bound / size)
        assert halvings == pytest.approx(round(halvings), abs=1e-9)
        picked = Krum(m).combine_all(sent, np.ones(10)).tolist() == sent[0].tolist()
        taken += picked
        if halvings > 0.5:
            larger = sent.copy()
            larger[:m] *= 2.0
            assert Krum(m).combine_all(larger, np.ones(10)).tolist() != larger[0].tolist()
        if not picked:
            assert size < 1e-5
    assert taken >= 36


@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_fang_against_multi_krum_is_among_the_chosen(m) -> None:
    """All m are in the mean, and with a step no smaller than Krum would let pass."""
    for seed in range(20):
        updates, theta = honest_updates(seed)
        sent = Fang(m, "full", "multi-krum").poison(updates, first(m), theta, KEY, 0)
        beside = np.hstack((sent, 1e-9 * (np.arange(10) < m)[:, None]))  # a tracer that weighs nothing
        chosen = MultiKrum(m).combine_all(beside, np.ones(10))[-1]
        assert chosen == pytest.approx(1e-9 * m / (10 - m), rel=1e-9)
        against_krum = Fang(m, "full").poison(updates, first(m), theta, KEY, 0)
        assert np.abs(sent[0]).max() >= np.abs(against_krum[0]).max()


def test_fang_leaves_parameters_that_nobody_moves() -> None:
    updates, theta = honest_updates(8)
    updates[:, 5] = 0.0
    for against in ("krum", "multi-krum", "trimmed-mean", "median"):
        sent = Fang(3, "full", against).poison(updates, first(3), theta, KEY, 0)
        np.testing.assert_allclose(sent[:, 5], 0.0, atol=1e-15)


@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize("knowledge", BOTH)
def test_fang_draws_beyond_the_extremes(m, knowledge) -> None:
    """Where the honest mean falls: [θ_max, 2θ_max], or [θ_max, θ_max/2] below zero; the mirror where it rises."""
    updates, theta = honest_updates(9)
    sent = Fang(m, knowledge, "median").poison(updates, first(m), theta, KEY, 0)
    rows = updates[m:] if knowledge == "full" else updates[:m]
    mean = (updates if knowledge == "full" else updates[:m]).mean(axis=0)
    for j in range(20):
        top, bottom = theta[j] + rows[:, j].max(), theta[j] + rows[:, j].min()
        if mean[j] < 0:
            ends = (top, 2 * top) if top > 0 else (top, top / 2)
        else:
            ends = (bottom / 2, bottom) if bottom > 0 else (2 * bottom, bottom)
        for i in range(m):
            assert ends[0] - 1e-12 <= theta[j] + sent[i, j] <= ends[1] + 1e-12


def test_fang_s_draws_are_uniform_and_addressed() -> None:
    updates, theta = honest_updates(10)
    attack = Fang(3, "full", "trimmed-mean")
    low, high = beyond_extremes(updates[3:] + theta, -np.sign(updates.mean(axis=0)))
    shares = np.array(
        [(attack.poison(updates, first(3), theta, KEY, t)[:3] + theta - low) / (high - low) for t in range(500)]
    )
    assert_mean(shares.reshape(500, -1), np.full(60, 0.5))
    assert_mean((shares.reshape(500, -1) - 0.5) ** 2, np.full(60, 1 / 12))
    assert len(np.unique(shares.round(12))) > 0.99 * shares.size  # other rounds, clients and parameters draw anew
    elsewhere = attack.poison(updates, first(3), theta, key_of(2, Purpose.ATTACK), 0)
    assert not np.array_equal(elsewhere, attack.poison(updates, first(3), theta, KEY, 0))


@pytest.mark.parametrize("rule", [TrimmedMean(3), Median()], ids=str)
def test_fang_moves_coordinate_wise_rules_against_the_mean(rule) -> None:
    """Every parameter of the aggregate moves away from where honest clients would have taken it."""
    for seed in range(20):
        updates, theta = honest_updates(seed)
        sent = Fang(3, "full", "trimmed-mean").poison(updates, first(3), theta, KEY, 0)
        moved = rule.combine_all(sent, np.ones(10)) - rule.combine_all(updates, np.ones(10))
        against = moved * np.sign(updates.mean(axis=0))
        assert np.all(against <= 1e-12)
        assert against.mean() < -0.1
