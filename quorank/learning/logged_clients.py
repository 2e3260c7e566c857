"""Cohort kernel of clients whose searches are replayed from a log: lists as they were shown, clicks as they were made."""

from __future__ import annotations

from typing import Any

import numpy as np

from quorank.kernels.arrays import Doubles, Integers
from quorank.kernels.compiled import kernel
from quorank.learning.inverse_propensity import ClickRule, value_coefficients
from quorank.learning.simulation import STATISTICS, SimulationArrays, draw_query, keep_within, list_ndcg
from quorank.rankers.scoring import add_gradients, pack, packed_size, score_rows, width_of


@kernel
def replay_clients(
    world: SimulationArrays,
    ranks: Any,  # (rows,) int16: the rank of each document when it was shown, from 1, rising within a list
    theta: Doubles,
    rule: ClickRule,
    eta: float,
    batched: bool,
    pull: float,
    round_: int,
    clients: Integers,
    interactions: Integers,
    bound: float,
    offsets: Doubles,
    rows: Doubles,
) -> None:
    """The interactions of each client from the same θ, as in `explore_clients`, with the lists of a log.

    Documents that were shown behind the last rank of the rule are left out: nobody says how many look there.
    """
    size, hidden, n_features = len(theta), world.hidden, world.n_features
    stride, personal = world.padded.shape[1], offsets.shape[0] > 0
    packed = np.zeros(packed_size(hidden, stride), dtype=np.float32)
    activation = np.zeros(width_of(hidden), dtype=np.float32)
    scores, shown = np.empty(world.longest, dtype=np.float32), np.arange(world.longest)
    clicked, looks = np.zeros(world.longest, dtype=np.bool_), np.empty(world.longest)
    coefficients, values, begin = np.empty(world.longest), np.empty(world.longest), np.empty(size)
    for at in range(len(clients)):
        client = clients[at]
        for j in range(size):
            begin[j] = theta[j] + (offsets[at, j] if personal else 0.0)
            rows[at, j] = begin[j]  # the client's own θ while it learns, its update at the end
        rows[at, size:] = 0.0
        pack(rows[at, :size], hidden, n_features, stride, packed)
        for i in range(interactions[at]):
            query, _ = draw_query(
                world.query_key, world.group, world.first_query, world.query_count, world.click_model, world.drawn,
                i, client, round_,
            )  # fmt: skip
            start, stop = world.offsets[query], world.offsets[query + 1]
            k, first = 0, -1
            for row in range(start, stop):
                if ranks[row] > len(rule.propensities):
                    break
                looks[k] = rule.propensities[ranks[row] - 1]
                clicked[k] = world.labels[row] > 0
                if clicked[k]:
                    rows[at, size + STATISTICS - 1] += 1.0
                    if first < 0:
                        first = ranks[row]
                k += 1
            seen = min(k, world.k)
            rows[at, size] += list_ndcg(
                world.labels, start, world.ideal[query], world.gain, world.discount, shown, seen
            )
            moved = pull > 0.0
            if pull > 0.0:
                for j in range(size):
                    rows[at, j] -= pull * (rows[at, j] - begin[j])
            if first > 0:
                rows[at, size + 1] += 1.0 / first
                score_rows(packed, hidden, world.padded, start, start + k, scores, activation)
                own = ClickRule(rule.estimator, rule.listwise, looks, rule.clip, rule.reach)
                if value_coefficients(own, scores, shown, clicked, k, coefficients, values):
                    moved = True
                    for p in range(k):
                        coefficients[p] *= eta
                    add_gradients(
                        rows[at, :size],
                        packed,
                        hidden,
                        n_features,
                        world.padded,
                        start,
                        shown,
                        coefficients,
                        k,
                        activation,
                    )
            if bound < np.inf:
                moved |= keep_within(rows[at, :size], bound)
            if moved and not batched:
                pack(rows[at, :size], hidden, n_features, stride, packed)
        for j in range(size):
            rows[at, j] -= begin[j]
