"""Evolution strategies (FOLtR-ES §3.2; Kharitonov 2019).

A client draws a seed, ranks by φ + σz and, for the antithetic half of its interactions, by φ − σz, where z comes from
the seed, and measures its users' clicks. It sends the seed and two numbers: a dozen bytes. The server rebuilds z from
the seed and adds up eq. 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from quorank.errors import require, require_range
from quorank.kernels.arrays import Doubles, Integers, Uint32s, Uint64s
from quorank.kernels.compiled import fixed_memory_kernel, kernel
from quorank.kernels.draws import Purpose, fill_normal, key_of, philox
from quorank.learning.client_loop import Impression, Work, World, client_loop, play
from quorank.learning.learner import CompiledLearner
from quorank.learning.plackett_luce import Buffers
from quorank.metrics.evaluator import top_k


@dataclass(frozen=True)
class Evolution(CompiledLearner):
    """Evolution strategies: a client sends its seed and two measurements, from which the server rebuilds a gradient.

    The client shows half of its lists by φ + σz and half by φ − σz, z ~ N(0, I) from its seed, and measures the mean
    reward of both; the server estimates g as the mean of (f(φ + σz) − f(φ − σz))/2 · z/σ over clients (eq. 4).

    Args:
        sigma: σ, standard deviation of the perturbations, above 0.
        metric: Reward: "maxrr" of the clicks, or "ndcg", their DCG@k over that of a list clicked throughout.

    Raises:
        BadInput: `value.out-of-range` if σ is not above 0, `evolution.odd-interactions` from `check`.

    >>> learner = Evolution(sigma=0.05)
    >>> learner.sends_metric, learner.metric
    (True, 'maxrr')
    """

    kind: ClassVar[str] = "evolution"
    learns_on_client: ClassVar[bool] = False
    sends_metric: ClassVar[bool] = True
    estimates_gradient: ClassVar[bool] = True

    sigma: float = 0.01
    metric: Literal["maxrr", "ndcg"] = "maxrr"

    def __post_init__(self) -> None:
        require_range("sigma", self.sigma, above=0.0)

    def check(self, interactions: int) -> None:
        odd = (
            f"must be even for evolution strategies, half of them for each antithetic perturbation, got {interactions}"
        )
        require(interactions % 2 == 0, "evolution.odd-interactions", odd, "interactions")

    def updates(self, work: Work, rows: Doubles) -> None:
        """Fill rows[i] with the term of eq. 4 that the server rebuilds from the message of clients[i]."""
        interactions = int(work.interactions.max(initial=0))
        even = interactions % 2 == 0 and np.all(work.interactions == interactions)
        wrong = f"evolution strategies need one even number of interactions for all clients, got {interactions}"
        require(even, "evolution.uneven-interactions", wrong)
        count, world = len(work.clients), work.world
        seeds, shifts = np.empty(count, dtype=np.uint32), np.empty((count, len(work.theta)))
        draw_seeds(key_of(work.seed, Purpose.PERTURBATION_SEED), work.round, work.clients, seeds)
        draw_shifts(seeds, self.sigma, shifts)
        measured = np.empty((count, 2, max(1, interactions // 2)))
        rule = EvolutionRule(work.theta, shifts, self.metric == "ndcg", float(world.discount.sum()), measured)
        play(_loop, work._replace(offsets=shifts), rule, rows)
        privatise = work.privatise
        sent = measured.mean(axis=2) if privatise is None else privatise(measured, work.round, work.clients)
        rebuild(seeds, sent, self.sigma, rows[:, : len(work.theta)])


class EvolutionRule(NamedTuple):
    """Settings of a cohort, and what its clients measure."""

    theta: Doubles  # φ
    shifts: Doubles  # (clients, parameters) σz
    ndcg_reward: bool
    best: float  # DCG of a list clicked throughout
    measured: Doubles  # (clients, 2, interactions / 2) rewards with φ + σz and with φ − σz


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
def draw_seeds(key: Uint64s, round_: int, clients: Integers, seeds: Uint32s) -> None:
    """Draw the seed of each client."""
    for at in range(len(clients)):
        word, _, _, _ = philox(0, 0, clients[at], round_, key[0], key[1])
        seeds[at] = np.uint32(word)


@kernel
def draw_shifts(seeds: Uint32s, sigma: float, shifts: Doubles) -> None:
    """shifts[i] = σz of each client's seed."""
    for i in range(len(seeds)):
        perturbation(seeds[i], shifts[i])
        for j in range(shifts.shape[1]):
            shifts[i, j] *= sigma


@fixed_memory_kernel
def _show(rule: EvolutionRule, world: World, shown: Impression, theta: Doubles, buffers: Buffers) -> float:
    """Show the ranking itself."""
    top_k(shown.scores, shown.n, shown.k, buffers.shown)
    return 0.0


@fixed_memory_kernel
def _learn(
    rule: EvolutionRule, world: World, shown: Impression, rest: float, first: int, theta: Doubles, buffers: Buffers
) -> bool:
    """Record the reward; move from φ + σz to φ − σz half-way through."""
    dcg, half, i = 0.0, rule.measured.shape[2], shown.address.interaction
    for p in range(shown.k):
        if buffers.clicked[p]:
            dcg += world.discount[p]
    reward = dcg / rule.best if rule.ndcg_reward else (1.0 / (first + 1) if first >= 0 else 0.0)
    rule.measured[shown.at, i // half, i % half] = reward
    if i + 1 != half:
        return False
    for j in range(len(theta)):
        theta[j] = rule.theta[j] - rule.shifts[shown.at, j]
    return True


_loop = client_loop(_show, _learn)
