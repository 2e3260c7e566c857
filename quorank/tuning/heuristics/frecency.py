"""Frecency, the score by which Firefox ordered suggestions from the browsing history (Hartmann et al. 2019, §4).

    visit(v)    = recency(v) · type(v)
    frecency(x) = |S_x| / |T_x| · Σ_{v ∈ T_x} visit(v)

Five weights for how long ago a visit was, four for how it came about: nine in all, every constant of the formulas.
The score is linear in each single weight, so a weight moved by ε moves the score by ε times a slope, and all 2·9 + 1
weight vectors of the finite differences cost one pass over the visits.

The bounds and steps are ours: the paper gives none but w ≥ 0 and the order of the recency weights (§5.6). A step is a
tenth of the largest shipped weight of its kind.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from quorank.arrays import Doubles, Int8s
from quorank.compiled import kernel
from quorank.tuning.heuristics.heuristic import Heuristic, Order, Weight
from quorank.tuning.histories.generated import Suggestions

BUCKETS = 5
KINDS = 4  # of visits that have a weight of their own: link, typed, bookmark, and all others
WEIGHTS = BUCKETS + KINDS


@kernel
def _scores(weights: Doubles, visits: Any, sampled: Int8s, recency: Int8s, kinds: Int8s, out: Doubles) -> None:
    """out (items, m): frecency of every item under each of m weight vectors."""
    m = len(weights)
    for x in range(len(visits)):
        for k in range(m):
            out[x, k] = 0.0
        if sampled[x] == 0:
            continue
        scale = visits[x] / sampled[x]
        for v in range(sampled[x]):
            b = recency[x, v]
            t = BUCKETS + min(kinds[x, v], KINDS - 1)
            for k in range(m):
                out[x, k] += weights[k, b] * weights[k, t]
        for k in range(m):
            out[x, k] *= scale


@kernel
def _probe(
    weights: Doubles,
    below: Doubles,
    above: Doubles,
    visits: Any,
    sampled: Int8s,
    recency: Int8s,
    kinds: Int8s,
    out: Doubles,
) -> None:
    """out (items, 2·9 + 1): the score with one weight moved up, one moved down, and none."""
    slope = np.empty(WEIGHTS)
    for x in range(len(visits)):
        slope[:] = 0.0
        total = 0.0
        scale = visits[x] / max(sampled[x], 1)
        for v in range(sampled[x]):
            b = recency[x, v]
            t = BUCKETS + min(kinds[x, v], KINDS - 1)
            total += weights[b] * weights[t]
            slope[b] += weights[t]
            slope[t] += weights[b]
        for k in range(WEIGHTS):
            out[x, k] = (total + (above[k] - weights[k]) * slope[k]) * scale
            out[x, WEIGHTS + k] = (total + (below[k] - weights[k]) * slope[k]) * scale
        out[x, 2 * WEIGHTS] = total * scale


def score(weights: Doubles, items: Suggestions) -> Doubles:
    """Compute frecency (m, items) under m weight vectors."""
    out = np.empty((len(items.visits), len(weights)))
    _scores(np.ascontiguousarray(weights), items.visits, items.sampled, items.recency, items.type, out)
    return out.T


def probe(weights: Doubles, below: Doubles, above: Doubles, items: Suggestions) -> Doubles:
    """Compute frecency (19, items) at the weight vectors of the finite differences."""
    out = np.empty((len(items.visits), 2 * WEIGHTS + 1))
    _probe(weights, below, above, items.visits, items.sampled, items.recency, items.type, out)
    return out.T


AGES = ("4-days", "14-days", "31-days", "90-days", "older")
FRECENCY = Heuristic(
    "frecency",
    (
        *(
            Weight(f"recency.{age}", shipped, 0.0, 200.0, 10.0)
            for age, shipped in zip(AGES, (100.0, 70.0, 50.0, 30.0, 10.0), strict=True)
        ),
        *(
            Weight(f"type.{kind}", shipped, 0.0, 4.0, 0.2)
            for kind, shipped in (("link", 1.2), ("typed", 2.0), ("bookmark", 1.4), ("other", 0.0))
        ),
    ),
    tuple(Order(f"recency.{newer}", f"recency.{older}") for newer, older in pairwise(AGES)),
    score,
    probe,
)
