"""Linear ranker from a prior: the search that parties have, corrected by the labels of all of them.

Listwise softmax (Cao et al. 2007, "Learning to rank: from pairwise approach to listwise approach", top-one) with a
penalty towards the unlearned score w₀:

    minimise  Σ_lists −Σ_i y_i·log softmax(F·w)_i  +  λ/2·‖w − s·w₀‖²  over w and the scale s,

y_i = (2^label − 1) over its sum in the list. The scale s is free because it does not change the order, only the sharpness
of the softmax. The penalty therefore acts across w₀ alone, λ/2·‖(I − u·uᵀ)·w‖² with u = w₀/‖w₀‖, and a weak one along it,
μ/2·(s − s₀)², bounds s where a list is separable. λ = ∞ is w₀ itself.

Loss, gradient and Hessian are sums over lists. Every list's part is rounded to a multiple of 2^−32 before it is added, so
sums are exact: the same to the bit however lists are divided among parties, in any order, and under the masks of a
secure sum (modulo 2^64). A list's part is computed for all models at once, also those that it does not train, so that its
bits do not depend on its place. The coordinator takes Newton's step from the sums, or half of the last step where the
objective did not fall. Rankers of all λ and all folds of the cross-validation are trained in the same turns.

The parties' held-out lists choose λ: the largest one (∞ first) whose mean nDCG@10 is within one standard error of the
best. With few lists the prior therefore stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from quorank.errors import require, require_range
from quorank.kernels.arrays import Doubles, Integers, Uint64s
from quorank.metrics.lists import gain
from quorank.silos.training.lists import SearchedLists
from quorank.silos.training.sums import ONE, SumAnswers, SumCourse, SumRequest, SumTraining, check_agreed, to_units

LARGEST = 1e4  # bound on the size of a parameter, with which no list's part overflows
SCALE, ALONG = 4.0, 0.05  # s₀ and μ
NONE = math.inf
_STATE = ("accepted", "candidates", "objectives", "steps", "lengths")


@dataclass(frozen=True)
class FromPrior(SumTraining):
    """Newton's method on summed derivatives, from w₀ and regularised towards it as much as validation says."""

    kind: ClassVar[str] = "prior"

    lambdas: tuple[float, ...] = (30.0, 10.0, 3.0, 1.0, 0.3, 0.1)  # λ to choose from, besides ∞; descending
    turns: int = 12  # Newton steps
    folds: int = 5  # cross-validation folds of the labelled lists

    def __post_init__(self) -> None:
        falls = all(a > b for a, b in zip(self.lambdas, self.lambdas[1:], strict=False))
        sound = falls and all(0.0 < value < math.inf for value in self.lambdas) and len(self.lambdas) <= 64
        require(sound, "value.out-of-range", f"expected descending numbers above 0, got {self.lambdas}", "lambdas")
        require_range("turns", self.turns, least=1, most=1000)
        require_range("folds", self.folds, least=2, most=20)

    @property
    def models(self) -> list[tuple[int, float]]:
        """(held-out fold, λ) of every ranker under training; fold −1 holds out nothing."""
        return [(fold, value) for fold in (*range(self.folds), -1) for value in self.lambdas]

    def choose(self, total: Uint64s) -> float:
        """Return the largest λ whose mean gain is within a standard error of the best one's; ∞ for fewer than two lists.

        The total over the parties' held-out lists is their number, Σ g and the upper half of Σ g·gᵀ, where g is a list's
        nDCG@10 for every λ, ∞ first, minus that of the first.
        """
        values = (NONE, *self.lambdas)
        lists, sums = int(total.view(np.int64)[0]), total.view(np.int64)[1:] / ONE
        gains, products = sums[: len(values)], symmetric(sums[len(values) :], len(values))
        best = int(np.argmax(gains))
        for at, value in enumerate(values if lists >= 2 else ()):
            mean = (gains[best] - gains[at]) / lists
            square = products[best, best] - 2.0 * products[best, at] + products[at, at]
            variance = max(square - lists * mean * mean, 0.0) / (lists - 1)
            if mean <= math.sqrt(variance / lists):
                return value
        return NONE

    @property
    def planned_turns(self) -> int:
        return self.turns

    def course(self, w0: Doubles, table: Mapping[str, Any] | None = None) -> PriorCourse:
        return PriorCourse(self, w0, table)

    def answers(self, own: SearchedLists, w0: Doubles) -> SumAnswers:
        return partial(_answer, self, own, w0)


def symmetric(upper: Doubles, n: int) -> Doubles:
    """Return (…, n, n) symmetric matrices from their (…, n·(n + 1)/2) upper halves."""
    out = np.zeros((*upper.shape[:-1], n, n))
    rows, columns = np.triu_indices(n)
    out[..., rows, columns] = out[..., columns, rows] = upper
    return out


class PriorCourse(SumCourse):
    """Newton steps of all models from summed derivatives; after the last one the held-out lists are judged."""

    def __init__(self, training: FromPrior, w0: Doubles, table: Mapping[str, Any] | None = None) -> None:
        self.training, self.w0, self._turn = training, w0, 0
        count, n = len(training.models), len(w0)
        self._penalties = np.array([penalty_matrix(w0, value) for _, value in training.models])
        self.accepted = np.tile(SCALE * w0, (count, 1))  # (models, features)
        self.candidates = self.accepted.copy()  # parameters at which the next sums are taken
        self.objectives = np.full(count, np.finfo(np.float64).max)  # (models,) at `accepted`
        self.steps, self.lengths = np.zeros((count, n)), np.ones(count)  # Newton steps, and the share that is tried
        if table is not None:
            self._turn = table["turn"]
            for name in _STATE:
                setattr(self, name, np.array(table[name], dtype=np.float64))

    @property
    def turn(self) -> int:
        return self._turn

    @property
    def _judging(self) -> bool:
        return self._turn >= self.training.turns

    @property
    def request(self) -> SumRequest:
        return SumRequest(self._judging, {}, self.accepted if self._judging else self.candidates)

    @property
    def length(self) -> int:
        if self._judging:
            return sums_length(1 + len(self.training.lambdas)) - 1
        return len(self.training.models) * sums_length(len(self.w0))

    def advance(self, total: Uint64s) -> None:
        models = self.training.models
        if self._judging:
            self.chosen = self.training.choose(total)
            final = self.w0 if self.chosen == NONE else self.accepted[models.index((-1, self.chosen))]
            self.ranker = final.copy()
            return
        self._step(total.view(np.int64).reshape(len(models), -1)[:, 1:] / ONE)
        self._turn += 1

    def _step(self, sums: Doubles) -> None:
        """Accept candidates and take the next Newton steps, or halve the last ones where the objective did not fall."""
        n, across = len(self.w0), self.candidates - SCALE * self.w0
        pull = np.einsum("mij,mj->mi", self._penalties, across)
        objectives = sums[:, 0] + 0.5 * (across * pull).sum(axis=1)
        fell = objectives <= self.objectives
        hessians = symmetric(sums[:, 1 + n :], n) + self._penalties
        steps = np.linalg.solve(hessians, (sums[:, 1 : 1 + n] + pull)[:, :, None])[:, :, 0]
        self.accepted = np.where(fell[:, None], self.candidates, self.accepted)
        self.steps = np.where(fell[:, None], steps, self.steps)
        self.objectives = np.where(fell, objectives, self.objectives)
        self.lengths = np.where(fell, 1.0, self.lengths / 2.0)
        self.candidates = np.clip(self.accepted - self.lengths[:, None] * self.steps, -LARGEST, LARGEST)

    def table(self) -> dict[str, Any]:
        return {"turn": self._turn} | {name: getattr(self, name).tolist() for name in _STATE}


def sums_length(n_features: int) -> int:
    """Return the length of a model's sums: lists, loss, gradient, upper half of the Hessian."""
    return 2 + n_features + n_features * (n_features + 1) // 2


def _answer(training: FromPrior, own: SearchedLists, w0: Doubles, request: SumRequest) -> Uint64s:
    """Compute a party's sums of derivatives, or of gains of its held-out lists."""
    models, n = len(training.models), len(w0)
    check_agreed(not request.head and request.numbers.size == models * n)
    check_agreed(bool(np.all(np.abs(request.numbers) <= LARGEST)))
    thetas = request.numbers.reshape(models, n)
    found = _held_out_gains(training, own, w0, thetas) if request.judging else _derivatives(training, own, thetas)
    return found.view(np.uint64)


def _derivatives(training: FromPrior, own: SearchedLists, thetas: Doubles) -> Integers:
    """Compute the (models · sums_length,) sums over this party's lists at each model's parameters, in units of 2^−32.

    A list with a relevant document counts one unit in the first place.
    """
    data, folds = own.data, np.array([fold for fold, _ in training.models])
    out = np.zeros((len(thetas), sums_length(thetas.shape[1])), dtype=np.int64)
    for q in range(data.n_queries):
        rows = data.rows_of(q)
        gains = gain(data.labels[rows])
        if gains.sum() > 0.0:
            parts = list_parts(np.asarray(data.features[rows], dtype=np.float64), gains, thetas)
            trains = folds != q % training.folds
            out[trains, 0] += 1
            out[trains, 1:] += to_units(parts)[trains]
    return out.reshape(-1)


def list_parts(features: Doubles, gains: Doubles, thetas: Doubles) -> Doubles:
    """Compute (models, 1 + n + n·(n + 1)/2) one list's loss, gradient and upper half of the Hessian at each theta."""
    scores, y = thetas @ features.T, gains / gains.sum()
    largest = scores.max(axis=1)
    p = np.exp(scores - largest[:, None])
    mass = p.sum(axis=1)
    p /= mass[:, None]
    loss, mean = largest + np.log(mass) - scores @ y, p @ features
    hessian = features.T @ (p[:, :, None] * features) - mean[:, :, None] * mean[:, None, :]
    return np.column_stack([loss, (p - y) @ features, hessian[:, *np.triu_indices(features.shape[1])]])


def _held_out_gains(training: FromPrior, own: SearchedLists, w0: Doubles, thetas: Doubles) -> Integers:
    """Compute the number of held-out lists, Σ g and Σ g·gᵀ in units of 2^−32."""
    gains, fold_of = np.zeros((own.n_lists, 1 + len(training.lambdas))), np.arange(own.n_lists) % training.folds
    for fold in range(training.folds):
        of_fold = [theta for (f, _), theta in zip(training.models, thetas, strict=True) if f == fold]
        held = fold_of == fold
        if held.any():
            gains[held] = own.ndcg([w0, *of_fold])[:, held].T
    rounded = to_units((gains - gains[:, :1])[own.ideal_top > 0.0])
    products = to_units((rounded / ONE)[:, :, None] * (rounded / ONE)[:, None, :])
    upper = products[:, *np.triu_indices(gains.shape[1])].sum(axis=0)
    return np.concatenate(([len(rounded)], rounded.sum(axis=0), upper))


def penalty_matrix(w0: Doubles, value: float) -> Doubles:
    """Compute λ·(I − u·uᵀ) + μ/‖w₀‖²·u·uᵀ with u = w₀/‖w₀‖."""
    square = float(w0 @ w0)
    along = np.outer(w0, w0) / square
    return np.asarray(value * (np.eye(len(w0)) - along) + ALONG / square * along)
