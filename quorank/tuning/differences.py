"""What a client computes from one search: the gradient of its loss by finite differences (Hartmann et al. 2019, §5.4).

All 2·d + 1 places are scored in one pass: by the heuristic's own `probe` where it has one, else by its `score`. One
search is one gradient; many searches are only computed together because a simulation has many clients.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from quorank.arrays import Booleans, Doubles
from quorank.errors import require
from quorank.learning.finite_differences import differences, ends, places
from quorank.tuning.heuristics.heuristic import Heuristic
from quorank.tuning.loss import BLOCK, losses
from quorank.tuning.searches import check_items, check_scores, count, parts


def gradients(
    heuristic: Heuristic, weights: Doubles, items: Any, margin: float, relative: bool = False
) -> tuple[Doubles, Doubles]:
    """∂E/∂w of every search (searches, weights) and its loss E (searches,)."""
    require(0.0 <= margin < np.inf, f"margin must be at least 0, got {margin}")
    check_items(items)
    below, above = ends(weights, heuristic.reach(weights), heuristic.lower, heuristic.upper)
    rows = places(weights, below, above) if heuristic.probe is None else None
    slopes = np.empty((count(items), weights.size))
    loss = np.empty(count(items))
    done = 0
    for block in parts(items, BLOCK):
        if heuristic.probe is not None:
            scores = heuristic.probe(weights, below, above, block)
        else:
            assert rows is not None
            scores = heuristic.score(rows, block)
        check_scores(scores, 2 * weights.size + 1, block)
        each = losses(scores, block, margin, relative)
        after = done + len(each)
        slopes[done:after] = np.where(_best_here(each), 0.0, differences(each, below, above))
        loss[done:after] = each[:, -1]
        done = after
    return slopes, loss


def _best_here(each: Doubles) -> Booleans:
    """(searches, weights): neither place of a weight has a lower loss than where it is.

    At such a kink 0 is a subgradient, and the central difference is not what should be followed: it points to the side
    on which the loss rises more slowly, so a weight that is right would leave its place.
    """
    d = each.shape[1] // 2
    here = each[:, -1:]
    return np.asarray((each[:, :d] >= here) & (each[:, d : 2 * d] >= here), dtype=np.bool_)
