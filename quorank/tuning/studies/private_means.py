"""Metrics of a study under local differential privacy: devices randomise their own means, the service sees only answers.

A device averages a metric over its own searches, clips the mean at the study's largest value and answers by randomised
response (`privacy.mechanisms.randomised_response`), once in a study. ε covers the whole report, with an equal share for
each metric. The service, the network and readers of stored answers learn no more about a person than ε allows.

The mean of an arm's unbiased answers is an unbiased estimate of the mean over its clients (of the clipped means), and
their sample variance includes both the people's spread and the noise, so its standard error needs no assumption. Arms
are compared by the difference of means over its standard error, with Bonferroni's correction as in `analysis`. Ranks
cannot be compared: the Mann-Whitney test needs each client's value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from quorank.errors import require
from quorank.kernels.arrays import Doubles, Integers
from quorank.privacy.mechanisms.randomised_response import MetricResponse
from quorank.privacy.streams import Seed
from quorank.tuning.studies.analysis import ArmComparison, client_means
from quorank.tuning.studies.study import Study, TypedSearches

LEAST_CLIENTS = 4
"""Minimum number of clients of an arm: a mean of one or two would reveal their answers."""


@dataclass(frozen=True)
class PrivateArm:
    """Number of answers of an arm, and the estimated mean of each metric with its standard error."""

    clients: int
    mean: dict[str, float]
    error: dict[str, float]


@dataclass(frozen=True)
class PrivateAnalysis:
    """Arms and comparisons of a study, estimated from answers."""

    study: str
    epsilon: float
    alpha: float
    arms: dict[str, PrivateArm]
    comparisons: tuple[ArmComparison, ...]


@dataclass(frozen=True)
class PrivateMeans:
    """Randomised response of a study's devices, and estimates from the answers."""

    study: Study
    epsilon: float  # ε of a device's whole report

    def __post_init__(self) -> None:
        _ = self.response

    @cached_property
    def response(self) -> MetricResponse:
        """The randomised response of one metric."""
        return MetricResponse(self.epsilon / len(self.study.metrics))

    def answer(self, means: Mapping[str, float], seed: Seed, client: int = 0) -> tuple[int, ...]:
        """Return a device's answer for its own means, a number of steps for each metric; the seed is its secret."""
        one = {metric: np.array([float(mean)]) for metric, mean in means.items()}
        return tuple(self.answer_all(one, seed, client)[0].tolist())

    def answer_all(self, means: Mapping[str, Doubles], seed: Seed, first: int = 0) -> Integers:
        """Return the answers (clients, metrics) of the clients `first`, `first + 1`, … for their means (clients,)."""
        columns = []
        for number, metric in enumerate(self.study.metrics):
            shares = np.clip(means[metric] / self.study.largest[metric], 0.0, 1.0)
            columns.append(self.response.respond_all(shares, seed, number, first + np.arange(len(shares))))
        return np.stack(columns, axis=1)

    def allows(self, answer: tuple[float, ...]) -> bool:
        """Return whether an answer is one that an honest device can send."""
        steps = range(self.response.steps + 1)
        return len(answer) == len(self.study.metrics) and all(value in steps for value in answer)

    def values(self, answers: Integers) -> Doubles:
        """Return the unbiased values (clients, metrics), in the metrics' own units, of answers (clients, metrics)."""
        largest = np.array([self.study.largest[metric] for metric in self.study.metrics])
        each = np.array([self.response.unbiased(steps) for steps in range(self.response.steps + 1)])
        return np.asarray(each[answers] * largest, dtype=np.float64)

    def analyse(self, answers: Mapping[str, Integers]) -> PrivateAnalysis:
        """Estimate the means of all arms from their answers (clients, metrics), and compare every pair of arms."""
        study, arms = self.study, dict[str, PrivateArm]()
        for arm in study.arms:
            count = len(answers.get(arm, ()))
            few = f"arm {arm!r} has {count} answers; at least {LEAST_CLIENTS} are needed"
            require(count >= LEAST_CLIENTS, "study.empty-arm", few, f"study {study.name}")
            values = self.values(np.asarray(answers[arm]))
            mean, error = values.mean(axis=0).tolist(), (values.std(axis=0, ddof=1) / math.sqrt(count)).tolist()
            by_metric = (dict(zip(study.metrics, numbers, strict=True)) for numbers in (mean, error))
            arms[arm] = PrivateArm(count, *by_metric)
        compared = []
        for metric in study.metrics:
            for one, other in study.pairs:
                difference = arms[one].mean[metric] - arms[other].mean[metric]
                error = math.hypot(arms[one].error[metric], arms[other].error[metric])
                p = math.erfc(abs(difference) / error / math.sqrt(2.0)) if error > 0.0 else 1.0
                compared.append(ArmComparison.of(study, (metric, one, other), difference, error, p))
        return PrivateAnalysis(study.name, self.epsilon, study.alpha, arms, tuple(compared))


def simulate_answers(private: PrivateMeans, collected: Mapping[str, TypedSearches], seed: int) -> dict[str, Integers]:
    """Simulate the answers (clients, metrics) of the devices of these searches, by arm."""
    answers = {}
    for number, (arm, typed) in enumerate(collected.items()):
        means: dict[str, Doubles] = {metric: client_means(typed, metric) for metric in private.study.metrics}
        answers[arm] = private.answer_all(means, seed, number << 24)
    return answers
