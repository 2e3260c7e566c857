"""The tests against scipy's own, by hand, and where their formulas have no answer."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from quorank.errors import BadInput
from quorank.metrics.significance import bonferroni, corrected, mark, paired_t, repeated_t, welch_t

VALUES = st.lists(st.floats(0, 1, width=32), min_size=2, max_size=12)


def _samples(n: int, m: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return random.normal(0.45, 0.01, n), random.normal(0.44, 0.02, m)


@pytest.mark.parametrize(("test", "n"), [(paired_t, 25), (welch_t, 9)])
def test_tests_agree_with_scipy(test, n) -> None:
    a, b = _samples(25, n)
    ours = test(a, b)
    theirs = stats.ttest_rel(a, b) if test is paired_t else stats.ttest_ind(a, b, equal_var=False)
    interval = theirs.confidence_interval(0.95)
    assert (ours.p, ours.low, ours.high) == pytest.approx((theirs.pvalue, interval.low, interval.high))
    assert (ours.n, ours.n_baseline, ours.difference) == (25, n, pytest.approx(a.mean() - b.mean()))
    spread = np.std(a - b, ddof=1) if test is paired_t else math.sqrt((a.var(ddof=1) + b.var(ddof=1)) / 2)
    assert ours.effect_size == pytest.approx((a.mean() - b.mean()) / spread)
    equal = test(a, a)
    assert equal.p == pytest.approx(1) and mark(equal) == ""


def test_rounding_noise_is_not_spread() -> None:
    baseline = np.array([0.1, 0.2, 0.3])
    assert paired_t(baseline + 0.1, baseline).p == 0


def test_corrections_count_what_could_be_tested() -> None:
    testable, lone = paired_t(*_samples(5, 5)), paired_t([0.5], [0.4])
    once, nothing, twice = corrected([testable, lone, testable])
    assert testable.p is not None
    assert once.corrected_p == twice.corrected_p == bonferroni(testable.p, 2) == min(1, 2 * testable.p)
    assert nothing.corrected_p is None
    with pytest.raises(BadInput, match="comparisons: must be at least 1"):
        bonferroni(0.1, 0)


@pytest.mark.parametrize(("swap", "marks"), [(1, ["▲", "△", "", ""]), (-1, ["▼", "▽", "", ""])])
def test_marks(swap, marks) -> None:
    found = paired_t(*_samples(25, 25)[::swap])
    assert [mark(replace(found, corrected_p=p)) for p in (0.009, 0.049, 0.05, None)] == marks


@pytest.mark.parametrize("test", [paired_t, welch_t])
def test_degenerate_samples_have_a_defined_answer_and_no_warning(test) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lone = test([0.5], [0.4])
        assert lone.difference == pytest.approx(0.1)
        assert (lone.low, lone.high, lone.p, lone.corrected_p, lone.effect_size, lone.margin) == (None,) * 6
        same = test([0.4, 0.4], [0.4, 0.4])
        assert (same.difference, same.low, same.high, same.p, same.effect_size) == (0, 0, 0, 1, 0)
        apart = test([0.5, 0.5, 0.5], [0.4, 0.4, 0.4])
        assert (apart.p, apart.effect_size) == (0, None)
        assert apart.low == apart.high == apart.difference
        assert mark(apart) == "▲"


def test_bad_samples_are_refused() -> None:
    with pytest.raises(BadInput, match="as many values"):
        paired_t([1.0, 2.0], [1.0])
    with pytest.raises(BadInput, match="at least one value"):
        welch_t([], [1.0])
    with pytest.raises(BadInput, match="finite"):
        welch_t([float("nan")], [1.0])


@given(VALUES, VALUES)
def test_swapping_the_sides_turns_the_sign_and_keeps_p(a: list[float], b: list[float]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one, other = welch_t(a, b), welch_t(b, a)
    assert one.difference == -other.difference
    assert one.p == pytest.approx(other.p)
    assert one.p is not None and 0 <= one.p <= 1
    assert one.low is not None and one.high is not None
    assert one.low <= one.difference <= one.high


def _five_folds_five_seeds(naive: float, honest: float) -> np.ndarray:
    """(folds, seeds) differences whose paired t-test has p = `naive` over all 25 and `honest` over the five fold means."""
    fold_sd = math.sqrt(5) / stats.t.isf(honest / 2, 4)  # of a mean of 1
    run_sd = math.sqrt(25) / stats.t.isf(naive / 2, 24)
    steps = np.arange(-2.0, 3.0)  # Σ steps² = 10
    between = steps * fold_sd * math.sqrt(4 / 10)
    within = math.sqrt((24 * run_sd**2 - 5 * np.sum(between**2)) / 50)
    return 1.0 + between[:, None] + within * steps[None, :]


def test_runs_of_one_fold_are_one_observation() -> None:
    d = _five_folds_five_seeds(naive=0.0055, honest=0.15)
    baseline = np.random.default_rng(3).normal(40.0, 1.0, (5, 5))
    values = baseline + d
    assert stats.ttest_rel(values.ravel(), baseline.ravel()).pvalue == pytest.approx(0.0055)
    at = [((seed, str(fold)), (fold, seed)) for fold in range(5) for seed in range(5)]
    found = repeated_t([(key, values[i]) for key, i in at], [(key, baseline[i]) for key, i in reversed(at)])
    independent = stats.ttest_rel(values.mean(axis=1), baseline.mean(axis=1))
    assert found is not None and found.p == pytest.approx(independent.pvalue) == pytest.approx(0.15)
    assert (found.unit, found.n, found.n_baseline, found.test) == ("fold", 5, 5, "paired t")
    assert found.difference == pytest.approx(1.0)


def test_seeds_are_the_unit_where_there_is_one_fold_only() -> None:
    a, b = _samples(6, 6)
    found = repeated_t([((s, "1"), a[s]) for s in range(6)], [((s, "1"), b[s]) for s in range(6)])
    assert found is not None and found.unit == "seed" and found.p == pytest.approx(stats.ttest_rel(a, b).pvalue)
    # the same run a second time adds nothing
    twice = repeated_t([((s % 6, "1"), a[s % 6]) for s in range(12)], [((s, "1"), b[s]) for s in range(6)])
    assert twice == found


def test_folds_that_one_setting_lacks_are_compared_by_welch() -> None:
    a, b = _samples(10, 10)
    ours = [((s, str(f)), a[5 * s + f]) for s in range(2) for f in range(5)]
    theirs = [((s, str(f)), b[5 * s + f]) for s in range(2) for f in range(4)]
    found = repeated_t(ours, theirs)
    expected = stats.ttest_ind(a.reshape(2, 5).mean(axis=0), b.reshape(2, 5).mean(axis=0)[:4], equal_var=False)
    assert found is not None and found.p == pytest.approx(expected.pvalue)
    assert (found.unit, found.n, found.n_baseline, found.test) == ("fold", 5, 4, "Welch t")
    assert repeated_t(ours, [((1, "1"), math.nan)]) is None
