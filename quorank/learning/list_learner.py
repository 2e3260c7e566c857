"""Base class of learners that follow θ ← θ + η·Σ_p coefficient·∇f over the documents of each clicked list.

Their lists are drawn by a dial (`exploration`), or replayed from a log as they were shown.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from quorank.errors import require_range
from quorank.kernels.arrays import Doubles
from quorank.kernels.compiled import fixed_memory_kernel
from quorank.learning.client_loop import (
    Cohort,
    Impression,
    Layout,
    client_loop,
    cohort_of,
    follow_gradients,
    memory_for,
)
from quorank.learning.exploration import FREE, Dial, draw_list
from quorank.learning.inverse_propensity import PAIRS, ClickRule, value_coefficients
from quorank.learning.learner import CompiledLearner
from quorank.learning.pair_weights import last_included, pair_coefficients
from quorank.learning.plackett_luce import Buffers
from quorank.learning.simulation import Work, World


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

    def list_plan(self, work: Work) -> tuple[Cohort, ListRule]:
        cohort = cohort_of(work, batched=self.step == "batch", pull=self.eta * self.proximal)
        return cohort, self.rule(work.world.k)

    def check_list(self, k: int) -> None:
        self.rule(k)

    def updates(self, work: Work, rows: Doubles) -> None:
        (cohort, rule), memory = self.list_plan(work), memory_for(work.world)
        if work.ranks is None:
            play_lists(work.world, cohort, rule, memory, rows)
        else:
            _replay_lists(work.world, cohort, ReplayRule(rule.clicks, self.eta, work.ranks), memory, rows)


def check_dial(temperature: float, window: int | None) -> None:
    """Refuse a temperature or a window that no list can be drawn by."""
    require_range("temperature", temperature, above=0.0)
    if window is not None:
        require_range("window", window, least=1, below=2**20)


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
