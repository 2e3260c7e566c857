"""Online ranker of one real client: it ranks its own documents and learns from its own user's clicks.

The same compiled functions as the simulator's cohort kernel, with the same addressed draws: given the same lists and
clicks, the update has the same bits.

`ClickGuard` accepts a new ranker unless the client's own clicks contradict it, after RankGuard (arXiv 2606.12246).
A malicious server, or a cohort that poisoned the ranker, cannot change what a client's own user clicked. Every
clicked list prefers documents to others (the pairs of PDGD), and each pair weighs ρ (FPDGD eq. 6), which makes up for the
positions at which the ranker that drew the list had put the two. A ranker agrees with a pair by tanh of the difference of
the two scores, in standard deviations of the scores shown, so that its scale does not matter. A list's evidence is the mean
over its pairs, weighted by ρ, of the new ranker's agreement minus that of the ranker which showed the list: between −2 and
2, and 0 for rankers that are alike. As older lists were shown by older rankers, one that is led astray step by step is held
against what there was before. The new one is refused if the evidence is negative beyond chance: mean + t·s/√n < −margin
over n lists, with t of a one-sided test at `error`. Rankers that differ little are within the margin and always taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from quorank.data.ranking import pad
from quorank.errors import require, require_range
from quorank.kernels.arrays import Booleans, Doubles, Floats, Integers
from quorank.kernels.draws import Address, Purpose, key_of
from quorank.learning.client_loop import Impression, Layout, keep_within
from quorank.learning.exploration import IN_BLOCKS, draw_list
from quorank.learning.pdgd import PDGD, ListLearner, last_included, learn_list, prepare_odds, swap_odds
from quorank.learning.plackett_luce import buffers_for
from quorank.rankers import Ranker
from quorank.rankers.scoring import pack, packed_size, score_rows, width_of


@dataclass(frozen=True, eq=False)
class Shown:
    """List as it was shown to a user; `OnlineRanker.rank` and `member.Client.rank` return it.

    Args:
        order: (k,) row numbers of the features, best first.
        interaction: Number of the interaction in its round, from 0.

    >>> from quorank.rankers import Linear
    >>> shown = OnlineRanker([1.0, 0.0], n_features=2, ranker=Linear()).rank([[0.1, 0.9], [0.8, 0.2]])
    >>> sorted(shown.order.tolist()), shown.interaction
    ([0, 1], 0)
    """

    order: Integers
    interaction: int
    padded_features: Floats = field(repr=False)  # (documents, stride): rows padded with zeros
    packed_parameters: Floats = field(repr=False)  # θ at the time, as `rankers.scoring` packs it
    scores: Floats = field(repr=False)  # of all documents, f/τ: what the list was drawn from
    weights: Doubles = field(repr=False)  # of the shown documents (`sample_list`), or their blocks (`draw_list`)
    rest: float = field(repr=False)  # weight left behind; −1 where the weights were rescaled, less for lists in blocks


@dataclass(eq=False)
class OnlineRanker:
    """Learner of one client, interaction by interaction: `rank` a query's candidates, show them, `learn` from the clicks.

    It begins at the parameters θ of the round; after B interactions, `update` holds the client's update.

    Args:
        theta: (size,) θ of the round.
        n_features: Number of features.
        ranker: Scoring function.
        learner: Learning algorithm.
        seed: Seed of the draws of lists.
        client: Number of the client.
        round: Round, from 0.
        k: Number of shown documents.
        bound: Bound on the L2 norm of the parameters after each step (FPDGD eq. 13).

    Raises:
        BadInput: θ has another size or is not finite, or k is below 1.

    >>> from quorank.rankers import Linear
    >>> client = OnlineRanker([0.0, 0.0], n_features=2, ranker=Linear(), learner=PDGD(eta=0.1))
    >>> shown = client.rank([[0.1, 0.9], [0.8, 0.2]])
    >>> client.learn(shown, clicks=shown.order == 1)  # the second document is clicked, and preferred from now on
    True
    >>> bool(client.update[0] > 0 > client.update[1])
    True
    """

    theta: Doubles
    n_features: int
    ranker: Ranker
    learner: ListLearner = field(default_factory=PDGD)
    seed: int = 1
    client: int = 0
    round: int = 0
    k: int = 10
    bound: float = math.inf
    interactions: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.theta = np.array(self.theta, dtype=np.float64)
        self.ranker.check_size(self.theta, self.n_features)
        require(np.isfinite(self.theta).all(), "ranker.not-finite", "the parameters must be finite numbers")
        require_range("k", self.k, least=1)
        self._local = self.theta.copy()
        self._inputs = self.ranker.inputs(self.n_features)
        self._stride = pad(np.zeros((1, self._inputs), dtype=np.float32)).shape[1]
        self._packed = np.zeros(packed_size(self.ranker.layer, self._stride), dtype=np.float32)
        self._activation = np.zeros(width_of(self.ranker.layer), dtype=np.float32)
        self._key = key_of(self.seed, Purpose.RANKING)
        self._rule = self.learner.rule(self.k)
        self._pack()

    def rank(self, features: npt.ArrayLike) -> Shown:
        """Draw the list to show.

        Args:
            features: (documents, n_features) features of the candidates.
        """
        with np.errstate(over="ignore"):  # what is too large is refused below
            dense = np.asarray(features, dtype=np.float32)
        fits = dense.ndim == 2 and dense.shape[1] == self.n_features and len(dense) > 0
        wrong = f"expected features of shape (documents, {self.n_features}), got {dense.shape}"
        require(fits, "features.shape", wrong)
        require(np.isfinite(dense).all(), "features.not-finite", "features must be finite numbers")
        padded, n = pad(self.ranker.transform(dense)), len(dense)
        k = min(self.k, n)
        scores = np.empty(n, dtype=np.float32)
        score_rows(self._packed, self.ranker.layer, padded, 0, n, scores, self._activation)
        buffers = buffers_for(n, len(self._activation), padded, k)
        dial, address = self._rule.dial, Address(self.interactions, self.client, self.round)
        rest = draw_list(dial, scores, n, k, self._key, address, buffers)
        order, weights = buffers.shown[:k].copy(), buffers.shown_weights[:k].copy()
        scores = buffers.tempered
        shown = Shown(order, self.interactions, padded, self._packed.copy(), scores, weights, rest)
        self.interactions += 1
        return shown

    def present(self, features: npt.ArrayLike) -> Shown:
        """Register a list that the application has ordered; only for learners that correct clicks by rank alone.

        Args:
            features: (documents, n_features) features of the first k documents, best first.

        Raises:
            BadInput: `list.not-drawn` for other learners, whose corrections depend on how a list was drawn.
        """
        sentence = f"{self.learner.kind} learns from lists that it drew itself; counterfactual learns from any"
        require(self.learner.takes_any_list, "list.not-drawn", sentence, "learner")
        shown = self.rank(features)
        order = np.arange(len(shown.order), dtype=np.int64)
        return replace(shown, order=order, weights=order.astype(np.float64), rest=IN_BLOCKS)

    def learn(self, shown: Shown, clicks: npt.ArrayLike) -> bool:
        """Follow the gradient of one clicked list; False if its clicks express no preference.

        The list may have been shown by an older ranker. The weight ρ of a pair (FPDGD eq. 6) corrects the position bias of
        the distribution that the list was drawn from, so it is taken from the ranker that showed it; the slope and the
        gradient (the rest of eq. 5) are taken at the ranker that learns. Taking both where the list was shown would be a
        delayed gradient, which oversteps (`docs/devices.md`).
        """
        values, k = np.asarray(clicks), len(shown.order)
        require(
            values.shape == (k,), "clicks.shape", f"expected {k} clicks, one per shown document, got {values.shape}"
        )
        require(np.isin(values, (0, 1)).all(), "clicks.not-boolean", "clicks must be true or false, or 1 or 0")
        n = len(shown.padded_features)
        buffers = buffers_for(n, len(self._activation), shown.padded_features, k)
        buffers.shown[:k], buffers.shown_weights[:k] = shown.order, shown.weights
        buffers.clicked[:k], buffers.tempered[:] = values, shown.scores
        rule, now = self._rule, shown.scores
        if not rule.free or not np.array_equal(shown.packed_parameters, self._packed):
            now = np.empty(n, dtype=np.float32)
            score_rows(self._packed, self.ranker.layer, shown.padded_features, 0, n, now, self._activation)
            rule = rule._replace(free=False)
        pull = self.learner.eta * self.learner.proximal
        if pull > 0.0:  # taken at the same θ as the gradient
            self._local -= pull * (self._local - self.theta)
        layout = Layout(shown.padded_features, self._inputs, self.ranker.layer)
        address = Address(shown.interaction, self.client, self.round)
        impression = Impression(0, address, 0, n, k, now, self._packed)
        learned = learn_list(rule, layout, impression, shown.rest, self._local, buffers)
        moved = learned or pull > 0.0
        if self.bound < math.inf:
            moved |= keep_within(self._local, self.bound)
        if moved and self.learner.step == "interaction":
            self._pack()
        return bool(learned)

    @property
    def parameters(self) -> Doubles:
        """θ after what was learned so far."""
        return self._local.copy()

    @property
    def update(self) -> Doubles:
        """Update of the round: θ after learning minus θ of the round."""
        return self._local - self.theta

    def _pack(self) -> None:
        pack(self._local, self.ranker.layer, self._inputs, self._stride, self._packed)


class GuardVerdict(NamedTuple):
    """Decision on a new ranker, with its evidence."""

    accepted: bool
    lists: int  # whose clicks express a preference
    evidence: float  # mean over them; below 0 the rankers that showed the lists fit better
    bound: float  # the most that the evidence may be by chance; refused if it is below −margin


@dataclass(frozen=True)
class ClickGuard:
    """Compares a new ranker with those that showed a client's own lists, by what was clicked on them."""

    error: float = 0.05  # how often a ranker is refused whose evidence is −margin in truth
    margin: float = 0.02  # agreement that a new ranker may lose
    least: int = 8  # lists that say anything, below which every ranker is taken

    def __post_init__(self) -> None:
        require_range("error", self.error, above=0.0, below=0.5)
        require_range("margin", self.margin, least=0.0)
        require_range("least", self.least, least=2)

    def judge(self, ranker: Ranker, new: Doubles, interactions: Iterable[tuple[Shown, Booleans]]) -> GuardVerdict:
        """Judge parameters `new` (d,) by lists as they were shown, and what was clicked on each."""
        if not np.isfinite(new).all():
            return GuardVerdict(False, 0, -math.inf, -math.inf)
        return self.decide([list_evidence(ranker, new, shown, clicks) for shown, clicks in interactions])

    def decide(self, found: Sequence[float | None]) -> GuardVerdict:
        """Accept or refuse by the evidence of single lists, of which those that say nothing are None."""
        from scipy.special import stdtrit

        evidence = np.array([value for value in found if value is not None])
        n = len(evidence)
        if n < self.least:
            return GuardVerdict(True, n, float(evidence.mean()) if n else 0.0, math.inf)
        mean, deviation = float(evidence.mean()), float(evidence.std(ddof=1))
        bound = mean + float(stdtrit(n - 1, 1.0 - self.error)) * deviation / math.sqrt(n)
        return GuardVerdict(not bound < -self.margin, n, mean, bound)


def list_evidence(ranker: Ranker, new: Doubles, shown: Shown, clicks: Booleans) -> float | None:
    """Σ ρ·(agreement of new − agreement of what showed the list) / Σ ρ over its pairs; None if its clicks express none."""
    better, worse, rho = weighted_pairs(shown, np.asarray(clicks).astype(np.bool_))
    if len(better) == 0 or not rho.sum() > 0.0:
        return None
    then = shown.scores[shown.order].astype(np.float64)
    gain = agreement(_scores(ranker, new, shown), better, worse) - agreement(then, better, worse)
    return float(rho @ gain / rho.sum())


def agreement(scores: Doubles, better: Integers, worse: Integers) -> Doubles:
    """tanh((f(preferred) − f(other)) / s) of every pair, s being the deviation of the scores shown; 0 for s = 0."""
    spread = float(scores.std())
    margins = scores[better] - scores[worse]
    return np.asarray(np.tanh(margins / spread) if spread > 0.0 else np.zeros(len(margins)), dtype=np.float64)


def weighted_pairs(shown: Shown, clicked: Booleans) -> tuple[Integers, Integers, Doubles]:
    """(preferred, other, ρ): the pairs of positions that a clicked list expresses, as in PDGD, and their weights."""
    n, k, last = len(shown.scores), len(clicked), int(last_included(clicked, len(clicked)))
    buffers = buffers_for(n, 0, shown.padded_features, k)
    buffers.shown[:k], buffers.shown_weights[:k] = shown.order, shown.weights
    prepare_odds(shown.scores, n, k, shown.rest, last, buffers)
    first, second = np.triu_indices(last + 1, 1)
    pairs = clicked[first] != clicked[second]
    if shown.rest <= IN_BLOCKS:
        pairs &= shown.weights[first] == shown.weights[second]
    first, second = first[pairs], second[pairs]
    odds = [swap_odds(shown.scores, int(a), int(b), shown.rest, buffers) for a, b in zip(first, second, strict=True)]
    rho, above = 1.0 / (1.0 + np.array(odds, dtype=np.float64)), clicked[first]
    return np.where(above, first, second), np.where(above, second, first), rho


def _scores(ranker: Ranker, theta: Doubles, shown: Shown) -> Doubles:
    """Return the scores of the shown documents, in their order."""
    padded = shown.padded_features
    inputs = theta.size if ranker.hidden == 0 else theta.size // ranker.hidden - 2
    packed = np.zeros(packed_size(ranker.layer, padded.shape[1]), dtype=np.float32)
    pack(np.ascontiguousarray(theta, dtype=np.float64), ranker.layer, inputs, padded.shape[1], packed)
    activation, out = np.zeros(width_of(ranker.layer), dtype=np.float32), np.empty(len(padded), dtype=np.float32)
    score_rows(packed, ranker.layer, padded, 0, len(padded), out, activation)
    return out[shown.order].astype(np.float64)
