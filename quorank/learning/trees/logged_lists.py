"""Logged lists and their clicks: what clients have who keep no labels (Joachims, Swaminathan and Schnabel 2017).

A production ranker, a linear one that was fitted to the labels of one list in a hundred, has shown lists drawn from its
scores by Plackett-Luce; people have clicked. Each client keeps its own: the documents shown, their ranks, the clicks.
The gain of a document is click/max(p, clip), p the propensity of its rank.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from quorank.data.ranking import RankingData
from quorank.kernels.arrays import Booleans, Doubles, Integers
from quorank.kernels.compiled import kernel
from quorank.learning.exploration import Dial, draw_list
from quorank.learning.plackett_luce import scratch_for
from quorank.learning.simulation import SimulationArrays, draw_query
from quorank.rankers.scoring import pack, packed_size, score_rows, width_of
from quorank.users.click_model import click_list

SHARE, LEAST = 100, 10
"""The production ranker is fitted to one list in SHARE, and to LEAST lists at least."""


class LoggedLists(NamedTuple):
    """The lists that clients were shown, one behind the other."""

    rows: Integers  # (shown,) rows of the training data
    gains: Doubles  # (shown,)
    offsets: Integers  # (lists + 1,)
    owners: Integers  # (lists,) the client of each list
    clicks: int


def production_ranker(data: RankingData, ridge: float = 1.0) -> Doubles:
    """(features,) weights that fit the labels of a few lists, each less its list's mean, scores of unit deviation."""
    step = max(1, min(SHARE, data.n_queries // LEAST))
    lists = [data.rows_of(q) for q in range(0, data.n_queries, step)]
    x = np.concatenate([_centred(data.features[rows].astype(np.float64)) for rows in lists])
    y = np.concatenate([_centred(data.labels[rows].astype(np.float64)) for rows in lists])
    weights = np.linalg.solve(x.T @ x + ridge * np.eye(x.shape[1]), x.T @ y)
    spread = float(np.std(x @ weights))
    return np.asarray(weights / spread if spread > 0.0 else weights, dtype=np.float64)


def _centred(values: Doubles) -> Doubles:
    return np.asarray(values - values.mean(axis=0), dtype=np.float64)


def log_lists(
    world: SimulationArrays, theta: Doubles, temperature: float, clients: int, interactions: int, propensities: Doubles
) -> LoggedLists:
    """Show each client's lists by a linear ranker θ and let its user click; propensities (k,) are clipped already."""
    count = clients * interactions
    shown, clicked = np.full((count, world.k), -1, dtype=np.int64), np.zeros((count, world.k), dtype=np.bool_)
    _show(world, theta, Dial(temperature, 0, 1.0), clients, interactions, shown, clicked)
    there = shown >= 0
    offsets = np.concatenate([[0], np.cumsum(there.sum(axis=1))]).astype(np.int64)
    gains = (clicked / propensities)[there]
    owners = np.repeat(np.arange(clients, dtype=np.int64), interactions)
    return LoggedLists(shown[there], gains, offsets, owners, int(clicked.sum()))


@kernel
def _show(
    world: SimulationArrays,
    theta: Doubles,
    dial: Dial,
    clients: int,
    interactions: int,
    rows: Integers,
    clicks: Booleans,
) -> None:
    k_max, stride = world.k, world.padded.shape[1]
    packed = np.zeros(packed_size(0, stride), dtype=np.float32)
    activation = np.zeros(width_of(0), dtype=np.float32)
    scores, tempered = np.empty(world.longest, dtype=np.float32), np.empty(world.longest, dtype=np.float32)
    room = scratch_for(world.longest, world.padded)
    ranking, weights = np.zeros(k_max + dial.window, dtype=np.int64), np.empty(k_max)
    shown, clicked = np.zeros(k_max, dtype=np.int64), np.zeros(k_max, dtype=np.bool_)
    pack(theta, 0, world.n_features, stride, packed)
    for client in range(clients):
        for i in range(interactions):
            query, model = draw_query(
                world.query_key, world.group, world.first_query, world.query_count, world.click_model, world.drawn,
                i, client, 0,
            )  # fmt: skip
            start, stop = world.offsets[query], world.offsets[query + 1]
            k = min(k_max, stop - start)
            score_rows(packed, 0, world.padded, start, stop, scores, activation)
            draw_list(
                dial, scores, stop - start, k, world.ranking_key, i, client, 0, room, ranking, tempered, shown, weights
            )
            click_list(
                world.labels, start, shown, k, world.examine, world.click, world.stop, model, world.click_key,
                i, client, 0, clicked, room.draws,
            )  # fmt: skip
            at = client * interactions + i
            for p in range(k):
                rows[at, p] = start + shown[p]
                clicks[at, p] = clicked[p]
