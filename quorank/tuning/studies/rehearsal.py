"""A study rehearsed on made-up people: is a true effect found, and is nothing found where there is none?

People of `people` type into the address bar of `url_bar`. The first arm ranks by weights part of the way from the
shipped ones to the people's own, as far as makes them type less by exactly the study's effect; arms whose name ends in
`no-decay` use the shipped weights without Firefox's daily decay, all others the shipped product. The same people with
the shipped product in every arm are the A/A study: whatever is found there is false.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from quorank.arrays import Doubles
from quorank.errors import require
from quorank.tuning.heuristics.frecency import FRECENCY
from quorank.tuning.heuristics.url_bar import DECAY, Ranker, Typed, frecency_ranker, observe
from quorank.tuning.histories.people import People
from quorank.tuning.studies.analysis import client_means, mann_whitney
from quorank.tuning.studies.arms import Study
from quorank.tuning.studies.power import Plan, Shape, plan, proportion_interval

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
    def seen(cls, count: int, of: int) -> Rate:
        return cls(count, of, count / of, *proportion_interval(count, of))


@dataclass(frozen=True)
class Rehearsal:
    """What repeated studies found."""

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

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def product(weights: Doubles | None = None) -> Ranker:
    """The shipped product: shipped weights and daily decay."""
    return frecency_ranker(FRECENCY.shipped if weights is None else weights, DECAY)


def treatment(people: People, strength: float) -> Ranker:
    """Weights on the way from the shipped ones to the people's own; recomputed all the time, so without decay."""
    return frecency_ranker(FRECENCY.shipped + strength * (np.array(people.taste) - FRECENCY.shipped))


def pilot(seed: int, people: People, metric: str, clients: int | None = None) -> Doubles:
    """The means of clients who use the shipped product."""
    found = observe(seed, _FIRST["pilot"], clients or PILOT, people, {"control": product()})
    return client_means(found["control"], metric)


def calibrate(seed: int, study: Study, people: People) -> tuple[float, float, float]:
    """The strength whose true effect is the study's, that effect measured on other persons, and its error."""
    strengths = np.linspace(0.0, 1.0, STEPS + 1)
    falls = _falls(seed, study.metric, people, _FIRST["calibration"], CALIBRATION, strengths).mean(axis=1)
    require(
        falls[-1] >= study.effect,
        f"these people's {study.metric} fall by {falls[-1]:.2f} at most, when ranked by their own weights; "
        f"rehearse a smaller effect than {study.effect:g}",
    )
    at = max(1, int(np.argmax(falls >= study.effect)))
    strength = float(np.interp(study.effect, falls[at - 1 : at + 1], strengths[at - 1 : at + 1]))
    check = _falls(seed, study.metric, people, _FIRST["check"], CHECK, np.array([strength]))[0]
    return strength, -float(check.mean()), float(check.std(ddof=1) / np.sqrt(len(check)))


def _falls(seed: int, metric: str, people: People, first: int, count: int, strengths: Doubles) -> Doubles:
    """By how much each person's mean falls from the shipped product to each strength, (strengths, persons)."""
    rankers = {str(i): treatment(people, float(s)) for i, s in enumerate(strengths)}
    found = observe(seed, first, count, people, {"control": product(), **rankers})
    control = client_means(found["control"], metric)
    return np.array([control - client_means(found[name], metric) for name in rankers])


def one_study(
    seed: int, study: Study, people: People, rankers: dict[str, Ranker], first: int, clients: int
) -> dict[str, dict[str, Typed]]:
    """The searches of persons `first` to `first + clients`, each in their own arm: under every ranker of `rankers`.

    The outer key is the ranker, the inner one the arm.
    """
    arms = np.array(study.assign_all(f"person-{number}" for number in range(first, first + clients)))
    found = observe(seed, first, clients, people, rankers)
    return {
        name: {arm: _only(typed, arms[typed.client - first] == arm) for arm in study.arms}
        for name, typed in found.items()
    }


def _only(typed: Typed, which: Any) -> Typed:
    return Typed(*(column[which] for column in typed))


def real_arms(study: Study, found: dict[str, dict[str, Typed]]) -> dict[str, Typed]:
    """Each arm's searches under the ranker that it is given."""
    first = next(iter(study.arms))
    return {
        arm: found["treatment" if arm == first else "no-decay" if arm.endswith("no-decay") else "control"][
            arm
        ]
        for arm in study.arms
    }


def rehearse(
    study: Study,
    people: People | None = None,
    *,
    repetitions: int = 200,
    seed: int = 1,
    clients: int | None = None,
    shape: Shape = "proportion",
    progress: Progress | None = None,
) -> Rehearsal:
    """Plan a study, then hold it `repetitions` times with new persons, with its effect and as A/A.

    clients: of a study, instead of the planned number.
    """
    people = people or People()
    require(repetitions >= 1, f"repetitions must be at least 1, got {repetitions}")
    require(clients is None or clients >= 10, f"clients must be at least 10, got {clients}")
    planned = plan(study, pilot(seed, people, study.metric), seed=seed, shape=shape)
    strength, effect, error = calibrate(seed, study, people)
    size = planned.clients if clients is None else clients
    rankers = _rankers(people, strength)
    found = nominal = any_ = pooled = 0
    first, second = list(study.arms)[:2]
    for repetition in range(repetitions):
        observed = one_study(seed, study, people, rankers, _FIRST["studies"] + repetition * size, size)
        real, same = real_arms(study, observed), observed["control"]
        found += _p(real, study.metric, first, second) < study.corrected_alpha
        nominal += _p(same, study.metric, first, second) < study.alpha
        any_ += any(_p(same, m, a, b) < study.corrected_alpha for m in study.metrics for a, b in study.pairs)
        pooled += (
            mann_whitney(*(_column(same[arm], study.metric) for arm in (first, second)))[1] < study.alpha
        )
        if progress is not None:
            progress(repetition + 1, repetitions)
    rates = [Rate.seen(count, repetitions) for count in (found, nominal, any_, pooled)]
    return Rehearsal(planned, repetitions, size, strength, effect, error, *rates)


def first_study(seed: int, study: Study, people: People, found: Rehearsal) -> dict[str, Typed]:
    """The searches of the first of the rehearsed studies, by arm."""
    rankers = _rankers(people, found.strength)
    return real_arms(study, one_study(seed, study, people, rankers, _FIRST["studies"], found.clients))


def _rankers(people: People, strength: float) -> dict[str, Ranker]:
    return {
        "treatment": treatment(people, strength), "control": product(), "no-decay": frecency_ranker(FRECENCY.shipped),
    }  # fmt: skip


def _column(typed: Typed, metric: str) -> Doubles:
    return np.asarray(getattr(typed, metric), dtype=np.float64)


def _p(arms: dict[str, Typed], metric: str, a: str, b: str) -> float:
    return mann_whitney(client_means(arms[a], metric), client_means(arms[b], metric))[1]
