"""Learning from lists that an older ranker has shown.

People do not search on the round's clock: when a task comes, its update is made of lists that earlier rankers drew. The
weight ρ of a pair (FPDGD eq. 6) makes up for the position bias of the distribution that the list was drawn from, so it is
that of the ranker which showed it; the gradient (the rest of eq. 5) is taken at the ranker that learns. Taking both where
the list was shown is a delayed gradient, which oversteps: `docs/devices.md` has the measurement.

Where the ranker that learns is the one that showed the list, all is as in `OnlineRanker`, to the bit.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from quorank.arrays import Booleans, Doubles, Floats, Integers
from quorank.compiled import kernel
from quorank.errors import require
from quorank.learning import OnlineRanker, Shown
from quorank.learning.pair_weights import last_included, pair_slope, pair_weight
from quorank.learning.pdgd import keep_within
from quorank.learning.plackett_luce import log_denominators
from quorank.rankers.scoring import add_gradients, score_rows


@kernel
def late_coefficients(
    then: Floats, now: Floats, shown: Integers, clicked: Booleans, k: int, coefficients: Doubles
) -> bool:
    """coefficients[p] = Σ ± ρ·slope over the pairs of position p: ρ by the scores `then`, the slope by those of `now`.

    For positions a < b that hold x and y, P(R)/P(R*) = Π_{i=a+1..b} (D_i + x − y)/D_i, with D_i what is left at i.
    """
    last = last_included(clicked, k)
    coefficients[:k] = 0.0
    found = False
    logarithms = np.empty(k + 1)
    log_denominators(then, len(then), shown, k, logarithms)
    for b in range(1, last + 1):
        for a in range(b):
            if clicked[a] == clicked[b]:
                continue
            found = True
            odds = 1.0
            for i in range(a + 1, b + 1):
                x = math.exp(min(np.float64(then[shown[a]]) - logarithms[i], 700.0))
                y = math.exp(min(np.float64(then[shown[b]]) - logarithms[i], 700.0))
                odds *= max(1.0 + x - y, x)
            ratio = math.exp(-abs(np.float64(now[shown[a]]) - np.float64(now[shown[b]])))
            weight = pair_weight(odds, 1.0) * pair_slope(ratio)
            sign = 1.0 if clicked[a] else -1.0
            coefficients[a] += sign * weight
            coefficients[b] -= sign * weight
    return found


class LateRanker(OnlineRanker):
    """An `OnlineRanker` that also learns from lists which other rankers have shown."""

    def learn(self, shown: Shown, clicks: npt.ArrayLike) -> bool:
        """Follow the gradient of one clicked list; False if the clicks express no preference."""
        if np.array_equal(shown.packed_parameters, self._packed):
            return super().learn(shown, clicks)
        given, k = np.asarray(clicks), len(shown.order)
        require(given.shape == (k,), "clicks.shape", f"expected {k} clicks, one per shown document, got {given.shape}")
        require(np.isin(given, (0, 1)).all(), "clicks.values", "clicks must be true or false, or 1 or 0")
        clicked, coefficients = given.astype(np.bool_), np.empty(k)
        now = np.empty(len(shown.padded_features), dtype=np.float32)
        score_rows(self._packed, self.ranker.layer, shown.padded_features, 0, len(now), now, self._activation)
        pull = self.learner.eta * self.learner.proximal
        if pull > 0.0:
            self._local -= pull * (self._local - self.theta)
        learned = bool(late_coefficients(shown.scores, now, shown.order, clicked, k, coefficients))
        if learned:
            coefficients *= self.learner.eta
            add_gradients(
                self._local, self._packed, self.ranker.layer, self.n_features, shown.padded_features, 0, shown.order,
                coefficients, k, self._activation,
            )  # fmt: skip
        if self.bound < math.inf:
            keep_within(self._local, self.bound)
        if self.learner.step == "interaction":
            self._pack()
        return learned
