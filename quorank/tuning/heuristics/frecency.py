"""Frecency, the score by which Firefox ordered suggestions from the browsing history (Hartmann et al. 2019, §4).

    visit(v)    = recency(v) · type(v)
    frecency(x) = |S_x| / |T_x| · Σ_{v ∈ T_x} visit(v)

Five weights for the age of a visit and four for its type: nine constants.
The score is linear in each single weight, so a weight moved by ε moves the score by ε times a slope, and all 2·9 + 1
weight vectors of the finite differences cost one pass over the visits.

The paper gives no bounds and steps but w ≥ 0 and the order of the recency weights (§5.6). Here a step is a tenth of the
largest shipped weight of its kind.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from quorank.kernels.arrays import Doubles
from quorank.kernels.compiled import kernel
from quorank.tuning.heuristics.heuristic import Heuristic, Order, Weight, compiled_score, fill_linear
from quorank.tuning.histories.generated import Suggestions

BUCKETS = 5
KINDS = 4  # visit types with a separate weight: link, typed, bookmark, and all others
WEIGHTS = BUCKETS + KINDS


@kernel
def _probe(weights: Doubles, below: Doubles, above: Doubles, items: Suggestions, out: Doubles) -> None:
    """out (items, 2·9 + 1): frecency of every item with each weight moved up, moved down, and unchanged."""
    slope = np.empty(WEIGHTS)
    for x in range(len(items.visits)):
        slope[:] = 0.0
        total = 0.0
        scale = items.visits[x] / max(items.sampled[x], 1)
        for v in range(items.sampled[x]):
            b = items.recency[x, v]
            t = BUCKETS + min(items.type[x, v], KINDS - 1)
            total += weights[b] * weights[t]
            slope[b] += weights[t]
            slope[t] += weights[b]
        fill_linear(weights, below, above, total, slope, scale, out[x])


_RECENCY = {"4-days": 100.0, "14-days": 70.0, "31-days": 50.0, "90-days": 30.0, "older": 10.0}
_TYPES = {"link": 1.2, "typed": 2.0, "bookmark": 1.4, "other": 0.0}
FRECENCY = Heuristic(
    "frecency",
    (
        *(Weight(f"recency.{age}", shipped, 0.0, 200.0, 10.0) for age, shipped in _RECENCY.items()),
        *(Weight(f"type.{kind}", shipped, 0.0, 4.0, 0.2) for kind, shipped in _TYPES.items()),
    ),
    tuple(Order(f"recency.{newer}", f"recency.{older}") for newer, older in pairwise(_RECENCY)),
    *compiled_score(_probe),
)
