"""Robust aggregation rules against their equations, written out literally."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from quorank.federation.rules import (
    Bulyan,
    CentredClipping,
    GeometricMedian,
    Krum,
    Median,
    Mixing,
    MultiKrum,
    TrimmedMean,
)
from quorank.federation.rules.centres import geometric_median
from quorank.federation.rules.neighbours import mix, successive_krum


def combine(rule, updates) -> np.ndarray:
    return rule.combine_all(np.asarray(updates, dtype=np.float64), np.ones(len(updates)))


@st.composite
def cohorts(draw, least=3, most=11, larger=0):
    """(updates, m) with m below half and n ≥ larger·m + least; every third has rows that are far away.

    Two that are each other's nearest tie as soon as one neighbour counts: rows come ordered by their bytes, so that the
    first of a tie is the one that a rule must take. On a line the two middle ones tie up to rounding: d ≥ 2.
    """
    m = draw(st.integers(0, 2 if larger >= 4 else 4))
    n = draw(st.integers(max(least, 2 * m + 1, larger * m + least), max(most, larger * m + least)))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    updates = random.normal(size=(n, draw(st.integers(2, 5)))) + draw(st.sampled_from([0.0, 1.0, 100.0]))
    if draw(st.integers(0, 2)) == 0 and m > 0:
        updates[random.permutation(n)[:m]] *= draw(st.sampled_from([-3.0, 1e3, 1e9]))
    return np.array(sorted(updates, key=lambda row: row.tobytes())), m


def krum_order(updates, m, left=None) -> list[int]:
    """Eq. 5.2 read aloud: clients by the sum of the distances to their n − m − 2 nearest."""
    left = list(range(len(updates))) if left is None else left
    scores = {}
    for i in left:
        away = sorted(float(np.linalg.norm(updates[i] - updates[j])) for j in left if j != i)
        scores[i] = sum(away[: max(len(left) - m - 2, 1)])
    return sorted(left, key=scores.__getitem__)


@given(cohorts(larger=1))
def test_krum_is_equation_5_2(cohort) -> None:
    updates, m = cohort
    np.testing.assert_array_equal(combine(Krum(m), updates), updates[krum_order(updates, m)[0]])


@given(cohorts(larger=1))
def test_multi_krum_is_equation_5_3(cohort) -> None:
    updates, m = cohort
    f = len(updates) - m
    expected = sum(updates[i] for i in krum_order(updates, m)[:f]) / f
    np.testing.assert_allclose(combine(MultiKrum(m), updates), expected, rtol=1e-12, atol=1e-12)


@given(cohorts(least=1))
def test_trimmed_mean_is_equation_5_4(cohort) -> None:
    updates, m = cohort
    for j, found in enumerate(combine(TrimmedMean(m), updates)):
        values = updates[:, j].tolist()
        for _ in range(m):
            values.remove(max(values))
            values.remove(min(values))
        assert found == pytest.approx(sum(values) / (len(updates) - 2 * m), rel=1e-11, abs=1e-12)


@given(cohorts(least=1))
def test_median_is_equation_5_5(cohort) -> None:
    updates, _ = cohort
    for j, found in enumerate(combine(Median(), updates)):
        values, n = sorted(updates[:, j].tolist()), len(updates)
        middle = values[n // 2] if n % 2 else (values[n // 2 - 1] + values[n // 2]) / 2
        assert found == pytest.approx(middle, rel=1e-15)


def bulyan_choice(updates, m) -> list[int]:
    left, chosen = list(range(len(updates))), []
    while len(chosen) < len(updates) - 2 * m:
        chosen.append(krum_order(updates, m, left)[0])
        left.remove(chosen[-1])
    return sorted(chosen)


@given(cohorts(larger=4))
def test_bulyan_is_krum_again_and_again_and_the_mean_around_the_median(cohort) -> None:
    updates, m = cohort
    found = combine(Bulyan(m), updates)
    chosen = bulyan_choice(updates, m)
    assert successive_krum(updates, m).tolist() == chosen
    for j in range(updates.shape[1]):
        values = updates[chosen, j]
        nearest = sorted(values, key=lambda v: abs(v - np.median(values)))[: len(updates) - 4 * m]
        assert found[j] == pytest.approx(np.mean(nearest), rel=1e-11, abs=1e-11)


@settings(max_examples=30)
@given(cohorts(least=3))
def test_the_geometric_median_has_the_smallest_sum_of_distances(cohort) -> None:
    updates, _ = cohort
    updates = np.clip(updates, -1e3, 1e3)

    def total(point) -> float:
        return float(np.linalg.norm(updates - point, axis=1).sum())

    found = geometric_median(updates, 2000)
    starts = [np.median(updates, axis=0), updates.mean(axis=0), *updates]
    best = min(minimize(total, start, method="Nelder-Mead").fun for start in starts[:4])
    assert total(found) <= min(best, *(total(start) for start in starts)) * (1 + 1e-5) + 1e-9


def test_the_geometric_median_in_closed_form() -> None:
    """Four corners: where the diagonals cross. A triangle with equal sides: its centre. On a line: the median."""
    corners = np.array([[0.0, 0.0], [4.0, 0.0], [3.0, 3.0], [0.0, 2.0]])
    np.testing.assert_allclose(geometric_median(corners, 5000), [4 / 3, 4 / 3], atol=1e-6)
    triangle = np.array([[np.cos(a), np.sin(a)] for a in (0.0, 2 * np.pi / 3, 4 * np.pi / 3)]) + 7.0
    np.testing.assert_allclose(combine(GeometricMedian(), triangle), [7.0, 7.0], atol=1e-7)
    line = np.array([[1.0], [2.0], [50.0], [-3.0], [2.5]])
    np.testing.assert_allclose(combine(GeometricMedian(), line), [2.0], atol=1e-4)


@given(cohorts(least=1), st.one_of(st.none(), st.floats(0.01, 10.0)))
def test_a_step_of_centred_clipping(cohort, radius) -> None:
    updates, _ = cohort
    centre = np.median(updates, axis=0)
    away = [float(np.linalg.norm(x - centre)) for x in updates]
    tau = float(np.median(away)) if radius is None else radius
    pulled = [(x - centre) * (min(1.0, tau / a) if a > 0 else 1.0) for x, a in zip(updates, away, strict=True)]
    expected = centre + np.mean(pulled, axis=0)
    scale = 1e-12 * float(np.abs(updates).max())
    found = combine(CentredClipping(radius=radius, iterations=1), updates)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=scale)


@given(cohorts(least=1))
def test_mixing_averages_the_nearest(cohort) -> None:
    updates, m = cohort
    mixed = mix(updates, m)
    for i, x in enumerate(updates):
        nearest = sorted(range(len(updates)), key=lambda j: float(np.linalg.norm(updates[j] - x)))
        expected = np.mean(updates[nearest[: len(updates) - m]], axis=0)
        np.testing.assert_allclose(mixed[i], expected, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(combine(Mixing(m), updates), combine(TrimmedMean(m), mixed), rtol=1e-11, atol=1e-11)
