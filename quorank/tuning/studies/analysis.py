"""What a study found: every pair of arms in every metric (Hartmann et al. 2019, §6.2 and §6.3).

The Mann-Whitney U test compares two arms, Bonferroni's correction holds the chance of any false finding in the whole
study at α, and effect sizes say how large a difference is, which p-values of large studies do not.

The unit is the client, not the search: a client's searches are averaged first. Searches of one person resemble each
other, so n searches tell less than n independent ones; a test that pools them believes in a certainty that is not
there, and rejects true null hypotheses far more often than α. It also counts a person who searches a hundred times as
a hundred people. The paper does not say which unit its p-values have. `pooled_p` shows what pooling would claim.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from quorank.arrays import Doubles
from quorank.errors import require
from quorank.metrics.significance import bonferroni
from quorank.tuning.heuristics.url_bar import Typed
from quorank.tuning.studies.arms import Study
from quorank.tuning.studies.mann_whitney import Shift, common_language, hodges_lehmann, rank_biserial


@dataclass(frozen=True)
class Arm:
    """One arm's clients and their means; `deviation` is that between clients."""

    clients: int
    searches: int
    mean: dict[str, float]  # of the clients' means, by metric
    deviation: dict[str, float]
    mean_of_searches: dict[str, float]  # as the paper's table: heavy users count more


@dataclass(frozen=True)
class Comparison:
    """One arm against another in one metric; negative differences are falls from `baseline` to `arm`."""

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
    pooled_p: float  # what a test of single searches would say: not to be trusted


@dataclass(frozen=True)
class Analysis:
    """The whole study."""

    study: str
    alpha: float
    comparisons: tuple[Comparison, ...]
    arms: dict[str, Arm]

    def of(self, metric: str, arm: str, baseline: str) -> Comparison:
        """One of the comparisons."""
        return next(c for c in self.comparisons if (c.metric, c.arm, c.baseline) == (metric, arm, baseline))

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"corrected_alpha": self.alpha / len(self.comparisons)}


def client_means(typed: Typed, metric: str) -> Doubles:
    """The mean of each client's searches."""
    _, numbers, counts = np.unique(typed.client, return_inverse=True, return_counts=True)
    sums = np.bincount(numbers, np.asarray(getattr(typed, metric), np.float64), len(counts))
    return np.asarray(sums / counts, dtype=np.float64)


def mann_whitney(a: Doubles, b: Doubles) -> tuple[float, float]:
    """U of a and its two-sided p: scipy's, exact for small samples without ties, else with correction for ties."""
    from scipy.stats import mannwhitneyu

    found = mannwhitneyu(a, b, alternative="two-sided")
    p = float(found.pvalue)
    return float(found.statistic), 1.0 if np.isnan(p) else p  # no spread at all


def analyse(study: Study, collected: Mapping[str, Typed]) -> Analysis:
    """All comparisons of a study from the searches of each arm."""
    for arm in study.arms:
        require(
            arm in collected and len(collected[arm].client) > 0,
            f"study {study.name}: arm {arm!r} has no searches, so nothing can be compared with it",
        )
    means = {
        arm: {metric: client_means(collected[arm], metric) for metric in study.metrics} for arm in study.arms
    }
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
    study: Study, metric: str, arm: str, baseline: str, a: Doubles, b: Doubles, collected: Mapping[str, Typed]
) -> Comparison:
    u, p = mann_whitney(a, b)
    corrected = bonferroni(p, study.comparisons)
    shift: Shift = hodges_lehmann(a, b, 1.0 - study.corrected_alpha)
    singles = [np.asarray(getattr(collected[name], metric), np.float64) for name in (arm, baseline)]
    return Comparison(
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
