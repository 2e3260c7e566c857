"""Pointwise learning from judged pairs: a linear score is fitted to the label of every (query, document) by itself.

This is the simple linear model of CS-F-LTR §VI.A ("a simple linear classification for training a point-wise ranking
model"), fitted by stochastic gradient descent on the empirical risk of its eq. 1. Labels are divided by the highest
grade, so that 0 is irrelevant and 1 is as relevant as can be; the last parameter is the intercept, which no ranking
depends on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from quorank.data.ranking import RankingData
from quorank.errors import require, require_range
from quorank.kernels.arrays import Doubles, Floats, Int8s, Uint64s
from quorank.kernels.compiled import kernel
from quorank.kernels.draws import Purpose, key_of, uniform_pair


@kernel
def squared_slope(score: float, target: float) -> float:
    """d/ds of (s − y)² / 2."""
    return score - target


@kernel
def logistic_slope(score: float, target: float) -> float:
    """d/ds of −y·log σ(s) − (1 − y)·log(1 − σ(s)): σ(s) − y, for a y anywhere in [0, 1]."""
    if score >= 0.0:
        return 1.0 / (1.0 + math.exp(-score)) - target
    grown = math.exp(score)
    return grown / (1.0 + grown) - target


def cumulated(weights: npt.ArrayLike) -> Doubles:
    """(rows,) running shares of the instances' weights, by which they are drawn; only proportions matter."""
    weight = np.asarray(weights, dtype=np.float64)
    fits = np.all(np.isfinite(weight)) and np.all(weight >= 0.0) and (len(weight) == 0 or weight.sum() > 0.0)
    require(fits, "pointwise.bad-weight", "weights must be finite numbers, none below 0 and not all 0")
    return np.cumsum(weight / weight.sum()) if len(weight) else weight


@dataclass(frozen=True)
class Pointwise:
    """θ ← θ − η·(mean gradient of a batch + λ·θ); η falls in a straight line to 0 at the last step."""

    kind: ClassVar[str] = "pointwise"

    loss: Literal["squared", "logistic"] = "squared"  # L, eq. 1
    eta: float = 0.3  # η at the first step
    batch: int = 32  # instances of a step, drawn with replacement in proportion to their weights
    decay: float = 1e-4  # λ, not on the intercept

    def __post_init__(self) -> None:
        require_range("eta", self.eta, above=0.0)
        require_range("batch", self.batch, least=1, below=2**31)
        require_range("decay", self.decay, least=0.0, most=1.0 / self.eta)

    def initial(self, n_features: int) -> Doubles:
        """The weights and, behind them, the intercept: all zero."""
        return np.zeros(n_features + 1)

    def steps(
        self,
        theta: Doubles,
        data: RankingData,
        shares: Doubles,
        count: int,
        *,
        highest: int,
        progress: tuple[float, float] = (0.0, 0.0),
        seed: int = 1,
        client: int = 0,
        round_: int = 0,
    ) -> Doubles:
        """θ after `count` steps on these instances; the θ given is left as it is.

        shares: (rows,) of `cumulated`, how much each instance counts. `progress` says which part of all training
        these steps are, from 0 to 1: it sets η. The draws are addressed by the client and the round.
        """
        require(data.n_rows > 0, "pointwise.no-instance", "there is no instance to learn from")
        size = data.n_features + 1
        require(np.shape(theta) == (size,), "ranker.wrong-size", f"expected {size} parameters")
        require(np.shape(shares) == (data.n_rows,), "pointwise.shape", "there must be one share per instance")
        require_range("highest", highest, least=1)
        out = np.array(theta, dtype=np.float64)
        begin, end = progress
        plan = _StepPlan(
            self.loss == "logistic", self.eta * (1.0 - begin), self.eta * (1.0 - end), self.decay, self.batch, count,
            1.0 / highest, _key(seed), client, round_,
        )  # fmt: skip
        _steps(plan, out, data.padded, data.labels, shares)
        return out

    def risk(self, theta: Doubles, data: RankingData, weights: Doubles, *, highest: int) -> float:
        """Eq. 1: the weighted mean of the loss over these instances, without λ."""
        target = data.labels / highest
        score = data.features.astype(np.float64) @ theta[:-1] + theta[-1]
        if self.loss == "squared":
            losses = (score - target) ** 2 / 2
        else:
            losses = np.logaddexp(0.0, score) - target * score
        return float(np.sum(weights * losses) / np.sum(weights))


@lru_cache(maxsize=16)
def _key(seed: int) -> Uint64s:
    return key_of(seed, Purpose.INSTANCES)


class _StepPlan(NamedTuple):
    """Settings of some steps, and the address of their draws."""

    logistic: bool
    eta_first: float
    eta_last: float
    decay: float
    batch: int
    steps: int
    scale: float  # 1 / highest grade
    key: Uint64s
    client: int
    round: int


@kernel
def _steps(plan: _StepPlan, theta: Doubles, padded: Floats, labels: Int8s, cumulative: Doubles) -> None:
    n_features, batch = len(theta) - 1, plan.batch
    gradient = np.empty(n_features + 1)
    rows = len(labels)
    second = 0.0
    for step in range(plan.steps):
        eta = plan.eta_first + (plan.eta_last - plan.eta_first) * step / plan.steps
        gradient[:] = 0.0
        for i in range(batch):
            if i % 2 == 0:
                draw, second = uniform_pair(plan.key, i >> 1, step, plan.client, plan.round)
            else:
                draw = second
            row = min(np.searchsorted(cumulative, draw, side="right"), rows - 1)
            score = theta[n_features]
            for f in range(n_features):
                score += theta[f] * padded[row, f]
            target = labels[row] * plan.scale
            slope = logistic_slope(score, target) if plan.logistic else squared_slope(score, target)
            slope /= batch
            for f in range(n_features):
                gradient[f] += slope * padded[row, f]
            gradient[n_features] += slope
        for f in range(n_features):
            theta[f] -= eta * (gradient[f] + plan.decay * theta[f])
        theta[n_features] -= eta * gradient[n_features]
