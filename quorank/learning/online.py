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
from quorank.kernels.draws import Purpose, key_of
from quorank.learning.exploration import FREE, IN_BLOCKS, draw_list
from quorank.learning.exploring_clients import learn_drawn_list
from quorank.learning.list_learner import ListLearner
from quorank.learning.pdgd import PDGD, learn_list
from quorank.learning.plackett_luce import sample_list, scratch_for
from quorank.learning.simulation import keep_within
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
        self._rule, self._free = self.learner.rule(self.k), self.learner.pdgd_step is not None
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
        order, weights = np.zeros(k, dtype=np.int64), np.empty(k)
        address = self._key, self.interactions, self.client, self.round, scratch_for(n, padded)
        dial = self.learner.dial
        if dial == FREE:
            rest = sample_list(scores, n, k, *address, order, weights)
        else:
            ranking, drawn_from = np.zeros(k + dial.window, dtype=np.int64), np.empty(n, dtype=np.float32)
            rest = draw_list(dial, scores, n, k, *address, ranking, drawn_from, order, weights)
            scores = drawn_from
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
        """Follow the gradient of one clicked list; False if the clicks say nothing."""
        return self._follow(shown, clicks, shown.packed_parameters, fast=self._free)

    def _follow(self, shown: Shown, clicks: npt.ArrayLike, packed: Floats, *, fast: bool) -> bool:
        """Take one step with the gradient at `packed`; `fast` where PDGD drew the list freely from those parameters."""
        given, k = np.asarray(clicks), len(shown.order)
        require(given.shape == (k,), "clicks.shape", f"expected {k} clicks, one per shown document, got {given.shape}")
        require(np.isin(given, (0, 1)).all(), "clicks.not-boolean", "clicks must be true or false, or 1 or 0")
        clicked, coefficients, scratch = given.astype(np.bool_), np.empty(k), np.empty(k + 1)
        pull, n = self.learner.eta * self.learner.proximal, len(shown.padded_features)
        now = shown.scores
        if not fast:
            now = np.empty(n, dtype=np.float32)
            score_rows(packed, self.ranker.layer, shown.padded_features, 0, n, now, self._activation)
        if pull > 0.0:  # taken at the same θ as the gradient
            self._local -= pull * (self._local - self.theta)
        if fast:
            learned = learn_list(
                self._local, packed, self.ranker.layer, self._inputs, shown.padded_features, 0, n, now, shown.order,
                shown.weights, shown.rest, clicked, k, self.learner.eta, coefficients, scratch, np.empty(k + 1),
                self._activation,
            )  # fmt: skip
        else:
            learned = learn_drawn_list(
                self._local, packed, self.ranker.layer, self._inputs, shown.padded_features, 0, n, self._rule,
                shown.scores, now, shown.order, shown.weights, shown.rest, clicked, k, self.learner.eta, coefficients,
                scratch, np.empty(k + 1), self._activation,
            )  # fmt: skip
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
        """What the client sends at the end of its round: how far θ moved."""
        return self._local - self.theta

    def _pack(self) -> None:
        pack(self._local, self.ranker.layer, self._inputs, self._stride, self._packed)
