"""Significance of the difference between two settings: two-tailed t-tests with Bonferroni correction.

The papers compare 25 runs (five folds, five seeds). Runs on one fold share its test queries and its training data, so
that 25 of them are five observations, not 25: `repeated_t` takes the mean over seeds first and tests over folds. Folds
(or seeds, where there is one fold) that both settings have are paired (Student, 1908), others are compared with Welch's
test (Biometrika, 1947), which needs no equal spread.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from quorank.errors import require, require_range
from quorank.kernels.arrays import Doubles

CONFIDENCE = 0.95
Unit = Literal["fold", "seed", "run"]
Repetition = tuple[int, str]  # seed and fold of a run


@dataclass(frozen=True)
class Difference:
    """Result of a test of mean(values) − mean(baseline); None stands for unknown.

    Args:
        test: "paired t" or "Welch t".
        difference: mean(values) − mean(baseline).
        low: Lower end of the 95 % confidence interval of the difference; None for too few runs, as `high` and `p`.
        high: Upper end of the interval.
        p: Two-tailed p-value.
        corrected_p: p after Bonferroni's correction; p itself for a single comparison.
        n: Independent units behind `values`.
        n_baseline: Independent units behind `baseline`.
        effect_size: Cohen's d; None if it is not finite.
        unit: Independent unit of the test.

    >>> found = paired_t([0.42, 0.45, 0.44], [0.40, 0.42, 0.43])
    >>> found.test, round(found.difference, 3), round(found.low, 3), round(found.high, 3)
    ('paired t', 0.02, -0.005, 0.045)
    """

    test: str
    difference: float
    low: float | None
    high: float | None
    p: float | None
    corrected_p: float | None
    n: int
    n_baseline: int
    effect_size: float | None
    unit: Unit = "run"

    @property
    def margin(self) -> float | None:
        """Half of the confidence interval's width; t intervals are symmetric."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2

    def as_dict(self) -> dict[str, Any]:
        """Return the fields and the papers' mark, for JSON."""
        return asdict(self) | {"mark": mark(self)}


Found = TypeVar("Found", Difference, Difference | None)


def paired_t(values: npt.ArrayLike, baseline: npt.ArrayLike) -> Difference:
    """Compute Student's paired t-test: t = mean(d) / (sd(d) / √n), n − 1 degrees of freedom, d = values − baseline.

    The effect size is mean(d) / sd(d).

    Args:
        values: (n,) metric of each run.
        baseline: (n,) metric of the run with the same seed and fold.

    Raises:
        BadInput: `significance.unpaired`, `significance.no-value` or `significance.not-finite`.

    >>> found = paired_t([2.0, 4.0], [1.0, 1.0])  # d = 1, 3: mean 2, sd √2, t = 2
    >>> found.difference, round(found.effect_size, 3), round(found.p, 3)
    (2.0, 1.414, 0.295)
    """
    a, b = _sample(values), _sample(baseline)
    unpaired = f"a paired test needs as many values as baselines, got {len(a)} and {len(b)}"
    require(len(a) == len(b), "significance.unpaired", unpaired)
    d, n = a - b, len(a)
    spread = _spread(d, _scale(a, b))
    return _difference("paired t", a, b, error=spread / math.sqrt(n), freedom=n - 1, spread=spread, testable=n > 1)


def welch_t(values: npt.ArrayLike, baseline: npt.ArrayLike) -> Difference:
    """Compute Welch's t-test: t = (mean(a) − mean(b)) / √(u + v) with u = s_a²/n_a, v = s_b²/n_b (Welch 1947).

    Degrees of freedom are (u + v)² / (u²/(n_a − 1) + v²/(n_b − 1)), after Satterthwaite. The effect size is the
    difference over √((s_a² + s_b²) / 2).

    Args:
        values: (n_a,) a, metric of each run.
        baseline: (n_b,) b, metric of each run of the other setting.

    Raises:
        BadInput: `significance.no-value` or `significance.not-finite`.

    >>> found = welch_t([3.0, 5.0], [1.0, 3.0])  # s² = 2 each: d = 2/√2
    >>> found.difference, round(found.effect_size, 3)
    (2.0, 1.414)
    """
    a, b = _sample(values), _sample(baseline)
    scale = _scale(a, b)
    spread_a, spread_b = _spread(a, scale), _spread(b, scale)
    testable = len(a) > 1 and len(b) > 1
    u, v = spread_a**2 / len(a), spread_b**2 / len(b)
    freedom = float(len(a) + len(b) - 2)
    if testable and u + v > 0:  # shares of the sum rather than the variances: squares of tiny variances underflow
        share = u / (u + v)
        freedom = 1.0 / (share**2 / (len(a) - 1) + (1 - share) ** 2 / (len(b) - 1))
    spread = math.sqrt((spread_a**2 + spread_b**2) / 2)
    return _difference("Welch t", a, b, math.sqrt(u + v), freedom, spread, testable)


def repeated_t(
    values: Sequence[tuple[Repetition, float]], baseline: Sequence[tuple[Repetition, float]]
) -> Difference | None:
    """Test two settings by the means of their folds, or of their seeds if all runs are of one fold.

    Args:
        values: Seed, fold and metric of each run; non-finite metrics are left out.
        baseline: Those of the other setting.

    Returns:
        Paired test if both settings have the same units, else Welch's; None if a setting has no finite metric.

    >>> runs = [((seed, fold), 0.5) for seed in (1, 2) for fold in ("Fold1", "Fold2")]
    >>> repeated_t(runs, [(at, 0.4) for at, _ in runs]).n  # two folds, not four runs
    2
    """
    ours, theirs = ([(at, value) for at, value in side if math.isfinite(value)] for side in (values, baseline))
    if not ours or not theirs:
        return None
    unit: Unit = "fold" if len({fold for (_, fold), _ in (*ours, *theirs)}) > 1 else "seed"
    a, b = _unit_means(ours, unit), _unit_means(theirs, unit)
    if a.keys() == b.keys():
        return replace(paired_t([a[key] for key in sorted(a)], [b[key] for key in sorted(a)]), unit=unit)
    return replace(welch_t(list(a.values()), list(b.values())), unit=unit)


def _unit_means(runs: Sequence[tuple[Repetition, float]], unit: Unit) -> dict[str, float]:
    """Return the mean of the values of each fold, or of each seed."""
    found: dict[str, list[float]] = {}
    for (seed, fold), value in runs:
        found.setdefault(fold if unit == "fold" else str(seed), []).append(value)
    return {key: float(np.mean(members)) for key, members in found.items()}


def bonferroni(p: float, comparisons: int) -> float:
    """Return min(1, m·p) for m comparisons (Dunn, JASA 1961).

    >>> bonferroni(0.02, comparisons=3)
    0.06
    """
    require_range("comparisons", comparisons, least=1)
    return min(1.0, comparisons * p)


def corrected(differences: Sequence[Found]) -> list[Found]:
    """Return the differences with p corrected over those that could be tested; a missing one stays None."""
    m = sum(d is not None and d.p is not None for d in differences)
    return [d if d is None or d.p is None else replace(d, corrected_p=bonferroni(d.p, m)) for d in differences]


def mark(difference: Difference) -> str:
    """Return the papers' mark by corrected p: ▲▼ below .01, △▽ below .05, else nothing; ▲ is above the baseline.

    >>> mark(paired_t([2.0, 2.0], [1.0, 1.0]))  # no spread: p = 0
    '▲'
    """
    p = difference.corrected_p
    if p is None or p >= 0.05 or difference.difference == 0:
        return ""
    return ("▲" if p < 0.01 else "△") if difference.difference > 0 else ("▼" if p < 0.01 else "▽")


def _difference(
    test: str, a: Doubles, b: Doubles, error: float, freedom: float, spread: float, testable: bool
) -> Difference:
    """Return the result of either test, defined where the formulas divide by zero.

    Too few runs: only the difference is known. No spread: a difference of 0 has p = 1, any other p = 0.
    """
    delta = float(a.mean() - b.mean())
    if abs(delta) <= 1e-12 * _scale(a, b):
        delta = 0.0
    if not testable:
        return Difference(test, delta, None, None, None, None, len(a), len(b), None)
    if error == 0:
        p = 1.0 if delta == 0 else 0.0
        return Difference(test, delta, delta, delta, p, p, len(a), len(b), 0.0 if delta == 0 else None)
    from scipy.special import stdtr, stdtrit  # Student's t; scipy.stats would take half a second to load

    p = float(2 * stdtr(freedom, -abs(delta) / error))
    margin = float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * error
    return Difference(test, delta, delta - margin, delta + margin, p, p, len(a), len(b), delta / spread)


def _sample(values: npt.ArrayLike) -> Doubles:
    array = np.asarray(values, dtype=np.float64)
    flat, finite = array.ndim == 1 and len(array) > 0, np.all(np.isfinite(array))
    require(flat, "significance.no-value", "a test needs at least one value per side, in a flat list")
    require(finite, "significance.not-finite", "a test needs finite values; a run has none for this measure")
    return array


def _scale(a: Doubles, b: Doubles) -> float:
    return float(max(np.abs(a).max(), np.abs(b).max()))


def _spread(sample: Doubles, scale: float) -> float:
    """Return the standard deviation (n − 1); 0 if it is within the rounding of values of this scale."""
    if len(sample) < 2:
        return 0.0
    spread = float(sample.std(ddof=1))
    return spread if spread > 1e-12 * scale else 0.0
