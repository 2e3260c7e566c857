"""Canaries: fair coins, codes that can be told apart, the best linear score, and audits of mechanisms with known ε."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from privacy_losses import gaussian_delta
from scipy import optimize, stats

from quorank.kernels.draws import Purpose, key_of, normals
from quorank.privacy.audit.bound import epsilon_lower_bound
from quorank.privacy.audit.canaries import Canaries, audit_coins, guess_coins, slow_waves


def canaries(count, parameters=46, rounds=20, clip=1.0, seed=1) -> Canaries:
    return Canaries(count, parameters, rounds, clip, key_of(seed, Purpose.CANARY))


def released(birds, noise, seed=1, honest=None) -> np.ndarray:
    """What a Gaussian mechanism with this noise on each coordinate releases."""
    shape = (birds.rounds, birds.parameters)
    sums = np.stack([birds.contribution(t) for t in range(birds.rounds)])
    sums += noise * normals(seed, Purpose.CANARY, shape[0] * shape[1], interaction=5).reshape(shape)
    return sums if honest is None else sums + honest


def noise_for(epsilon, delta, rounds, clip=1.0) -> float:
    """The noise whose `rounds` releases together are (ε, δ)-private: one release with sensitivity √rounds·clip."""
    return math.sqrt(rounds) * clip / optimize.brentq(lambda mu: gaussian_delta(mu, epsilon) - delta, 1e-3, 100.0)


@given(st.integers(1, 300), st.integers(1, 9), st.floats(1e-3, 1e3))
def test_every_update_is_as_long_as_clipping_allows(parameters, rounds, clip) -> None:
    birds = canaries(3, parameters, rounds, clip)
    for t in range(rounds):
        np.testing.assert_allclose(np.linalg.norm(birds.updates(t), axis=1), clip)


def test_one_step_is_the_regression_with_waves_as_unknowns() -> None:
    """Against a least-squares solver on the whole design: codes, waves of each coordinate, and a prior of variance ¼."""
    birds = canaries(15, parameters=6, rounds=12)
    random = np.random.default_rng(1)
    factor = random.normal(size=(6, 6)) + 3 * np.eye(6)
    covariance = factor @ factor.T
    waves = slow_waves(12)
    sums = released(birds, 0.0) + random.normal(size=(12, 6)) @ factor.T
    guessed = random.random(15)
    step = birds._ridge(birds._without(sums, guessed, waves), waves, covariance, guessed)
    whiten = np.linalg.inv(factor)
    codes = np.stack([birds.updates(t) for t in range(12)], axis=1)
    columns = [(code @ whiten.T).ravel() for code in codes]
    columns += [np.outer(wave, axis).ravel() for wave in waves.T for axis in np.eye(6)]
    design = np.stack(columns, axis=1)
    prior = 2.0 * np.eye(15, design.shape[1])
    wanted = np.concatenate(((sums @ whiten.T).ravel(), np.full(15, 2.0 * 0.5)))
    solution = np.linalg.lstsq(np.vstack((design, prior)), wanted, rcond=None)[0]
    np.testing.assert_allclose(guessed + step, solution[:15], atol=1e-9)


def test_scores_are_as_good_as_the_noise_allows() -> None:
    """The best guess about a coin in noise is right with probability Φ(μ/2), μ = √T·clip / noise."""
    mu, rounds, right = 1.5, 60, []
    for seed in range(4):
        birds = canaries(200, rounds=rounds, seed=seed)
        scores = birds.scores(released(birds, math.sqrt(rounds) / mu, seed))
        right.append(np.mean((guess_coins(scores, 200) > 0) == birds.included))
    best = stats.norm.cdf(mu / 2)
    assert best - 0.05 < np.mean(right) < best + 0.03


def test_without_noise_an_audit_finds_a_large_epsilon() -> None:
    birds = canaries(700, rounds=60)
    found = audit_coins(birds.scores(released(birds, 0.0)), birds.included, 1e-5)
    assert found.correct == found.guesses == found.canaries == 700
    assert found.epsilon > 5


def test_calibrated_noise_is_not_refuted() -> None:
    noise, above = noise_for(2.0, 1e-5, 20), 0
    for seed in range(60):
        birds = canaries(80, parameters=20, seed=seed)
        above += audit_coins(birds.scores(released(birds, noise, seed)), birds.included, 1e-5).epsilon > 2.0
    assert above <= 3


def test_a_tenth_of_the_noise_is_refuted() -> None:
    noise = noise_for(1.0, 1e-5, 20) / 10
    for seed in range(3):
        birds = canaries(300, seed=seed)
        assert audit_coins(birds.scores(released(birds, noise, seed)), birds.included, 1e-5).epsilon > 1.0


@given(st.lists(st.integers(-40, 40).map(lambda i: i / 8), min_size=1, max_size=40), st.data())
def test_guesses_go_to_the_clearest_scores(scores, data) -> None:
    r = data.draw(st.integers(0, len(scores)))
    answers = guess_coins(scores, r)
    values = np.array(scores)
    assert np.count_nonzero(answers) == r
    ins, outs, open_ = values[answers == 1], values[answers == -1], values[answers == 0]
    assert ins.min(initial=np.inf) >= open_.max(initial=-np.inf) or len(ins) == 0 or len(outs) == 0
    assert outs.max(initial=-np.inf) <= ins.min(initial=np.inf)
    assert np.array_equal(answers, guess_coins(values * 2, r))


def test_the_best_share_pays_for_all() -> None:
    scores, coins = np.linspace(0, 1, 100), np.arange(100) >= 40
    alone = {r: epsilon_lower_bound(100, r, v, 1e-6, 1 - 0.05 / 2) for r, v in ((100, 90), (20, 20))}
    found = audit_coins(scores, coins, 1e-6)
    assert found.epsilon == max(alone.values())
    assert (found.guesses, found.correct) == ((100, 90) if alone[100] > alone[20] else (20, 20))
