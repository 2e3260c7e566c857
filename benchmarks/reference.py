"""Federated PDGD in plain NumPy, one interaction at a time, written to be read next to the paper.

The yardstick of `quorank bench`, and an independent reading of the equations: it shares no code with the package and
draws its own random numbers. Pair weights take O(k) each (SPEC: only the denominators between the two positions
differ between R and R*).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from quorank.kernels.arrays import Booleans, Doubles, Floats, Int8s, Integers


def sample_list(scores: Doubles, k: int, rng: np.random.Generator) -> Integers:
    """A Plackett-Luce list (eqs 1, 2): the k largest of score + Gumbel noise, best first."""
    noisy = scores + rng.gumbel(size=len(scores))
    return np.argsort(-noisy)[:k]


def clicks_of(labels: Int8s, click: Doubles, stop: Doubles, rng: np.random.Generator) -> Booleans:
    """A cascade user going down the list."""
    clicked = np.zeros(len(labels), dtype=bool)
    for position, label in enumerate(labels):
        if rng.random() < click[label]:
            clicked[position] = True
            if rng.random() < stop[label]:
                break
    return clicked


def pair_weight(weights: Doubles, denominators: Doubles, a: int, b: int) -> float:
    """ρ (eq. 6) for the documents at positions a < b of the shown list."""
    between = denominators[a + 1 : b + 1]
    ratio = np.prod(between / (between + weights[a] - weights[b]))  # P(R*) / P(R)
    return float(ratio / (1.0 + ratio))


def gradient(features: Floats, scores: Doubles, shown: Integers, clicked: Booleans) -> Doubles:
    """Eq. 5 for a linear ranker."""
    total = np.zeros(features.shape[1])
    if not clicked.any():
        return total
    last = min(int(np.flatnonzero(clicked)[-1]) + 1, len(shown) - 1)
    exp_scores = np.exp(scores - scores.max())
    weights = exp_scores[shown]
    rest = exp_scores.sum() - weights.sum()
    denominators = rest + np.cumsum(weights[::-1])[::-1]
    for preferred in np.flatnonzero(clicked):
        for other in np.flatnonzero(~clicked[: last + 1]):
            a, b = min(preferred, other), max(preferred, other)
            rho = pair_weight(weights, denominators, a, b)
            slope = weights[preferred] * weights[other] / (weights[preferred] + weights[other]) ** 2
            total += rho * slope * (features[shown[preferred]] - features[shown[other]])
    return total


def online_ndcg(shown_labels: Int8s, ideal: float) -> float:
    """nDCG of the shown list."""
    discounts = 1.0 / np.log2(np.arange(2, len(shown_labels) + 2))
    return float(((2.0**shown_labels - 1.0) * discounts).sum() / ideal) if ideal > 0.0 else 0.0


class Lists(NamedTuple):
    """Candidate lists of all queries."""

    features: Floats  # (documents, features)
    labels: Int8s  # (documents,)
    offsets: Integers  # (queries + 1,)
    ideal: Doubles  # (queries,) DCG of the best list


def federated_round(
    lists: Lists,
    theta: Doubles,
    clients: int,
    interactions: int,
    users: tuple[Doubles, Doubles],
    rng: np.random.Generator,
    eta: float = 0.1,
    k: int = 10,
) -> tuple[Doubles, float]:
    """Algorithm 2: every client makes B updates from θ; returns the mean of their parameters and the online nDCG.

    `users` are P(click | label) and P(stop | label) after a click.
    """
    click, stop = users
    mean = np.zeros_like(theta)
    ndcg = 0.0
    for _ in range(clients):
        local = theta.copy()
        for _ in range(interactions):
            query = rng.integers(len(lists.offsets) - 1)
            rows = slice(lists.offsets[query], lists.offsets[query + 1])
            x, y = lists.features[rows], lists.labels[rows]
            scores = x @ local
            shown = sample_list(scores, k, rng)
            clicked = clicks_of(y[shown], click, stop, rng)
            ndcg += online_ndcg(y[shown], lists.ideal[query])
            local += eta * gradient(x, scores, shown, clicked)
        mean += local / clients
    return mean, ndcg / (clients * interactions)
