"""Spectral filtering with a memory that does not lag.

The filter: malicious updates that move the mean together add variance along the direction in which they move it. So the
updates farthest out along the direction of the largest variance are removed, and this again with those that remain
(Diakonikolas et al. 2017, "Being robust (in high dimensions) can be practical"; with a given number to remove, as in
the divide-and-conquer of Shejwalkar and Houmansadr 2021, "Manipulating the Byzantine", algorithm 2, without its sampling of
coordinates). A rule of distances lets malicious clients move the mean by √d times the spread along a direction, this one by
a few times the spread.

The memory: single rounds say little, so clients are judged by many (Karimireddy, He and Jaggi 2021, "Learning from history
for Byzantine robust optimization"). Steps along an exponential mean of each client's updates, as published, lag by the
length of the memory. Here the filter R sees decaying sums S_i ← β·S_i + u_i, and the step is R(S at t) − β·R(S at t − 1):
if R were the mean, exactly the mean of this round's updates, for any β. A removed client is removed with its past.

The yardstick: where honest sums differ little, a small shift is suspicious. So the filter measures in units of the
covariance of single rounds' updates, a running mean over the clients that the filter leaves in each round. A steady drift
hardly shows in it, and becomes visible in S.

The last rounds: an attacker that moves its sums at once moves R(S) as far as one that drifted there, and nothing is left
to judge it by. Publish a mean of rankers in which round t counts t^γ (`add` with `average`): the last J of T rounds then
move what is published by 1 − (1 − J/T)^(γ + 1) of what they move θ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quorank.errors import require_range
from quorank.federation.rules.centres import coordinate_median, distances_to
from quorank.federation.rules.neighbours import distances
from quorank.federation.rules.rule import RobustRule, RuleMemory, content_rows
from quorank.kernels.arrays import Doubles, Integers

PASSES, POWER_STEPS = 5, 8  # directions that are searched for outliers in turn, and steps of the power method for each
MOST_PARAMETERS = 1024  # largest ranker with a yardstick: a covariance of more would not fit

RENEWED, RIDGE = 0.02, 3e-4
"""Least share of the covariance that a round renews; share of the total variance added along every direction."""


@dataclass(frozen=True)
class SpectralFilter(RobustRule):
    """Mean of the n − m updates that five passes along directions of large variance leave (Diakonikolas et al. 2017).

    Args:
        byzantine: Tolerated number of malicious clients m, at least 0 and fewer than half of a cohort.
        history: Decay β in [0, 1) of the sums S_i by which clients are judged; above 0 needs full participation.

    Raises:
        BadInput: `value.out-of-range` if a field is outside its range.

    >>> updates = np.array([[0.0, 1.0], [0.1, -1.0], [-0.1, 0.0], [9.0, 9.0]])
    >>> SpectralFilter(byzantine=1).combine_all(updates, np.ones(4))
    array([0., 0.])
    """

    kind: ClassVar[str] = "spectral-filter"
    compares_pairs: ClassVar[bool] = True
    keeps_pace: ClassVar[bool] = True

    history: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_range("history", self.history, least=0.0, below=1.0)

    def combine_rows(self, rows: Doubles) -> Doubles:
        """Return the mean of the remaining updates, without a yardstick."""
        return self._filter(rows, None)

    def combine_remembering(self, updates: Doubles, weights: Doubles, memory: RuleMemory) -> Doubles:
        """Return the mean of the remaining updates, measured by the remembered yardstick."""
        rows = content_rows(self.kind, updates, weights)
        self.check(len(rows))
        return self._filter(rows, memory.get("yardstick"))

    def remember(self, memory: RuleMemory, updates: Doubles, weights: Doubles) -> RuleMemory:
        """Return the covariance with this round's updates; empty for a rule without history."""
        if self.history == 0.0 or updates.shape[1] > MOST_PARAMETERS:
            return {}
        rows = content_rows(self.kind, updates, weights)
        before = memory.get("covariance")
        count = float(memory["count"][0]) + 1.0 if before is not None else 1.0
        left = rows[remaining_rows(scale_rows(rows, memory.get("yardstick")), self.byzantine)]
        centred = left - left.mean(axis=0)
        now = centred.T @ centred / len(left)
        share = max(1.0 / count, RENEWED)
        covariance = now if before is None else (1.0 - share) * before + share * now
        return {"covariance": covariance, "yardstick": yardstick(covariance), "count": np.array([count])}

    def _filter(self, rows: Doubles, unit: Doubles | None) -> Doubles:
        if self.byzantine == 0:
            return np.asarray(rows.mean(axis=0), dtype=np.float64)
        left = remaining_rows(scale_rows(rows, unit), self.byzantine)
        return np.asarray(clip_outliers(rows, self.byzantine)[left].mean(axis=0), dtype=np.float64)


def yardstick(covariance: Doubles) -> Doubles:
    """Return L⁻¹ for covariance + ridge = L·Lᵀ, which scales differences to standard deviations."""
    total, one = float(np.trace(covariance)), np.eye(len(covariance))
    return np.asarray(np.linalg.inv(np.linalg.cholesky(covariance + RIDGE * total * one)) if total > 0.0 else one)


def scale_rows(rows: Doubles, unit: Doubles | None) -> Doubles:
    """Return the rows in units of a yardstick, unchanged without one."""
    return rows if unit is None else np.ascontiguousarray(rows @ unit.T)


def clip_outliers(rows: Doubles, byzantine: int) -> Doubles:
    """Clip the m farthest updates to the distance of the nearest n − m from their coordinate-wise median.

    As adaptive robust clipping does around zero (Allouah et al. 2024, "Adaptive gradient clipping for robust federated
    learning"), which prevents overflows. An infinitely far update becomes the median.
    """
    centre = coordinate_median(rows)
    away = distances_to(rows, centre)
    radius = np.sort(away)[len(rows) - byzantine - 1]
    far = away > radius
    share = np.divide(radius, away, out=np.ones(len(rows)), where=far)
    pulled = np.array(rows)
    pulled[far] = centre + share[far, None] * (rows[far] - centre)
    return pulled


def remaining_rows(rows: Doubles, byzantine: int) -> Integers:
    """Return the n − m rows that remain after `PASSES` passes, each of which removes about m / PASSES of them."""
    products = -0.5 * distances(clip_outliers(rows, byzantine)) ** 2  # ⟨x_i, x_j⟩ up to terms that centring removes
    left = np.arange(len(rows))
    for number in range(PASSES):
        take = (number + 1) * byzantine // PASSES - (len(rows) - len(left))
        if take > 0:
            out = outlyingness(products[np.ix_(left, left)])
            left = np.sort(left[np.argsort(out, kind="stable")[: len(left) - take]])
    return left


def outlyingness(products: Doubles) -> Doubles:
    """Return the distance of each row's projection on the direction of the largest variance from the median.

    Only the (n, n) products ⟨x_i, x_j⟩ are needed, up to terms that centring removes: with C = J·products·J the direction
    is Σ v_i·(x_i − mean) for the first eigenvector v of C, and C·v are the projections on it.
    """
    means = products.mean(axis=1)
    centred = products - means[:, None] - means[None, :] + means.mean()
    vector = centred[np.argmax(np.diag(centred))]
    for _ in range(POWER_STEPS):
        length = np.sqrt(np.sum(vector * vector))
        if not length > 0.0:
            break
        vector = np.einsum("ij,j->i", centred, vector / length)
    return np.asarray(np.abs(vector - np.median(vector)), dtype=np.float64)
