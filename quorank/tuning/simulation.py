"""Simulation of a whole tuning: people search, clients send updates, the coordinator makes versions.

Hartmann et al. 2019, §6.1. All parts are those of a deployment; only the people are simulated. Held-out searches
measure each version: its mean loss, and its rank accuracy, the share of them whose chosen item stands first.

Searches arrive evenly, or more by day than by night (figure 6): a Poisson process with a rate that depends on the
hour. Gaps of a process of rate 1 are added up and transformed by the inverse of the cumulative rate.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from quorank.errors import require, require_range
from quorank.federation.server_optimisers import Rprop, Server
from quorank.kernels.arrays import Doubles
from quorank.kernels.draws import Purpose, uniforms
from quorank.parts import Family
from quorank.tuning.closing import Closing, Count
from quorank.tuning.coordinator import TuningCoordinator, TuningState, Updates
from quorank.tuning.guards import Guard, JudgedGuard
from quorank.tuning.heuristics.constraints import random_weights, violations
from quorank.tuning.histories.generated import SIGMA
from quorank.tuning.histories.scenarios import HELD_OUT, Scenario, find_scenario
from quorank.tuning.loss import first_places, gradients, losses, mean_loss_and_accuracy
from quorank.tuning.models import Model
from quorank.tuning.releases import GradientRelease, Release
from quorank.tuning.searches import slice_searches

CHECK_EVERY = 25  # updates between two checks of the closing rule
DAY = 86_400.0  # seconds
_BLOCK = 4096  # arrival times drawn at once
_GRID = 2881  # points of the cumulative rate of a day, every half minute

Watch = Callable[[int, int], None]
"""watch(iterations done, iterations in all)."""


@dataclass(frozen=True)
class Traffic(ABC):
    """Rate of searches over time."""

    kind: ClassVar[str]

    per_hour: float = 800.0  # searches of all clients together, on average over a day

    def __post_init__(self) -> None:
        require_range("per_hour", self.per_hour, above=0.0)

    @abstractmethod
    def rate(self, seconds: Doubles) -> Doubles:
        """Return the searches per second at these times."""


@dataclass(frozen=True)
class Flat(Traffic):
    """Constant rate of searches."""

    kind: ClassVar[str] = "flat"

    def rate(self, seconds: Doubles) -> Doubles:
        return np.full_like(seconds, self.per_hour / 3600.0)


@dataclass(frozen=True)
class DayNight(Traffic):
    """rate(t) = mean · (1 + swing · cos(2π·(t − peak)/day)); the run begins at midnight."""

    kind: ClassVar[str] = "day-night"

    swing: float = 0.9
    peak: float = 15.0  # hour

    def __post_init__(self) -> None:
        super().__post_init__()
        require_range("swing", self.swing, least=0.0, most=1.0)
        require_range("peak", self.peak, least=0.0, most=24.0)

    def rate(self, seconds: Doubles) -> Doubles:
        wave = np.cos(2.0 * math.pi * (seconds - 3600.0 * self.peak) / DAY)
        return np.asarray(self.per_hour / 3600.0 * (1.0 + self.swing * wave), dtype=np.float64)


TRAFFICS: Family[Traffic] = Family("traffic", Flat, DayNight, base=Traffic)


def arrival_times(traffic: Traffic, seed: int) -> Iterator[Doubles]:
    """Yield the times of all searches, in seconds, in blocks without end."""
    grid = np.linspace(0.0, DAY, _GRID)
    rates = traffic.rate(grid)
    cumulative = np.concatenate(([0.0], np.cumsum((rates[1:] + rates[:-1]) / 2.0 * np.diff(grid))))
    daily = float(cumulative[-1])
    before, block = 0.0, 0
    while True:
        gaps = -np.log1p(-uniforms(seed, Purpose.TRAFFIC, _BLOCK, round_=block))
        passed = before + np.cumsum(gaps)
        before, block = float(passed[-1]), block + 1
        days = np.floor(passed / daily)
        yield days * DAY + np.interp(passed - days * daily, cumulative, grid)


@dataclass(frozen=True)
class Tuning:
    """Settings of a simulated tuning: the heuristic, its people, and the parts of the coordinator."""

    heuristic: str = "frecency"
    start: Literal["random", "shipped"] = "shipped"
    people: Literal["shipped", "others"] = "shipped"  # weights by which the people choose
    iterations: int = 48
    loss: Literal["relative", "published"] = "relative"
    margin: float | None = None  # δ or Δ; by default that of the scenario
    sigma: float = SIGMA  # of the noise on people's choices
    optimiser: Server = field(default_factory=Rprop)
    closing: Closing = field(default_factory=Count)
    release: Release = field(default_factory=GradientRelease)
    sure: float | None = None  # see TuningCoordinator
    keep: float = 0.9  # see TuningCoordinator
    guard: Guard = field(default_factory=JudgedGuard)  # rule by which versions are published
    traffic: Traffic = field(default_factory=Flat)
    budget: int | None = None  # number of updates at which it ends,
    until: float | None = None  # or held-out loss at which it ends
    held_out: int = 20_000
    seed: int = 1

    def __post_init__(self) -> None:
        find_scenario(self.heuristic)
        words = {"start": ("random", "shipped"), "people": ("shipped", "others"), "loss": ("relative", "published")}
        for name, known in words.items():
            given = getattr(self, name)
            require(given in known, "value.out-of-range", f"must be {' or '.join(known)}, got {given!r}", name)
        require_range("iterations", self.iterations, least=1)
        if self.margin is not None:
            require_range("margin", self.margin, least=0.0)
        require_range("sigma", self.sigma, least=0.0)
        if self.budget is not None:
            require_range("budget", self.budget, least=1)
        require_range("held_out", self.held_out, least=1)


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


class _Clients:
    """Searches of all clients in the order of time, and their updates."""

    def __init__(self, tuning: Tuning, history: TuningHistory) -> None:
        self.tuning, self.history = tuning, history
        self.source = arrival_times(tuning.traffic, tuning.seed)
        self.times = np.empty(0)
        self.at = 0  # number of the next search
        self.done = 0  # consumed entries of self.times

    def upcoming(self, count: int) -> Doubles:
        """Return the times of the next `count` searches."""
        while len(self.times) - self.done < count:
            self.times = np.concatenate((self.times[self.done :], next(self.source)))
            self.done = 0
        return self.times[self.done : self.done + count]

    def upcoming_until(self, end: float) -> int:
        """Return the number of searches until a time."""
        size = CHECK_EVERY
        while (times := self.upcoming(size))[-1] <= end:
            size *= 2
        return int(np.searchsorted(times, end, side="right"))

    def search(self, count: int, state: TuningState) -> Updates:
        """Return the updates of the next `count` searches under the current version."""
        tuning, history, scenario = self.tuning, self.history, self.history.scenario
        items = scenario.searches(tuning.seed, count, self.at, history.truth, tuning.sigma)
        began = time.thread_time()
        slopes, losses = gradients(scenario.heuristic, state.weights, items, history.margin, history.relative)
        history.gradient_seconds += time.thread_time() - began
        history.gradients += count
        coins = None
        if tuning.release.needs_coins:
            low, high = self.at & 0xFFFFFFFF, self.at >> 32  # draws belong to the number of the first search
            drawn = uniforms(tuning.seed, Purpose.RESPONSE, slopes.size, interaction=low, client=high)
            coins = (drawn < 0.5).reshape(slopes.shape)
        first = None
        if tuning.guard.judges:
            compared = np.stack((state.reference, state.published, state.weights))
            first = first_places(scenario.heuristic, compared, items)
        self.at += count
        self.done += count
        return Updates(tuning.release.apply(slopes, coins), losses, first)


def simulate_tuning(tuning: Tuning, watch: Watch | None = None, scenario: Scenario | None = None) -> TuningHistory:
    """Run a tuning from its start to its last iteration, on the people of the heuristic or of another scenario."""
    scenario = scenario or find_scenario(tuning.heuristic)
    heuristic = scenario.heuristic
    truth = heuristic.shipped if tuning.people == "shipped" else random_weights(heuristic, tuning.seed, 1)
    relative = tuning.loss == "relative"
    margin = (scenario.share if relative else scenario.margin) if tuning.margin is None else tuning.margin
    held_out = scenario.searches(tuning.seed, tuning.held_out, HELD_OUT, truth, tuning.sigma)
    true_loss, true_accuracy = mean_loss_and_accuracy(heuristic, truth, held_out, margin, relative)
    history = TuningHistory(scenario, truth, true_accuracy, true_loss, margin, relative)
    coordinator = TuningCoordinator(
        heuristic, tuning.optimiser, tuning.closing, tuning.release, tuning.sure, tuning.keep, tuning.guard
    )
    first = heuristic.shipped if tuning.start == "shipped" else random_weights(heuristic, tuning.seed)
    state = coordinator.start(first)
    clients = _Clients(tuning, history)
    # load the compiled code before timing
    gradients(heuristic, first, slice_searches(held_out, 0, 1), margin, relative)
    history.record(state.published, held_out, 0, 0.0)
    now = 0.0
    for iteration in range(tuning.iterations):
        while not coordinator.closes(state, now):
            count, now = _next(tuning.closing, state, clients, now)
            if count:
                state = coordinator.receive(state, clients.search(count, state))
        before, count = state, state.estimate.count
        state, model = coordinator.advance(state, now)
        rolled_back = not np.array_equal(state.published, before.published) and not np.array_equal(
            state.published, before.weights if tuning.guard.judges else state.weights
        )
        history.rolled_back += rolled_back
        if not rolled_back:  # the first weights may be many steps away
            history.violations += len(violations(heuristic, state.published, before.published))
        history.shortened += state.shortened > 0
        history.models.append(model)
        history.record(state.published, held_out, count, now / 3600.0)
        if watch is not None:
            watch(iteration + 1, tuning.iterations)
        if tuning.budget is not None and sum(history.updates) >= tuning.budget:
            break
        if tuning.until is not None and history.loss[-1] <= tuning.until:
            break
    return history


def _next(closing: Closing, state: TuningState, clients: _Clients, now: float) -> tuple[int, float]:
    """Return the number of searches before the next check of the closing rule, and its time."""
    end = state.since + closing.least_seconds
    if now < end:
        return clients.upcoming_until(end), end
    missing = closing.missing_updates(state.estimate)
    size = CHECK_EVERY if missing is None else missing
    return size, float(clients.upcoming(size)[-1])


def last_loss_bound(tuning: Tuning, history: TuningHistory) -> float:
    """Return the last version's held-out loss plus one standard error of that mean."""
    scenario = history.scenario
    held_out = scenario.searches(tuning.seed, tuning.held_out, HELD_OUT, history.truth, tuning.sigma)
    scores = scenario.heuristic.score(history.weights[-1][None, :], held_out)
    each = losses(scores, held_out, history.margin, history.relative)[:, 0]
    return float(history.loss[-1] + each.std(ddof=1) / np.sqrt(len(each)))


def updates_until(history: TuningHistory, loss: float) -> float:
    """Return the updates until a version has at most this loss for the first time; infinite if none has."""
    there = np.flatnonzero(np.array(history.loss) <= loss)
    return float(np.cumsum(history.updates)[there[0]]) if there.size else float("inf")
