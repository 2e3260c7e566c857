"""Plans against Noether's formula and against studies drawn by another generator."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from quorank.errors import BadInput
from quorank.tuning.studies.power import arm_sizes, count_rejections, plan_study, with_effect
from quorank.tuning.studies.study import Study

NORMAL = stats.norm(6, 2).ppf((np.arange(4000) + 0.5) / 4000)


def noether(larger: float, share: float, alpha: float, power: float) -> float:
    """Clients of both arms (Noether, JASA 1987): (z_{α/2} + z_β)² / (12·c·(1 − c)·(P(a < b) − 1/2)²)."""
    z = stats.norm.isf(alpha / 2) + stats.norm.isf(1 - power)
    return float(z**2 / (12 * share * (1 - share) * (larger - 0.5) ** 2))


@pytest.mark.parametrize(("effect", "arms"), [(0.5, (0.5, 0.5)), (1.0, (0.75, 0.25)), (1.0, (0.6, 0.2, 0.2))])
def test_a_plan_is_what_the_formula_says_for_the_smallest_arm(effect: float, arms: tuple[float, ...]) -> None:
    study = Study("s", dict(zip("abc", arms, strict=False)), ("characters",), effect=effect, power=0.8)
    found = plan_study(study, NORMAL)
    lowered, both = with_effect(NORMAL, effect, 1.0), arms[0] + arms[1]
    larger = 1.0 - stats.mannwhitneyu(lowered, NORMAL).statistic / len(NORMAL) ** 2
    expected = noether(larger, arms[0] / both, 0.05 / study.comparisons, 0.8)
    assert found.arms["a"] + found.arms["b"] == pytest.approx(expected, rel=0.08)
    assert 0.8 <= found.achieved < 0.85 and found.alpha == 0.05 / study.comparisons
    assert sum(found.arms.values()) == found.clients


def test_rejections_without_an_effect_are_as_many_as_alpha_says() -> None:
    count = count_rejections(NORMAL, NORMAL, 60, 30, 0.05, seed=3, simulations=2000)
    assert stats.binomtest(count, 2000, 0.05).pvalue > 1e-3


def test_rejections_agree_with_studies_drawn_by_another_generator() -> None:
    random = np.random.default_rng(0)
    a, b = random.choice(NORMAL - 1, (600, 60)), random.choice(NORMAL, (600, 30))
    expected = (stats.mannwhitneyu(a, b, axis=1, method="asymptotic").pvalue < 0.05).sum()
    count = count_rejections(NORMAL - 1, NORMAL, 60, 30, 0.05, seed=3, simulations=600)
    assert stats.fisher_exact([[count, 600 - count], [expected, 600 - expected]]).pvalue > 1e-3


@given(
    values=st.lists(st.floats(1, 50), min_size=5, max_size=40).filter(lambda v: np.mean(v) > 1.5),
    share=st.floats(0.01, 0.99),
)
def test_an_effect_lowers_the_mean_by_as_much_and_nobody_below_the_least(values: list[float], share: float) -> None:
    pilot = np.array(values)
    effect = share * (pilot.mean() - 1.0)
    lowered = with_effect(pilot, effect, 1.0)
    assert pilot.mean() - lowered.mean() == pytest.approx(effect) and lowered.min() >= 1.0 - 1e-9


def test_no_arm_is_short() -> None:
    assert arm_sizes(Study(), 10) == {"treatment": 6, "control": 2, "control-no-decay": 2}
    assert arm_sizes(Study(), 11) == {"treatment": 7, "control": 3, "control-no-decay": 3}


@pytest.mark.parametrize(
    ("pilot", "effect", "words"),
    [
        (NORMAL[:5], 0.5, "at least 20 clients"),
        (np.full(50, 3.0), 0.5, "the same mean"),
        (np.append(NORMAL, np.nan), 0.5, "at least 20"),
        (NORMAL, 9.0, "cannot be had"),
        (NORMAL, 1e-5, "would need more than"),
    ],
)
def test_what_cannot_be_planned_is_said(pilot: np.ndarray, effect: float, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        plan_study(Study(effect=effect), pilot, simulations=100)
