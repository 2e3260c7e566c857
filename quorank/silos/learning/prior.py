"""A linear ranker from a prior: the search that parties have, corrected by what their labels say together.

Listwise softmax (Cao et al. 2007, "Learning to rank: from pairwise approach to listwise approach", top-one) with a
penalty that holds the ranker to the unlearned score w₀:

    minimise  Σ_lists −Σ_i y_i·log softmax(F·w)_i  +  λ/2·‖w − s·w₀‖²  over w and the scale s,

y_i = (2^label − 1) over its sum in the list. s is free: the scale of w₀ says how sharp the softmax is and orders nothing,
so the penalty is on what stands across w₀ alone, λ/2·‖(I − u·uᵀ)·w‖² with u = w₀/‖w₀‖, and a weak one along it,
μ/2·(s − s₀)², keeps a separable list from driving s away. λ = ∞ is w₀ itself.

Loss, gradient and Hessian are sums over lists. Every list's part is rounded to a whole multiple of 2^−32 before it is
added, so sums are exact: the same to the bit however lists are divided among parties, in any order, and under the masks of
a secure sum (modulo 2^64), which is all that a coordinator sees. From the sums it takes Newton's step; where the
objective did not fall, half of the step before. Rankers of all λ and all folds of the cross-validation are trained in the
same turns, a message each way.

λ is chosen by the parties' held-out lists: the largest λ (∞ first) whose mean nDCG@10 is not below the best one's by more
than one standard error of their difference. Few lists so leave the prior as it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from quorank.errors import require, require_range
from quorank.kernels.arrays import Doubles, Floats, Int8s, Integers, Uint64s
from quorank.kernels.compiled import kernel
from quorank.silos.learning.searched_lists import SearchedLists
from quorank.silos.learning.summed_training import SumAnswers, SumCourse, SumRequest, SumTraining, TrainingMemory

ONE = 2.0**32
"""Sums are in units of 2^−32."""
LARGEST = 1e4
"""Parameters are at most this large: no list's part then leaves the range of whole numbers."""
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


class Moments(NamedTuple):
    """What parties tell of their held-out lists, summed: their number, Σ g and Σ g·gᵀ over them.

    g holds a list's nDCG@10 for every λ, ∞ first, in units of 2^−32 of the differences to the first.
    """

    lists: int
    gains: Doubles  # (λs,)
    products: Doubles  # (λs, λs)


@dataclass(frozen=True)
class FromPrior(SumTraining):
    """Newton's method on summed derivatives, from w₀ and held to it as much as validation says."""

    kind: ClassVar[str] = "prior"

    lambdas: tuple[float, ...] = (30.0, 10.0, 3.0, 1.0, 0.3, 0.1)  # λ to choose among, beside ∞; descending
    turns: int = 12  # Newton's steps
    folds: int = 5  # folds of the labelled lists by which λ is validated

    def __post_init__(self) -> None:
        falls = all(a > b for a, b in zip(self.lambdas, self.lambdas[1:], strict=False))
        sound = falls and all(0.0 < value < math.inf for value in self.lambdas) and len(self.lambdas) <= 64
        require(sound, "value.out-of-range", f"expected falling numbers above 0, got {self.lambdas}", "lambdas")
        require_range("turns", self.turns, least=1, most=1000)
        require_range("folds", self.folds, least=2, most=20)

    @property
    def models(self) -> list[tuple[int, float]]:
        """(fold that is held out, λ) of every ranker that is trained; the last ones, fold −1, hold out nothing."""
        return [(fold, value) for fold in (*range(self.folds), -1) for value in self.lambdas]

    # ------------------------------------------------------------ at a party

    def sums(self, own: SearchedLists, thetas: Sequence[Doubles] | Doubles) -> Uint64s:
        """Compute the (models · sums_length,) sums over a party's lists at each model's parameters, modulo 2^64."""
        data, n = own.data, own.data.n_features
        out = np.zeros((len(self.models), sums_length(n)), dtype=np.int64)
        for row, (fold, _), theta in zip(out, self.models, thetas, strict=True):
            sound = np.shape(theta) == (n,) and bool(np.all(np.abs(theta) <= LARGEST))
            require(sound, "training.bad-parameters", f"expected {n} parameters of at most {LARGEST:g}")
            at = np.ascontiguousarray(theta, dtype=np.float64)
            lists = self.kept_lists(data.n_queries, fold)
            _add_parts(data.padded, data.offsets, data.labels, lists, at, data.longest, row)
        return out.reshape(-1).view(np.uint64)

    def kept_lists(self, lists: int, fold: int) -> Integers:
        """Return which of a party's lists train the rankers of a fold."""
        numbers = np.arange(lists)
        return numbers if fold < 0 else numbers[numbers % self.folds != fold]

    def judge(self, own: SearchedLists, thetas: Sequence[Doubles], w0: Doubles) -> Uint64s:
        """Compute what a party tells of its held-out lists: 1, Σ g and Σ g·gᵀ in units of 2^−32, modulo 2^64."""
        count = 1 + len(self.lambdas)
        gains = np.zeros((own.n_lists, count))
        for fold in range(self.folds):
            held = np.setdiff1d(np.arange(own.n_lists), self.kept_lists(own.n_lists, fold))
            if len(held):
                mine = [w0, *(theta for (f, _), theta in zip(self.models, thetas, strict=True) if f == fold)]
                gains[held] = own.ndcg(mine)[:, held].T
        gains = gains[own.ideal_top > 0.0]
        rounded = np.floor((gains - gains[:, :1]) * ONE + 0.5)
        products = np.floor((rounded[:, :, None] / ONE) * rounded[:, None, :] + 0.5)
        upper = products[:, *np.triu_indices(count)].sum(axis=0, dtype=np.int64)
        told = np.concatenate(([len(gains)], rounded.sum(axis=0).astype(np.int64), upper.astype(np.int64)))
        return np.asarray(told, dtype=np.int64).view(np.uint64)

    @property
    def told_length(self) -> int:
        """Length of what `judge` returns."""
        count = 1 + len(self.lambdas)
        return 1 + count + count * (count + 1) // 2

    # ------------------------------------------------------------ where sums meet

    def begin(self, w0: Doubles) -> NewtonState:
        """Return the state before the first turn: all rankers at s₀·w₀."""
        count, n = len(self.models), len(w0)
        start = np.tile(SCALE * w0, (count, 1))
        return NewtonState(
            w0, start, start.copy(), np.full(count, np.finfo(np.float64).max), np.zeros((count, n)), np.ones(count)
        )

    def advance(self, state: NewtonState, total: Uint64s) -> NewtonState:
        """Return the state after a turn, from the sum of all parties' `sums` at `state.candidates`."""
        n = len(state.w0)
        parts = total.view(np.int64).reshape(len(self.models), sums_length(n))
        new = state.copied()
        for m, (_, value) in enumerate(self.models):
            penalty = penalty_matrix(state.w0, value)
            candidate, across = state.candidates[m], state.candidates[m] - SCALE * state.w0
            objective = parts[m, 1] / ONE + 0.5 * float(across @ penalty @ across)
            if objective <= state.objectives[m]:
                gradient = parts[m, 2 : 2 + n] / ONE + penalty @ across
                hessian = np.zeros((n, n))
                hessian[np.triu_indices(n)] = parts[m, 2 + n :] / ONE
                hessian = hessian + np.triu(hessian, 1).T + penalty
                new.accepted[m], new.objectives[m], new.lengths[m] = candidate, objective, 1.0
                new.steps[m] = solve(hessian, gradient)
            else:
                new.lengths[m] = state.lengths[m] / 2.0
            new.candidates[m] = np.clip(new.accepted[m] - new.lengths[m] * new.steps[m], -LARGEST, LARGEST)
        return new

    def moments(self, total: Uint64s) -> Moments:
        """Read what all parties together told of their held-out lists."""
        told, count = total.view(np.int64), 1 + len(self.lambdas)
        products = np.zeros((count, count))
        products[np.triu_indices(count)] = told[1 + count :] / ONE
        return Moments(int(told[0]), told[1 : 1 + count] / ONE, products + np.triu(products, 1).T)

    def choose(self, told: Moments) -> float:
        """Return the largest λ that is not worse than the best one by more than a standard error; ∞ for few lists."""
        values = (NONE, *self.lambdas)
        if told.lists < 2:
            return NONE
        best = int(np.argmax(told.gains))
        for at, value in enumerate(values):
            mean = (told.gains[best] - told.gains[at]) / told.lists
            square = told.products[best, best] - 2.0 * told.products[best, at] + told.products[at, at]
            variance = max(square - told.lists * mean * mean, 0.0) / (told.lists - 1)
            if mean <= math.sqrt(variance / told.lists):
                return value
        return NONE

    def ranker(self, state: NewtonState, value: float) -> Doubles:
        """Return the ranker of a λ that held out nothing: w₀ for ∞."""
        if value == NONE:
            return state.w0.copy()
        return np.array(state.accepted[self.models.index((-1, value))])

    @property
    def planned_turns(self) -> int:
        return self.turns

    def course(self, w0: Doubles, table: Mapping[str, Any] | None = None) -> SumCourse:
        if table is None:
            return PriorCourse(self, self.begin(w0))
        state = NewtonState(w0, *(np.array(array, dtype=np.float64) for array in table["arrays"]))
        return PriorCourse(self, state, table["turn"])

    def answers(self, own: SearchedLists, w0: Doubles, memory: TrainingMemory) -> SumAnswers:
        return PriorAnswers(self, own, w0)


@dataclass(eq=False)
class PriorCourse(SumCourse):
    """Newton's steps from summed derivatives; behind the last one the held-out lists are judged."""

    training: FromPrior
    state: NewtonState
    _turn: int = 0
    _ranker: Doubles | None = None
    _chosen: float = NONE

    @property
    def turn(self) -> int:
        return self._turn

    @property
    def request(self) -> SumRequest:
        judging = self._turn >= self.training.turns
        return SumRequest(judging, {}, self.state.accepted if judging else self.state.candidates)

    @property
    def length(self) -> int:
        if self._turn >= self.training.turns:
            return self.training.told_length
        return len(self.training.models) * sums_length(len(self.state.w0))

    @property
    def ranker(self) -> Doubles | None:
        return self._ranker

    @property
    def chosen(self) -> float:
        return self._chosen

    def advance(self, total: Uint64s) -> None:
        if self._turn < self.training.turns:
            self.state, self._turn = self.training.advance(self.state, total), self._turn + 1
        else:
            self._chosen = self.training.choose(self.training.moments(total))
            self._ranker = self.training.ranker(self.state, self._chosen)

    def begin_again(self) -> None:
        """Nothing to undo: a turn is one sum."""

    def table(self) -> dict[str, Any]:
        return {"arrays": [array.tolist() for array in self.state.arrays], "turn": self._turn}


@dataclass(frozen=True, eq=False)
class PriorAnswers(SumAnswers):
    """A party's sums of derivatives, and of gains of its held-out lists."""

    training: FromPrior
    own: SearchedLists
    w0: Doubles

    def sums(self, request: SumRequest) -> Uint64s:
        models, n = len(self.training.models), len(self.w0)
        sound = not request.head and request.numbers.size == models * n
        sound = sound and bool(np.all(np.abs(request.numbers) <= LARGEST))
        require(sound, "silo-message.not-agreed", "the coordinator asks to learn what was not agreed")
        thetas = request.numbers.reshape(models, n)
        if request.judging:
            return self.training.judge(self.own, list(thetas), self.w0)
        return self.training.sums(self.own, thetas)


def penalty_matrix(w0: Doubles, value: float) -> Doubles:
    """Compute λ·(I − u·uᵀ) + μ/‖w₀‖²·u·uᵀ with u = w₀/‖w₀‖."""
    square = float(w0 @ w0)
    along = np.outer(w0, w0) / square
    return np.asarray(value * (np.eye(len(w0)) - along) + ALONG / square * along)


def solve(matrix: Doubles, right: Doubles) -> Doubles:
    """Solve a symmetric positive definite system by Cholesky's method, in one fixed order of sums."""
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


@dataclass(frozen=True, eq=False)
class NewtonState:
    """Rankers under training: where each is, where it looks next, and the step between."""

    w0: Doubles
    accepted: Doubles = field(repr=False)  # (models, features)
    candidates: Doubles = field(repr=False)  # where the sums of the next turn are taken
    objectives: Doubles = field(repr=False)  # (models,) at `accepted`
    steps: Doubles = field(repr=False)
    lengths: Doubles = field(repr=False)  # share of the step that is tried

    def copied(self) -> NewtonState:
        """Return a copy whose arrays may be changed."""
        return NewtonState(self.w0, *(array.copy() for array in self.arrays))

    @cached_property
    def arrays(self) -> tuple[Doubles, ...]:
        """All that changes, for keeping it."""
        return self.accepted, self.candidates, self.objectives, self.steps, self.lengths
