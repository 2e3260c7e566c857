"""Pairwise Differentiable Gradient Descent (FPDGD algorithm 1; Oosterhuis and de Rijke 2018).

A client shows Plackett-Luce lists, infers preferences from clicks and follows the debiased gradient of eq. 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from quorank.compiled import kernel
from quorank.draws import uniform_pair
from quorank.errors import require
from quorank.learning.pairs import pair_coefficients
from quorank.learning.plackett_luce import BLOCK, sample_list
from quorank.learning.simulation import STATISTICS, Work, World, list_ndcg
from quorank.rankers.scoring import LANES, add_gradient, pack, score_rows
from quorank.users.clicks import click_list

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class PDGD:
    """θ ← θ + η ∇f after each interaction (algorithm 1), or once with the sum over a batch (the batched baseline)."""

    kind: ClassVar[str] = "pdgd"

    eta: float = 0.1  # η, eq. 8
    step: Literal["interaction", "batch"] = "interaction"

    def __post_init__(self) -> None:
        require(0.0 < self.eta < float("inf"), f"eta must be above 0, got {self.eta}")

    def updates(self, work: Work, rows: Doubles) -> None:
        """rows[i] = the update of clients[i] after its interactions, then its STATISTICS."""
        _simulate_clients(
            work.world, work.theta, self.eta, self.step == "batch", work.round, work.clients, work.interactions, rows
        )


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
    shown: npt.NDArray[np.int64],
    shown_weights: Doubles,
    rest: float,
    clicked: npt.NDArray[np.bool_],
    k: int,
    eta: float,
    coefficients: Doubles,
    denominators: Doubles,
    without: Doubles,
    activation: Floats,
) -> bool:
    """θ += η Σ_p coefficient·∇f (eq. 5) for one clicked list; False if it holds no preference."""
    found = pair_coefficients(
        scores, n, shown, shown_weights, rest, clicked, k, coefficients, denominators, without
    )
    if found:
        for p in range(k):
            if coefficients[p] != 0.0:
                add_gradient(
                    theta, packed, hidden, n_features, padded, start + shown[p], eta * coefficients[p], activation
                )
    return found


@kernel
def _simulate_clients(
    world: World,
    theta: Doubles,
    eta: float,
    batched: bool,
    round_: int,
    clients: npt.NDArray[np.int64],
    interactions: npt.NDArray[np.int64],
    rows: Doubles,
) -> None:
    """B interactions of each client from the same θ (algorithm 2, ClientUpdate): nothing is allocated per interaction."""
    size, hidden, n_features, k_max = len(theta), world.hidden, world.n_features, world.k
    stride = world.padded.shape[1]
    width = (hidden + LANES - 1) // LANES * LANES
    start_packed = np.zeros(stride if hidden == 0 else hidden * stride + 2 * width, dtype=np.float32)
    packed = np.zeros_like(start_packed)
    pack(theta, hidden, n_features, stride, start_packed)
    local = np.empty(size)
    scores = np.empty(world.longest, dtype=np.float32)
    weights = np.empty(world.longest)
    blocks = np.empty(world.longest // BLOCK + 1)
    shown = np.zeros(k_max, dtype=np.int64)
    shown_weights = np.empty(k_max)
    clicked = np.zeros(k_max, dtype=np.bool_)
    coefficients = np.empty(k_max)
    denominators = np.empty(k_max + 1)
    without = np.empty(k_max + 1)
    activation = np.zeros(width, dtype=np.float32)
    n_queries = len(world.offsets) - 1
    for at in range(len(clients)):
        client = clients[at]
        local[:] = theta
        packed[:] = start_packed
        total_ndcg, total_rr, total_clicks = 0.0, 0.0, 0.0
        for i in range(interactions[at]):
            u, _ = uniform_pair(world.query_key, 0, i, client, round_)
            query = int(u * n_queries)
            start, stop = world.offsets[query], world.offsets[query + 1]
            n = stop - start
            k = min(k_max, n)
            score_rows(packed, hidden, world.padded, start, stop, scores, activation)
            rest = sample_list(
                scores, n, k, world.ranking_key, i, client, round_, weights, blocks, shown, shown_weights
            )
            first = click_list(
                world.labels, start, shown, k, world.examine, world.click, world.stop, world.click_key, i, client, round_, clicked
            )
            total_ndcg += list_ndcg(world, query, shown, k)
            if first < 0:
                continue
            total_rr += 1.0 / (first + 1)
            for p in range(k):
                total_clicks += clicked[p]
            learned = learn_list(
                local, packed, hidden, n_features, world.padded, start, n, scores, shown, shown_weights, rest, clicked, k,
                eta, coefficients, denominators, without, activation,
            )  # fmt: skip
            if learned and not batched:
                pack(local, hidden, n_features, stride, packed)
        for j in range(size):
            rows[at, j] = local[j] - theta[j]
        rows[at, size] = total_ndcg
        rows[at, size + 1] = total_rr
        rows[at, size + STATISTICS - 1] = total_clicks
