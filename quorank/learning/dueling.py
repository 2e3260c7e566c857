"""Dueling bandits: candidates θ + δ·u around θ are compared with it on one interleaved list, and the winners followed.

DBGD: Yue and Joachims 2009, "Interactively optimizing information retrieval systems as a dueling bandits problem",
algorithm 1. MGD: Schuth, Oosterhuis, Whiteson and de Rijke 2016, "Multileave gradient descent for fast online learning to
rank", algorithm 2. The comparison is team-draft multileaving (Schuth et al. 2014, "Multileaved comparisons for fast online
evaluation"): in turns, the rankers, in random order, each add their best document that is not yet in the list, and are
credited with its clicks. With two rankers it is team-draft interleaving (Radlinski, Kurup and Joachims 2008).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from quorank.errors import require_range
from quorank.kernels.arrays import Booleans, Doubles, Floats, Integers, Uint64s
from quorank.kernels.compiled import fixed_memory_kernel
from quorank.kernels.draws import BATCH, Address, Purpose, fill_batch, fill_normal, key_of, uniform_pair
from quorank.learning.client_loop import Impression, LoopPlan, Work, World, client_loop, cohort_of
from quorank.learning.learner import CompiledLearner
from quorank.learning.plackett_luce import Buffers
from quorank.metrics.evaluator import top_k
from quorank.rankers.scoring import pack, packed_size, score_rows_of_all

WINNER_DRAW = 0x7FFFFFFF
"""Address, among the draws of an interaction's directions, of the winner that is followed."""


@dataclass(frozen=True)
class DBGD(CompiledLearner):
    """Dueling bandit gradient descent: θ ← θ + γ·u if θ + δ·u wins against θ on an interleaved list.

    u is uniform on the unit sphere. The list is a team draft of both rankings; the ranker whose documents got more clicks
    wins (Yue and Joachims 2009).

    Args:
        delta: δ, distance of the candidate, above 0.
        gamma: γ, step towards a winner, above 0.

    Raises:
        BadInput: `value.out-of-range` if a field is outside its range.

    >>> DBGD(delta=0.5, gamma=0.05).kind
    'dbgd'
    """

    kind: ClassVar[str] = "dbgd"

    delta: float = 1.0
    gamma: float = 0.01

    def __post_init__(self) -> None:
        require_range("delta", self.delta, above=0.0)
        require_range("gamma", self.gamma, above=0.0)

    def loop_plan(self, work: Work) -> LoopPlan:
        return LoopPlan(_loop, cohort_of(work), _duel(work, 1, self.delta, self.gamma, mean=True))


@dataclass(frozen=True)
class MGD(CompiledLearner):
    """Multileaved DBGD: θ ← θ + α·mean of the directions u_i whose θ + δ·u_i beat θ on one multileaved list.

    A candidate beats θ if its documents got more clicks (Schuth et al. 2016).

    Args:
        candidates: n, rankers compared with θ on a list, from 1 to 1000.
        delta: δ, distance of the candidates, above 0.
        alpha: α, step towards the winners, above 0.
        winner: "mean" follows the mean of the winners (MGD-M), "one" a winner drawn at random (MGD-W).

    Raises:
        BadInput: `value.out-of-range` if a field is outside its range.

    >>> MGD(candidates=4, winner="one").candidates
    4
    """

    kind: ClassVar[str] = "mgd"

    candidates: int = 9
    delta: float = 1.0
    alpha: float = 0.01
    winner: Literal["mean", "one"] = "mean"

    def __post_init__(self) -> None:
        require_range("candidates", self.candidates, least=1, most=1000)
        require_range("delta", self.delta, above=0.0)
        require_range("alpha", self.alpha, above=0.0)

    def loop_plan(self, work: Work) -> LoopPlan:
        rule = _duel(work, self.candidates, self.delta, self.alpha, mean=self.winner == "mean")
        return LoopPlan(_loop, cohort_of(work), rule)


class Duel(NamedTuple):
    """Settings of a comparison of θ (ranker 0) with candidates, and its scratch."""

    delta: float  # δ
    alpha: float  # step towards the winners
    mean: bool  # follow the mean of the winners, not one of them
    key: Uint64s
    directions: Doubles  # (candidates, parameters) u
    candidate: Doubles  # (parameters,)
    packed: Floats  # (candidates + 1, packed parameters)
    scores: Floats  # (candidates + 1, longest)
    rankings: Integers  # (candidates + 1, k)
    draft: Draft
    credits: Doubles  # (candidates + 1,)


class Draft(NamedTuple):
    """A team-draft list and the scratch to draw it."""

    shown: Integers  # (≥ k,) the list
    teams: Integers  # (≥ k,) ranker that added each document
    order: Integers  # (rankers,)
    draws: Doubles  # (BATCH,)


def _duel(work: Work, candidates: int, delta: float, alpha: float, *, mean: bool) -> Duel:
    world, size, rankers = work.world, len(work.theta), candidates + 1
    return Duel(
        delta, alpha, mean, key_of(work.seed, Purpose.DIRECTION), np.empty((candidates, size)), np.empty(size),
        np.zeros((rankers, packed_size(world.hidden, world.padded.shape[1])), dtype=np.float32),
        np.empty((rankers, world.longest), dtype=np.float32), np.zeros((rankers, world.k), dtype=np.int64),
        draft_for(rankers, world.k), np.empty(rankers),
    )  # fmt: skip


def draft_for(rankers: int, k: int) -> Draft:
    """Allocate the draft of several rankers for lists of k documents."""
    lists = np.zeros((3, max(rankers, k)), dtype=np.int64)
    return Draft(lists[0, :k], lists[1, :k], lists[2, :rankers], np.empty(BATCH))


@fixed_memory_kernel
def team_draft(rankings: Integers, k: int, key: Uint64s, address: Address, draft: Draft) -> None:
    """Fill draft.shown[:k] and draft.teams[:k] from the best documents of each ranker, (rankers, ≥ k)."""
    order, draws = draft.order, draft.draws
    rankers, p, draw = len(rankings), 0, 0
    for r in range(rankers):
        order[r] = r
    while p < k:
        for turn in range(rankers):
            if draw % BATCH == 0:
                fill_batch(key, draw >> 1, address.interaction, address.client, address.round, draws)
            other = turn + int(draws[draw % BATCH] * (rankers - turn))
            draw += 1
            order[turn], order[other] = order[other], order[turn]
            if p < k:
                draft.shown[p] = _best_left(rankings[order[turn]], draft.shown, p)
                draft.teams[p] = order[turn]
                p += 1


@fixed_memory_kernel
def _best_left(ranking: Integers, shown: Integers, count: int) -> int:
    """Return the first document of a ranking that is not among shown[:count]."""
    for document in ranking:
        new = True
        for p in range(count):
            new = new and shown[p] != document
        if new:
            return int(document)
    return -1  # never: a ranking has as many documents as a list


@fixed_memory_kernel
def credits_of(teams: Integers, clicked: Booleans, k: int, credits: Doubles) -> None:
    """credits[r] = clicks on the documents that ranker r added."""
    for r in range(len(credits)):
        credits[r] = 0.0
    for p in range(k):
        credits[teams[p]] += clicked[p]


@fixed_memory_kernel
def unit_directions(key: Uint64s, address: Address, directions: Doubles) -> None:
    """Rows that are uniform on the unit sphere: standard normal numbers over their length."""
    flat = directions.reshape(-1)
    fill_normal(key, address.interaction, address.client, address.round, flat)
    for i in range(len(directions)):
        total = 0.0
        for j in range(directions.shape[1]):
            total += directions[i, j] * directions[i, j]
        for j in range(directions.shape[1]):
            directions[i, j] /= math.sqrt(total)


@fixed_memory_kernel
def _show(duel: Duel, world: World, shown: Impression, theta: Doubles, buffers: Buffers) -> float:
    """Show the team draft of θ and candidates around it."""
    n_features, hidden, stride = world.n_features, world.hidden, world.padded.shape[1]
    unit_directions(duel.key, shown.address, duel.directions)
    pack(theta, hidden, n_features, stride, duel.packed[0])
    for c in range(len(duel.directions)):
        for j in range(len(theta)):
            duel.candidate[j] = theta[j] + duel.delta * duel.directions[c, j]
        pack(duel.candidate, hidden, n_features, stride, duel.packed[c + 1])
    start, k = shown.start, shown.k
    score_rows_of_all(duel.packed, hidden, world.padded, start, start + shown.n, duel.scores, buffers.activation)
    for r in range(len(duel.packed)):
        top_k(duel.scores[r], shown.n, k, duel.rankings[r])
    team_draft(duel.rankings[:, :k], k, world.ranking_key, shown.address, duel.draft)
    for p in range(k):
        buffers.shown[p] = duel.draft.shown[p]
    return 0.0


@fixed_memory_kernel
def _learn(
    duel: Duel, world: World, shown: Impression, rest: float, first: int, theta: Doubles, buffers: Buffers
) -> bool:
    """Follow the candidates with more clicks than θ, their mean or one of them."""
    if first < 0:
        return False
    credits, winners = duel.credits, 0
    credits_of(duel.draft.teams, buffers.clicked, shown.k, credits)
    for c in range(len(duel.directions)):
        winners += credits[c + 1] > credits[0]
    if winners == 0:
        return False
    at = shown.address
    chance, _ = uniform_pair(duel.key, WINNER_DRAW, at.interaction, at.client, at.round)
    chosen, seen = int(chance * winners), 0
    for c in range(len(duel.directions)):
        if credits[c + 1] > credits[0]:
            step = duel.alpha / winners if duel.mean else (duel.alpha if seen == chosen else 0.0)
            seen += 1
            for j in range(len(theta)):
                theta[j] += step * duel.directions[c, j]
    return True


_loop = client_loop(_show, _learn, scored=False)
