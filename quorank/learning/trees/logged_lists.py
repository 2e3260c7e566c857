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
from quorank.kernels.compiled import fixed_memory_kernel
from quorank.learning.client_loop import STATISTICS, Impression, Work, World, client_loop, cohort_of, memory_for
from quorank.learning.exploration import Dial
from quorank.learning.pdgd import show_by_dial
from quorank.learning.plackett_luce import Buffers

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
    world: World, theta: Doubles, temperature: float, clients: int, interactions: int, propensities: Doubles
) -> LoggedLists:
    """Show each client's lists by a linear ranker θ and let its user click; propensities (k,) are clipped already."""
    count, each = clients * interactions, np.full(clients, interactions)
    shown, clicked = np.full((count, world.k), -1, dtype=np.int64), np.zeros((count, world.k), dtype=np.bool_)
    work = Work(world._replace(hidden=0), 0, theta, 0, np.arange(clients), each)
    rows = np.empty((clients, len(theta) + STATISTICS))
    _play_log(
        work.world,
        cohort_of(work),
        LogRule(Dial(temperature, 0, 1.0), interactions, shown, clicked),
        memory_for(work.world),
        rows,
    )
    there = shown >= 0
    offsets = np.concatenate([[0], np.cumsum(there.sum(axis=1))]).astype(np.int64)
    gains = (clicked / propensities)[there]
    owners = np.repeat(np.arange(clients, dtype=np.int64), interactions)
    return LoggedLists(shown[there], gains, offsets, owners, int(clicked.sum()))


class LogRule(NamedTuple):
    """Exploration and the log."""

    dial: Dial
    interactions: int  # of each client
    rows: Integers  # (clients · interactions, k)
    clicks: Booleans  # (clients · interactions, k)


@fixed_memory_kernel
def _record(
    rule: LogRule, world: World, shown: Impression, rest: float, first: int, theta: Doubles, buffers: Buffers
) -> bool:
    at = shown.at * rule.interactions + shown.address.interaction
    for p in range(shown.k):
        rule.rows[at, p] = shown.start + buffers.shown[p]
        rule.clicks[at, p] = buffers.clicked[p]
    return False


_play_log = client_loop(show_by_dial, _record)
