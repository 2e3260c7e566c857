"""Heuristics small enough to be checked by hand, and the formulas of §4 and §5.2 written out item by item."""

from __future__ import annotations

from typing import Any

import numpy as np

from quorank.tuning.heuristics.heuristic import Heuristic, Order, Weight


def linear(rows: np.ndarray, items: Any) -> np.ndarray:
    """A score that is Σ w_k x_k; items have a column `x`."""
    return np.asarray(rows @ items.x.T)


def chain(size: int, *, lower: float = -10.0, upper: float = 10.0, step: float = 100.0, by: float = 0.0) -> Heuristic:
    """w0 ≥ w1 + by ≥ …, with wide steps."""
    start = [upper - k * max(by, 0.0) for k in range(size)]
    return Heuristic(
        "chain",
        tuple(Weight(f"w{k}", start[k], lower, upper, step) for k in range(size)),
        tuple(Order(f"w{k}", f"w{k + 1}", by) for k in range(size - 1)),
        linear,
    )


def frecency_by_hand(weights: np.ndarray, items: Any, x: int) -> float:
    """|S_x|/|T_x| · Σ recency(v)·type(v), §4."""
    total = 0.0
    for v in range(int(items.sampled[x])):
        kind = int(items.type[x, v])
        total += weights[int(items.recency[x, v])] * weights[5 + (kind if kind < 3 else 3)]
    return float(items.visits[x]) / float(items.sampled[x]) * total


def firefox_by_hand(weights: np.ndarray, items: Any, x: int) -> float:
    """The formula with 22 weights, visit by visit."""
    cuts, buckets = weights[:4], weights[4:9]
    bookmark = 9 + 4
    if items.sampled[x] == 0:
        return float(buckets[0] * weights[9 + 10 if items.bookmarked[x] else 9 + 11] / 100.0)
    points = 0.0
    for v in range(int(items.sampled[x])):
        age = items.age[x, v]
        bucket = next((k for k in range(4) if age <= cuts[k]), 4)
        bonus = weights[int(items.bonus[x, v])] + (weights[bookmark] if items.bookmarked[x] else 0.0)
        points += buckets[bucket] * bonus / 100.0
    return float(items.visits[x] / items.sampled[x] * points)


def loss_by_hand(scores: np.ndarray, chosen: int, margin: float) -> float:
    """Σ_{j ≠ i} max(0, f(x_j) + Δ − f(x_i)), §5.2."""
    return sum(max(0.0, scores[j] + margin - scores[chosen]) for j in range(len(scores)) if j != chosen)
