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

from quorank.arrays import Doubles, Integers
from quorank.draws import Purpose, uniforms
from quorank.errors import require
from quorank.tuning.closing import Closing, Count, Time
from quorank.tuning.coordinator import ENVELOPE, Protocol, Receipt, State, Updates
from quorank.tuning.differences import gradients
from quorank.tuning.heuristics.constraints import random_weights, violations
from quorank.tuning.histories.generated import SIGMA
from quorank.tuning.histories.worlds import World, world
from quorank.tuning.loss import losses, mean_loss_and_accuracy
from quorank.tuning.models import Model
from quorank.tuning.optimisers import Optimiser, Rprop
from quorank.tuning.releases import Gradient, Release
from quorank.tuning.searches import part
from quorank.tuning.traffic import Flat, Traffic, arrivals

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
    loss: Literal["relative", "published"] = "relative"
    margin: float | None = None  # δ or Δ; by default that of the world
    sigma: float = SIGMA  # of the noise on people's choices
    optimiser: Optimiser = field(default_factory=Rprop)
    closing: Closing = field(default_factory=Count)
    release: Release = field(default_factory=Gradient)
    sure: float | None = None  # see Protocol
    keep: float = 0.9  # see Protocol
    traffic: Traffic = field(default_factory=Flat)
    late: float = 0.0  # share of updates that arrive when the next iteration has begun
    duplicates: float = 0.0  # share of updates that arrive twice
    budget: int | None = None  # ends also when so many updates were counted,
    until: float | None = None  # or when the held-out loss is no more than this
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
        require(
            self.loss in ("relative", "published"), f"loss must be relative or published, got {self.loss!r}"
        )
        for name, share in (("late", self.late), ("duplicates", self.duplicates)):
            require(0.0 <= share < 1.0, f"{name} must be a share below 1, got {share}")
        require(self.budget is None or self.budget >= 1, f"budget must be at least 1, got {self.budget}")
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
    relative: bool
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
        self.delayed: list[Updates] = []  # on their way until the next iteration

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
        slopes, losses = gradients(
            self.world.heuristic, state.weights, items, self.margin, tuning.loss == "relative"
        )
        course.gradient_seconds += time.thread_time() - began
        course.gradients += count
        u = self._draws(Purpose.PARTICIPATION, count)
        coins = None
        if not isinstance(tuning.release, Gradient):
            coins = (self._draws(Purpose.RESPONSE, slopes.size) < 0.5).reshape(slopes.shape)
        number = np.arange(self.at, self.at + count)
        updates = Updates(
            np.full(count, state.version),
            (u * tuning.clients).astype(np.uint64),
            number % 2**31,
            tuning.release.pack(slopes, coins),
            losses,
        )
        arrived = self._travel(updates, state.version)
        self.at += count
        self.done += count
        return arrived

    def _draws(self, purpose: Purpose, count: int, round_: int = 0) -> Doubles:
        """Uniform draws that belong to the search `self.at`."""
        low, high = self.at & 0xFFFFFFFF, self.at >> 32
        return uniforms(self.tuning.seed, purpose, count, round_=round_, interaction=low, client=high)

    def _travel(self, updates: Updates, version: int) -> Updates:
        """What arrives: those of an earlier version that were on their way, and of these all but the late, some twice."""
        tuning, count = self.tuning, len(updates.version)
        if not (tuning.late or tuning.duplicates):
            return updates
        late = self._draws(Purpose.PARTICIPATION, count, 1) < tuning.late
        twice = self._draws(Purpose.PARTICIPATION, count, 2) < tuning.duplicates
        due = [u for u in self.delayed if u.version[0] < version]
        self.delayed = [u for u in self.delayed if u.version[0] == version]
        if late.any():
            self.delayed.append(_rows(updates, np.flatnonzero(late)))
        here = np.repeat(np.flatnonzero(~late), 1 + twice[~late])
        columns: Any = zip(*due, _rows(updates, here), strict=True)
        return Updates(*map(np.concatenate, columns))


def _rows(updates: Updates, which: Integers) -> Updates:
    version, client, number, payload, loss = updates
    return Updates(version[which], client[which], number[which], payload[which], loss[which])


def simulate(tuning: Tuning, watch: Watch | None = None) -> Course:
    """Run a tuning from its start to its last iteration."""
    here = world(tuning.heuristic)
    heuristic, truth = here.heuristic, true_weights(tuning)
    relative = tuning.loss == "relative"
    margin = (here.share if relative else here.margin) if tuning.margin is None else tuning.margin
    held_out = here.searches(tuning.seed, tuning.held_out, HELD_OUT, truth, tuning.sigma)
    true_loss, true_accuracy = mean_loss_and_accuracy(heuristic, truth, held_out, margin, relative)
    course = Course(here, truth, true_accuracy, true_loss, margin, relative)
    protocol = Protocol(
        heuristic,
        tuning.optimiser,
        tuning.closing,
        tuning.release,
        tuning.sure,
        tuning.keep,
        per_client=2**31,
    )
    first = heuristic.shipped if tuning.start == "shipped" else random_weights(heuristic, tuning.seed)
    state = protocol.start(first)
    clients = _Clients(tuning, truth, margin)
    gradients(
        heuristic, first, part(held_out, 0, 1), margin, relative
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
        if tuning.budget is not None and course.receipt.counted >= tuning.budget:
            break
        if tuning.until is not None and course.loss[-1] <= tuning.until:
            break
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
    loss, accuracy = mean_loss_and_accuracy(
        course.world.heuristic, weights, held_out, margin, course.relative
    )
    course.weights.append(weights)
    course.accuracy.append(accuracy)
    course.loss.append(loss)
    course.updates.append(updates)
    course.hours.append(hours)


def bytes_per_message(release: Release, weights: int) -> int:
    """An update with its envelope."""
    return ENVELOPE + release.size(weights)


def same_loss(tuning: Tuning, course: Course) -> float:
    """The most that counts as the loss of the last version: one standard error of the held-out mean above it."""
    held_out = course.world.searches(tuning.seed, tuning.held_out, HELD_OUT, course.truth, tuning.sigma)
    scores = course.world.heuristic.score(course.weights[-1][None, :], held_out)
    each = losses(scores, held_out, course.margin, course.relative)[:, 0]
    return float(course.loss[-1] + each.std(ddof=1) / np.sqrt(len(each)))


def updates_to(course: Course, loss: float) -> float:
    """Updates until a version has at most this loss for the first time; infinite if none has."""
    there = np.flatnonzero(np.array(course.loss) <= loss)
    return float(np.cumsum(course.updates)[there[0]]) if there.size else float("inf")
