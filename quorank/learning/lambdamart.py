"""LambdaMART, federated: regression trees that follow LambdaRank gradients, grown from sums over clients.

Burges 2010, "From RankNet to LambdaRank to LambdaMART: an overview". Each tree is grown from sums over all clients'
documents, in integers (`trees.client_rows`), so that a federation grows the trees of the pooled data, bit for bit.

Two ways to choose splits:

- "best": a message for each level of a tree asks for the histograms of its nodes, and the split that gains most is made
  (`trees.growth`). Sums are exact, masked or not.
- "random": splits are drawn at random in advance, `batch` trees at a time, and one message requests Σ G and
  Σ H of their leaves (`trees.growth`): few numbers, which tolerate noise. After Maddock et al. 2022,
  "Federated boosted decision trees with differential privacy", where random splits and batched updates did best.

Gains are 2^label − 1, or with `feedback = "clicks"` the estimate click/max(p, clip) of relevance from logged lists, with
p the propensity of the rank (`inverse_propensity`); ΔDCG is then not divided by the best list's, which would take the
propensities out again where a list has one click.

Logged lists are all that clients have who keep no labels (Joachims, Swaminathan and Schnabel 2017): a production ranker, a
linear one that was fitted to the labels of one list in a hundred, has shown lists drawn from its scores by Plackett-Luce;
people have clicked. Each client keeps its own: the documents shown, their ranks, the clicks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from quorank.data.ranking import RankingData
from quorank.errors import BadInput, require, require_range
from quorank.kernels.arrays import Booleans, Doubles, Integers
from quorank.kernels.compiled import fixed_memory_kernel
from quorank.learning.client_loop import STATISTICS, Impression, Work, World, client_loop, play
from quorank.learning.exploration import Dial
from quorank.learning.inverse_propensity import rank_propensities
from quorank.learning.learner import CompiledLearner
from quorank.learning.pdgd import show_by_dial
from quorank.learning.plackett_luce import Buffers
from quorank.learning.trees.bins import MOST_BINS
from quorank.learning.trees.growth import GrowthRule, LambdaRule, TreePlan

DEEPEST = 12
FEWEST = 100
"""Training lists below which trees are refused by default: docs/results/rankers.md has the measurement."""


@dataclass(frozen=True)
class LambdaMART(CompiledLearner):
    """LambdaMART: trees of depth D grown from sums over clients, each leaf worth −η·G/(H + λ).

    G and H are the sums of the leaf's LambdaRank gradients and second derivatives.

    Args:
        eta: η, shrinkage of each tree, in (0, 10].
        depth: D, levels of splits.
        bins: Largest number of bins of a feature.
        least_data: Least number of documents in a leaf.
        least_hessian: Least H of a leaf.
        ridge: λ, added to H of a leaf.
        least_gain: Gain that a split must exceed.
        sigmoid: σ, steepness of the pairwise logistic loss, in (0, 100].
        truncation: Pairs have a document above this rank.
        norm: Gradients of a list are normalised, as LightGBM's lambdarank_norm does.
        splits: "best" of the highest gain, or "random", which tolerates noise.
        batch: Trees of a round, with random splits.
        quantile_releases: Noisy releases from which bins are agreed; 0 means an even grid from 0 to 1.
        feedback: "labels", or "clicks" of logged lists.
        power: p_r = (1/r)^power of logged lists unless propensities are given; 0 takes clicks as they are.
        propensities: p_1, p_2, …, one in (0, 1] for each rank that was shown.
        clip: Lower bound on propensities, in (0, 1].
        exploration: Temperature of the logged lists, in standard deviations of the production ranker's scores.
        least_lists: Training lists below which trees are refused.

    Raises:
        BadInput: `value.out-of-range` if a field is outside its range, `option.conflict` for a batch of best splits.

    >>> LambdaMART(feedback="clicks", power=1.0, clip=0.3).rank_propensities(4)
    array([1.        , 0.5       , 0.33333333, 0.3       ])
    """

    kind: ClassVar[str] = "lambdamart"
    learns_on_client: ClassVar[bool] = False
    grows_trees: ClassVar[bool] = True

    eta: float = 0.1
    depth: int = 6
    bins: int = 64
    least_data: int = 20
    least_hessian: float = 1e-3
    ridge: float = 0.0
    least_gain: float = 0.0
    sigmoid: float = 1.0
    truncation: int = 30
    norm: bool = True
    splits: Literal["best", "random"] = "best"
    batch: int = 1
    quantile_releases: int = 10
    feedback: Literal["labels", "clicks"] = "labels"
    power: float = 1.0
    propensities: tuple[float, ...] | None = None
    clip: float = 0.1
    exploration: float = 0.5
    least_lists: int = FEWEST

    def __post_init__(self) -> None:
        require_range("eta", self.eta, above=0.0, most=10.0)
        require_range("depth", self.depth, least=1, most=DEEPEST)
        require_range("bins", self.bins, least=2, most=MOST_BINS)
        require_range("least_data", self.least_data, least=0, below=2**31)
        require_range("least_hessian", self.least_hessian, least=0.0)
        require_range("ridge", self.ridge, least=0.0)
        require_range("least_gain", self.least_gain, least=0.0)
        require_range("sigmoid", self.sigmoid, above=0.0, most=100.0)
        require_range("truncation", self.truncation, least=1, below=2**31)
        require_range("batch", self.batch, least=1, most=1000)
        sentence = 'trees of best splits grow one after the other; set splits = "random", or leave batch out'
        require(self.batch == 1 or self.splits == "random", "option.conflict", sentence, "batch")
        require_range("quantile_releases", self.quantile_releases, least=0, most=10_000)
        require_range("power", self.power, least=0.0, below=100.0)
        for propensity in self.propensities or ():
            require_range("propensities", propensity, above=0.0, most=1.0)
        require_range("clip", self.clip, above=0.0, most=1.0)
        require_range("exploration", self.exploration, above=0.0)
        require_range("least_lists", self.least_lists, least=0, below=2**31)

    @property
    def trees_per_round(self) -> int:
        return self.batch

    @property
    def lambda_rule(self) -> LambdaRule:
        """Settings of gradients; ΔDCG of logged lists is not normalised."""
        return LambdaRule(self.sigmoid, self.truncation, self.norm and self.feedback == "labels")

    def growth_rule(self, leaves: int) -> GrowthRule:
        """Return the settings of growth for trees of `leaves` leaves."""
        return GrowthRule(
            self.depth, leaves, self.least_data, self.least_hessian, self.ridge, self.least_gain, self.eta
        )

    def rank_propensities(self, k: int) -> Doubles:
        """(k,) max(p, clip) of each rank of a logged list."""
        return np.maximum(rank_propensities(self.kind, self.propensities, self.power, k), self.clip)

    def tree_plan(self, leaves: int, k: int) -> TreePlan:
        logged = self.feedback == "clicks"
        return TreePlan(
            self.lambda_rule,
            self.growth_rule(leaves),
            self.bins,
            self.splits == "random",
            self.batch,
            self.rank_propensities(k) if logged else None,
            self.exploration,
            self.least_lists,
            self.quantile_releases,
        )

    def check_list(self, k: int) -> None:
        self.rank_propensities(k)

    def updates(self, work: Work, rows: Doubles) -> None:
        raise not_by_updates()


def not_by_updates() -> BadInput:
    """Return the error of engines that play rounds of updates."""
    sentence = (
        "lambdamart grows trees from histograms, which rounds of updates do not carry; play it with `quorank run` in one "
        'process, or use learner.kind = "pdgd"'
    )
    return BadInput("lambdamart.no-updates", sentence, "learner")


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
    play(_log_loop, work, LogRule(Dial(temperature, 0, 1.0), interactions, shown, clicked), rows)
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


_log_loop = client_loop(show_by_dial, _record)
