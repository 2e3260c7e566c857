"""Pairwise Differentiable Gradient Descent (FPDGD algorithm 1; Oosterhuis and de Rijke 2018).

A client shows Plackett-Luce lists, infers preferences from clicks and follows the debiased gradient of eq. 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from quorank.errors import require, require_range
from quorank.kernels.arrays import Booleans, Doubles, Floats, Integers
from quorank.kernels.compiled import kernel
from quorank.learning.exploration import FREE, Dial
from quorank.learning.inverse_propensity import PAIRS, ClickRule
from quorank.learning.learner import PDGDStep
from quorank.learning.list_learner import NO_OFFSETS, ListLearner, check_dial
from quorank.learning.pair_weights import last_included, pair_coefficients
from quorank.learning.plackett_luce import LINE, Scratch, ask_ahead, sample_list, scratch_for
from quorank.learning.simulation import STATISTICS, SimulationArrays, Work, draw_query, keep_within, list_ndcg
from quorank.rankers.scoring import add_gradients, ask_for, pack, packed_size, score_lists, width_of
from quorank.users.click_model import click_list


@dataclass(frozen=True)
class PDGD(ListLearner):
    """θ ← θ + η ∇f after each interaction (algorithm 1), or once with the sum over a batch (the batched baseline).

    `temperature`, `window` and `share` say how far and how often lists may differ from the ranking (`exploration`): no
    document is shown more than `window` positions from its rank, and all but a `share` of the lists are the ranking
    itself, from which nothing is learned. ρ is that of the distribution which drew the list, the slope that of f.
    """

    kind: ClassVar[str] = "pdgd"

    eta: float = 0.1  # η of algorithm 1, how far a step goes
    step: Literal["interaction", "batch"] = "interaction"  # θ moves after each, or once by their sum
    proximal: float = 0.0  # μ of FedProx (Li et al. 2020): each step also goes −η·μ·(θ − θ of the round)
    temperature: float = 1.0  # τ: lists are drawn from f/τ
    window: int | None = None  # w: how far a document may move; none leaves it free
    share: float = 1.0  # s of the lists are explored

    def __post_init__(self) -> None:
        require_range("eta", self.eta, above=0.0)
        overshoots = f"must be at least 0 and at most 2/eta, or steps overshoot, got {self.proximal}"
        require(0.0 <= self.proximal * self.eta <= 2.0, "pdgd.proximal-overshoots", overshoots, "proximal")
        check_dial(self.temperature, self.window)
        require_range("share", self.share, above=0.0, most=1.0)

    @property
    def dial(self) -> Dial:
        return Dial(self.temperature, self.window or 0, self.share)

    def rule(self, k: int) -> ClickRule:
        return ClickRule(PAIRS, False, np.ones(k), 1.0, 0)

    @property
    def pdgd_step(self) -> PDGDStep | None:
        if self.dial != FREE:
            return None
        return PDGDStep(self.eta, self.step == "batch", self.eta * self.proximal)

    def updates(self, work: Work, rows: Doubles) -> None:
        steps = self.pdgd_step
        if steps is None:
            self.explore(work, rows)
            return
        offsets = work.offsets if work.offsets is not None else NO_OFFSETS
        cohort = (work.round, work.clients, work.interactions)
        simulate_clients(work.world, work.theta, *steps, *cohort, work.bound, offsets, rows)


@kernel
def learn_list(
    theta: Doubles,
    packed: Floats,
    hidden: int,
    n_features: int,
    padded: Floats,
    start: int,
    n: int,
    scores: Floats,
    shown: Integers,
    shown_weights: Doubles,
    rest: float,
    clicked: Booleans,
    k: int,
    eta: float,
    coefficients: Doubles,
    logarithms: Doubles,
    inverses: Doubles,
    activation: Floats,
) -> bool:
    """θ += η Σ_p coefficient·∇f (eq. 5) for one clicked list; False if it holds no preference."""
    found = pair_coefficients(
        scores, scores, True, n, shown, shown_weights, rest, clicked, k, coefficients, logarithms, inverses
    )
    if found:
        last = last_included(clicked, k)
        for p in range(last + 1):
            coefficients[p] *= eta
        add_gradients(theta, packed, hidden, n_features, padded, start, shown, coefficients, last + 1, activation)
    return found


SIDE_BY_SIDE = 4
"""Clients whose lists are scored together; it changes the speed only (see `score_lists`)."""

LINES_PER_STEP = 20
"""Cache lines of a client's next list that are asked for before each step on its present one (see `ask_ahead`)."""


class _Lists(NamedTuple):
    """What some clients search for side by side; a length of 0 where a client is done."""

    queries: Integers
    models: Integers  # how the user of each clicks
    starts: Integers
    lengths: Integers


@kernel
def _lists() -> _Lists:
    side, whole = SIDE_BY_SIDE, np.int64
    return _Lists(np.zeros(side, whole), np.zeros(side, whole), np.zeros(side, whole), np.zeros(side, whole))


@kernel
def _draw_lists(
    world: SimulationArrays, base: int, i: int, round_: int, clients: Integers, interactions: Integers, lists: _Lists
) -> None:
    """The lists of interaction i of the clients from `base` on; what is small of them is asked for."""
    for g in range(SIDE_BY_SIDE):
        lists.lengths[g] = 0
        if base + g < len(clients) and i < interactions[base + g]:
            lists.queries[g], lists.models[g] = draw_query(
                world.query_key, world.group, world.first_query, world.query_count, world.click_model, world.drawn,
                i, clients[base + g], round_,
            )  # fmt: skip
            start, stop = world.offsets[lists.queries[g]], world.offsets[lists.queries[g] + 1]
            lists.starts[g], lists.lengths[g] = start, stop - start
            ask_for(world.ideal, lists.queries[g])
            for at in range(start, stop, 4 * LINE):
                ask_for(world.labels, at)


@kernel
def _want(room: Scratch, lists: _Lists, g: int, stride: int) -> None:
    """List g is what will be read next."""
    room.wanted[0] = lists.starts[g] * stride
    room.wanted[1] = (lists.starts[g] + lists.lengths[g]) * stride


@kernel
def simulate_clients(
    world: SimulationArrays,
    theta: Doubles,
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
    """B interactions of each client from the same θ (algorithm 2, ClientUpdate); nothing is allocated per interaction.

    A client with an offset of its own starts from θ + offset; its update is how far it moved from there.
    """
    size, hidden, n_features, k_max = len(theta), world.hidden, world.n_features, world.k
    stride = world.padded.shape[1]
    start_packed = np.zeros(packed_size(hidden, stride), dtype=np.float32)
    pack(theta, hidden, n_features, stride, start_packed)
    packed = np.zeros((SIDE_BY_SIDE, len(start_packed)), dtype=np.float32)
    scores = np.empty((SIDE_BY_SIDE, world.longest), dtype=np.float32)
    lists, following = _lists(), _lists()
    personal = offsets.shape[0] > 0
    room = scratch_for(world.longest, world.padded)
    shown = np.zeros(k_max, dtype=np.int64)
    shown_weights = np.empty(k_max)
    clicked = np.zeros(k_max, dtype=np.bool_)
    coefficients = np.empty(k_max)
    logarithms = np.empty(k_max + 1)
    inverses = np.empty(k_max + 1)
    activation = np.zeros(width_of(hidden), dtype=np.float32)
    _draw_lists(world, 0, 0, round_, clients, interactions, following)
    for base in range(0, len(clients), SIDE_BY_SIDE):
        side = min(SIDE_BY_SIDE, len(clients) - base)
        for g in range(side):
            for j in range(size):
                rows[base + g, j] = theta[j]  # the client's own θ while it learns, its update at the end
            rows[base + g, size:] = 0.0
            for j in range(len(start_packed)):
                packed[g, j] = start_packed[j]
            if personal:
                for j in range(size):
                    rows[base + g, j] += offsets[base + g, j]
                pack(rows[base + g, :size], hidden, n_features, stride, packed[g])
        most = 0
        for g in range(side):
            most = max(most, interactions[base + g])
        if most == 0:
            _draw_lists(world, base + SIDE_BY_SIDE, 0, round_, clients, interactions, following)
        for i in range(most):
            lists, following = following, lists
            next_base, next_i = (base, i + 1) if i + 1 < most else (base + SIDE_BY_SIDE, 0)
            _draw_lists(world, next_base, next_i, round_, clients, interactions, following)
            score_lists(packed, hidden, world.padded, lists.starts, lists.lengths, scores, activation)
            for g in range(side):
                client, query = clients[base + g], lists.queries[g]
                start, n = lists.starts[g], lists.lengths[g]
                if n == 0:
                    continue
                _want(room, following, g, stride)
                ask_ahead(room, LINES_PER_STEP)
                k = min(k_max, n)
                rest = sample_list(scores[g], n, k, world.ranking_key, i, client, round_, room, shown, shown_weights)
                ask_ahead(room, LINES_PER_STEP)
                first = click_list(
                    world.labels, start, shown, k, world.examine, world.click, world.stop, lists.models[g], world.click_key,
                    i, client, round_, clicked, room.draws,
                )  # fmt: skip
                ask_ahead(room, LINES_PER_STEP)
                rows[base + g, size] += list_ndcg(
                    world.labels, start, world.ideal[query], world.gain, world.discount, shown, k
                )
                learned = False
                if pull > 0.0:
                    for j in range(size):
                        start_at = theta[j] + (offsets[base + g, j] if personal else 0.0)
                        rows[base + g, j] -= pull * (rows[base + g, j] - start_at)
                if first >= 0:
                    rows[base + g, size + 1] += 1.0 / (first + 1)
                    for p in range(k):
                        rows[base + g, size + STATISTICS - 1] += clicked[p]
                    learned = learn_list(
                        rows[base + g, :size], packed[g], hidden, n_features, world.padded, start, n, scores[g], shown,
                        shown_weights, rest, clicked, k, eta, coefficients, logarithms, inverses, activation,
                    )  # fmt: skip
                ask_ahead(room, LINES_PER_STEP)
                if bound < np.inf:
                    learned |= keep_within(rows[base + g, :size], bound)
                if (learned or pull > 0.0) and not batched:
                    pack(rows[base + g, :size], hidden, n_features, stride, packed[g])
        for g in range(side):
            for j in range(size):
                rows[base + g, j] -= theta[j]
            if personal:
                for j in range(size):
                    rows[base + g, j] -= offsets[base + g, j]
