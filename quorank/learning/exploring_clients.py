"""Cohort kernel of learners that show lists by a dial: PDGD with stated exploration, and counterfactual learning."""

from __future__ import annotations

import numpy as np

from quorank.kernels.arrays import Booleans, Doubles, Floats, Integers
from quorank.kernels.compiled import kernel
from quorank.learning.exploration import Dial, draw_list
from quorank.learning.inverse_propensity import PAIRS, ClickRule, value_coefficients
from quorank.learning.pair_weights import pair_coefficients
from quorank.learning.plackett_luce import scratch_for
from quorank.learning.simulation import STATISTICS, SimulationArrays, draw_query, keep_within, list_ndcg
from quorank.rankers.scoring import add_gradients, pack, packed_size, score_rows, width_of
from quorank.users.click_model import click_list


@kernel
def learn_drawn_list(
    theta: Doubles,
    packed: Floats,
    hidden: int,
    n_features: int,
    padded: Floats,
    start: int,
    n: int,
    rule: ClickRule,
    then: Floats,
    now: Floats,
    shown: Integers,
    weights: Doubles,
    rest: float,
    clicked: Booleans,
    k: int,
    eta: float,
    coefficients: Doubles,
    scratch: Doubles,
    inverses: Doubles,
    activation: Floats,
) -> bool:
    """θ += η Σ_p coefficient·∇f for one clicked list that `draw_list` drew from `then`; False if its clicks say nothing."""
    if rule.estimator == PAIRS:
        found = pair_coefficients(
            then, now, False, n, shown, weights, rest, clicked, k, coefficients, scratch, inverses
        )
    else:
        found = value_coefficients(rule, now, shown, clicked, k, coefficients, scratch)
    if found:
        for p in range(k):
            coefficients[p] *= eta
        add_gradients(theta, packed, hidden, n_features, padded, start, shown, coefficients, k, activation)
    return found


@kernel
def explore_clients(
    world: SimulationArrays,
    theta: Doubles,
    dial: Dial,
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
    """The interactions of each client from the same θ, as in `simulate_clients`, with lists drawn by a dial."""
    size, hidden, n_features, k_max = len(theta), world.hidden, world.n_features, world.k
    stride, personal = world.padded.shape[1], offsets.shape[0] > 0
    packed = np.zeros(packed_size(hidden, stride), dtype=np.float32)
    activation = np.zeros(width_of(hidden), dtype=np.float32)
    scores, tempered = np.empty(world.longest, dtype=np.float32), np.empty(world.longest, dtype=np.float32)
    room = scratch_for(world.longest, world.padded)
    ranking = np.zeros(k_max + dial.window, dtype=np.int64)
    shown, weights = np.zeros(k_max, dtype=np.int64), np.empty(k_max)
    clicked, coefficients = np.zeros(k_max, dtype=np.bool_), np.empty(k_max)
    scratch, inverses = np.empty(k_max + 1), np.empty(k_max + 1)
    begin = np.empty(size)
    for at in range(len(clients)):
        client = clients[at]
        for j in range(size):
            begin[j] = theta[j] + (offsets[at, j] if personal else 0.0)
            rows[at, j] = begin[j]  # the client's own θ while it learns, its update at the end
        rows[at, size:] = 0.0
        pack(rows[at, :size], hidden, n_features, stride, packed)
        for i in range(interactions[at]):
            query, model = draw_query(
                world.query_key, world.group, world.first_query, world.query_count, world.click_model, world.drawn,
                i, client, round_,
            )  # fmt: skip
            start, stop = world.offsets[query], world.offsets[query + 1]
            n = stop - start
            k = min(k_max, n)
            score_rows(packed, hidden, world.padded, start, stop, scores, activation)
            rest = draw_list(
                dial, scores, n, k, world.ranking_key, i, client, round_, room, ranking, tempered, shown, weights
            )
            first = click_list(
                world.labels, start, shown, k, world.examine, world.click, world.stop, model, world.click_key,
                i, client, round_, clicked, room.draws,
            )  # fmt: skip
            rows[at, size] += list_ndcg(world.labels, start, world.ideal[query], world.gain, world.discount, shown, k)
            moved = pull > 0.0
            if pull > 0.0:
                for j in range(size):
                    rows[at, j] -= pull * (rows[at, j] - begin[j])
            if first >= 0:
                rows[at, size + 1] += 1.0 / (first + 1)
                for p in range(k):
                    rows[at, size + STATISTICS - 1] += clicked[p]
                moved |= learn_drawn_list(
                    rows[at, :size], packed, hidden, n_features, world.padded, start, n, rule, tempered, scores, shown,
                    weights, rest, clicked, k, eta, coefficients, scratch, inverses, activation,
                )  # fmt: skip
            if bound < np.inf:
                moved |= keep_within(rows[at, :size], bound)
            if moved and not batched:
                pack(rows[at, :size], hidden, n_features, stride, packed)
        for j in range(size):
            rows[at, j] -= begin[j]
