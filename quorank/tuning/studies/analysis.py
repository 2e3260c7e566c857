"""Analysis of a study: every pair of arms compared in every metric (Hartmann et al. 2019, §6.2 and §6.3).

The Mann-Whitney U test compares two arms, Bonferroni's correction bounds the probability of any false finding in the
whole study by α, and effect sizes measure a difference, which p-values of large studies do not: the difference of
means, the common-language effect size P(a > b) + P(a = b)/2 = U / (n_a · n_b) (McGraw and Wong 1992; Vargha and
Delaney 2000), and the rank-biserial correlation, twice that minus one (Wendt 1972).

The unit is the client: a client's searches are averaged first. Searches of one person are correlated, so a test that
pools them overstates its certainty and rejects true null hypotheses far more often than α. It also counts a person
with a hundred searches as a hundred people. The paper does not state the unit of its p-values. `pooled_p` is the
result of pooling.

Metrics under local differential privacy (`PrivateMeans`): devices randomise their own means, the service sees only
answers. A device averages a metric over its own searches, clips the mean at the study's largest value and answers by
randomised response (`privacy.mechanisms.randomised_response`), once in a study. ε covers the whole report, with an
equal share for each metric. The service, the network and readers of stored answers learn no more about a person than
ε allows.

The mean of an arm's unbiased answers is an unbiased estimate of the mean over its clients (of the clipped means), and
their sample variance includes both the people's spread and the noise, so its standard error needs no assumption. Arms
are compared by the difference of means over its standard error, with Bonferroni's correction. Ranks
cannot be compared: the Mann-Whitney test needs each client's value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from quorank.errors import require
from quorank.kernels.arrays import Doubles, Integers
from quorank.metrics.significance import bonferroni
from quorank.privacy.mechanisms.randomised_response import MetricResponse
from quorank.privacy.streams import Seed
from quorank.tuning.studies.study import Study, TypedSearches


@dataclass(frozen=True)
class Arm:
    """Clients and searches of an arm, with its means; `deviation` is that between clients."""

    clients: int
    searches: int
    mean: dict[str, float]  # of the clients' means, by metric
    deviation: dict[str, float]
    mean_of_searches: dict[str, float]  # as the paper's table: heavy users count more


@dataclass(frozen=True)
class ArmComparison:
    """Comparison of two arms in one metric; negative differences are falls from `baseline` to `arm`."""

    metric: str
    arm: str
    baseline: str
    difference: float  # of the means over clients
    error: float  # its standard error
    p: float  # two-sided
    corrected_p: float  # Bonferroni over all comparisons of the study
    significant: bool

    @classmethod
    def of(
        cls, study: Study, names: tuple[str, str, str], difference: float, error: float, p: float, **sizes: Any
    ) -> Self:
        """Return the comparison of (metric, arm, baseline), with its p-value corrected."""
        corrected = bonferroni(p, study.comparisons)
        return cls(*names, difference, error, p, corrected, corrected < study.alpha, **sizes)


@dataclass(frozen=True)
class RankComparison(ArmComparison):
    """Comparison by the ranks of clients' values."""

    u: float
    rank_biserial: float
    common_language: float  # chance that a client of `arm` has the larger value, ties as half
    pooled_p: float  # p of a test of single searches, which is invalid


@dataclass(frozen=True)
class Analysis:
    """Arms and comparisons of a whole study."""

    study: str
    alpha: float
    corrected_alpha: float
    comparisons: tuple[RankComparison, ...]
    arms: dict[str, Arm]

    def of(self, metric: str, arm: str, baseline: str) -> RankComparison:
        """Return the comparison of two arms in one metric."""
        return next(c for c in self.comparisons if (c.metric, c.arm, c.baseline) == (metric, arm, baseline))


def client_means(typed: TypedSearches, metric: str) -> Doubles:
    """Compute the mean of each client's searches (clients,)."""
    _, numbers, counts = np.unique(typed.client, return_inverse=True, return_counts=True)
    return np.asarray(np.bincount(numbers, typed.metric(metric), len(counts)) / counts, dtype=np.float64)


def mann_whitney(a: Doubles, b: Doubles) -> tuple[float, float]:
    """Compute U of a and its two-sided p: scipy's, exact for small samples without ties, else corrected for ties."""
    from scipy.stats import mannwhitneyu

    found = mannwhitneyu(a, b, alternative="two-sided")
    p = float(found.pvalue)
    return float(found.statistic), 1.0 if np.isnan(p) else p  # no spread at all


def analyse(study: Study, collected: Mapping[str, TypedSearches]) -> Analysis:
    """Compare all arms of a study from the searches of each."""
    arms, means = dict[str, Arm](), dict[tuple[str, str], Doubles]()
    for arm in study.arms:
        empty = f"arm {arm!r} has no searches, so nothing can be compared with it"
        require(arm in collected and len(collected[arm].client), "study.empty-arm", empty, f"study {study.name}")
        typed, own = collected[arm], {metric: client_means(collected[arm], metric) for metric in study.metrics}
        means |= {(metric, arm): values for metric, values in own.items()}
        arms[arm] = Arm(
            len(own[study.metrics[0]]),
            len(typed.client),
            {metric: float(values.mean()) for metric, values in own.items()},
            {metric: float(values.std(ddof=1)) if len(values) > 1 else 0.0 for metric, values in own.items()},
            {metric: float(typed.metric(metric).mean()) for metric in study.metrics},
        )
    compared = []
    for metric, one, other in study.compared:
        a, b = means[metric, one], means[metric, other]
        u, p = mann_whitney(a, b)
        common = u / (len(a) * len(b))
        error = math.hypot(*(arms[arm].deviation[metric] / math.sqrt(arms[arm].clients) for arm in (one, other)))
        _, pooled = mann_whitney(collected[one].metric(metric), collected[other].metric(metric))
        effects = {"u": u, "rank_biserial": 2.0 * common - 1.0, "common_language": common, "pooled_p": pooled}
        difference = float(a.mean() - b.mean())
        compared.append(RankComparison.of(study, (metric, one, other), difference, error, p, **effects))
    return Analysis(study.name, study.alpha, study.corrected_alpha, tuple(compared), arms)


LEAST_CLIENTS = 4  # minimum number of clients of an arm: a mean of one or two would reveal their answers


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
        for metric, one, other in study.compared:
            difference = arms[one].mean[metric] - arms[other].mean[metric]
            error = math.hypot(arms[one].error[metric], arms[other].error[metric])
            p = math.erfc(abs(difference) / error / math.sqrt(2.0)) if error > 0.0 else 1.0
            compared.append(ArmComparison.of(study, (metric, one, other), difference, error, p))
        return PrivateAnalysis(study.name, self.epsilon, study.alpha, arms, tuple(compared))
