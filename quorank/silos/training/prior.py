"""Linear ranker from a prior: the search that parties have, corrected by the labels of all of them.

Listwise softmax (Cao et al. 2007, "Learning to rank: from pairwise approach to listwise approach", top-one) with a
penalty towards the unlearned score w₀:

    minimise  Σ_lists −Σ_i y_i·log softmax(F·w)_i  +  λ/2·‖w − s·w₀‖²  over w and the scale s,

y_i = (2^label − 1) over its sum in the list. The scale s is free because it does not change the order, only the sharpness
of the softmax. The penalty therefore acts across w₀ alone, λ/2·‖(I − u·uᵀ)·w‖² with u = w₀/‖w₀‖, and a weak one along it,
μ/2·(s − s₀)², bounds s where a list is separable. λ = ∞ is w₀ itself.

Loss, gradient and Hessian are sums over lists. Every list's part is rounded to a multiple of 2^−32 before it is added, so
sums are exact: the same to the bit however lists are divided among parties, in any order, and under the masks of a
secure sum (modulo 2^64). The coordinator takes Newton's step from the sums, or half of the last step where the objective
did not fall. Rankers of all λ and all folds of the cross-validation are trained in the same turns.

The parties' held-out lists choose λ: the largest one (∞ first) whose mean nDCG@10 is within one standard error of the
best. With few lists the prior therefore stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from quorank.errors import require, require_range
from quorank.kernels.arrays import Doubles, Floats, Int8s, Integers, Uint64s
from quorank.kernels.compiled import kernel
from quorank.silos.training.lists import SearchedLists
from quorank.silos.training.sums import ONE, SumAnswers, SumCourse, SumRequest, SumTraining, TrainingMemory, not_agreed

LARGEST = 1e4
"""Bound on the size of a parameter, with which no list's part overflows."""
SCALE, ALONG = 4.0, 0.05
"""s₀ and μ."""
NONE = math.inf


def sums_length(n_features: int) -> int:
    """Return the length of a model's sums: lists, loss, gradient, upper half of the Hessian."""
    return 2 + n_features + n_features * (n_features + 1) // 2


@kernel
def list_part(
    padded: Floats, first: int, last: int, labels: Int8s, theta: Doubles, scores: Doubles, mean: Doubles, out: Doubles
) -> bool:
    """Write one list's loss, gradient and Hessian at theta into `out`; False for a list without a relevant document."""
    n, total = len(theta), 0.0
    for row in range(first, last):
        total += 2.0 ** labels[row] - 1.0
    if total <= 0.0:
        return False
    out[:] = 0.0
    mean[:] = 0.0
    largest = -np.inf
    for row in range(first, last):
        score = 0.0
        for j in range(n):
            score += padded[row, j] * theta[j]
        scores[row - first] = score
        largest = max(largest, score)
    mass = 0.0
    for row in range(first, last):
        mass += math.exp(scores[row - first] - largest)
    out[0] = largest + math.log(mass)
    for row in range(first, last):
        p = math.exp(scores[row - first] - largest) / mass
        y = (2.0 ** labels[row] - 1.0) / total
        out[0] -= y * scores[row - first]
        at = 1 + n
        for i in range(n):
            x = float(padded[row, i])
            out[1 + i] += (p - y) * x
            mean[i] += p * x
            for j in range(i, n):
                out[at] += p * x * padded[row, j]
                at += 1
    at = 1 + n
    for i in range(n):
        for j in range(i, n):
            out[at] -= mean[i] * mean[j]
            at += 1
    return True


@kernel
def _add_parts(
    padded: Floats, offsets: Integers, labels: Int8s, lists: Integers, theta: Doubles, longest: int, out: Integers
) -> None:
    """Add the rounded parts of some lists to `out`; each list with a relevant document counts one unit in out[0]."""
    part = np.empty(len(out) - 1)
    scores, mean = np.empty(longest), np.empty(len(theta))
    for q in lists:
        if list_part(padded, offsets[q], offsets[q + 1], labels, theta, scores, mean, part):
            out[0] += 1
            for i in range(len(part)):
                out[1 + i] += np.int64(math.floor(part[i] * 4294967296.0 + 0.5))


class HeldOutGains(NamedTuple):
    """Sums over the parties' held-out lists: their number, Σ g and Σ g·gᵀ.

    g is a list's nDCG@10 for every λ, ∞ first, minus that of the first.
    """

    lists: int
    gains: Doubles  # (λs,)
    products: Doubles  # (λs, λs)


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

    def kept_lists(self, lists: int, fold: int) -> Integers:
        """Return which of a party's lists train the rankers of a fold."""
        numbers = np.arange(lists)
        return numbers if fold < 0 else numbers[numbers % self.folds != fold]

    def choose(self, told: HeldOutGains) -> float:
        """Return the largest λ whose mean gain is within a standard error of the best one's; ∞ for fewer than two lists."""
        if told.lists < 2:
            return NONE
        best = int(np.argmax(told.gains))
        for at, value in enumerate((NONE, *self.lambdas)):
            mean = (told.gains[best] - told.gains[at]) / told.lists
            square = told.products[best, best] - 2.0 * told.products[best, at] + told.products[at, at]
            variance = max(square - told.lists * mean * mean, 0.0) / (told.lists - 1)
            if mean <= math.sqrt(variance / told.lists):
                return value
        return NONE

    @property
    def planned_turns(self) -> int:
        return self.turns

    def course(self, w0: Doubles, table: Mapping[str, Any] | None = None) -> PriorCourse:
        return PriorCourse(self, w0, table)

    def answers(self, own: SearchedLists, w0: Doubles, memory: TrainingMemory) -> PriorAnswers:
        return PriorAnswers(self, own, w0)


class PriorCourse(SumCourse):
    """Newton steps of all models from summed derivatives; after the last one the held-out lists are judged."""

    def __init__(self, training: FromPrior, w0: Doubles, table: Mapping[str, Any] | None = None) -> None:
        self.training, self.w0, self._turn = training, w0, 0
        count, n = len(training.models), len(w0)
        self.accepted = np.tile(SCALE * w0, (count, 1))  # (models, features)
        self.candidates = self.accepted.copy()  # parameters at which the next sums are taken
        self.objectives = np.full(count, np.finfo(np.float64).max)  # (models,) at `accepted`
        self.steps, self.lengths = (
            np.zeros((count, n)),
            np.ones(count),
        )  # Newton steps, and the share of them that is tried
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
            count = 1 + len(self.training.lambdas)
            return 1 + count + count * (count + 1) // 2
        return len(self.training.models) * sums_length(len(self.w0))

    def advance(self, total: Uint64s) -> None:
        if self._judging:
            self.chosen = self.training.choose(self._gains(total))
            models = self.training.models
            final = self.w0 if self.chosen == NONE else self.accepted[models.index((-1, self.chosen))]
            self.ranker = final.copy()
            return
        parts = total.view(np.int64).reshape(len(self.training.models), -1)
        for m, (_, value) in enumerate(self.training.models):
            self._step(m, value, parts[m])
        self._turn += 1

    def _step(self, m: int, value: float, part: Integers) -> None:
        """Accept a candidate and take the next Newton step, or halve the last step where the objective did not fall."""
        n, penalty = len(self.w0), penalty_matrix(self.w0, value)
        across = self.candidates[m] - SCALE * self.w0
        objective = part[1] / ONE + 0.5 * float(across @ penalty @ across)
        if objective <= self.objectives[m]:
            gradient = part[2 : 2 + n] / ONE + penalty @ across
            hessian = np.zeros((n, n))
            hessian[np.triu_indices(n)] = part[2 + n :] / ONE
            hessian = hessian + np.triu(hessian, 1).T + penalty
            self.accepted[m], self.objectives[m], self.lengths[m] = self.candidates[m], objective, 1.0
            self.steps[m] = solve(hessian, gradient)
        else:
            self.lengths[m] /= 2.0
        self.candidates[m] = np.clip(self.accepted[m] - self.lengths[m] * self.steps[m], -LARGEST, LARGEST)

    def _gains(self, total: Uint64s) -> HeldOutGains:
        told, count = total.view(np.int64), 1 + len(self.training.lambdas)
        products = np.zeros((count, count))
        products[np.triu_indices(count)] = told[1 + count :] / ONE
        return HeldOutGains(int(told[0]), told[1 : 1 + count] / ONE, products + np.triu(products, 1).T)

    def restart(self) -> None:
        """Do nothing: a turn is one sum."""

    def table(self) -> dict[str, Any]:
        return {"turn": self._turn} | {name: getattr(self, name).tolist() for name in _STATE}


_STATE = ("accepted", "candidates", "objectives", "steps", "lengths")


@dataclass(frozen=True, eq=False)
class PriorAnswers(SumAnswers):
    """A party's sums of derivatives, and of gains of its held-out lists."""

    training: FromPrior
    own: SearchedLists
    w0: Doubles

    def sums(self, request: SumRequest) -> Uint64s:
        models, n = len(self.training.models), len(self.w0)
        fits = not request.head and request.numbers.size == models * n
        if not fits or not bool(np.all(np.abs(request.numbers) <= LARGEST)):
            raise not_agreed()
        thetas = request.numbers.reshape(models, n)
        return self._gains(thetas) if request.judging else self._derivatives(thetas)

    def _derivatives(self, thetas: Doubles) -> Uint64s:
        """Compute the (models · sums_length,) sums over this party's lists at each model's parameters, modulo 2^64."""
        data, training = self.own.data, self.training
        out = np.zeros((len(training.models), sums_length(len(self.w0))), dtype=np.int64)
        for row, (fold, _), theta in zip(out, training.models, thetas, strict=True):
            lists, at = training.kept_lists(data.n_queries, fold), np.ascontiguousarray(theta, dtype=np.float64)
            _add_parts(data.padded, data.offsets, data.labels, lists, at, data.longest, row)
        return out.reshape(-1).view(np.uint64)

    def _gains(self, thetas: Doubles) -> Uint64s:
        """Compute the number of held-out lists, Σ g and Σ g·gᵀ in units of 2^−32, modulo 2^64."""
        own, training, count = self.own, self.training, 1 + len(self.training.lambdas)
        gains = np.zeros((own.n_lists, count))
        for fold in range(training.folds):
            held = np.setdiff1d(np.arange(own.n_lists), training.kept_lists(own.n_lists, fold))
            if len(held):
                of_fold = [theta for (f, _), theta in zip(training.models, thetas, strict=True) if f == fold]
                gains[held] = own.ndcg([self.w0, *of_fold])[:, held].T
        gains = gains[own.ideal_top > 0.0]
        rounded = np.floor((gains - gains[:, :1]) * ONE + 0.5)
        products = np.floor((rounded[:, :, None] / ONE) * rounded[:, None, :] + 0.5)
        upper = products[:, *np.triu_indices(count)].sum(axis=0, dtype=np.int64)
        told = np.concatenate(([len(gains)], rounded.sum(axis=0).astype(np.int64), upper.astype(np.int64)))
        return np.asarray(told, dtype=np.int64).view(np.uint64)


def penalty_matrix(w0: Doubles, value: float) -> Doubles:
    """Compute λ·(I − u·uᵀ) + μ/‖w₀‖²·u·uᵀ with u = w₀/‖w₀‖."""
    square = float(w0 @ w0)
    along = np.outer(w0, w0) / square
    return np.asarray(value * (np.eye(len(w0)) - along) + ALONG / square * along)


def solve(matrix: Doubles, right: Doubles) -> Doubles:
    """Solve a symmetric positive definite system by Cholesky's method, with a fixed order of sums."""
    out, factor = np.array(right), np.array(matrix)
    _solve(factor, out)
    return out


@kernel
def _solve(a: Doubles, b: Doubles) -> None:
    n = len(b)
    for i in range(n):
        for j in range(i + 1):
            total = a[i, j]
            for k in range(j):
                total -= a[i, k] * a[j, k]
            a[i, j] = math.sqrt(max(total, 1e-12)) if i == j else total / a[j, j]
    for i in range(n):
        for k in range(i):
            b[i] -= a[i, k] * b[k]
        b[i] /= a[i, i]
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            b[i] -= a[k, i] * b[k]
        b[i] /= a[i, i]
