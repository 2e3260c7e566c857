"""The spectral filter by brute force, and its memory that does not lag."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from quorank.federation import Federation, State
from quorank.federation.attacks import TwoPhase
from quorank.federation.attacks.attack import AttackedRule
from quorank.federation.rounds import CohortSum
from quorank.federation.rules import Aggregation, Mixing, SpectralFilter
from quorank.federation.rules.spectral import PASSES, RIDGE, clip_outliers, remaining_rows
from quorank.federation.server_optimisers import Add
from quorank.kernels.draws import Purpose, key_of


def combine(rule: Aggregation, updates) -> np.ndarray:
    return rule.combine_all(np.asarray(updates, dtype=np.float64), np.ones(len(updates)))


def gathered(updates: np.ndarray) -> CohortSum:
    n = len(updates)
    return CohortSum(updates.sum(axis=0), n, n, n, 0.0, 0.0, 0.0, {}, updates=updates, weights=np.ones(n))


def brute_force(rows: np.ndarray, m: int) -> np.ndarray:
    """The filter with LAPACK's directions: take the farthest from the median along the first principal axis away."""
    left = list(range(len(rows)))
    for number in range(PASSES):
        take = (number + 1) * m // PASSES - (len(rows) - len(left))
        kept = rows[left]
        axis = np.linalg.svd(kept - kept.mean(axis=0))[2][0]
        away = np.abs(kept @ axis - np.median(kept @ axis))
        out = sorted(range(len(left)), key=lambda i: -away[i])[:take]
        left = [row for at, row in enumerate(left) if at not in out]
    return rows[left].mean(axis=0)


@pytest.mark.parametrize("seed", range(6))
def test_it_takes_away_what_lies_far_out_along_the_first_axis(seed) -> None:
    random = np.random.default_rng(seed)
    spread = np.array([16.0, 4.0, 1.0, 0.25, 0.06])  # axes that 8 power steps tell apart
    rows = random.normal(size=(40, 5)) * spread
    m = int(random.integers(1, 13))
    rows[:m] += random.normal(size=5)
    rows = rows[np.argsort(random.random(40))]
    rows = np.array(sorted(rows, key=lambda row: row.tobytes()))
    expected = brute_force(clip_outliers(rows, m), m)
    np.testing.assert_allclose(combine(SpectralFilter(m), rows), expected, rtol=1e-9, atol=1e-12)


def test_far_updates_are_pulled_to_the_radius_of_the_others() -> None:
    rows = np.random.default_rng(2).normal(size=(10, 3))
    rows[4] = [1e9, 0.0, 0.0]
    rows[7] = [-1e200, 1e200, 0.0]
    centre = np.median(rows, axis=0)
    pulled = clip_outliers(rows, 2)
    away = np.linalg.norm(pulled - centre, axis=1)
    inner = [i for i in range(10) if i not in (4, 7)]
    np.testing.assert_array_equal(pulled[inner], rows[inner])
    assert away[4] == pytest.approx(away[inner].max())
    assert away[7] <= away[inner].max() * (1.0 + 1e-12)


@pytest.mark.parametrize("decoys", [0, 3])
def test_a_shift_that_distances_do_not_show_is_found(decoys) -> None:
    """30 of 100 moved by 8 standard deviations in 100 dimensions, where honest norms are 10: nearly all of them go, also
    if three of them draw the first axis away, and what is left moves the mean by less than mixing lets them.
    """
    random = np.random.default_rng(3)
    rows = random.normal(size=(100, 100))
    rows[:30] = 0.0
    rows[:30, 0] = 8.0
    rows[:decoys, 0], rows[:decoys, 1] = 0.0, 40.0
    left = remaining_rows(rows, 30)
    assert np.count_nonzero(left < 30) <= 3
    assert np.linalg.norm(combine(Mixing(30), rows)) > 2.0 * abs(combine(SpectralFilter(30), rows)[0])


def standardised(rows: np.ndarray, covariance: np.ndarray | None) -> np.ndarray:
    """L⁻¹·x, written out."""
    if covariance is None:
        return rows
    root = np.linalg.cholesky(covariance + RIDGE * np.trace(covariance) * np.eye(len(covariance)))
    return np.array([np.linalg.solve(root, row) for row in rows])


def test_the_step_is_how_far_the_filtered_sum_moved() -> None:
    """θ after T rounds = R(S_T) + (1 − β)·Σ_{t<T} R(S_t) with S ← β·S + u, R in units of the covariance of the clients
    that were left in the rounds before: written out.
    """
    random, beta, m = np.random.default_rng(5), 0.8, 3
    federation = Federation(clients=11, aggregation=SpectralFilter(m, history=beta))
    state: State = federation.start(np.zeros(4))
    total, filtered, covariance = np.zeros((11, 4)), [], None
    for round_ in range(12):
        updates = random.normal(size=(11, 4)) * [3.0, 1.0, 0.3, 0.1]
        updates[:m] += 0.2
        updates = np.array(sorted(updates, key=lambda row: row.tobytes()))
        total = beta * total + updates
        ordered = np.array(sorted((1.0 - beta) * total, key=lambda row: row.tobytes())) / (1.0 - beta)
        left = remaining_rows(standardised(ordered, covariance), m)
        filtered.append(clip_outliers(ordered, m)[left].mean(axis=0))
        kept = updates[remaining_rows(standardised(updates, covariance), m)]
        now, share = np.cov(kept.T, bias=True), 1.0 / (round_ + 1)
        covariance = now if covariance is None else (1.0 - share) * covariance + share * now
        state, _ = federation.round(state, gathered(updates))
    expected = filtered[-1] + (1.0 - beta) * sum(filtered[:-1])
    np.testing.assert_allclose(state.theta, expected, rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(state.rule["covariance"], covariance, rtol=1e-9)


def test_a_client_that_is_found_out_is_taken_out_with_its_past() -> None:
    """Three clients drift by less than the noise of a round: in the end they have moved θ by a bounded amount, while
    the mean was moved by 0.3·0.5 in each of 300 rounds.
    """
    random = np.random.default_rng(6)
    federation = Federation(clients=10, aggregation=SpectralFilter(3, history=0.99))
    state, mean = federation.start(np.zeros(3)), np.zeros(3)
    for _ in range(300):
        updates = random.normal(size=(10, 3))
        mean += updates[3:].mean(axis=0)
        updates[:3, 0] -= 0.5
        state, _ = federation.round(state, gathered(updates))
    assert abs(state.theta[0] - mean[0]) < 0.1 * 0.3 * 0.5 * 300 + np.sqrt(300 / 7)


@pytest.mark.parametrize("before", ["honest", "drift"])
def test_the_last_rounds_move_a_published_mean_by_their_share(before) -> None:
    """Of T rounds with weights t^γ the last three have 1 − Σ_{t ≤ T − 3} t^γ / Σ t^γ. Attackers that turn on the ranker
    in them move it by that share of what they move θ, at most; until then both federations are the same.
    """
    rounds, gamma, m = 60, 6.0, 6
    rule = SpectralFilter(m, history=0.97)
    federation = Federation(clients=20, aggregation=rule, server=Add(average=gamma))
    updates = np.random.default_rng(7).normal([0.5, 0.3, 0.0, 0.0, 0.0], size=(rounds, 20, 5))

    def play(attack: TwoPhase) -> tuple[np.ndarray, np.ndarray]:
        state = federation.start(np.zeros(5))
        thetas = []
        for round_, honest in enumerate(updates):
            view = partial(federation.combined, state, weights=np.ones(20))
            key = key_of(1, Purpose.ATTACK)
            known = AttackedRule(view, state.history, rule.history)
            sent = attack.poison(honest, np.arange(20) < m, state.theta, key, round_, known)
            state, _ = federation.round(state, gathered(sent))
            thetas.append(state.theta)
        return np.array(thetas), federation.ranker(state)

    quiet, quiet_ranker = play(TwoPhase(m, before, turn=rounds))
    thetas, ranker = play(TwoPhase(m, before, turn=rounds - 3))
    weights = np.arange(1, rounds + 1) ** gamma
    moved = np.linalg.norm(thetas - quiet, axis=1)
    assert moved[:-3].max() == 0.0
    assert moved.max() > np.linalg.norm(updates.mean(axis=(0, 1)))  # farther than a round of everyone's updates
    share = weights[-3:].sum() / weights.sum()
    assert np.linalg.norm(ranker - quiet_ranker) <= share * moved.max() * (1.0 + 1e-9)
    assert share < 0.31
