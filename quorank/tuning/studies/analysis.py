"""Analysis of a study: every pair of arms compared in every metric (Hartmann et al. 2019, §6.2 and §6.3).

The Mann-Whitney U test compares two arms, Bonferroni's correction bounds the probability of any false finding in the
whole study by α, and effect sizes measure a difference, which p-values of large studies do not.

Mann and Whitney (Ann. Math. Stat. 1947) count the pairs in which a value of the first sample is above one of the
second, ties as half: U. Dividing by all pairs gives the common-language effect size, P(a > b) + P(a = b)/2 (McGraw and
Wong 1992; Vargha and Delaney 2000); twice that minus one is the rank-biserial correlation (Wendt 1972). The shift is
the median of all differences (Hodges and Lehmann 1963), and its interval lies between two of them (Lehmann 1975).
Pairs are counted, never listed: a study has thousands of millions.

The unit is the client: a client's searches are averaged first. Searches of one person are correlated, so a test that
pools them overstates its certainty and rejects true null hypotheses far more often than α. It also counts a person
with a hundred searches as a hundred people. The paper does not state the unit of its p-values. `pooled_p` is the
result of pooling.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from quorank.errors import require
from quorank.kernels.arrays import Doubles
from quorank.kernels.compiled import kernel
from quorank.metrics.significance import bonferroni
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
    u: float
    p: float  # two-sided
    corrected_p: float  # Bonferroni over all comparisons of the study
    significant: bool
    rank_biserial: float
    common_language: float  # chance that a client of `arm` has the larger value, ties as half
    shift: float  # Hodges-Lehmann
    shift_low: float  # its interval, at the corrected level
    shift_high: float
    pooled_p: float  # p of a test of single searches, which is invalid


@dataclass(frozen=True)
class Analysis:
    """Arms and comparisons of a whole study."""

    study: str
    alpha: float
    comparisons: tuple[ArmComparison, ...]
    arms: dict[str, Arm]

    def of(self, metric: str, arm: str, baseline: str) -> ArmComparison:
        """Return the comparison of two arms in one metric."""
        return next(c for c in self.comparisons if (c.metric, c.arm, c.baseline) == (metric, arm, baseline))

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self) | {"corrected_alpha": self.alpha / len(self.comparisons)}


def client_means(typed: TypedSearches, metric: str) -> Doubles:
    """Compute the mean of each client's searches (clients,)."""
    _, numbers, counts = np.unique(typed.client, return_inverse=True, return_counts=True)
    sums = np.bincount(numbers, typed.metric(metric), len(counts))
    return np.asarray(sums / counts, dtype=np.float64)


def mann_whitney(a: Doubles, b: Doubles) -> tuple[float, float]:
    """Compute U of a and its two-sided p: scipy's, exact for small samples without ties, else corrected for ties."""
    from scipy.stats import mannwhitneyu

    found = mannwhitneyu(a, b, alternative="two-sided")
    p = float(found.pvalue)
    return float(found.statistic), 1.0 if np.isnan(p) else p  # no spread at all


def analyse(study: Study, collected: Mapping[str, TypedSearches]) -> Analysis:
    """Compare all arms of a study from the searches of each."""
    for arm in study.arms:
        empty = f"arm {arm!r} has no searches, so nothing can be compared with it"
        require(arm in collected and len(collected[arm].client), "study.empty-arm", empty, f"study {study.name}")
    means = {arm: {metric: client_means(collected[arm], metric) for metric in study.metrics} for arm in study.arms}
    compared = tuple(
        _compare(study, metric, a, b, means[a][metric], means[b][metric], collected)
        for metric in study.metrics
        for a, b in study.pairs
    )
    arms = {
        arm: Arm(
            len(next(iter(means[arm].values()))),
            len(collected[arm].client),
            {metric: float(values.mean()) for metric, values in means[arm].items()},
            {m: float(values.std(ddof=1)) if len(values) > 1 else 0.0 for m, values in means[arm].items()},
            {metric: float(getattr(collected[arm], metric).mean()) for metric in study.metrics},
        )
        for arm in study.arms
    }
    return Analysis(study.name, study.alpha, compared, arms)


def _compare(
    study: Study, metric: str, arm: str, baseline: str, a: Doubles, b: Doubles, collected: Mapping[str, TypedSearches]
) -> ArmComparison:
    u, p = mann_whitney(a, b)
    corrected = bonferroni(p, study.comparisons)
    shift = hodges_lehmann(a, b, 1.0 - study.corrected_alpha)
    singles = [collected[name].metric(metric) for name in (arm, baseline)]
    return ArmComparison(
        metric,
        arm,
        baseline,
        float(a.mean() - b.mean()),
        u,
        p,
        corrected,
        corrected < study.alpha,
        rank_biserial(u, len(a), len(b)),
        common_language(u, len(a), len(b)),
        *shift,
        mann_whitney(*singles)[1],
    )


class Shift(NamedTuple):
    """Median of all differences a − b, and its interval."""

    estimate: float
    low: float
    high: float


def common_language(u: float, n_a: int, n_b: int) -> float:
    """Compute P(a > b) + P(a = b)/2 = U / (n_a · n_b)."""
    return u / (n_a * n_b)


def rank_biserial(u: float, n_a: int, n_b: int) -> float:
    """Compute r = 2U / (n_a · n_b) − 1: from −1, where every a is below every b, to 1."""
    return 2.0 * u / (n_a * n_b) - 1.0


def hodges_lehmann(a: Doubles, b: Doubles, confidence: float = 0.95) -> Shift:
    """Compute the shift of a against b: the median of all a_i − b_j, with the interval that inverts the test.

    The interval's ends are the differences number C and n_a·n_b + 1 − C in order, with
    C = n_a·n_b/2 − z·√(n_a·n_b·(n_a + n_b + 1)/12), rounded down.
    """
    from scipy.special import ndtri

    x, y = np.sort(a), np.sort(b)
    pairs = len(x) * len(y)
    z = float(ndtri(0.5 + confidence / 2))
    c = max(1, math.floor(pairs / 2 - z * math.sqrt(pairs * (len(x) + len(y) + 1) / 12.0)))
    middle = (kth_difference(x, y, (pairs + 1) // 2) + kth_difference(x, y, pairs // 2 + 1)) / 2
    return Shift(middle, kth_difference(x, y, c), kth_difference(x, y, pairs + 1 - c))


def kth_difference(x: Doubles, y: Doubles, k: int) -> float:
    """Return the k-th smallest of all x_i − y_j (k from 1), of two sorted samples, by bisection."""
    low, high = x[0] - y[-1], x[-1] - y[0]
    while low < high:  # the least value with at least k differences at or below it
        middle = low + (high - low) / 2
        if middle >= high:
            middle = low
        count, largest, next_one = _at_most(x, y, middle)
        if count >= k:
            high = largest
        else:
            low = next_one
    return float(low)


@kernel
def _at_most(x: Doubles, y: Doubles, limit: float) -> Any:
    """Return the number of x_i − y_j ≤ limit, the largest of them, and the smallest above."""
    count, j = 0, len(y)
    largest, next_one = -np.inf, np.inf
    for i in range(len(x)):
        while j > 0 and x[i] - y[j - 1] <= limit:
            j -= 1
        # y[j:] are at or within the limit for x[i]; a larger x needs a larger y
        while j < len(y) and x[i] - y[j] > limit:
            j += 1
        count += len(y) - j
        if j < len(y):
            largest = max(largest, x[i] - y[j])
        if j > 0:
            next_one = min(next_one, x[i] - y[j - 1])
    return count, largest, next_one
