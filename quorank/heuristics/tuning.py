"""A whole tuning, simulated: people search, clients send updates, the coordinator makes versions.

Hartmann et al. 2019, §6.1. Every part is the one that a deployment uses; only the people are made up. Held-out searches
measure each version: its mean loss, and its rank accuracy, the share of them whose chosen item stands first.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from quorank.draws import Purpose, uniforms
from quorank.errors import require
from quorank.heuristics.closing import Closing, Count, Time
from quorank.heuristics.constraints import random_weights, violations
from quorank.heuristics.differences import gradients
from quorank.heuristics.histories import SIGMA
from quorank.heuristics.loss import mean_loss_and_accuracy
from quorank.heuristics.models import Model
from quorank.heuristics.optimisers import Optimiser, Rprop
from quorank.heuristics.protocol import ENVELOPE, Protocol, Receipt, State, Updates
from quorank.heuristics.releases import Gradient, Release
from quorank.heuristics.searches import part
from quorank.heuristics.traffic import Flat, Traffic, arrivals
from quorank.heuristics.weights import Doubles
from quorank.heuristics.worlds import World, world

HELD_OUT = 2**40  # number of the first held-out search: no client ever meets it
GLANCE = 25  # updates between two looks at whether an iteration closes

Watch = Callable[[int, int], None]
"""watch(iterations done, iterations in all)."""


@dataclass(frozen=True)
class Tuning:
    """What is simulated."""

    heuristic: str = "frecency"
    start: Literal["random", "shipped"] = "shipped"
    people: Literal["shipped", "others"] = "shipped"  # whose weights the people follow
    iterations: int = 48
    margin: float | None = None  # Δ; by default that of the world
    sigma: float = SIGMA  # of the noise on people's choices
    optimiser: Optimiser = field(default_factory=Rprop)
    closing: Closing = field(default_factory=Count)
    release: Release = field(default_factory=Gradient)
    sure: float = 1.0  # see Protocol
    traffic: Traffic = field(default_factory=Flat)
    clients: int = 100_000
    held_out: int = 20_000
    seed: int = 1

    def __post_init__(self) -> None:
        world(self.heuristic)
        require(self.start in ("random", "shipped"), f"start must be random or shipped, got {self.start!r}")
        require(
            self.people in ("shipped", "others"), f"people must be shipped or others, got {self.people!r}"
        )
        require(self.iterations >= 1, f"iterations must be at least 1, got {self.iterations}")
        require(
            self.margin is None or 0.0 <= self.margin < np.inf,
            f"margin must be at least 0, got {self.margin}",
        )
        require(0.0 <= self.sigma < np.inf, f"sigma must be at least 0, got {self.sigma}")
        require(1 <= self.clients < 2**31, f"clients must be at least 1, got {self.clients}")
        require(self.held_out >= 1, f"held_out must be at least 1 search, got {self.held_out}")


@dataclass
class Course:
    """How a tuning went: one entry per version, version 0 first."""

    world: World
    truth: Doubles
    true_accuracy: float
    true_loss: float
    margin: float
    weights: list[Doubles] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)
    updates: list[int] = field(default_factory=list)  # of the iteration that made the version
    hours: list[float] = field(default_factory=list)  # when it was made
    violations: int = 0
    gradients: int = 0
    gradient_seconds: float = 0.0  # of one core
    models: list[Model] = field(default_factory=list)
    receipt: Receipt = field(default_factory=lambda: Receipt(0, 0, 0, 0))

    def worst_drop(self) -> float:
        """The largest share of the first version's rank accuracy that a later version lost."""
        return max(0.0, 1.0 - min(self.accuracy) / self.accuracy[0])


def true_weights(tuning: Tuning) -> Doubles:
    """What the people follow: the shipped weights, or other allowed ones that depend on the seed."""
    heuristic = world(tuning.heuristic).heuristic
    return (
        heuristic.shipped if tuning.people == "shipped" else random_weights(heuristic, tuning.seed, which=1)
    )


class _Clients:
    """The searches of all clients in the order of time, and the updates that come of them."""

    def __init__(self, tuning: Tuning, truth: Doubles, margin: float) -> None:
        self.tuning, self.truth, self.margin = tuning, truth, margin
        self.world = world(tuning.heuristic)
        self.source = arrivals(tuning.traffic, tuning.seed)
        self.times = np.empty(0)
        self.at = 0  # number of the next search
        self.done = 0  # of self.times

    def upcoming(self, count: int) -> Doubles:
        """The times of the next `count` searches."""
        while len(self.times) - self.done < count:
            self.times = np.concatenate((self.times[self.done :], next(self.source)))
            self.done = 0
        return self.times[self.done : self.done + count]

    def search(self, count: int, state: State, course: Course) -> Updates:
        """The next `count` searches under the version that is out, as updates."""
        tuning = self.tuning
        items = self.world.searches(tuning.seed, count, self.at, self.truth, tuning.sigma)
        began = time.thread_time()
        slopes, losses = gradients(self.world.heuristic, state.weights, items, self.margin)
        course.gradient_seconds += time.thread_time() - began
        course.gradients += count
        u = uniforms(
            tuning.seed, Purpose.PARTICIPATION, count, interaction=self.at & 0xFFFFFFFF, client=self.at >> 32
        )
        coins = None
        if not isinstance(tuning.release, Gradient):
            drawn = uniforms(
                tuning.seed,
                Purpose.RESPONSE,
                slopes.size,
                interaction=self.at & 0xFFFFFFFF,
                client=self.at >> 32,
            )
            coins = (drawn < 0.5).reshape(slopes.shape)
        number = np.arange(self.at, self.at + count)
        updates = Updates(
            np.full(count, state.version),
            (u * tuning.clients).astype(np.uint64),
            number % 2**31,
            tuning.release.pack(slopes, coins),
            losses,
        )
        self.at += count
        self.done += count
        return updates


def simulate(tuning: Tuning, watch: Watch | None = None) -> Course:
    """Run a tuning from its start to its last iteration."""
    here = world(tuning.heuristic)
    heuristic, truth = here.heuristic, true_weights(tuning)
    margin = here.margin if tuning.margin is None else tuning.margin
    held_out = here.searches(tuning.seed, tuning.held_out, HELD_OUT, truth, tuning.sigma)
    true_loss, true_accuracy = mean_loss_and_accuracy(heuristic, truth, held_out, margin)
    course = Course(here, truth, true_accuracy, true_loss, margin)
    protocol = Protocol(
        heuristic, tuning.optimiser, tuning.closing, tuning.release, tuning.sure, per_client=2**31
    )
    first = heuristic.shipped if tuning.start == "shipped" else random_weights(heuristic, tuning.seed)
    state = protocol.start(first)
    clients = _Clients(tuning, truth, margin)
    gradients(
        heuristic, first, part(held_out, 0, 1), margin
    )  # loads the compiled code, which is not to be timed
    _record(course, state.weights, held_out, margin, 0, 0.0)
    now = 0.0
    for iteration in range(tuning.iterations):
        while not protocol.closes(state, now):
            count, now = _next(tuning.closing, state, clients, now)
            if count:
                state, receipt = protocol.receive(state, clients.search(count, state, course))
                course.receipt = Receipt(*(a + b for a, b in zip(course.receipt, receipt, strict=True)))
        before, count = state.weights, state.estimate.count
        state, model = protocol.advance(state, now)
        course.violations += len(violations(heuristic, state.weights, before))
        course.models.append(model)
        _record(course, state.weights, held_out, margin, count, now / 3600.0)
        if watch is not None:
            watch(iteration + 1, tuning.iterations)
    return course


def _next(closing: Closing, state: State, clients: _Clients, now: float) -> tuple[int, float]:
    """How many searches come before the next look at whether the iteration closes, and when that is."""
    if isinstance(closing, Time):
        end = state.since + closing.seconds
        if now < end:
            size = GLANCE
            while (times := clients.upcoming(size))[-1] <= end:
                size *= 2
            return int(np.searchsorted(times, end, side="right")), end
    size = GLANCE
    if isinstance(closing, Count):
        size = closing.updates - state.estimate.count
    return size, float(clients.upcoming(size)[-1])


def _record(
    course: Course, weights: Doubles, held_out: Any, margin: float, updates: int, hours: float
) -> None:
    loss, accuracy = mean_loss_and_accuracy(course.world.heuristic, weights, held_out, margin)
    course.weights.append(weights)
    course.accuracy.append(accuracy)
    course.loss.append(loss)
    course.updates.append(updates)
    course.hours.append(hours)


def bytes_per_message(release: Release, weights: int) -> int:
    """An update with its envelope."""
    return ENVELOPE + release.size(weights)
