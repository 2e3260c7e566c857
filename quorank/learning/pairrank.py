"""PairRank (Jia, Wang, Guo and Wang 2021, "PairRank: online pairwise learning to rank by divide-and-conquer"), federated.

The order of documents i and j by f is certain if σ(|f_i − f_j|) − α·‖x_i − x_j‖_(M⁻¹) > ½, where M = λI + Σ x_ij·x_ijᵀ over
the pairs observed so far. The ranking by f is cut wherever all pairs across the cut are certain; blocks keep their order,
and the documents of a block are shuffled, each order being equally likely. Documents of one block, one clicked and one not,
neither below the document after the last click, form a pair (w, l), whose cross-entropy −log σ(f_w − f_l) goes down:
θ ← θ + η Σ σ(f_l − f_w)·(∇f_w − ∇f_l). Before either is looked at, each stood above the other in half of the orders.

In a federation M would be d² numbers of every client's searches. Here M is (λ + n·t)·I after t rounds, n being what a round
adds in each direction: a client knows it from the number of the round, and sends nothing but its update. Given up is that
some directions are known sooner than others, and with it the paper's bound on regret; which n fits is a setting. With a
hidden layer the distance stays that of the features.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quorank.errors import require_range
from quorank.kernels.arrays import Booleans, Doubles, Floats, Integers, Uint64s
from quorank.kernels.compiled import kernel
from quorank.kernels.draws import BATCH, fill_batch
from quorank.learning.learner import Learner
from quorank.learning.list_learner import NO_OFFSETS
from quorank.learning.pair_weights import last_included
from quorank.learning.simulation import STATISTICS, SimulationArrays, Work, draw_query, keep_within, list_ndcg
from quorank.metrics.evaluator import top_k
from quorank.rankers.scoring import add_gradients, pack, packed_size, score_rows, width_of
from quorank.users.click_model import click_list


@dataclass(frozen=True)
class PairRank(Learner):
    """Certain pairs keep their order, uncertain ones are shuffled; a logistic step on the pairs that were clicked apart."""

    kind: ClassVar[str] = "pairrank"

    eta: float = 0.1  # η, how far a step goes
    alpha: float = 1.0  # α, of the confidence bound
    ridge: float = 1.0  # λ, what M begins with in each direction
    growth: float = 10.0  # n, what a round adds to M

    def __post_init__(self) -> None:
        require_range("eta", self.eta, above=0.0)
        require_range("alpha", self.alpha, above=0.0)
        require_range("ridge", self.ridge, above=0.0)
        require_range("growth", self.growth, least=0.0)

    def width(self, round_: int) -> float:
        """Return α/√(λ + n·t): the bound of a pair whose features are at distance 1."""
        return self.alpha / math.sqrt(self.ridge + self.growth * round_)

    def updates(self, work: Work, rows: Doubles) -> None:
        offsets = work.offsets if work.offsets is not None else NO_OFFSETS
        cohort = (work.round, work.clients, work.interactions)
        shuffle_clients(
            work.world, work.theta, self.width(work.round), self.eta, *cohort, work.bound, offsets, rows
        )  # fmt: skip


@kernel
def is_certain(gap: float, padded: Floats, i: int, j: int, width: float) -> bool:
    """Whether two rows whose scores differ by `gap` are in a certain order."""
    total = 0.0
    for c in range(padded.shape[1]):
        difference = np.float64(padded[i, c]) - np.float64(padded[j, c])
        total += difference * difference
    return 1.0 / (1.0 + math.exp(-abs(gap))) - width * math.sqrt(total) > 0.5


@kernel
def block_end(scores: Floats, padded: Floats, start: int, ranking: Integers, n: int, first: int, width: float) -> int:
    """Where the block ends that begins at rank `first`: no document of it is in an uncertain pair with one behind."""
    end, rank = first + 1, first
    while rank < end and end < n:
        i = ranking[rank]
        for other in range(n - 1, end - 1, -1):
            j = ranking[other]
            if not is_certain(np.float64(scores[i]) - np.float64(scores[j]), padded, start + i, start + j, width):
                end = other + 1
                break
        rank += 1
    return end


@kernel
def shuffle_blocks(
    scores: Floats,
    padded: Floats,
    start: int,
    n: int,
    k: int,
    width: float,
    key: Uint64s,
    interaction: int,
    client: int,
    round_: int,
    draws: Doubles,
    ranking: Integers,
    shown: Integers,
    blocks: Integers,
) -> None:
    """Fill shown[:k] and the number of each one's block; `ranking` is room for n documents, `draws` for a BATCH."""
    top_k(scores, n, n, ranking)
    block, first = 0, 0
    while first < k:
        end = block_end(scores, padded, start, ranking, n, first, width)
        for p in range(first, min(end, k)):
            if p % BATCH == 0:
                fill_batch(key, p >> 1, interaction, client, round_, draws)
            at = p + int(draws[p % BATCH] * (end - p))
            ranking[p], ranking[at] = ranking[at], ranking[p]
            shown[p], blocks[p] = ranking[p], block
        block, first = block + 1, end


@kernel
def logistic_coefficients(
    scores: Floats, shown: Integers, blocks: Integers, clicked: Booleans, k: int, coefficients: Doubles
) -> bool:
    """coefficients[p] of the step Σ_p coefficients[p]·∇f(document at p); False if there is no pair."""
    found = False
    for p in range(k):
        coefficients[p] = 0.0
    for b in range(1, last_included(clicked, k) + 1):
        for a in range(b):
            if clicked[a] == clicked[b] or blocks[a] != blocks[b]:
                continue
            found = True
            sign = 1.0 if clicked[a] else -1.0
            gap = sign * (np.float64(scores[shown[a]]) - np.float64(scores[shown[b]]))
            weight = sign / (1.0 + math.exp(min(gap, 700.0)))
            coefficients[a] += weight
            coefficients[b] -= weight
    return found


@kernel
def shuffle_clients(
    world: SimulationArrays,
    theta: Doubles,
    width: float,
    eta: float,
    round_: int,
    clients: Integers,
    interactions: Integers,
    bound: float,
    offsets: Doubles,
    rows: Doubles,
) -> None:
    """The interactions of each client from the same θ, a step after each."""
    size, hidden, n_features, k_max = len(theta), world.hidden, world.n_features, world.k
    stride, personal = world.padded.shape[1], offsets.shape[0] > 0
    packed = np.zeros(packed_size(hidden, stride), dtype=np.float32)
    activation = np.zeros(width_of(hidden), dtype=np.float32)
    scores, ranking = np.empty(world.longest, dtype=np.float32), np.zeros(world.longest, dtype=np.int64)
    shown, blocks = np.zeros(k_max, dtype=np.int64), np.zeros(k_max, dtype=np.int64)
    clicked, coefficients, draws = np.zeros(k_max, dtype=np.bool_), np.empty(k_max), np.empty(BATCH)
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
            shuffle_blocks(
                scores, world.padded, start, n, k, width, world.ranking_key, i, client, round_, draws, ranking, shown,
                blocks,
            )  # fmt: skip
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
            if not logistic_coefficients(scores, shown, blocks, clicked, k, coefficients):
                continue
            for p in range(k):
                coefficients[p] *= eta
            add_gradients(
                rows[at, :size], packed, hidden, n_features, world.padded, start, shown, coefficients, k, activation
            )
            if bound < np.inf:
                keep_within(rows[at, :size], bound)
            pack(rows[at, :size], hidden, n_features, stride, packed)
        for j in range(size):
            rows[at, j] -= begin[j]
