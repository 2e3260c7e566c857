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
from typing import ClassVar, NamedTuple

import numpy as np

from quorank.errors import require_range
from quorank.kernels.arrays import Doubles, Floats, Integers
from quorank.kernels.compiled import fixed_memory_kernel
from quorank.kernels.draws import BATCH, fill_batch
from quorank.learning.client_loop import Impression, Layout, Work, World, client_loop, follow_gradients, play
from quorank.learning.learner import CompiledLearner
from quorank.learning.pdgd import last_included
from quorank.learning.plackett_luce import Buffers
from quorank.metrics.evaluator import top_k


@dataclass(frozen=True)
class PairRank(CompiledLearner):
    """PairRank: certain pairs keep their order, uncertain ones are shuffled; θ follows a pairwise logistic loss.

    The order of a pair is certain if σ(|f(a) − f(b)|) − α·‖x_a − x_b‖/√(λ + n·t) > ½ in round t, from 0. The step is
    θ ← θ + η·Σ σ(f(b) − f(a))·(∇f(a) − ∇f(b)) over the pairs of a block with a clicked and b not.

    Args:
        eta: η, length of a step, above 0.
        alpha: α of the confidence bound, above 0.
        ridge: λ, initial information in each direction, above 0.
        growth: n, information that a round adds, at least 0.

    Raises:
        BadInput: `value.out-of-range` if a field is outside its range.

    >>> PairRank(alpha=1.0, ridge=4.0, growth=0.0).width(round_=7)
    0.5
    """

    kind: ClassVar[str] = "pairrank"
    needs_gradient: ClassVar[bool] = True

    eta: float = 0.1
    alpha: float = 1.0
    ridge: float = 1.0
    growth: float = 10.0

    def __post_init__(self) -> None:
        require_range("eta", self.eta, above=0.0)
        require_range("alpha", self.alpha, above=0.0)
        require_range("ridge", self.ridge, above=0.0)
        require_range("growth", self.growth, least=0.0)

    def width(self, round_: int) -> float:
        """Return α/√(λ + n·t): the bound of a pair whose features are at distance 1."""
        return self.alpha / math.sqrt(self.ridge + self.growth * round_)

    def updates(self, work: Work, rows: Doubles) -> None:
        play(_loop, work, PairRule(self.width(work.round), self.eta), rows)


class PairRule(NamedTuple):
    """Settings of one round."""

    width: float  # α/√(λ + n·t)
    eta: float  # η


@fixed_memory_kernel
def is_certain(gap: float, padded: Floats, i: int, j: int, width: float) -> bool:
    """Tell if the order of two rows whose scores differ by `gap` is certain."""
    total = 0.0
    for c in range(padded.shape[1]):
        difference = np.float64(padded[i, c]) - np.float64(padded[j, c])
        total += difference * difference
    return 1.0 / (1.0 + math.exp(-abs(gap))) - width * math.sqrt(total) > 0.5


@fixed_memory_kernel
def block_end(scores: Floats, padded: Floats, start: int, ranking: Integers, n: int, first: int, width: float) -> int:
    """Return the end of the block from rank `first` on: no document of it is in an uncertain pair with a later one."""
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


@fixed_memory_kernel
def shuffle_blocks(rule: PairRule, world: World, shown: Impression, theta: Doubles, buffers: Buffers) -> float:
    """Fill buffers.shown with the shuffled blocks of the ranking, and shown_weights with the number of each one's block."""
    ranking, draws, at = buffers.ranking, buffers.draws, shown.address
    top_k(shown.scores, shown.n, shown.n, ranking)
    block, first = 0, 0
    while first < shown.k:
        end = block_end(shown.scores, world.padded, shown.start, ranking, shown.n, first, rule.width)
        for p in range(first, min(end, shown.k)):
            if p % BATCH == 0:
                fill_batch(world.ranking_key, p >> 1, at.interaction, at.client, at.round, draws)
            chosen = p + int(draws[p % BATCH] * (end - p))
            ranking[p], ranking[chosen] = ranking[chosen], ranking[p]
            buffers.shown[p], buffers.shown_weights[p] = ranking[p], block
        block, first = block + 1, end
    return 0.0


@fixed_memory_kernel
def logistic_coefficients(scores: Floats, k: int, buffers: Buffers) -> bool:
    """buffers.coefficients[p] of the step Σ_p coefficients[p]·∇f(document at p); False if there is no pair."""
    shown, blocks, clicked, coefficients = (
        buffers.shown, buffers.shown_weights, buffers.clicked, buffers.coefficients
    )  # fmt: skip
    has_pair = False
    for p in range(k):
        coefficients[p] = 0.0
    for b in range(1, last_included(clicked, k) + 1):
        for a in range(b):
            if clicked[a] == clicked[b] or blocks[a] != blocks[b]:
                continue
            has_pair = True
            sign = 1.0 if clicked[a] else -1.0
            gap = sign * (np.float64(scores[shown[a]]) - np.float64(scores[shown[b]]))
            weight = sign / (1.0 + math.exp(min(gap, 700.0)))
            coefficients[a] += weight
            coefficients[b] -= weight
    return has_pair


@fixed_memory_kernel
def _learn(
    rule: PairRule, world: World, shown: Impression, rest: float, first: int, theta: Doubles, buffers: Buffers
) -> bool:
    if first < 0 or not logistic_coefficients(shown.scores, shown.k, buffers):
        return False
    layout = Layout(world.padded, world.n_features, world.hidden)
    follow_gradients(rule.eta, layout, shown, shown.k, theta, buffers)
    return True


_loop = client_loop(shuffle_blocks, _learn)
