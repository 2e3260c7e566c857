"""Relevance from clicks and propensities: the weight of a click at a rank that few users examine.

p_r is the propensity of rank r: the probability that a user looks there. Under position-based clicks, P(click on d at r) =
p_r·P(relevant d), three estimates v(d) of a shown document's relevance:

- IPS, v = c/max(p, clip), unbiased where nothing is clipped (Joachims, Swaminathan and Schnabel 2017, "Unbiased
  learning-to-rank with biased feedback"; clipping: Strehl et al. 2010, "Learning from logged implicit exploration data").
- SNIPS, the same divided by its sum over the list, so that no list counts more than another (Swaminathan and Joachims 2015,
  "The self-normalized estimator for counterfactual learning").
- DR, v = m + (c − p·m)/max(p, clip), where m is a regression of relevance: unbiased where nothing is clipped, and where
  it is, the bias is (1 − p/clip)·(m − relevance) instead of that with m = 0 (Oosterhuis 2023, "Doubly robust estimation for
  correcting position bias in click feedback for unbiased learning to rank"). Here m is the clicks on the list's other
  documents over their propensities, which is independent of c.

The gradient is that of Σ_(a,b) v(a)·P(a ≻ b), the form of FPDGD eq. 5 with v(a) − v(b) in place of ±ρ, or that of the
softmax loss Σ_a v(a)·log P(a | list). Documents that were not shown have a propensity of 0 and are left out. Pairs are of
documents at most `reach` ranks apart: the closer they stood, the less a wrong propensity can turn them round, since only
the ratio of the two matters.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from quorank.errors import require
from quorank.kernels.arrays import Booleans, Doubles, Floats
from quorank.kernels.compiled import fixed_memory_kernel
from quorank.learning.plackett_luce import Buffers

PAIRS, IPS, SNIPS, DR = 0, 1, 2, 3
"""Estimators of `ClickRule`: the pair weights of PDGD, or one of the estimates above."""


class ClickRule(NamedTuple):
    """Weighting of the clicks of a list."""

    estimator: int
    listwise: bool
    propensities: Doubles  # (ranks,) p
    clip: float
    reach: int  # ranks between the documents of a pair, at most


def rank_propensities(kind: str, table: tuple[float, ...] | None, power: float, k: int) -> Doubles:
    """Return (k,) propensities: the first k of the table, or (1/r)^power without one."""
    if table is None:
        return np.asarray((1.0 / np.arange(1, k + 1)) ** power)
    few = f"has {len(table)} ranks, and lists show {k}; give one for each rank"
    require(len(table) >= k, f"{kind}.too-few-propensities", few, "propensities")
    return np.array(table[:k], dtype=np.float64)


@fixed_memory_kernel
def relevance_estimates(rule: ClickRule, clicked: Booleans, k: int, values: Doubles) -> bool:
    """values[p] = v of the document at rank p; False without clicks, which say nothing."""
    clicks, looks = 0.0, 0.0
    for p in range(k):
        values[p] = 0.0
        clicks += clicked[p]
        looks += rule.propensities[p]
    if clicks == 0.0:
        return False
    total = 0.0
    for p in range(k):
        propensity = rule.propensities[p]
        others = looks - propensity
        mean = (clicks - clicked[p]) / others if rule.estimator == DR and others > 0.0 else 0.0
        values[p] = mean + (clicked[p] - propensity * mean) / max(propensity, rule.clip)
        total += values[p]
    if rule.estimator == SNIPS:
        for p in range(k):
            values[p] /= total
    return True


@fixed_memory_kernel
def value_coefficients(rule: ClickRule, scores: Floats, k: int, buffers: Buffers) -> bool:
    """buffers.coefficients[p] of the gradient Σ_p coefficients[p]·∇f(document at p); False without clicks.

    `logarithms` of buffers is scratch.
    """
    shown, coefficients, values = buffers.shown, buffers.coefficients, buffers.logarithms
    for p in range(k):
        coefficients[p] = 0.0
    if not relevance_estimates(rule, buffers.clicked, k, values):
        return False
    if rule.listwise:
        top, total, value = -np.inf, 0.0, 0.0
        for p in range(k):
            top = max(top, np.float64(scores[shown[p]]))
            value += values[p]
        for p in range(k):
            total += math.exp(np.float64(scores[shown[p]]) - top)
        for p in range(k):
            coefficients[p] = values[p] - value * math.exp(np.float64(scores[shown[p]]) - top) / total
        return True
    for b in range(1, k):
        for a in range(max(0, b - rule.reach), b):
            if values[a] != values[b]:
                ratio = math.exp(-abs(np.float64(scores[shown[a]]) - np.float64(scores[shown[b]])))
                weight = (values[a] - values[b]) * ratio / ((1.0 + ratio) * (1.0 + ratio))
                coefficients[a] += weight
                coefficients[b] -= weight
    return True
