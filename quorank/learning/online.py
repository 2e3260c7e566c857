"""Online ranker of one real client: it ranks its own documents and learns from its own user's clicks.

The same compiled functions as the simulator's cohort kernel, with the same addressed draws: given the same lists and
clicks, the update has the same bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from quorank.data.ranking import pad
from quorank.errors import require, require_range
from quorank.kernels.arrays import Doubles, Floats, Integers
from quorank.kernels.draws import Address, Purpose, key_of
from quorank.learning.client_loop import Impression, Layout, keep_within
from quorank.learning.exploration import IN_BLOCKS, draw_list
from quorank.learning.pdgd import PDGD, ListLearner, learn_list
from quorank.learning.plackett_luce import buffers_for
from quorank.rankers import Ranker
from quorank.rankers.scoring import pack, packed_size, score_rows, width_of


@dataclass(frozen=True, eq=False)
class Shown:
    """A list as it was shown: `order` holds the row numbers of the features, best first."""

    order: Integers
    interaction: int
    padded_features: Floats = field(repr=False)  # (documents, stride): rows padded with zeros
    packed_parameters: Floats = field(repr=False)  # θ at the time, as `rankers.scoring` packs it
    scores: Floats = field(repr=False)  # of all documents, f/τ: what the list was drawn from
    weights: Doubles = field(repr=False)  # of the shown documents (`sample_list`), or their blocks (`draw_list`)
    rest: float = field(repr=False)  # weight left behind; −1 where the weights were rescaled, less for lists in blocks


@dataclass(eq=False)
class OnlineRanker:
    """`rank` the candidates of a query, show them, then `learn` from what was clicked.

    It starts from the round's parameters θ; after B interactions `update` is what the client sends.
    """

    theta: Doubles  # θ of the round
    n_features: int
    ranker: Ranker
    learner: ListLearner = field(default_factory=PDGD)
    seed: int = 1
    client: int = 0
    round: int = 0
    k: int = 10  # documents shown
    bound: float = math.inf  # on the L2 norm of the parameters, after each step (FPDGD eq. 13)
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
        """Draw the list to show for the candidates' features (documents, n_features)."""
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
        """Take a list in an order of the application's own, features (documents, n_features) of the first k, best first.

        Only for learners that correct clicks by the ranks alone: for others it matters how a list was drawn.
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
        delayed gradient, which oversteps: `docs/devices.md` has the measurement.
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
