"""Federated counterfactual learning: the ranking is shown as it is, and clicks are corrected by propensities.

Nothing is explored by default, so that every list is the ranking; documents that users did not examine are corrected
for by the propensities of the ranks (`inverse_propensity` has the estimates and their papers). They are given, by a law
(1/rank)^power or one by one, or estimated from swapped neighbours. A client goes η·gradient after each
interaction, as in PDGD, so that privacy, aggregation and the network treat its update alike.

Swapped neighbours: where the documents of ranks r and r + 1 stand in either order by a fair coin, the same documents are
shown at both ranks, so under position-based clicks the clicks there are in the ratio p_(r+1) / p_r of the propensities:
the swap intervention of Joachims, Swaminathan and Schnabel 2017, between neighbours, as in the adjacent chain of Agarwal et
al. 2019 ("Estimating position bias without intrusive interventions"). p_1 is 1, since only ratios can be known or matter.
Each client counts the clicks on its swapped lists, `swap_counts`; only the sum over clients is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from quorank.errors import require, require_range
from quorank.kernels.arrays import Doubles, Integers
from quorank.kernels.compiled import fixed_memory_kernel
from quorank.learning.client_loop import STATISTICS, Impression, Work, World, client_loop, play
from quorank.learning.exploration import Dial
from quorank.learning.inverse_propensity import DR, IPS, SNIPS, ClickRule, rank_propensities
from quorank.learning.pdgd import ListLearner, check_dial, show_by_dial
from quorank.learning.plackett_luce import Buffers

_ESTIMATORS = {"ips": IPS, "snips": SNIPS, "dr": DR}


@dataclass(frozen=True)
class Counterfactual(ListLearner):
    """θ ← θ + η·Σ (v(a) − v(b))·∇P(a ≻ b) over the shown documents, v their relevance by clicks and propensities."""

    kind: ClassVar[str] = "counterfactual"
    takes_any_list: ClassVar[bool] = True

    eta: float = 0.1  # η, how far a step goes
    step: Literal["interaction", "batch"] = "interaction"  # θ moves after each, or once by their sum
    proximal: float = 0.0  # μ, as in PDGD
    loss: Literal["pairwise", "listwise"] = "pairwise"  # over pairs of shown documents, or a softmax over the list
    estimator: Literal["ips", "snips", "dr"] = "ips"  # of relevance: inverse propensity, self-normalised, doubly robust
    power: float = 0.5  # p_r = (1/r)^power, unless propensities are given; between no position bias and 1/rank
    propensities: tuple[float, ...] | None = None  # p_1, p_2, …, one for each rank that is shown
    clip: float = 0.1  # lower bound on propensities
    reach: int = 3  # pairs are of documents at most this many ranks apart
    temperature: float = 1.0  # τ of the lists that are explored
    window: int | None = None  # w, how far a document may move in them; none leaves it free
    share: float = 0.0  # s of the lists are explored

    def __post_init__(self) -> None:
        require_range("eta", self.eta, above=0.0)
        overshoots = f"must be at least 0 and at most 2/eta, or steps overshoot, got {self.proximal}"
        require(0.0 <= self.proximal * self.eta <= 2.0, "counterfactual.proximal-overshoots", overshoots, "proximal")
        require_range("power", self.power, least=0.0, below=100.0)
        require_range("clip", self.clip, above=0.0, most=1.0)
        for propensity in self.propensities or ():
            require_range("propensities", propensity, above=0.0, most=1.0)
        require_range("reach", self.reach, least=1, below=2**31)
        check_dial(self.temperature, self.window)
        require_range("share", self.share, least=0.0, most=1.0)

    def click_rule(self, k: int) -> ClickRule:
        propensities = rank_propensities(self.kind, self.propensities, self.power, k)
        return ClickRule(_ESTIMATORS[self.estimator], self.loss == "listwise", propensities, self.clip, self.reach)

    def propensities_of(self, k: int) -> Doubles | None:
        return self.click_rule(min(k, len(self.propensities) if self.propensities is not None else k)).propensities

    def check_logged(self) -> None:
        super().check_logged()
        sentence = f"share = {self.share} explores lists, and those of a log are as they were; leave it out"
        require(self.share == 0.0, "option.conflict", sentence, "share")


FAIR_PAIRS = Dial(1e30, 1, 1.0)
"""Neighbours are swapped by a fair coin (`exploration`)."""


def swap_counts(work: Work) -> Integers:
    """(clients, 2, k − 1) clicks of each client at rank r and at r + 1, on lists where those two were swapped by a coin."""
    counts = np.zeros((len(work.clients), 2, max(0, work.world.k - 1)), dtype=np.int64)
    rows = np.empty((len(work.clients), len(work.theta) + STATISTICS))
    play(_loop, work, SwapRule(FAIR_PAIRS, counts), rows)
    return counts


class SwapRule(NamedTuple):
    """Exploration and the clicks counted."""

    dial: Dial
    counts: Integers  # (clients, 2, k − 1)


def adjacent_chain(counts: Integers) -> Doubles:
    """p of every rank from the summed counts (2, k − 1): p_1 = 1, p_(r+1) = p_r · clicks at r + 1 / clicks at r.

    Half a click is added to each count, so that ranks without clicks have an estimate; none exceeds 1.
    """
    found = np.asarray(counts, dtype=np.float64)
    fits = found.ndim == 2 and len(found) == 2 and bool((found >= 0.0).all())
    require(fits, "propensities.counts", f"expected counts of shape (2, ranks − 1), none below 0, got {found.shape}")
    chain = np.concatenate([[1.0], np.cumprod((found[1] + 0.5) / (found[0] + 0.5))])
    return np.asarray(chain / chain.max(), dtype=np.float64)


@fixed_memory_kernel
def _count_clicks(
    rule: SwapRule, world: World, shown: Impression, rest: float, first: int, theta: Doubles, buffers: Buffers
) -> bool:
    for p in range(shown.k - 1):
        if buffers.shown_weights[p] == buffers.shown_weights[p + 1]:  # of one block: swapped by a fair coin
            rule.counts[shown.at, 0, p] += buffers.clicked[p]
            rule.counts[shown.at, 1, p] += buffers.clicked[p + 1]
    return False


_loop = client_loop(show_by_dial, _count_clicks)
