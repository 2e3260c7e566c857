"""LambdaRank gradients against their equations, document by document."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from quorank.kernels.compiled import interpreted
from quorank.learning.trees.client_rows import fill_best_dcg, fill_gradients, rank_rows
from quorank.learning.trees.growth import UNIT, LambdaRule
from quorank.metrics.lists import discounts


def by_the_equations(gains, scores, rule: LambdaRule) -> tuple[list[float], list[float]]:
    """Burges 2010 with LightGBM's normalisation, in plain Python, over all ordered pairs."""
    n = len(gains)
    order = sorted(range(n), key=lambda i: -scores[i])
    rank = {document: r for r, document in enumerate(order)}
    discount = [1 / math.log2(r + 2) for r in range(n)]
    best = sum(g * d for g, d in zip(sorted(gains, reverse=True)[: rule.truncation], discount, strict=False))
    g, h, total = [0.0] * n, [0.0] * n, 0.0
    if best <= 0:
        return g, h
    for i in range(n):
        for j in range(n):
            if gains[i] <= gains[j] or min(rank[i], rank[j]) >= rule.truncation:
                continue
            change = (gains[i] - gains[j]) * abs(discount[rank[i]] - discount[rank[j]]) / best
            if rule.norm and max(scores) != min(scores):
                change /= 0.01 + abs(scores[i] - scores[j])
            rho = 1 / (1 + math.exp(rule.sigmoid * (scores[i] - scores[j])))
            pull, curve = rule.sigmoid * change * rho, rule.sigmoid**2 * change * rho * (1 - rho)
            g[i], g[j], h[i], h[j] = g[i] - pull, g[j] + pull, h[i] + curve, h[j] + curve
            total += 2 * pull
    factor = math.log2(1 + total) / total if rule.norm and total > 0 else 1.0
    return [x * factor for x in g], [x * factor for x in h]


def computed(gains, scores, offsets, rule):
    offsets, gains = np.array(offsets), np.array(gains, dtype=np.float64)
    discount, best = discounts(int(np.diff(offsets).max())), np.empty(len(offsets) - 1)
    fill_best_dcg(gains, offsets, discount, rule.truncation, best)
    g, h = np.full(len(gains), 9, dtype=np.int64), np.full(len(gains), 9, dtype=np.int64)
    fill_gradients(rule, gains, offsets, best, discount, np.array(scores, float), 0, len(best), g, h)
    return g, h


@pytest.mark.parametrize("norm", [True, False])
@pytest.mark.parametrize("truncation", [1, 3, 100])
@pytest.mark.parametrize("sigmoid", [1.0, 2.5])
def test_gradients_are_those_of_the_equations(norm, truncation, sigmoid) -> None:
    rng, rule = np.random.default_rng(3), LambdaRule(sigmoid, truncation, norm)
    lengths = [1, 2, 7, 12, 5]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    gains = 2.0 ** rng.integers(0, 4, offsets[-1]) - 1
    gains[offsets[4] :] = 0.0  # nothing relevant
    scores = rng.normal(size=offsets[-1]).round(1)  # with ties
    scores[offsets[2] : offsets[3]] = 0.25  # a list before anything is learned
    g, h = computed(gains, scores, offsets, rule)
    for start, stop in pairwise(offsets):
        expected = by_the_equations(gains[start:stop].tolist(), scores[start:stop].tolist(), rule)
        assert g[start:stop] / UNIT == pytest.approx(expected[0], abs=1 / UNIT)
        assert h[start:stop] / UNIT == pytest.approx(expected[1], abs=1 / UNIT)
    assert g[offsets[2] : offsets[4]].any()


def test_scores_far_apart_stay_numbers() -> None:
    g, h = computed([1.0, 0.0, 3.0], [0.0, 5000.0, -5000.0], [0, 3], LambdaRule(1.0, 10, False))
    assert (np.abs(g) < 2**40).all() and (h >= 0).all()
    assert g[2] < 0 < g[1]


def test_ranks_are_stable_and_the_same_as_plain_python() -> None:
    values = np.random.default_rng(1).integers(0, 9, 57).astype(float)
    order, spare = np.empty(60, dtype=np.int64), np.empty(60, dtype=np.int64)
    rank_rows(values, 4, 50, order, spare)
    assert order[:50].tolist() == np.argsort(-values[4:54], kind="stable").tolist()
    rule = LambdaRule(1.0, 4, True)
    compiled = computed(values[:20], values[20:40], [0, 9, 20], rule)
    with interpreted():
        plain = computed(values[:20], values[20:40], [0, 9, 20], rule)
    assert [x.tolist() for x in compiled] == [x.tolist() for x in plain]
