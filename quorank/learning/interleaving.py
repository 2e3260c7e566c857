"""Interleaved comparisons: one list of several rankers' documents, whose clicks say which ranker is preferred.

Team-draft multileaving (Schuth et al. 2014, "Multileaved comparisons for fast online evaluation"): in turns, the rankers,
in random order, each add their best document that is not yet in the list, and are credited with its clicks. With two
rankers it is team-draft interleaving (Radlinski, Kurup and Joachims 2008). `duel_clients` plays the clients of dueling
bandits with it: candidates θ + δ·u_i around θ, and a step of length α towards those that beat it.
"""

from __future__ import annotations

import math

import numpy as np

from quorank.kernels.arrays import Booleans, Doubles, Integers, Uint64s
from quorank.kernels.compiled import kernel
from quorank.kernels.draws import BATCH, fill_batch, fill_normal, uniform_pair
from quorank.learning.simulation import STATISTICS, SimulationArrays, draw_query, keep_within, list_ndcg
from quorank.metrics.evaluator import top_k
from quorank.rankers.scoring import pack, packed_size, score_rows_of_all, width_of
from quorank.users.click_model import click_list

WINNER_DRAW = 0x7FFFFFFF
"""Address, among the draws of an interaction's directions, of which of several winners is followed."""


@kernel
def team_draft(
    rankings: Integers,
    k: int,
    key: Uint64s,
    interaction: int,
    client: int,
    round_: int,
    draws: Doubles,
    order: Integers,
    shown: Integers,
    teams: Integers,
) -> None:
    """Fill shown[:k] and teams[:k], who added each, from the best k documents of each ranker (rankers, ≥ k).

    `order` is room for one number per ranker, `draws` for a BATCH.
    """
    rankers, p, draw = len(rankings), 0, 0
    for r in range(rankers):
        order[r] = r
    while p < k:
        for turn in range(rankers):
            if draw % BATCH == 0:
                fill_batch(key, draw >> 1, interaction, client, round_, draws)
            other = turn + int(draws[draw % BATCH] * (rankers - turn))
            draw += 1
            order[turn], order[other] = order[other], order[turn]
            if p < k:
                shown[p] = _best_left(rankings[order[turn]], shown, p)
                teams[p] = order[turn]
                p += 1


@kernel
def _best_left(ranking: Integers, shown: Integers, count: int) -> int:
    """The first document of a ranking that is not among shown[:count]."""
    for document in ranking:
        new = True
        for p in range(count):
            new = new and shown[p] != document
        if new:
            return int(document)
    return -1  # never: a ranking has as many documents as a list


@kernel
def credits_of(teams: Integers, clicked: Booleans, k: int, credits: Doubles) -> None:
    """credits[r] = clicks on the documents that ranker r added."""
    for r in range(len(credits)):
        credits[r] = 0.0
    for p in range(k):
        credits[teams[p]] += clicked[p]


@kernel
def unit_directions(key: Uint64s, interaction: int, client: int, round_: int, directions: Doubles) -> None:
    """Rows that are uniform on the unit sphere: standard normal numbers over their length."""
    flat = directions.reshape(-1)
    fill_normal(key, interaction, client, round_, flat)
    for i in range(len(directions)):
        total = 0.0
        for j in range(directions.shape[1]):
            total += directions[i, j] * directions[i, j]
        for j in range(directions.shape[1]):
            directions[i, j] /= math.sqrt(total)


@kernel
def duel_clients(
    world: SimulationArrays,
    theta: Doubles,
    candidates: int,
    delta: float,
    alpha: float,
    mean: bool,
    direction_key: Uint64s,
    round_: int,
    clients: Integers,
    interactions: Integers,
    bound: float,
    offsets: Doubles,
    rows: Doubles,
) -> None:
    """The interactions of each client from the same θ: θ ← θ + α·u of the winners, their mean or one of them by lot."""
    size, hidden, n_features, k_max = len(theta), world.hidden, world.n_features, world.k
    stride, personal, rankers = world.padded.shape[1], offsets.shape[0] > 0, candidates + 1
    packed = np.zeros((rankers, packed_size(hidden, stride)), dtype=np.float32)
    activation = np.zeros(width_of(hidden), dtype=np.float32)
    scores = np.empty((rankers, world.longest), dtype=np.float32)
    rankings, order = np.zeros((rankers, k_max), dtype=np.int64), np.zeros(rankers, dtype=np.int64)
    shown, teams, draws = np.zeros(k_max, dtype=np.int64), np.zeros(k_max, dtype=np.int64), np.empty(BATCH)
    clicked, credits = np.zeros(k_max, dtype=np.bool_), np.empty(rankers)
    directions, local, begin = np.empty((candidates, size)), np.empty(size), np.empty(size)
    for at in range(len(clients)):
        client = clients[at]
        for j in range(size):
            begin[j] = theta[j] + (offsets[at, j] if personal else 0.0)
            rows[at, j] = begin[j]
        rows[at, size:] = 0.0
        for i in range(interactions[at]):
            query, model = draw_query(
                world.query_key, world.group, world.first_query, world.query_count, world.click_model, world.drawn,
                i, client, round_,
            )  # fmt: skip
            start, stop = world.offsets[query], world.offsets[query + 1]
            k = min(k_max, stop - start)
            unit_directions(direction_key, i, client, round_, directions)
            pack(rows[at, :size], hidden, n_features, stride, packed[0])
            for c in range(candidates):
                for j in range(size):
                    local[j] = rows[at, j] + delta * directions[c, j]
                pack(local, hidden, n_features, stride, packed[c + 1])
            score_rows_of_all(packed, hidden, world.padded, start, stop, scores, activation)
            for r in range(rankers):
                top_k(scores[r], stop - start, k, rankings[r])
            team_draft(rankings[:, :k], k, world.ranking_key, i, client, round_, draws, order, shown, teams)
            first = click_list(
                world.labels, start, shown, k, world.examine, world.click, world.stop, model, world.click_key,
                i, client, round_, clicked, draws,
            )  # fmt: skip
            rows[at, size] += list_ndcg(world.labels, start, world.ideal[query], world.gain, world.discount, shown, k)
            if first < 0:
                continue
            rows[at, size + 1] += 1.0 / (first + 1)
            for p in range(k):
                rows[at, size + STATISTICS - 1] += clicked[p]
            credits_of(teams, clicked, k, credits)
            winners = 0
            for c in range(candidates):
                winners += credits[c + 1] > credits[0]
            if winners == 0:
                continue
            chance, _ = uniform_pair(direction_key, WINNER_DRAW, i, client, round_)
            chosen, seen = int(chance * winners), 0
            for c in range(candidates):
                if credits[c + 1] > credits[0]:
                    step = alpha / winners if mean else (alpha if seen == chosen else 0.0)
                    seen += 1
                    for j in range(size):
                        rows[at, j] += step * directions[c, j]
            if bound < np.inf:
                keep_within(rows[at, :size], bound)
        for j in range(size):
            rows[at, j] -= begin[j]
