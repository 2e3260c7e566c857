"""Propensities of ranks, estimated from swapped neighbours.

Where the documents of ranks r and r + 1 stand in either order by a fair coin, the same documents are shown at both ranks,
so that under position-based clicks the clicks there are in the ratio p_(r+1) / p_r of the propensities: the swap
intervention of Joachims, Swaminathan and Schnabel 2017, between neighbours, as in the adjacent chain of Agarwal et al. 2019
("Estimating position bias without intrusive interventions"). p_1 is 1, since only ratios can be known or matter.

Each client counts the clicks of its own swapped lists, `swap_counts`; only the sum over clients is needed.
"""

from __future__ import annotations

import numpy as np

from quorank.errors import require
from quorank.kernels.arrays import Doubles, Integers
from quorank.kernels.compiled import kernel
from quorank.learning.exploration import Dial, draw_list
from quorank.learning.plackett_luce import scratch_for
from quorank.learning.simulation import SimulationArrays, Work, draw_query
from quorank.rankers.scoring import pack, packed_size, score_rows, width_of
from quorank.users.click_model import click_list

FAIR_PAIRS = Dial(1e30, 1, 1.0)
"""Neighbours are swapped by a fair coin (`exploration`)."""


def swap_counts(work: Work) -> Integers:
    """(clients, 2, k − 1) clicks of each client at rank r and at r + 1, on lists where those two were swapped by a coin."""
    counts = np.zeros((len(work.clients), 2, max(0, work.world.k - 1)), dtype=np.int64)
    _count_clicks(work.world, work.theta, FAIR_PAIRS, work.round, work.clients, work.interactions, counts)
    return counts


def adjacent_chain(counts: Integers) -> Doubles:
    """p of every rank from the summed counts (2, k − 1): p_1 = 1, p_(r+1) = p_r · clicks at r + 1 / clicks at r.

    Half a click is added to each count, so that ranks that nobody clicked leave a number; none exceeds 1.
    """
    found = np.asarray(counts, dtype=np.float64)
    fits = found.ndim == 2 and len(found) == 2 and bool((found >= 0.0).all())
    require(fits, "propensities.counts", f"expected counts of shape (2, ranks − 1), none below 0, got {found.shape}")
    chain = np.concatenate([[1.0], np.cumprod((found[1] + 0.5) / (found[0] + 0.5))])
    return np.asarray(chain / chain.max(), dtype=np.float64)


@kernel
def _count_clicks(
    world: SimulationArrays,
    theta: Doubles,
    dial: Dial,
    round_: int,
    clients: Integers,
    interactions: Integers,
    counts: Integers,
) -> None:
    hidden, k_max = world.hidden, world.k
    stride = world.padded.shape[1]
    packed = np.zeros(packed_size(hidden, stride), dtype=np.float32)
    activation = np.zeros(width_of(hidden), dtype=np.float32)
    scores, tempered = np.empty(world.longest, dtype=np.float32), np.empty(world.longest, dtype=np.float32)
    room = scratch_for(world.longest, world.padded)
    ranking, weights = np.zeros(k_max + dial.window, dtype=np.int64), np.empty(k_max)
    shown, clicked = np.zeros(k_max, dtype=np.int64), np.zeros(k_max, dtype=np.bool_)
    pack(theta, hidden, world.n_features, stride, packed)
    for at in range(len(clients)):
        client = clients[at]
        for i in range(interactions[at]):
            query, model = draw_query(
                world.query_key, world.group, world.first_query, world.query_count, world.click_model, world.drawn,
                i, client, round_,
            )  # fmt: skip
            start, stop = world.offsets[query], world.offsets[query + 1]
            k = min(k_max, stop - start)
            score_rows(packed, hidden, world.padded, start, stop, scores, activation)
            draw_list(
                dial, scores, stop - start, k, world.ranking_key, i, client, round_, room, ranking, tempered, shown,
                weights,
            )  # fmt: skip
            click_list(
                world.labels, start, shown, k, world.examine, world.click, world.stop, model, world.click_key,
                i, client, round_, clicked, room.draws,
            )  # fmt: skip
            for p in range(k - 1):
                if weights[p] == weights[p + 1]:
                    counts[at, 0, p] += clicked[p]
                    counts[at, 1, p] += clicked[p + 1]
