"""Reconstruction of clicks: exact updates, posteriors that are right on average, and what each release hides."""

from __future__ import annotations

import math

import numpy as np
import pytest
from chance import assert_mean

from quorank.learning import PDGD, OnlineRanker
from quorank.privacy.audit.reconstruction import (
    AttackedRounds,
    Nuisance,
    accuracy,
    click_patterns,
    guess_clicks,
    manipulated_features,
    pattern_amounts,
    reconstruction_study,
)
from quorank.rankers import Linear
from quorank.users import Cascade


def play(lists, random, theta, rate=0.3, eta=0.1, client=0, k=10):
    """A client of a real learner whose user clicks each document at random: shown orders, clicks, update."""
    online = OnlineRanker(theta, len(theta), Linear(), PDGD(eta=eta), client=client, k=k)
    orders, clicks = [], []
    for features in lists:
        page = online.rank(features)
        clicks.append(random.random(len(page.order)) < rate)
        orders.append(page.order)
        online.learn(page, clicks[-1])
    return orders, clicks, online.update


def readable(clicks) -> np.ndarray:
    """Lists that express a preference: not all alike."""
    return np.array([c.any() and not c.all() for c in clicks])


@pytest.mark.parametrize("spread", [0.0, 1.0, 60.0, 2000.0])
@pytest.mark.parametrize("documents", [5, 9])
def test_amounts_give_the_update_of_the_real_learner(documents, spread) -> None:
    """Also where scores are so far apart that the learner weighs pairs in logarithms."""
    random = np.random.default_rng(documents)
    x, theta = random.random((documents, 7)).astype(np.float32), spread * random.normal(size=7)
    patterns = click_patterns(5)
    moved = 0
    for row, pattern in enumerate(patterns):
        online = OnlineRanker(theta, 7, Linear(), PDGD(eta=0.3), k=5)
        page = online.rank(x)
        amounts = pattern_amounts(theta, x.astype(np.float64), page.order, 0.3, patterns)
        online.learn(page, pattern)
        np.testing.assert_allclose(amounts[row] @ x[page.order], online.update, rtol=1e-5 * (1 + spread), atol=1e-7)
        moved += bool(online.update.any())
        if not pattern.any() or pattern.all():
            assert not amounts[row].any()
    assert moved > 5 or spread > 100  # there preferences are too clear to teach anything


def study_lists(make, count, interactions, change, seed=1, eta=0.1, **options):
    """Attack `count` clients after `change` of their update: guesses and clicks of the readable lists."""
    random = np.random.default_rng(seed)
    guesses, truths = [], []
    for client in range(count):
        theta = 0.3 * random.normal(size=46)
        lists = make(random, interactions)
        orders, clicks, update = play(lists, random, theta, eta=eta, client=client)
        guessed = guess_clicks(theta, lists, orders, change(update, random), eta, prior=0.3, **options)
        keep = readable(clicks)
        guesses += [g for g, kept in zip(guessed, keep, strict=True) if kept]
        truths += [c for c, kept in zip(clicks, keep, strict=True) if kept]
    return guesses, truths


def natural(random, interactions, d=46, documents=25):
    return [random.random((documents, d)) for _ in range(interactions)]


def chosen(random, interactions):
    return list(manipulated_features(10, 46, interactions))


def share_right(guesses, truths) -> float:
    return float(np.mean((np.concatenate(guesses) > 0.5) == np.concatenate(truths)))


def nothing(update, random):
    return update


@pytest.mark.parametrize(
    ("make", "interactions", "least"), [(chosen, 1, 0.99), (chosen, 4, 0.99), (natural, 2, 0.99), (natural, 4, 0.95)]
)  # fmt: skip
def test_without_privacy_clicks_are_read(make, interactions, least) -> None:
    guesses, truths = study_lists(make, 12, interactions, nothing)
    assert share_right(guesses, truths) >= least


def real_updates(theta, x, eta, patterns):
    """What the real learner sends for each pattern on the list that it shows."""
    rows = []
    for pattern in patterns:
        online = OnlineRanker(theta, len(theta), Linear(), PDGD(eta=eta), k=patterns.shape[1])
        page = online.rank(x)
        online.learn(page, pattern)
        rows.append(online.update)
    return page.order, np.array(rows)


def posterior(log_likelihood, patterns, prior):
    weights = np.exp(log_likelihood - log_likelihood.max()) * np.prod(np.where(patterns, prior, 1 - prior), axis=1)
    return weights / weights.sum() @ patterns


def test_signs_of_one_list_against_all_patterns() -> None:
    """With signs turned over at random, a pattern's likelihood is a product of p and 1 − p."""
    random = np.random.default_rng(8)
    patterns, flip = click_patterns(5), 0.2
    for _ in range(10):
        theta, x = random.normal(size=12), random.random((8, 12)).astype(np.float32)
        order, updates = real_updates(theta, x, 0.3, patterns)
        true = random.integers(1, 31)
        seen = np.sign(updates[true]) * np.where(random.random(12) < flip, -1, 1)
        same = np.sum(np.sign(updates) == seen, axis=1)
        likelihood = same * math.log(1 - flip) + (12 - same) * math.log(flip)
        likelihood[[0, 31]] = -np.inf  # these would have sent zeros
        (found,) = guess_clicks(theta, [x], [order], seen, 0.3, "signs", flip=flip, prior=0.3)
        np.testing.assert_allclose(found, posterior(likelihood, patterns, 0.3), atol=0.02)


@pytest.mark.parametrize("noise", [0.01, 0.05])
def test_the_posterior_of_one_list_is_right_on_average(noise) -> None:
    """With clicks that follow the prior, E[(click − p)·g(p)] = 0 for every g: here 1 and p, and p must vary."""
    random, clicks, guesses = np.random.default_rng(4), [], []
    theta = 0.3 * random.normal(size=46)
    for client in range(400):
        lists = list(manipulated_features(6, 46))
        orders, clicked, update = play(lists, random, theta, client=client)
        seen = update + noise * random.normal(size=46)
        clicks += clicked
        guesses += guess_clicks(theta, lists, orders, seen, 0.1, noise_std=noise, prior=0.3)
    p, c = np.array(guesses), np.array(clicks)
    assert_mean((c - p).mean(axis=1), 0.0)
    assert_mean(((c - p) * p).mean(axis=1), 0.0)
    assert 0.02 < p.std() < 0.45


def test_a_sum_over_many_clients_hides_natural_lists() -> None:
    """The server knows how the others' updates are distributed, and still sees next to nothing."""
    random = np.random.default_rng(6)
    theta = 0.3 * random.normal(size=46)
    crowd = np.stack([play(natural(random, 2), random, theta, client=c)[2] for c in range(400)])
    known = Nuisance(999 * crowd.mean(axis=0), 999 * np.cov(crowd.T))
    factor = np.linalg.cholesky(known.covariance)
    areas = {}
    for size in (0.0, 1.0):
        guesses, truths = [], []
        for client in range(30):
            lists = natural(random, 2)
            orders, clicks, update = play(lists, random, theta, client=client)
            others = Nuisance(size * known.mean, size**2 * known.covariance)
            seen = update + others.mean + size * factor @ random.normal(size=46)
            guesses += guess_clicks(theta, lists, orders, seen, 0.1, others=others, prior=0.3)
            truths += clicks
        areas[size] = accuracy(guesses, truths, 0.3)["auc"]
    assert areas[0.0] > 0.95
    assert abs(areas[1.0] - 0.5) < 0.11


def test_the_study_tells_releases_apart(tiny_graded) -> None:
    theta = np.random.default_rng(2).normal(size=13)
    attacked = AttackedRounds(eta=0.1, interactions=1, cohort=200, clip=0.05, noise_std_on_sum=1.0, k=6)
    users = Cascade(preset="informational")
    found = reconstruction_study(tiny_graded.train, Linear(), users, theta, attacked, clients=40, seed=5)
    assert len(found) == 12
    for name in ("natural/no privacy", "manipulated/no privacy", "manipulated/secure sum"):
        assert found[name]["auc"] > 0.95
        assert found[name]["bits"] > 0.8 * found[name]["bits_to_learn"]
    for name in ("natural/noisy sum", "manipulated/noisy sum", "natural/secure sum"):
        assert abs(found[name]["auc"] - 0.5) < 0.15
        assert found[name]["bits"] < 0.1
    assert found["natural/no privacy"]["auc"] >= found["natural/signs"]["auc"] > found["natural/noisy sum"]["auc"]
    one, again = (
        reconstruction_study(tiny_graded.train, Linear(), users, theta, attacked, clients=8, seed=5) for _ in range(2)
    )
    assert one == again and one != found
