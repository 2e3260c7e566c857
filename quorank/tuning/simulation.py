"""Simulation of a whole tuning: people search, clients send updates, the coordinator makes versions.

Hartmann et al. 2019, §6.1. All parts are those of a deployment; only the people are simulated. Held-out searches
measure each version: its mean loss, and its rank accuracy, the share of them whose chosen item stands first.

Searches arrive evenly, or more by day than by night (figure 6): a Poisson process with a rate that depends on the
hour. Gaps of a process of rate 1 are added up and transformed by the inverse of the cumulative rate.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np

from quorank.files.codec import Range
from quorank.kernels.arrays import Doubles
from quorank.kernels.draws import Purpose, uniforms
from quorank.tuning.coordinator import TuningCoordinator, TuningSettings, TuningState, Updates
from quorank.tuning.heuristics.constraints import random_weights, violations
from quorank.tuning.histories.generated import SIGMA
from quorank.tuning.histories.scenarios import HELD_OUT, Scenario, find_scenario
from quorank.tuning.loss import first_places, gradients, mean_loss_and_accuracy
from quorank.tuning.models import Model
from quorank.tuning.rules import Closing, Count, Time
from quorank.tuning.searches import slice_searches

CHECK_EVERY = 25  # updates between two checks of the closing rule
DAY = 86_400.0  # seconds
_BLOCK = 4096  # arrival times drawn at once
_GRID = np.linspace(0.0, DAY, 2881)  # times of the cumulative rate of a day, every half minute


@dataclass(frozen=True)
class Traffic:
    """Rate of searches, mean · (1 + swing · cos(2π·(t − peak)/day)); the run begins at midnight."""

    per_hour: Annotated[float, Range(above=0.0)] = 800.0  # searches of all clients together, on average over a day
    swing: Annotated[float, Range(0.0, 1.0)] = 0.0  # 0: an even rate
    peak: Annotated[float, Range(0.0, 24.0)] = 15.0  # hour

    def rate(self, seconds: Doubles) -> Doubles:
        """Return the searches per second at these times."""
        wave = np.cos(2.0 * math.pi * (seconds - 3600.0 * self.peak) / DAY)
        return np.asarray(self.per_hour / 3600.0 * (1.0 + self.swing * wave), dtype=np.float64)


class SearchTimes:
    """Times of all searches, seconds, drawn block by block as they are needed."""

    def __init__(self, traffic: Traffic, seed: int) -> None:
        rates = traffic.rate(_GRID)
        self.cumulative = np.concatenate(([0.0], np.cumsum((rates[1:] + rates[:-1]) / 2.0 * np.diff(_GRID))))
        self.seed, self.blocks, self.before, self.times = seed, 0, 0.0, np.empty(0)

    def upcoming(self, count: int) -> Doubles:
        """Return the times of the next `count` searches."""
        while len(self.times) < count:
            gaps = -np.log1p(-uniforms(self.seed, Purpose.TRAFFIC, _BLOCK, round_=self.blocks))
            passed, daily = self.before + np.cumsum(gaps), float(self.cumulative[-1])
            self.before, self.blocks = float(passed[-1]), self.blocks + 1
            days = np.floor(passed / daily)
            hours = np.interp(passed - days * daily, self.cumulative, _GRID)
            self.times = np.concatenate((self.times, days * DAY + hours))
        return self.times[:count]

    def count_until(self, end: float) -> int:
        """Return the number of searches until a time."""
        while not len(self.times) or self.times[-1] <= end:
            self.upcoming(len(self.times) + 1)
        return int(np.searchsorted(self.times, end, side="right"))

    def skip(self, count: int) -> None:
        """Go on to the search after the next `count`."""
        self.times = self.times[count:]


@dataclass(frozen=True)
class Tuning(TuningSettings):
    """Settings of a simulated tuning: the heuristic, its people, and the parts of the coordinator."""

    heuristic: str = "frecency"
    start: Literal["random", "shipped"] = "shipped"
    people: Literal["shipped", "others"] = "shipped"  # weights by which the people choose
    sigma: Annotated[float, Range(0.0)] = SIGMA  # of the noise on people's choices
    traffic: Traffic = field(default_factory=Traffic)
    held_out: Annotated[int, Range(1)] = 20_000
    seed: int = 1


@dataclass
class TuningHistory:
    """Record of a simulated tuning: one entry per version, version 0 first; weights are those that clients use."""

    scenario: Scenario
    truth: Doubles
    true_accuracy: float
    true_loss: float
    margin: float
    relative: bool
    weights: list[Doubles] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)
    updates: list[int] = field(default_factory=list)  # of the iteration before the version
    hours: list[float] = field(default_factory=list)  # time of the version
    violations: int = 0
    rolled_back: int = 0  # number of returns to the first weights
    shortened: int = 0  # number of halved steps
    gradients: int = 0
    gradient_seconds: float = 0.0  # of one core
    models: list[Model] = field(default_factory=list)

    def record(self, weights: Doubles, held_out: Any, updates: int, hours: float) -> None:
        """Append a version, measured on the held-out searches."""
        loss, accuracy = mean_loss_and_accuracy(self.scenario.heuristic, weights, held_out, self.margin, self.relative)
        self.weights.append(weights)
        self.accuracy.append(accuracy)
        self.loss.append(loss)
        self.updates.append(updates)
        self.hours.append(hours)

    def worst_drop(self) -> float:
        """Return the largest share of the first version's rank accuracy that a later version lost."""
        return max(0.0, 1.0 - min(self.accuracy) / self.accuracy[0])


Watch = Callable[[TuningHistory], bool | None]
"""Function that is called after each version; the tuning ends where it returns True."""


def simulate_tuning(tuning: Tuning, watch: Watch | None = None, scenario: Scenario | None = None) -> TuningHistory:
    """Run a tuning from its start to its last iteration, on the people of the heuristic or of another scenario."""
    scenario = scenario or find_scenario(tuning.heuristic)
    heuristic, relative = scenario.heuristic, tuning.loss == "relative"
    truth = heuristic.shipped if tuning.people == "shipped" else random_weights(heuristic, tuning.seed, 1)
    margin = tuning.loss_margin(scenario.margin)
    held_out = scenario.searches(tuning.seed, tuning.held_out, HELD_OUT, truth, tuning.sigma)
    true_loss, true_accuracy = mean_loss_and_accuracy(heuristic, truth, held_out, margin, relative)
    history = TuningHistory(scenario, truth, true_accuracy, true_loss, margin, relative)
    coordinator = TuningCoordinator(heuristic, tuning)
    first = heuristic.shipped if tuning.start == "shipped" else random_weights(heuristic, tuning.seed)
    state, search_times, now = coordinator.start(first), SearchTimes(tuning.traffic, tuning.seed), 0.0
    gradients(heuristic, first, slice_searches(held_out, 0, 1), margin, relative)  # load compiled code before timing
    history.record(state.published, held_out, 0, 0.0)
    while len(history.models) < tuning.iterations:
        while not coordinator.closes(state, now):
            count, now = _next_check(tuning.closing, state, search_times, now)
            if count:
                state = coordinator.receive(state, _search(tuning, history, state, count, coordinator.judges))
                search_times.skip(count)
        before, count = state, state.estimate.count
        state, model = coordinator.advance(state, now)
        expected = before.weights if coordinator.judges else state.weights
        if any(np.array_equal(state.published, weights) for weights in (before.published, expected)):
            history.violations += len(violations(heuristic, state.published, before.published))
        else:  # the first weights, which may be many steps away
            history.rolled_back += 1
        history.shortened += state.shortened > 0
        history.models.append(model)
        history.record(state.published, held_out, count, now / 3600.0)
        if watch is not None and watch(history):
            break
    return history


def _search(tuning: Tuning, history: TuningHistory, state: TuningState, count: int, judges: bool) -> Updates:
    """Return the updates of the next `count` searches under the current version."""
    scenario, at = history.scenario, history.gradients
    items = scenario.searches(tuning.seed, count, at, history.truth, tuning.sigma)
    began = time.thread_time()
    slopes, losses = gradients(scenario.heuristic, state.weights, items, history.margin, history.relative)
    history.gradient_seconds += time.thread_time() - began
    history.gradients += count
    coins = None
    if tuning.release.needs_coins:
        low, high = at & 0xFFFFFFFF, at >> 32  # draws belong to the number of the first search
        drawn = uniforms(tuning.seed, Purpose.RESPONSE, slopes.size, interaction=low, client=high)
        coins = (drawn < 0.5).reshape(slopes.shape)
    compared = np.stack((state.reference, state.published, state.weights))
    first = first_places(scenario.heuristic, compared, items) if judges else None
    return Updates(tuning.release.apply(slopes, coins), losses, first)


def _next_check(closing: Closing, state: TuningState, search_times: SearchTimes, now: float) -> tuple[int, float]:
    """Return the number of searches before the next check of the closing rule, and its time."""
    if isinstance(closing, Time) and now < (end := state.since + closing.seconds):
        return search_times.count_until(end), end
    size = closing.missing_updates(state.estimate) if isinstance(closing, Count) else CHECK_EVERY
    return size, float(search_times.upcoming(size)[-1])
