"""Propensities of ranks, estimated from swapped neighbours.

Where the documents of ranks r and r + 1 stand in either order by a fair coin, the same documents are shown at both ranks,
so that under position-based clicks the clicks there are in the ratio p_(r+1) / p_r of the propensities: the swap
intervention of Joachims, Swaminathan and Schnabel 2017, between neighbours, as in the adjacent chain of Agarwal et al. 2019
("Estimating position bias without intrusive interventions"). p_1 is 1, since only ratios can be known or matter.

Each client counts the clicks on its swapped lists, `swap_counts`; only the sum over clients is needed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from quorank.errors import require
from quorank.kernels.arrays import Doubles, Integers
from quorank.kernels.compiled import fixed_memory_kernel
from quorank.learning.client_loop import Impression, client_loop, cohort_of, memory_for
from quorank.learning.exploration import Dial
from quorank.learning.list_learner import show_by_dial
from quorank.learning.plackett_luce import Buffers
from quorank.learning.simulation import STATISTICS, Work, World

FAIR_PAIRS = Dial(1e30, 1, 1.0)
"""Neighbours are swapped by a fair coin (`exploration`)."""


def swap_counts(work: Work) -> Integers:
    """(clients, 2, k − 1) clicks of each client at rank r and at r + 1, on lists where those two were swapped by a coin."""
    counts = np.zeros((len(work.clients), 2, max(0, work.world.k - 1)), dtype=np.int64)
    rows = np.empty((len(work.clients), len(work.theta) + STATISTICS))
    _play_swaps(work.world, cohort_of(work), SwapRule(FAIR_PAIRS, counts), memory_for(work.world), rows)
    return counts


class SwapRule(NamedTuple):
    """Exploration and the clicks counted."""

    dial: Dial
    counts: Integers  # (clients, 2, k − 1)


def adjacent_chain(counts: Integers) -> Doubles:
    """p of every rank from the summed counts (2, k − 1): p_1 = 1, p_(r+1) = p_r · clicks at r + 1 / clicks at r.

    Half a click is added to each count, so that ranks without clicks have an estimate; none exceeds 1.
    """
    found = np.asarray(counts, dtype=np.float64)
    fits = found.ndim == 2 and len(found) == 2 and bool((found >= 0.0).all())
    require(fits, "propensities.counts", f"expected counts of shape (2, ranks − 1), none below 0, got {found.shape}")
    chain = np.concatenate([[1.0], np.cumprod((found[1] + 0.5) / (found[0] + 0.5))])
    return np.asarray(chain / chain.max(), dtype=np.float64)


@fixed_memory_kernel
def _count_clicks(
    rule: SwapRule, world: World, shown: Impression, rest: float, first: int, theta: Doubles, buffers: Buffers
) -> bool:
    for p in range(shown.k - 1):
        if buffers.shown_weights[p] == buffers.shown_weights[p + 1]:  # of one block: swapped by a fair coin
            rule.counts[shown.at, 0, p] += buffers.clicked[p]
            rule.counts[shown.at, 1, p] += buffers.clicked[p + 1]
    return False


_play_swaps = client_loop(show_by_dial, _count_clicks)
