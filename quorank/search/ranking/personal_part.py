"""Personal part of the ranker: what a person's own choices say, held to the ranker of all.

    minimise  Σ_choices w·(−log softmax(X·θ)_chosen)  +  λ/2·‖θ − θ_shared‖²

over the newest choices, those for the same query counting as one, X being the features of the documents that were
shown in the same band. A choice at rank r weighs w = 1/max(p_r, clip), p_r = (1/r)^power: a document that few people
look at and that was chosen all the same says more (Joachims et al. 2017, "Unbiased learning-to-rank with biased
feedback"). No list is shuffled for it. The minimum is found by Newton's method from the choices themselves, so a
choice that is forgotten leaves no trace in it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from quorank.errors import require_range
from quorank.kernels.arrays import Booleans, Doubles, Floats

STEPS = 20
ENOUGH = 1e-7
"""Largest gradient at which the minimum is found."""


@dataclass(frozen=True, eq=False)
class ChosenList:
    """One choice: the documents of its band as they were shown, best first."""

    features: Floats  # (documents, features)
    chosen: int  # row
    rank: int  # of the chosen document on the page, from 1
    query: str = ""  # choices for the same one count together as one


@dataclass(frozen=True)
class PersonalFit:
    """How far a person's choices move the ranker."""

    penalty: float = 40.0  # λ
    power: float = 0.5  # of p_r
    clip: float = 0.1  # a propensity below this counts as this much
    newest: int = 300  # choices that count

    def __post_init__(self) -> None:
        require_range("penalty", self.penalty, above=0.0)
        require_range("power", self.power, least=0.0, below=100.0)
        require_range("clip", self.clip, above=0.0, most=1.0)
        require_range("newest", self.newest, least=0, below=100_000)

    def weight(self, rank: int) -> float:
        """1/max(p_r, clip)."""
        return 1.0 / max(float((1.0 / rank) ** self.power), self.clip)

    def _weights(self, lists: list[ChosenList]) -> Doubles:
        """(lists,) the weight of each choice over the number of choices for its query."""
        repeats = Counter(one.query for one in lists)
        return np.array([self.weight(one.rank) / repeats[one.query] for one in lists])

    def fitted(self, shared: Doubles, lists: list[ChosenList]) -> Doubles:
        """Return θ for the choices, the newest last."""
        kept = [one for one in lists[-self.newest :] if len(one.features) > 1] if self.newest else []
        theta = np.array(shared, dtype=np.float64)
        if not kept:
            return theta
        longest, n = max(len(one.features) for one in kept), len(theta)
        x, there = np.zeros((len(kept), longest, n)), np.zeros((len(kept), longest), dtype=np.bool_)
        for row, one in enumerate(kept):
            x[row, : len(one.features)], there[row, : len(one.features)] = one.features, True
        chosen = x[np.arange(len(kept)), [one.chosen for one in kept]]
        weights = self._weights(kept)
        value = self._value(theta, shared, x, there, chosen, weights)
        for _ in range(STEPS):
            p = _softmax(x @ theta, there)
            mean = np.einsum("ld,ldn->ln", p, x)
            gradient = weights @ (mean - chosen) + self.penalty * (theta - shared)
            if np.abs(gradient).max() < ENOUGH:
                break
            spread = np.einsum("ld,ldn,ldm->nm", p * weights[:, None], x, x) - (mean * weights[:, None]).T @ mean
            step = np.linalg.solve(spread + self.penalty * np.eye(n), gradient)
            length = 1.0
            while length > ENOUGH:
                tried = theta - length * step
                found = self._value(tried, shared, x, there, chosen, weights)
                if found <= value:
                    theta, value = tried, found
                    break
                length /= 2.0
        return theta

    def _value(
        self, theta: Doubles, shared: Doubles, x: Doubles, there: Booleans, chosen: Doubles, weights: Doubles
    ) -> float:
        scores = np.where(there, x @ theta, -np.inf)
        top = scores.max(axis=1)
        loss = top + np.log(np.exp(scores - top[:, None]).sum(axis=1)) - chosen @ theta
        away = theta - shared
        return float(weights @ loss + 0.5 * self.penalty * (away @ away))


def _softmax(scores: Doubles, there: Booleans) -> Doubles:
    exact = np.where(there, scores, -np.inf)
    mass = np.exp(exact - exact.max(axis=1, keepdims=True))
    return np.asarray(mass / mass.sum(axis=1, keepdims=True))


@dataclass(frozen=True)
class RankerTrial:
    """Trial of a ranker that came from the service on the person's own past choices."""

    lists: int
    difference: float  # mean of 1/log2(1 + rank of what was chosen), of the new ranker minus the present one
    error: float  # standard error of it
    taken: bool


LEAST = 8
"""Choices below which every ranker is taken."""


def try_ranker(present: Doubles, new: Doubles, lists: list[ChosenList], fit: PersonalFit) -> RankerTrial:
    """Hold two rankers against the choices: the new one is taken unless it is worse by more than a standard error."""
    kept = [one for one in lists[-fit.newest :] if len(one.features) > 1]
    if len(kept) < LEAST:
        return RankerTrial(len(kept), 0.0, 0.0, bool(np.isfinite(new).all()))
    gains = np.array([_gain(new, one) - _gain(present, one) for one in kept])
    weights = np.array([fit.weight(one.rank) for one in kept])
    mean = float(weights @ gains / weights.sum())
    error = float(np.sqrt(weights**2 @ (gains - mean) ** 2) / weights.sum())
    return RankerTrial(len(kept), mean, error, bool(np.isfinite(new).all()) and mean >= -error)


def _gain(theta: Doubles, one: ChosenList) -> float:
    """1/log2(1 + rank of the chosen document); of equal scores the order of the page."""
    scores = one.features @ theta
    above = int((scores > scores[one.chosen]).sum()) + int((scores[: one.chosen] == scores[one.chosen]).sum())
    return float(1.0 / np.log2(2.0 + above))
