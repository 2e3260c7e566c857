"""Reconstruction attack: a client's clicks guessed from what it released.

The threat is that of RAIFLE (Pham, Kulkarni, Houmansadr 2025, "RAIFLE: Reconstruction Attacks on Interaction-based
Federated Learning with Adversarial Data Manipulation"), in its strongest form: the server knows θ, η, the candidate lists
and their order as shown to a client, and guesses the clicks. It may also choose the features (`manipulated_features`).
RAIFLE searches for clicks by gradient descent; with a linear ranker the update of PDGD is

    Σ_b η Σ_p c_p(clicks of interaction b)·x_p    (FPDGD eq. 5),

so this attack enumerates all 2^k click patterns of each interaction with their exact updates. Several interactions are
separated as by a multi-user receiver: each is decoded in turn, over several sweeps, with the others as Gaussian noise of
the mean and covariance of their patterns given the guesses so far. Between the interactions of a client θ follows the best
guesses.

A list with no clicks has no update, nor has one with clicks on all documents: the attack returns the prior for both.
`accuracy` counts such lists like others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, softmax
from scipy.stats import mannwhitneyu

from quorank.data.ranking import RankingData, grades_of
from quorank.errors import require, require_range
from quorank.kernels.arrays import Booleans, Doubles, Floats, Integers
from quorank.kernels.compiled import kernel
from quorank.kernels.draws import Purpose, normals, uniforms
from quorank.learning import PDGD, OnlineRanker, Simulation
from quorank.learning.client_loop import STATISTICS, Work
from quorank.learning.pdgd import pair_coefficients
from quorank.learning.plackett_luce import TINY, Buffers, buffers_for
from quorank.rankers import Ranker
from quorank.users import ClickModel, simulate_clicks

Release = Literal["exact", "clipped", "signs"]

MOST_SHOWN = 12  # the attack lists 2^k patterns
FLOORS = (0.1, 0.03, 0.01, 1e-3, 1e-4)
"""Smallest assumed noise per sweep, as a share of an update, since early guesses are inaccurate."""


class Nuisance(NamedTuple):
    """Mean (d,) and covariance (d, d) of the rest of a release, for example of the other clients of a sum."""

    mean: Doubles
    covariance: Doubles


def click_patterns(k: int) -> Booleans:
    """Return (2^k, k) all ways to click in a list of k."""
    sentence = f"the attack is for lists of 1 to {MOST_SHOWN} shown documents, got {k}"
    require(1 <= k <= MOST_SHOWN, "attack.list-length", sentence)
    return np.asarray(np.arange(2**k)[:, None] >> np.arange(k) & 1, dtype=np.bool_)


def pattern_amounts(theta: Doubles, features: Doubles, shown: Integers, eta: float, patterns: Booleans) -> Doubles:
    """Compute (patterns, k) η·c_p: how much of each shown document each click pattern adds to θ."""
    scores = (features @ theta).astype(np.float32)
    weights = np.exp(scores.astype(np.float64) - scores.max())
    rest = float(np.delete(weights, shown).sum())
    amounts = np.empty(patterns.shape)
    small = rest + weights[shown[-1]] <= TINY  # then pairs are weighed in logarithms
    k = len(shown)
    buffers = buffers_for(len(scores), 0, scores[None, :], k)
    buffers.shown[:k], buffers.shown_weights[:k] = shown, weights[shown]
    _fill_coefficients(scores, -1.0 if small else rest, patterns, buffers, amounts)
    return eta * amounts


def guess_clicks(
    theta: npt.ArrayLike,
    lists: Sequence[npt.ArrayLike],
    shown: Sequence[npt.ArrayLike],
    release: npt.ArrayLike,
    eta: float,
    how: Release = "exact",
    *,
    noise_std: float = 0.0,
    clip: float = math.inf,
    flip: float = 0.0,
    others: Nuisance | None = None,
    prior: float = 0.2,
) -> list[Doubles]:
    """Compute P(click) of every shown document of every interaction, as the server sees it.

    `lists[b]` holds the features (documents, d) and `shown[b]` the row numbers of interaction b, in the order of the
    client's round. `how` is the client's processing of its update: none, clipping to norm `clip`, or signs, each flipped
    with probability `flip`. `noise_std` is the standard deviation of the noise on each number of the release, `others` the
    other clients' part of a sum, and `prior` the click rate.
    """
    start, seen = np.asarray(theta, dtype=np.float64), np.asarray(release, dtype=np.float64)
    d, n = len(start), len(lists)
    crowd = others or Nuisance(np.zeros(d), np.zeros((d, d)))
    features = [np.asarray(x, dtype=np.float64) for x in lists]
    orders = [np.ascontiguousarray(order, dtype=np.int64) for order in shown]
    patterns = [click_patterns(len(order)) for order in orders]
    priors = [np.where(p, math.log(prior), math.log1p(-prior)).sum(axis=1) for p in patterns]
    weights = [np.exp(p) for p in priors]
    documents = [x[order] for x, order in zip(features, orders, strict=True)]
    amounts = [pattern_amounts(start, features[b], orders[b], eta, patterns[b]) for b in range(n)]
    believed = [_moments(weights[b], amounts[b], documents[b]) for b in range(n)]
    size = min(clip**2, sum(float(np.trace(one.covariance) + one.mean @ one.mean) for one in believed))
    for floor in FLOORS:
        local, tiny = start, floor**2 * size / d + 1e-24
        for b in range(n):
            if b > 0:  # the first list is always ranked at θ
                amounts[b] = pattern_amounts(local, features[b], orders[b], eta, patterns[b])
            apart = [believed[i] for i in range(n) if i != b]
            mean = sum((one.mean for one in apart), np.zeros(d))
            rest = Nuisance(mean, sum((one.covariance for one in apart), np.zeros((d, d))))
            if how == "signs":
                fit = _fit_signs(seen, amounts[b], documents[b], rest, tiny, flip)
            else:
                noise = crowd.covariance + (noise_std**2 + tiny) * np.eye(d)
                fit = _fit_numbers(seen - crowd.mean, amounts[b], documents[b], rest, noise, clip)
            weights[b] = softmax(priors[b] + fit)
            believed[b] = _moments(weights[b], amounts[b], documents[b])
            local = local + amounts[b][np.argmax(weights[b])] @ documents[b]
    return [w @ p for w, p in zip(weights, patterns, strict=True)]


def _moments(weights: Doubles, amounts: Doubles, documents: Doubles) -> Nuisance:
    """Return mean and covariance of an interaction's update, given the probabilities of its patterns."""
    mean = weights @ amounts
    apart = amounts - mean
    return Nuisance(mean @ documents, documents.T @ ((apart.T * weights) @ apart) @ documents)


def _fit_numbers(seen: Doubles, amounts: Doubles, x: Doubles, rest: Nuisance, noise: Doubles, clip: float) -> Doubles:
    """Return log N(seen; clipped(Σ_p amounts·x_p + rest), noise) of each pattern, up to a constant.

    Clipping scales by the norm of the whole update, which depends on the other interactions: its expected square decides
    the scale, and its relative variance counts as noise along the update.
    """
    mean, covariance = rest
    square = _products(amounts, x, mean, np.eye(len(seen))) + np.trace(covariance)
    scale = np.minimum(1.0, clip / np.sqrt(np.maximum(square, 1e-300)))
    middle = amounts.mean(axis=0) @ x + mean
    spread = 2.0 * np.sum(covariance**2) + 4.0 * middle @ covariance @ middle  # the variance of the square
    unsure = 0.25 * spread / np.mean(square) ** 2 if scale.min() < 1.0 else 0.0
    precision = np.linalg.inv(noise + scale.mean() ** 2 * (covariance + unsure * np.outer(middle, middle)))
    along = (amounts @ x + mean) @ (precision @ seen)
    return np.asarray(scale * along - 0.5 * scale**2 * _products(amounts, x, mean, precision))


def _products(amounts: Doubles, x: Doubles, mean: Doubles, metric: Doubles) -> Doubles:
    """Return |Σ_p amounts·x_p + mean|² of each pattern in a metric, from products of the few documents."""
    inner = amounts @ (x @ metric @ x.T) + 2.0 * (x @ metric @ mean)
    return np.asarray(np.sum(inner * amounts, axis=1) + mean @ metric @ mean)


def _fit_signs(seen: Doubles, amounts: Doubles, x: Doubles, rest: Nuisance, tiny: float, flip: float) -> Doubles:
    """Return Σ_j log P(sign_j): number j is normal around the update, and 0 only if no document has moved it."""
    variances = np.diag(rest.covariance) + tiny
    z = (amounts @ x + rest.mean) / np.sqrt(variances)
    none = 0.999 * tiny / variances * np.exp(-0.5 * z**2)
    same = flip + (1.0 - 2.0 * flip) * ndtr(z * np.sign(seen))
    return np.asarray(np.log(np.maximum(np.where(seen != 0.0, (1.0 - none) * same, none), 1e-12)).sum(axis=1))


def accuracy(guessed: Sequence[npt.ArrayLike], clicks: Sequence[npt.ArrayLike], rate: float) -> dict[str, float]:
    """Measure how well P(click) of the shown documents predicts the clicks.

    `auc` is the probability that a clicked document gets the higher value (ties count half), `balanced_accuracy` the mean
    of the shares of clicked and of other documents that are classified rightly; both are 0.5 for guesses at random. `bits`
    is the information gained per document, the log loss (base 2) of the base rate `rate` minus that of the guesses;
    `bits_to_learn` is the loss of the base rate.
    """
    p = np.concatenate([np.asarray(g, dtype=np.float64) for g in guessed])
    true = np.concatenate([np.asarray(c, dtype=np.bool_) for c in clicks])
    require(true.any() and not true.all(), "attack.one-class", "accuracy needs clicked documents and others")
    rounded, pairs = np.round(p, 9), int(true.sum()) * int((~true).sum())
    area = mannwhitneyu(rounded[true], rounded[~true], method="asymptotic").statistic / pairs
    sure = np.clip(p, 1e-3, 1.0 - 1e-3)
    loss = -np.mean(np.log2(np.where(true, sure, 1.0 - sure)))
    base = -np.mean(np.log2(np.where(true, rate, 1.0 - rate)))
    return {
        "auc": float(area),
        "balanced_accuracy": float(0.5 * (np.mean(p[true] > 0.5) + np.mean(p[~true] <= 0.5))),
        "bits": float(base - loss),
        "bits_to_learn": float(base),
    }


def manipulated_features(k: int, d: int, interactions: int = 1) -> Floats:
    """Return (interactions, k, d) features that reveal clicks to a server, one direction per document.

    Unit vectors if interactions·k ≤ d, else cosines of interactions·k frequencies.
    """
    if (count := interactions * k) <= d:
        return np.eye(count, d, dtype=np.float32).reshape(interactions, k, d)
    phase = np.outer(np.arange(1, count + 1), np.arange(d) + 0.5) * (math.pi / count)
    return (np.cos(phase) * math.sqrt(2.0 / d)).astype(np.float32).reshape(interactions, k, d)


def clipped(updates: Doubles, clip: float) -> Doubles:
    """Scale each update (…, d) to a norm of at most `clip`."""
    norms = np.linalg.norm(updates, axis=-1, keepdims=True)
    return np.asarray(updates * np.minimum(1.0, clip / np.maximum(norms, 1e-300)), dtype=np.float64)


class AttackedRounds(NamedTuple):
    """Rounds that a reconstruction study attacks."""

    eta: float  # η of PDGD
    interactions: int  # B
    cohort: int
    clip: float  # C
    noise_std_on_sum: float
    k: int = 10  # shown documents
    flip: float = 0.25  # probability of a flipped sign


def reconstruction_study(
    data: RankingData,
    ranker: Ranker,
    users: ClickModel,
    theta: Doubles,
    attacked: AttackedRounds,
    *,
    clients: int,
    seed: int,
) -> dict[str, dict[str, float]]:
    """Attack `clients` simulated clients of a linear ranker, each in a separate cohort, under each kind of release.

    Returns `accuracy` by name: "natural/…" for the features of the data, "manipulated/…" for those that a server would
    choose, a direction for each shown document of its victim and zeros for the other clients.
    """
    require_range("victims", clients, least=1)
    eta, interactions, cohort, clip, noise_std_on_sum, k, flip = attacked
    simulation = Simulation(data, ranker, users, grades_of(data.max_label), seed, k)
    tables, learner, d = users.tables(simulation.grades, k), PDGD(eta), data.n_features
    rows, chosen = np.empty((cohort - 1, d + STATISTICS)), manipulated_features(k, d, interactions)
    works = partial(Work, simulation.world(), seed, theta)

    def play_others(round_: int) -> Doubles:
        learner.updates(works(round_, np.arange(1, cohort), np.full(cohort - 1, interactions)), rows)
        return clipped(rows[:, :d], clip)

    played = np.concatenate([play_others(clients + i) for i in range(8)])  # as a server could play itself
    rate = float(np.clip(rows[:, -1].sum() / ((cohort - 1) * interactions * k), 0.01, 0.99))
    crowd = Nuisance((cohort - 1) * played.mean(axis=0), (cohort - 1) * np.cov(played.T).reshape(d, d))
    found: dict[str, dict[str, float]] = {}
    for kind, others in (("natural", crowd), ("manipulated", None)):
        clicks: list[Booleans] = []
        guesses: dict[str, list[Doubles]] = {}
        for victim in range(clients):
            client = OnlineRanker(theta, d, ranker, learner, seed, 0, victim, k)
            lists, orders = list[Floats](), list[Integers]()
            for b in range(interactions):
                at = {"round_": victim, "client": 0, "interaction": b}
                query = data.rows_of(int(uniforms(seed, Purpose.QUERY, 1, **at)[0] * data.n_queries))
                x, labels = data.features[query], data.labels[query]
                if kind == "manipulated":
                    labels = labels[np.argsort(-(x @ theta), kind="stable")[:k]]
                    x = chosen[b, : len(labels)]
                page = client.rank(x)
                clicks.append(simulate_clicks(tables, labels[page.order], seed, **at))
                client.learn(page, clicks[-1])
                lists, orders = [*lists, x], [*orders, page.order]
            see = partial(guess_clicks, theta, lists, orders, eta=eta, prior=rate)
            see_sum = partial(see, how="clipped", clip=clip, others=others)
            sent, short = client.update, clipped(client.update, clip)
            total = short + (play_others(victim).sum(axis=0) if kind == "natural" else 0.0)
            noise = noise_std_on_sum * normals(seed, Purpose.NOISE, d, round_=victim)
            turned = uniforms(seed, Purpose.RESPONSE, d, round_=victim) < flip
            for name, guessed in {
                "no privacy": see(sent),
                "clipped": see(short, how="clipped", clip=clip),
                "signs": see(np.sign(sent), how="signs"),
                "randomised signs": see(np.sign(sent) * np.where(turned, -1, 1), how="signs", flip=flip),
                "secure sum": see_sum(total),
                "noisy sum": see_sum(total + noise, noise_std=noise_std_on_sum),
            }.items():
                guesses.setdefault(name, []).extend(guessed)
        found |= {f"{kind}/{name}": accuracy(g, clicks, rate) for name, g in guesses.items()}
    return found


@kernel
def _fill_coefficients(scores: Floats, rest: float, patterns: Booleans, buffers: Buffers, out: Doubles) -> None:
    """Fill out[i] with the coefficients of the list in `buffers` for click pattern i."""
    k = patterns.shape[1]
    for i in range(len(patterns)):
        for p in range(k):
            buffers.clicked[p] = patterns[i, p]
        pair_coefficients(scores, scores, True, len(scores), k, rest, buffers)
        for p in range(k):
            out[i, p] = buffers.coefficients[p]
