"""The papers' equations in plain Python, float64 and no cleverness: what the package is tested against.

FPDGD: Wang et al., ICTIR 2021. Nothing in this file imports the package.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from quorank.kernels.arrays import Doubles


def log_sum(values: Sequence[float]) -> float:
    """log Σ e^v."""
    top = max(values)
    return top + math.log(math.fsum(math.exp(v - top) for v in values))


def document_probabilities(scores: Sequence[float]) -> Doubles:
    """FPDGD eq. 1: e^f(d) / Σ e^f(d') of every document."""
    return np.exp(np.array([score - log_sum(scores) for score in scores]))


def log_list_probability(ranking: Sequence[int], scores: Sequence[float]) -> float:
    """FPDGD eqs 1 and 2, in logarithms: log Π_i P(d_i | D without d_1 … d_(i−1))."""
    left, total = set(range(len(scores))), 0.0
    for document in ranking:
        total += scores[document] - log_sum([scores[d] for d in left])
        left.remove(document)
    return total


def list_probability(ranking: Sequence[int], scores: Sequence[float]) -> float:
    """FPDGD eqs 1 and 2."""
    return math.exp(log_list_probability(ranking, [float(score) for score in scores]))


def ranking_probabilities(scores: Sequence[float], k: int) -> dict[tuple[int, ...], float]:
    """Eq. 2 for all rankings of k out of all documents."""
    rankings = itertools.permutations(range(len(scores)), k)
    return {ranking: math.exp(log_list_probability(ranking, scores)) for ranking in rankings}


def rho(ranking: Sequence[int], scores: Sequence[float], a: int, b: int) -> float:
    """Eq. 6 for the documents at positions a and b: P(R*) / (P(R) + P(R*))."""
    swapped = list(ranking)
    swapped[a], swapped[b] = swapped[b], swapped[a]
    odds = log_list_probability(ranking, scores) - log_list_probability(swapped, scores)
    return 1 / (1 + math.exp(odds)) if odds < 700 else 0.0


def preferences(clicked: Sequence[bool]) -> list[tuple[int, int]]:
    """SPEC §1: (clicked, unclicked) positions, the unclicked at or above one position past the last click."""
    clicks = [p for p, c in enumerate(clicked) if c]
    others = [p for p, c in enumerate(clicked) if not c]
    return [(k, o) for k in clicks for o in others if o <= clicks[-1] + 1]


def coefficients(ranking: Sequence[int], scores: Sequence[float], clicked: Sequence[bool]) -> Doubles:
    """Eq. 5 as Σ_p coefficient_p · f'(document at p): shape (k,)."""
    out = np.zeros(len(ranking))
    for k, o in preferences(clicked):
        difference = abs(scores[ranking[k]] - scores[ranking[o]])
        slope = math.exp(-difference) / (1 + math.exp(-difference)) ** 2
        weight = rho(ranking, scores, k, o) * slope
        out[k] += weight
        out[o] -= weight
    return out


def click_patterns(
    labels: Sequence[int], examine: Sequence[float], click: Sequence[float], stop: Sequence[float]
) -> dict[tuple[bool, ...], float]:
    """P of every click pattern: read down, click by label, perhaps leave after a click (thesis §2.2.1)."""
    out: dict[tuple[bool, ...], float] = {}

    def walk(p: int, pattern: tuple[bool, ...], probability: float, present: bool) -> None:
        if probability == 0:
            return
        if p == len(labels):
            out[pattern] = out.get(pattern, 0.0) + probability
            return
        if not present:
            walk(p + 1, (*pattern, False), probability, False)
            return
        clicks, leaves = examine[p] * click[labels[p]], stop[labels[p]]
        walk(p + 1, (*pattern, False), probability * (1 - clicks), True)
        walk(p + 1, (*pattern, True), probability * clicks * leaves, False)
        walk(p + 1, (*pattern, True), probability * clicks * (1 - leaves), True)

    walk(0, (), 1.0, True)
    return out


def click_walk(
    labels: Sequence[int],
    examine: Sequence[float],
    click: Sequence[float],
    stop: Sequence[float],
    draws: Sequence[float],
) -> list[bool]:
    """One user's clicks from given uniforms: one per document looked at, a second one only after a click."""
    stream, clicked = iter(draws), [False] * len(labels)
    for p, label in enumerate(labels):
        if next(stream) < examine[p] * click[label]:
            clicked[p] = True
            if next(stream) < stop[label]:
                break
    return clicked


def score(theta: Doubles, x: Doubles, hidden: int, activation: str = "relu") -> Doubles:
    """f(x) = θ·x, or v·a(Wx + b) with θ = (W, b, v) and a = relu or the logistic function: shape (rows,)."""
    if hidden == 0:
        return x @ theta
    w, b, v = unpack(theta, x.shape[1], hidden)
    inner = x @ w.T + b
    return (np.maximum(inner, 0.0) if activation == "relu" else 1.0 / (1.0 + np.exp(-inner))) @ v


def score_gradient(theta: Doubles, x: Doubles, hidden: int, activation: str = "relu") -> Doubles:
    """∇_θ f(x) of one row."""
    if hidden == 0:
        return x.copy()
    w, b, v = unpack(theta, len(x), hidden)
    inner = w @ x + b
    if activation == "sigmoid":
        a = 1.0 / (1.0 + np.exp(-inner))
        return np.concatenate([np.outer(v * a * (1 - a), x).ravel(), v * a * (1 - a), a])
    on = (inner > 0).astype(np.float64)
    return np.concatenate([np.outer(v * on, x).ravel(), v * on, inner * on])


def unpack(theta: Doubles, n_features: int, hidden: int) -> tuple[Doubles, Doubles, Doubles]:
    weights = n_features * hidden
    return (theta[:weights].reshape(hidden, n_features), theta[weights : weights + hidden], theta[weights + hidden :])


def ndcg(shown: Sequence[int], candidates: Sequence[int], k: int) -> float:
    """Gain 2^rel − 1, discount log2(rank + 1), over the best list's; 0 if nothing is relevant."""

    def dcg(labels: Sequence[int]) -> float:
        return sum((2**label - 1) / math.log2(rank + 1) for rank, label in enumerate(labels[:k], 1))

    ideal = dcg(sorted(candidates, reverse=True))
    return dcg(shown) / ideal if ideal else 0.0


def reciprocal_rank(hits: Sequence[int] | Sequence[bool]) -> float:
    return next((1 / rank for rank, hit in enumerate(hits, 1) if hit), 0.0)
