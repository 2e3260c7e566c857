"""Personal part of the ranker: a fit to a person's own choices, regularised towards the shared ranker.

    minimise  Σ_choices w·(−log softmax(X·θ)_chosen)  +  λ/2·‖θ − θ_shared‖²

over the newest choices, with choices for the same query counting as one; X are the features of the documents shown in
the same band. A choice at rank r weighs w = 1/max(p_r, clip), p_r = (1/r)^power: a choice at a rank that few people
look at carries more information (Joachims et al. 2017, "Unbiased learning-to-rank with biased feedback"). No list is
shuffled. The minimum is computed from the choices themselves, so a forgotten choice leaves no trace.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from quorank.kernels.arrays import Doubles, Floats

ENOUGH = 1e-7  # largest gradient at the minimum


@dataclass(frozen=True, eq=False)
class ChosenList:
    """Choice, with the documents of its band as shown, best first."""

    features: Floats  # (documents, features)
    chosen: int  # row
    rank: int  # of the chosen document on the page, from 1
    query: str = ""  # choices for the same query count together as one


@dataclass(frozen=True)
class PersonalFit:
    """Settings of the personal part.

    Args:
        penalty: λ, the strength of the pull towards the shared ranker.
        power: Exponent of the propensities p_r = (1/r)^power.
        clip: Lower bound on a propensity.
        newest: Number of newest choices that count.

    >>> PersonalFit(power=1.0, clip=0.2).weight(rank=2)
    2.0
    """

    penalty: float = 40.0
    power: float = 0.5
    clip: float = 0.1
    newest: int = 300

    def weight(self, rank: int) -> float:
        """Return w = 1/max(p_r, clip)."""
        return 1.0 / max(float((1.0 / rank) ** self.power), self.clip)

    def fitted(self, shared: Doubles, lists: list[ChosenList]) -> Doubles:
        """Return θ fitted to the choices, the newest last."""
        kept = [one for one in lists[-self.newest :] if len(one.features) > 1] if self.newest else []
        theta = np.array(shared, dtype=np.float64)
        if not kept:
            return theta
        longest, n = max(len(one.features) for one in kept), len(theta)
        x, mask = np.zeros((len(kept), longest, n)), np.zeros((len(kept), longest), dtype=np.bool_)
        for row, one in enumerate(kept):
            x[row, : len(one.features)], mask[row, : len(one.features)] = one.features, True
        chosen = x[np.arange(len(kept)), [one.chosen for one in kept]]
        repeats = Counter(one.query for one in kept)
        weights = np.array([self.weight(one.rank) / repeats[one.query] for one in kept])

        def loss(theta: Doubles) -> tuple[float, Doubles]:
            """Return the value of the objective and its gradient."""
            scores, away = np.where(mask, x @ theta, -np.inf), theta - shared
            mass = logsumexp(scores, axis=1)
            mean = np.einsum("ld,ldn->ln", np.exp(scores - mass[:, None]), x)
            value = weights @ (mass - chosen @ theta) + 0.5 * self.penalty * (away @ away)
            return float(value), weights @ (mean - chosen) + self.penalty * away

        from scipy.optimize import minimize  # takes 0.1 s to import, which a search without choices need not wait for

        return np.asarray(minimize(loss, theta, jac=True, options={"gtol": ENOUGH}).x)


class RankerTrial(NamedTuple):
    """Trial of a received ranker on the person's own past choices."""

    lists: int
    difference: float  # mean of 1/log2(1 + rank of the choice), new ranker minus present one
    error: float  # standard error of the difference
    taken: bool  # the ranker is used


LEAST = 8  # number of choices below which every ranker is accepted


def try_ranker(present: Doubles, new: Doubles, lists: list[ChosenList], fit: PersonalFit) -> RankerTrial:
    """Compare two rankers on the choices; the new one is accepted unless it is worse by more than a standard error."""
    kept = [one for one in lists[-fit.newest :] if len(one.features) > 1]
    if len(kept) < LEAST:
        return RankerTrial(len(kept), 0.0, 0.0, bool(np.isfinite(new).all()))
    gains = np.array([_gain(new, one) - _gain(present, one) for one in kept])
    weights = np.array([fit.weight(one.rank) for one in kept])
    mean = float(weights @ gains / weights.sum())
    error = float(np.sqrt(weights**2 @ (gains - mean) ** 2) / weights.sum())
    return RankerTrial(len(kept), mean, error, bool(np.isfinite(new).all()) and mean >= -error)


def _gain(theta: Doubles, one: ChosenList) -> float:
    """Return 1/log2(1 + rank of the chosen document); ties keep the order of the page."""
    scores = one.features @ theta
    above = int((scores > scores[one.chosen]).sum()) + int((scores[: one.chosen] == scores[one.chosen]).sum())
    return float(1.0 / np.log2(2.0 + above))
