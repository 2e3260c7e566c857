"""Rehearsal of a study on simulated people: how often a true effect is found, and an effect that is not there.

Persons of `people` type into the simulator of `address_bar`. The first arm ranks by weights part of the way from the
shipped ones to the people's own, as far as lowers the study's metric by exactly its effect; arms whose name ends in
`no-decay` use the shipped weights without Firefox's daily decay, all others the shipped product. The same people with
the shipped product in every arm are the A/A study: whatever is found there is false.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from quorank.errors import require
from quorank.kernels.arrays import Doubles
from quorank.tuning.heuristics.frecency import FRECENCY
from quorank.tuning.histories.people import People
from quorank.tuning.searches import take_rows
from quorank.tuning.studies.address_bar import DECAY, PageRanker, TypedSearches, frecency_ranker, observe_typing
from quorank.tuning.studies.analysis import client_means, mann_whitney
from quorank.tuning.studies.power import Plan, Shape, plan_study, proportion_interval
from quorank.tuning.studies.study import Study

PILOT, CALIBRATION, CHECK = 4000, 16000, 12000  # persons; each has a range of numbers of its own
_FIRST = {"pilot": 0, "calibration": 10**6, "check": 2 * 10**6, "studies": 10**7}
STEPS = 16  # strengths tried at once

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Rate:
    """A share of repetitions with its 95 % interval."""

    count: int
    of: int
    rate: float
    low: float
    high: float

    @classmethod
    def observed(cls, count: int, of: int) -> Rate:
        """Return the rate of `count` out of `of` repetitions."""
        return cls(count, of, count / of, *proportion_interval(count, of))


@dataclass(frozen=True)
class StudyRehearsal:
    """Findings of repeated studies."""

    plan: Plan
    repetitions: int
    clients: int  # of each study
    strength: float  # how far the treatment's weights are from the shipped to the people's own
    true_effect: float  # mean change of the planned metric by the treatment, over persons
    true_effect_error: float  # its standard error
    found: Rate  # studies whose planned comparison is significant after correction
    false_nominal: Rate  # A/A studies: planned comparison below α, without correction
    false_any: Rate  # A/A studies: any comparison significant after correction
    false_pooled: Rate  # A/A studies: planned comparison below α when searches are pooled


def shipped_ranker() -> PageRanker:
    """Return the shipped product: shipped weights and daily decay."""
    return frecency_ranker(FRECENCY.shipped, DECAY)


def treatment_ranker(people: People, strength: float) -> PageRanker:
    """Return a ranker with weights between the shipped ones and the people's own; recomputed often, so without decay."""
    return frecency_ranker(FRECENCY.shipped + strength * (np.array(people.taste) - FRECENCY.shipped))


def pilot_means(seed: int, people: People, metric: str) -> Doubles:
    """Simulate the means (clients,) of clients who use the shipped product."""
    found = observe_typing(seed, _FIRST["pilot"], PILOT, people, {"control": shipped_ranker()})
    return client_means(found["control"], metric)


def calibrate(seed: int, study: Study, people: People) -> tuple[float, float, float]:
    """Find the strength whose true effect is the study's; return it, that effect on other persons, and its error."""
    strengths = np.linspace(0.0, 1.0, STEPS + 1)
    falls = _falls(seed, study.metric, people, _FIRST["calibration"], CALIBRATION, strengths).mean(axis=1)
    most = f"these people's {study.metric} fall by {falls[-1]:.2f} at most, when ranked by their own weights"
    smaller = f"rehearse a smaller effect than {study.effect:g}"
    require(falls[-1] >= study.effect, "study.effect-too-large", f"{most}; {smaller}")
    at = max(1, int(np.argmax(falls >= study.effect)))
    strength = float(np.interp(study.effect, falls[at - 1 : at + 1], strengths[at - 1 : at + 1]))
    check = _falls(seed, study.metric, people, _FIRST["check"], CHECK, np.array([strength]))[0]
    return strength, -float(check.mean()), float(check.std(ddof=1) / np.sqrt(len(check)))


def _falls(seed: int, metric: str, people: People, first: int, count: int, strengths: Doubles) -> Doubles:
    """Return by how much each person's mean falls from the shipped product to each strength, (strengths, persons)."""
    rankers = {str(i): treatment_ranker(people, float(s)) for i, s in enumerate(strengths)}
    found = observe_typing(seed, first, count, people, {"control": shipped_ranker(), **rankers})
    control = client_means(found["control"], metric)
    return np.array([control - client_means(found[name], metric) for name in rankers])


def observe_study(
    seed: int, study: Study, people: People, rankers: dict[str, PageRanker], first: int, clients: int
) -> dict[str, dict[str, TypedSearches]]:
    """Simulate the searches of persons `first` to `first + clients` under every ranker, and split them by arm.

    The outer key of the result is the ranker, the inner one the arm.
    """
    arms = np.array(study.assign_all(f"person-{number}" for number in range(first, first + clients)))
    found = observe_typing(seed, first, clients, people, rankers)
    return {
        name: {arm: take_rows(typed, arms[typed.client - first] == arm) for arm in study.arms}
        for name, typed in found.items()
    }


def searches_by_arm(study: Study, found: dict[str, dict[str, TypedSearches]]) -> dict[str, TypedSearches]:
    """Return each arm's searches under the ranker of that arm."""
    first = next(iter(study.arms))
    return {
        arm: found["treatment" if arm == first else "no-decay" if arm.endswith("no-decay") else "control"][arm]
        for arm in study.arms
    }


def rehearse_study(
    study: Study,
    people: People,
    *,
    repetitions: int = 200,
    seed: int = 1,
    clients: int | None = None,
    shape: Shape = "proportion",
    progress: Progress | None = None,
) -> StudyRehearsal:
    """Plan a study, then simulate it `repetitions` times with new persons, with its effect and as A/A.

    clients: of a study, instead of the planned number.
    """
    planned = plan_study(study, pilot_means(seed, people, study.metric), seed=seed, shape=shape)
    strength, effect, error = calibrate(seed, study, people)
    size = planned.clients if clients is None else clients
    rankers = arm_rankers(treatment_ranker(people, strength))
    found = nominal = any_ = pooled = 0
    first, second = list(study.arms)[:2]
    for repetition in range(repetitions):
        observed = observe_study(seed, study, people, rankers, _FIRST["studies"] + repetition * size, size)
        real, same = searches_by_arm(study, observed), observed["control"]
        found += _p(real, study.metric, first, second) < study.corrected_alpha
        nominal += _p(same, study.metric, first, second) < study.alpha
        any_ += any(_p(same, m, a, b) < study.corrected_alpha for m in study.metrics for a, b in study.pairs)
        pooled += mann_whitney(*(same[arm].metric(study.metric) for arm in (first, second)))[1] < study.alpha
        if progress is not None:
            progress(repetition + 1, repetitions)
    rates = [Rate.observed(count, repetitions) for count in (found, nominal, any_, pooled)]
    return StudyRehearsal(planned, repetitions, size, strength, effect, error, *rates)


def first_study(seed: int, study: Study, people: People, found: StudyRehearsal) -> dict[str, TypedSearches]:
    """Return the searches of the first rehearsed study, by arm."""
    rankers = arm_rankers(treatment_ranker(people, found.strength))
    return searches_by_arm(study, observe_study(seed, study, people, rankers, _FIRST["studies"], found.clients))


def arm_rankers(treatment: PageRanker) -> dict[str, PageRanker]:
    """Return the rankers of a study by name: the treatment, and the shipped product with and without decay."""
    return {"treatment": treatment, "control": shipped_ranker(), "no-decay": frecency_ranker(FRECENCY.shipped)}


def _p(arms: dict[str, TypedSearches], metric: str, a: str, b: str) -> float:
    return mann_whitney(client_means(arms[a], metric), client_means(arms[b], metric))[1]
