"""Tests of chance. Draws are addressed, so a test that passes once passes always: no flakes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping

import numpy as np
import numpy.typing as npt
from scipy import stats

UNLIKELY = 1e-4
"""The chance that right code fails a test: taken once, when the seed is chosen, and never again."""


def assert_follows(sample: Iterable[Hashable], probabilities: Mapping[Hashable, float]) -> None:
    """Chi-square test of a sample against exact probabilities; what is impossible must not occur at all."""
    assert abs(sum(probabilities.values()) - 1) < 1e-9
    counts = Counter(sample)
    possible = {outcome for outcome, p in probabilities.items() if p > 0}
    assert set(counts) <= possible, f"impossible outcomes: {set(counts) - possible}"
    n = sum(counts.values())
    cells = sorted((p * n, counts[outcome]) for outcome, p in probabilities.items() if p > 0)
    expected, observed = [0.0], [0]
    for e, o in cells:  # rare outcomes share a cell, since chi-square needs at least five expected
        if expected[-1] >= 5:
            expected.append(0.0)
            observed.append(0)
        expected[-1] += e
        observed[-1] += o
    if len(expected) > 1 and expected[-1] < 5:
        expected[-2:], observed[-2:] = [sum(expected[-2:])], [sum(observed[-2:])]
    if len(expected) == 1:
        assert observed[0] == n
        return
    statistic = sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))
    p_value = stats.chi2.sf(statistic, len(expected) - 1)
    assert p_value > UNLIKELY, f"p = {p_value:.2g}: {list(zip(observed, expected, strict=True))}"


def assert_mean(sample: npt.ArrayLike, expected: npt.ArrayLike) -> None:
    """z-test of the mean of each column of a sample (n, …) against its exact expectation."""
    values, wanted = np.asarray(sample, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    z = np.abs(values.mean(axis=0) - wanted) / np.maximum(error, 1e-12)
    limit = stats.norm.isf(UNLIKELY / 2 / max(1, z.size))
    assert np.all(z < limit), f"z = {z}: mean {values.mean(axis=0)}, expected {wanted} ± {error}"
