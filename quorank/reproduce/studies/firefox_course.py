"""The tuning of the Firefox study with its three arms side by side (Hartmann et al. 2019, §6.2 to §6.4).

People follow other weights than the shipped ones, or there would be nothing to find. Clients of the treatment compute
updates and get a new version after every iteration; the controls only report the loss of what they have: the shipped
weights, with and without the daily decay of scores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from quorank.arrays import Doubles
from quorank.draws import Purpose, uniforms
from quorank.tuning.closing import Count
from quorank.tuning.coordinator import TuningCoordinator, Updates
from quorank.tuning.heuristics.frecency import FRECENCY
from quorank.tuning.histories.generated import Suggestions, draw_choices, generate_suggestions
from quorank.tuning.histories.people import SCENARIOS, People, idle_days
from quorank.tuning.loss import firsts, gradients, losses
from quorank.tuning.studies.address_bar import DECAY, decayed
from quorank.tuning.studies.study import ARMS

MARGIN = SCENARIOS["frecency"].margin
SHRUNK = (1.0, 0.5, 0.1)
_PART, _SHRUNK = 2**30, 2**31  # first search numbers of controls, and of what is only multiplied


@dataclass
class Course:
    """How the tuning went, an entry per iteration."""

    weights: list[Doubles] = field(default_factory=list)  # the version that was out, then the last one
    loss: dict[str, list[float]] = field(default_factory=lambda: {arm: [] for arm in ARMS})
    accuracy: dict[str, list[float]] = field(default_factory=lambda: {arm: [] for arm in ARMS})
    distance: list[float] = field(
        default_factory=list
    )  # L1 from a sample's update to that of all, mean over samples
    spread: list[float] = field(default_factory=list)  # standard deviation over samples
    length: list[float] = field(default_factory=list)  # L1 of the update of all
    agreement: list[float] = field(default_factory=list)  # share of weights whose sign a sample gets right


def searches(seed: int, first: int, count: int, people: People) -> tuple[Suggestions, Doubles]:
    """Searches of these people with what they chose, and the days since each suggestion's last visit."""
    shown = generate_suggestions(seed, count, first=first, setting=people.history)
    truth = np.ascontiguousarray(FRECENCY.score(np.array([people.taste]), shown)[0])
    return draw_choices(seed, shown, truth, first=first), idle_days(seed, shown, first=first)


def report(scores: Doubles, items: Suggestions) -> tuple[float, float]:
    """The mean loss of these scores, and how often the chosen suggestion stands first."""
    exact = np.ascontiguousarray(scores)
    loss = losses(exact[None, :], items, MARGIN)
    return float(loss.mean()), float(firsts(exact, items.offsets, items.chosen).mean())


def tune(
    seed: int,
    people: People,
    iterations: int,
    updates: int,
    *,
    sample: int = 0,
    samples: int = 0,
    watch: Callable[[], None] | None = None,
) -> Course:
    """`iterations` of `updates` searches each; `samples` estimates from `sample` of them where that is asked for."""
    protocol = TuningCoordinator(FRECENCY, closing=Count(updates), per_client=2**31)
    state, course = protocol.start(), Course()
    for iteration in range(iterations):
        items, _ = searches(seed, iteration * updates, updates, people)
        slopes, each = gradients(FRECENCY, state.weights, items, MARGIN)
        course.weights.append(state.weights)
        course.loss["treatment"].append(float(each.mean()))
        scores = np.ascontiguousarray(FRECENCY.score(state.weights[None, :], items)[0])
        course.accuracy["treatment"].append(float(firsts(scores, items.offsets, items.chosen).mean()))
        _report_controls(course, seed, iteration, max(1, updates // 3), people)
        if samples:
            _estimate(course, seed, iteration, slopes, sample, samples)
        number = np.arange(updates)
        packed = Updates(
            np.full(updates, state.version), number.astype(np.uint64), number, protocol.release.pack(slopes), each
        )  # fmt: skip
        state, _ = protocol.receive(state, packed)
        state, _ = protocol.advance(state, float(iteration))
        if watch is not None:
            watch()
    course.weights.append(state.weights)
    return course


def _report_controls(course: Course, seed: int, iteration: int, count: int, people: People) -> None:
    for place, (arm, decay) in enumerate((("control", DECAY), ("control-no-decay", 0.0))):
        first = _PART + (2 * iteration + place) * count
        items, idle = searches(seed, first, count, people)
        loss, accuracy = report(decayed(_shipped(items), idle, decay), items)
        course.loss[arm].append(loss)
        course.accuracy[arm].append(accuracy)


def _shipped(items: Suggestions) -> Doubles:
    return np.asarray(FRECENCY.score(FRECENCY.shipped[None, :], items)[0], dtype=np.float64)


def _estimate(course: Course, seed: int, iteration: int, slopes: Doubles, sample: int, samples: int) -> None:
    """How far the update of some reports is from that of all (§6.4)."""
    whole = slopes.mean(axis=0)
    distances, right = [], []
    for draw in range(samples):
        order = uniforms(seed, Purpose.STUDY, len(slopes), round_=iteration, client=draw)
        some = slopes[np.argpartition(order, sample)[:sample]] if sample < len(slopes) else slopes
        part = some.mean(axis=0)
        distances.append(np.abs(part - whole).sum())
        right.append((np.sign(part) == np.sign(whole)).mean())
    course.distance.append(float(np.mean(distances)))
    course.spread.append(float(np.std(distances)))
    course.length.append(float(np.abs(whole).sum()))
    course.agreement.append(float(np.mean(right)))


def shrunk_losses(seed: int, people: People, count: int) -> list[tuple[float, float, float]]:
    """(factor, loss, accuracy) of the shipped weights with all points multiplied: the order of pages stays the same."""
    items, _ = searches(seed, _SHRUNK, count, people)
    return [(factor, *report(factor * _shipped(items), items)) for factor in SHRUNK]
