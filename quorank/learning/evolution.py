"""Evolution strategies (FOLtR-ES §3.2; Kharitonov 2019).

A client draws a seed, ranks by φ + σz and, for the antithetic half of its interactions, by φ − σz, where z comes from
the seed, and measures its users' clicks. It sends the seed and two numbers: a dozen bytes. The server rebuilds z from
the seed and adds up eq. 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from quorank.errors import require, require_range
from quorank.kernels.arrays import Doubles, Integers, Uint32s, Uint64s
from quorank.kernels.compiled import kernel
from quorank.kernels.draws import BATCH, Purpose, fill_normal, key_of, philox
from quorank.learning.learner import Learner
from quorank.learning.simulation import STATISTICS, SimulationArrays, Work, draw_query, list_ndcg
from quorank.metrics.evaluator import top_k
from quorank.rankers.scoring import pack, packed_size, score_rows, width_of
from quorank.users.click_model import click_list


@dataclass(frozen=True)
class Evolution(Learner):
    """θ_s ~ N(φ, σ²I) in antithetic pairs; the reward is measured on the clicks of deterministic lists."""

    kind: ClassVar[str] = "evolution"
    learns_on_client: ClassVar[bool] = False
    needs_gradient: ClassVar[bool] = False
    sends_metric: ClassVar[bool] = True
    estimates_gradient: ClassVar[bool] = True

    sigma: float = 0.01  # σ, standard deviation of the perturbations
    # f: MaxRR, or DCG@k of the clicks over that of a list clicked throughout
    metric: Literal["maxrr", "ndcg"] = "maxrr"  # what of the clicks is the reward

    def __post_init__(self) -> None:
        require_range("sigma", self.sigma, above=0.0)

    def check(self, interactions: int) -> None:
        odd = (
            f"must be even for evolution strategies, half of them for each antithetic perturbation, got {interactions}"
        )
        require(interactions % 2 == 0, "evolution.odd-interactions", odd, "interactions")

    def updates(self, work: Work, rows: Doubles) -> None:
        """Fill rows[i] with the term of eq. 4 that the server rebuilds from the message of clients[i]."""
        interactions, size = int(work.interactions.max(initial=0)), len(work.theta)
        even = interactions % 2 == 0 and np.all(work.interactions == interactions)
        wrong = f"evolution strategies need one even number of interactions for all clients, got {interactions}"
        require(even, "evolution.uneven-interactions", wrong)
        seeds = np.empty(len(work.clients), dtype=np.uint32)
        measured = np.empty((len(work.clients), 2, max(1, interactions // 2)))
        _measure_clients(
            work.world, work.theta, self.sigma, self.metric == "ndcg", key_of(work.seed, Purpose.PERTURBATION_SEED),
            work.round, work.clients, seeds, measured, rows[:, size:],
        )  # fmt: skip
        privatise = work.privatise
        sent = measured.mean(axis=2) if privatise is None else privatise(measured, work.round, work.clients)
        rebuild(seeds, sent, self.sigma, rows[:, :size])


@kernel
def perturbation(seed: int, z: Doubles) -> None:
    """z ~ N(0, I) of a client's seed: the same on the client and on the server."""
    key = np.empty(2, dtype=np.uint64)
    key[0] = np.uint64(seed)
    key[1] = np.uint64(Purpose.PERTURBATION.value)
    fill_normal(key, 0, 0, 0, z)


@kernel
def rebuild(seeds: Uint32s, sent: Doubles, sigma: float, rows: Doubles) -> None:
    """rows[i] = (f(φ + σz) − f(φ − σz)) / 2 · z / σ, whose mean over clients estimates g (eq. 4)."""
    z = np.empty(rows.shape[1])
    for i in range(len(seeds)):
        perturbation(seeds[i], z)
        slope = 0.5 * (sent[i, 0] - sent[i, 1]) / sigma
        for j in range(len(z)):
            rows[i, j] = slope * z[j]


@kernel
def _measure_clients(
    world: SimulationArrays,
    theta: Doubles,
    sigma: float,
    ndcg_reward: bool,
    seed_key: Uint64s,
    round_: int,
    clients: Integers,
    seeds: Uint32s,
    measured: Doubles,
    statistics: Doubles,
) -> None:
    """measured[i, side, j]: the reward of clients[i]'s j-th interaction with φ + σz (side 0) or φ − σz (side 1)."""
    size, hidden, n_features, k_max = len(theta), world.hidden, world.n_features, world.k
    stride = world.padded.shape[1]
    packed = np.zeros(packed_size(hidden, stride), dtype=np.float32)
    activation = np.zeros(width_of(hidden), dtype=np.float32)
    z, local = np.empty(size), np.empty(size)
    scores = np.empty(world.longest, dtype=np.float32)
    shown = np.zeros(k_max, dtype=np.int64)
    clicked, draws = np.zeros(k_max, dtype=np.bool_), np.empty(BATCH)
    half = measured.shape[2]
    best = world.discount.sum()
    for at in range(len(clients)):
        client = clients[at]
        word, _, _, _ = philox(0, 0, client, round_, seed_key[0], seed_key[1])
        seeds[at] = np.uint32(word)
        perturbation(seeds[at], z)
        total_ndcg, total_rr, total_clicks = 0.0, 0.0, 0.0
        for side in range(2):
            step = sigma if side == 0 else -sigma
            for j in range(size):
                local[j] = theta[j] + step * z[j]
            pack(local, hidden, n_features, stride, packed)
            for j in range(half):
                i = side * half + j
                query, model = draw_query(
                    world.query_key, world.group, world.first_query, world.query_count, world.click_model,
                    world.drawn, i, client, round_,
                )  # fmt: skip
                start, stop = world.offsets[query], world.offsets[query + 1]
                score_rows(packed, hidden, world.padded, start, stop, scores, activation)
                k = top_k(scores, stop - start, k_max, shown)
                first = click_list(
                    world.labels, start, shown, k, world.examine, world.click, world.stop, model, world.click_key,
                    i, client, round_, clicked, draws,
                )  # fmt: skip
                dcg = 0.0
                for p in range(k):
                    if clicked[p]:
                        dcg += world.discount[p]
                        total_clicks += 1.0
                reciprocal = 1.0 / (first + 1) if first >= 0 else 0.0
                measured[at, side, j] = dcg / best if ndcg_reward else reciprocal
                total_rr += reciprocal
                total_ndcg += list_ndcg(world.labels, start, world.ideal[query], world.gain, world.discount, shown, k)
        statistics[at, 0] = total_ndcg
        statistics[at, 1] = total_rr
        statistics[at, STATISTICS - 1] = total_clicks
