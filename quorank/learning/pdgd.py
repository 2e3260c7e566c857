"""Pairwise Differentiable Gradient Descent (FPDGD algorithm 1; Oosterhuis and de Rijke 2018), and learners of its form.

A client shows Plackett-Luce lists, infers preferences from clicks and follows the debiased gradient of eqs 5 and 6:
θ ← θ + η·Σ_p coefficient·∇f over the documents of each clicked list. `ListLearner` is the base of learners that differ in
the coefficients only; their lists are drawn by a dial (`exploration`), or replayed from a log as they were shown.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from quorank.errors import require, require_range
from quorank.kernels.arrays import Booleans, Doubles, Floats
from quorank.kernels.compiled import fixed_memory_kernel
from quorank.learning.client_loop import (
    Impression,
    Layout,
    LoopPlan,
    Work,
    World,
    client_loop,
    cohort_of,
    follow_gradients,
)
from quorank.learning.exploration import FREE, IN_BLOCKS, Dial, block_denominators, draw_list
from quorank.learning.inverse_propensity import PAIRS, ClickRule, value_coefficients
from quorank.learning.learner import CompiledLearner
from quorank.learning.plackett_luce import Buffers, fast_exp, scaled_denominators


@fixed_memory_kernel
def pair_weight(p_shown: float, p_swapped: float) -> float:
    """Eq. 6: ρ = P(R*) / (P(R) + P(R*))."""
    return p_swapped / (p_shown + p_swapped)


@fixed_memory_kernel
def pair_slope(ratio: float) -> float:
    """The middle of eq. 5, e^f(k)·e^f(l) / (e^f(k) + e^f(l))², for ratio = e^−|f(k) − f(l)|."""
    return ratio / ((1.0 + ratio) * (1.0 + ratio))


@fixed_memory_kernel
def last_included(clicked: Booleans, k: int) -> int:
    """The last position whose document can be compared: one past the last click; −1 without clicks."""
    for p in range(k - 1, -1, -1):
        if clicked[p]:
            return min(p + 1, k - 1)
    return -1


@fixed_memory_kernel
def prepare_odds(then: Floats, n: int, k: int, rest: float, last: int, buffers: Buffers) -> None:
    """Fill the denominators of eq. 1 from which `swap_odds` is computed, for the ranks up to `last`."""
    if rest <= IN_BLOCKS:
        block_denominators(then, n, rest, k, buffers)
    elif rest < 0.0:
        scaled_denominators(then, n, k, buffers)
        count = 0
        for p in range(last + 1):
            score = np.float64(then[buffers.shown[p]])
            for i in range(1, last + 1):
                buffers.ratios[count] = min(score - buffers.logarithms[i], 700.0)
                count += 1
        for i in range(count):  # a loop of its own, which LLVM vectorises
            buffers.ratios[i] = fast_exp(buffers.ratios[i])
        count = 0
        for p in range(last + 1):
            for i in range(1, last + 1):
                buffers.shares[p, i] = buffers.ratios[count] * buffers.inverses[i]
                count += 1
    else:
        denominator = rest
        for i in range(k - 1, -1, -1):
            denominator += buffers.shown_weights[i]
            buffers.inverses[i] = 1.0 / denominator


@fixed_memory_kernel
def swap_odds(then: Floats, a: int, b: int, rest: float, buffers: Buffers) -> float:
    """P(R)/P(R*) for positions a < b that hold x and y = Π_{i=a+1..b} (D_i + x − y)/D_i, D_i being the denominators.

    Each factor is 1 + x/D_i − y/D_i and at least x/D_i, because D_i holds y; it is tiny only where ρ is 1, so that what the
    subtraction cancels there does not matter. All factors of a pair lie on the same side of 1: the product may end at 0 or
    infinity, never at their quotient. Where the weights span more than doubles hold, x/D_i is taken in logarithms.
    """
    odds = 1.0
    if rest >= 0.0:
        x, y = buffers.shown_weights[a], buffers.shown_weights[b]
        for i in range(a + 1, b + 1):
            odds *= max(1.0 + x * buffers.inverses[i] - y * buffers.inverses[i], x * buffers.inverses[i])
    elif rest > IN_BLOCKS:
        for i in range(a + 1, b + 1):
            odds *= max(1.0 + buffers.shares[a, i] - buffers.shares[b, i], buffers.shares[a, i])
    else:
        x_score, y_score = np.float64(then[buffers.shown[a]]), np.float64(then[buffers.shown[b]])
        for i in range(a + 1, b + 1):
            share = math.exp(min(x_score - buffers.logarithms[i], 700.0))
            odds *= max(1.0 + share - math.exp(min(y_score - buffers.logarithms[i], 700.0)), share)
    return odds


@fixed_memory_kernel
def pair_coefficients(then: Floats, now: Floats, same: bool, n: int, k: int, rest: float, buffers: Buffers) -> bool:
    """buffers.coefficients[p] = Σ of ρ·slope over the pairs of position p, + if it is preferred, − if not.

    The gradient of eq. 5 is therefore Σ_p coefficients[p]·∇f(document at p). Returns False if there is no pair.

    Args:
        then: (n,) scores f/τ that the list was drawn from; ρ is theirs.
        now: (n,) scores of the ranker that learns; the slope is theirs.
        same: `then` and `now` are the same scores.
        n: Number of candidates.
        k: Length of the list in buffers.shown, with its shown_weights and clicked.
        rest: Result of `sample_list` or `draw_list`; documents of different blocks form no pair.
        buffers: `logarithms`, `inverses`, `shares` and `ratios` are scratch.
    """
    shown, weights, clicked, coefficients = buffers.shown, buffers.shown_weights, buffers.clicked, buffers.coefficients
    ratios, last = buffers.ratios, last_included(clicked, k)
    for p in range(k):
        coefficients[p] = 0.0
    if last < 1:
        return False
    prepare_odds(then, n, k, rest, last, buffers)
    pairs, drawn = 0, same and rest >= 0.0
    for b in range(1, last + 1):
        for a in range(b):
            if clicked[a] == clicked[b] or (rest <= IN_BLOCKS and weights[a] != weights[b]):
                continue
            if drawn:
                ratios[pairs] = min(weights[a], weights[b]) / max(weights[a], weights[b])
            else:
                ratios[pairs] = -abs(np.float64(now[shown[a]]) - np.float64(now[shown[b]]))
            pairs += 1
    if not drawn:
        for i in range(pairs):  # a loop of its own, which LLVM vectorises
            ratios[i] = fast_exp(ratios[i])
    pair = 0
    for b in range(1, last + 1):
        for a in range(b):
            if clicked[a] == clicked[b] or (rest <= IN_BLOCKS and weights[a] != weights[b]):
                continue
            weight = pair_weight(swap_odds(then, a, b, rest, buffers), 1.0) * pair_slope(ratios[pair])
            sign = 1.0 if clicked[a] else -1.0
            coefficients[a] += sign * weight
            coefficients[b] -= sign * weight
            pair += 1
    return pairs > 0


class ListRule(NamedTuple):
    """Settings of a list learner, as compiled code reads them."""

    dial: Dial
    clicks: ClickRule
    eta: float  # η
    free: bool  # lists are drawn from the scores that learn: the dial is FREE


class ReplayRule(NamedTuple):
    """Settings of a list learner that replays a log."""

    clicks: ClickRule
    eta: float  # η
    ranks: Any  # (rows,) int16 rank of each document when it was shown, from 1, rising within a list


@dataclass(frozen=True)
class ListLearner(CompiledLearner):
    """Learner of clicked lists, on a simulated client or a device."""

    needs_gradient: ClassVar[bool] = True
    learns_late: ClassVar[bool] = True

    eta: float
    step: Literal["interaction", "batch"]
    proximal: float
    temperature: float
    window: int | None
    share: float

    def __post_init__(self) -> None:
        require_range("eta", self.eta, above=0.0)
        overshoots = f"must be at least 0 and at most 2/eta, or steps overshoot, got {self.proximal}"
        require(0.0 <= self.proximal * self.eta <= 2.0, f"{self.kind}.proximal-overshoots", overshoots, "proximal")
        require_range("temperature", self.temperature, above=0.0)
        if self.window is not None:
            require_range("window", self.window, least=1, below=2**20)

    @property
    def dial(self) -> Dial:
        """Exploration of its lists."""
        return Dial(self.temperature, self.window or 0, self.share)

    @property
    def list_temperature(self) -> float:
        return self.dial.temperature

    @abstractmethod
    def click_rule(self, k: int) -> ClickRule:
        """Return the weighting of clicks on lists of k documents."""

    def rule(self, k: int) -> ListRule:
        """Return the settings of `draw_list` and `learn_list` for lists of k documents."""
        return ListRule(self.dial, self.click_rule(k), self.eta, self.dial == FREE)

    def loop_plan(self, work: Work) -> LoopPlan:
        cohort = cohort_of(work, batched=self.step == "batch", pull=self.eta * self.proximal)
        rule = self.rule(work.world.k)
        if work.ranks is None:
            return LoopPlan(play_lists, cohort, rule)
        return LoopPlan(_replay_lists, cohort, ReplayRule(rule.clicks, self.eta, work.ranks))

    def check_list(self, k: int) -> None:
        self.rule(k)


@fixed_memory_kernel
def learn_list(
    rule: ListRule, layout: Layout, shown: Impression, rest: float, theta: Doubles, buffers: Buffers
) -> bool:
    """θ += η Σ_p coefficient·∇f (FPDGD eq. 5) for one clicked list; False if its clicks express no preference.

    Args:
        rule: Settings of the learner.
        layout: Features and shape of the ranker.
        shown: The list; its scores and packed parameters are those of the ranker that learns.
        rest: Result of `draw_list`, which also left the list and `tempered` in buffers.
        theta: (d,) changed in place.
        buffers: The list, its clicks, and scratch.
    """
    count = shown.k
    if rule.clicks.estimator != PAIRS:
        learns = value_coefficients(rule.clicks, shown.scores, count, buffers)
    else:
        learns = pair_coefficients(buffers.tempered, shown.scores, rule.free, shown.n, count, rest, buffers)
        count = last_included(buffers.clicked, count) + 1
    if learns:
        follow_gradients(rule.eta, layout, shown, count, theta, buffers)
    return learns


@fixed_memory_kernel
def show_by_dial(rule: Any, world: World, shown: Impression, theta: Doubles, buffers: Buffers) -> float:
    """Draw a list by the rule's dial."""
    return draw_list(rule.dial, shown.scores, shown.n, shown.k, world.ranking_key, shown.address, buffers)


@fixed_memory_kernel
def _learn(
    rule: ListRule, world: World, shown: Impression, rest: float, first: int, theta: Doubles, buffers: Buffers
) -> bool:
    if first < 0:
        return False
    layout = Layout(world.padded, world.n_features, world.hidden)
    return learn_list(rule, layout, shown, rest, theta, buffers)


@fixed_memory_kernel
def _count_logged(rule: ReplayRule, world: World, start: int, n: int) -> int:
    """Documents of a logged list up to the last rank whose propensity is known."""
    k = 0
    while k < n and rule.ranks[start + k] <= len(rule.clicks.propensities):
        k += 1
    return k


@fixed_memory_kernel
def _show_logged(rule: ReplayRule, world: World, shown: Impression, theta: Doubles, buffers: Buffers) -> float:
    for p in range(shown.k):
        buffers.shown[p] = p
    return 0.0


@fixed_memory_kernel
def _click_logged(rule: ReplayRule, world: World, shown: Impression, model: int, buffers: Buffers) -> int:
    first = -1
    for p in range(shown.k):
        buffers.clicked[p] = world.users.labels[shown.start + p] > 0
        if buffers.clicked[p] and first < 0:
            first = int(rule.ranks[shown.start + p]) - 1
    return first


@fixed_memory_kernel
def _learn_logged(
    rule: ReplayRule, world: World, shown: Impression, rest: float, first: int, theta: Doubles, buffers: Buffers
) -> bool:
    if first < 0:
        return False
    for p in range(shown.k):
        buffers.inverses[p] = rule.clicks.propensities[rule.ranks[shown.start + p] - 1]
    clicks = ClickRule(
        rule.clicks.estimator, rule.clicks.listwise, buffers.inverses, rule.clicks.clip, rule.clicks.reach
    )
    learns = value_coefficients(clicks, shown.scores, shown.k, buffers)
    if learns:
        layout = Layout(world.padded, world.n_features, world.hidden)
        follow_gradients(rule.eta, layout, shown, shown.k, theta, buffers)
    return learns


play_lists = client_loop(show_by_dial, _learn)
_replay_lists = client_loop(_show_logged, _learn_logged, _click_logged, _count_logged)


@dataclass(frozen=True)
class PDGD(ListLearner):
    """Pairwise Differentiable Gradient Descent: θ ← θ + η·Σ ρ(a, b)·∇P(a ≻ b) over preferred pairs (FPDGD algorithm 1).

    a ≻ b if a was clicked and b was not, b at most one rank behind the last click. P(a ≻ b) = e^f(a) / (e^f(a) + e^f(b)),
    and ρ = P(R*) / (P(R) + P(R*)) corrects for the list R that was drawn, R* having a and b exchanged (eqs 5 and 6).
    ρ is that of the distribution from which the list was drawn, the slope that of f.

    Args:
        eta: η, length of a step, above 0.
        step: "interaction" moves θ after each list, "batch" once by the sum over all (the batched baseline).
        proximal: μ of FedProx (Li et al. 2020): each step also goes −η·μ·(θ − θ of the round).
        temperature: τ, above 0: lists are drawn from f/τ.
        window: w: no document is shown more than w positions from its rank; None leaves it free.
        share: Share of the lists, in (0, 1], that are drawn; the others are the ranking itself, which teaches nothing.

    Raises:
        BadInput: `value.out-of-range` if a field is outside its range, `pdgd.proximal-overshoots` if η·μ is above 2.

    >>> PDGD(eta=0.1, temperature=0.5).pdgd_eta is None  # the published method draws lists from f itself
    True
    """

    kind: ClassVar[str] = "pdgd"

    eta: float = 0.1
    step: Literal["interaction", "batch"] = "interaction"
    proximal: float = 0.0
    temperature: float = 1.0
    window: int | None = None
    share: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_range("share", self.share, above=0.0, most=1.0)

    def click_rule(self, k: int) -> ClickRule:
        return ClickRule(PAIRS, False, np.ones(k), 1.0, 0)

    @property
    def pdgd_eta(self) -> float | None:
        return self.eta if self.dial == FREE else None
