"""Arrivals are a Poisson process of the stated rate."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from quorank.errors import BadInput
from quorank.tuning.simulation import DAY, DayNight, Flat, Traffic, arrival_times


def times(traffic: Traffic, seed: int, blocks: int) -> np.ndarray:
    return np.concatenate(list(itertools.islice(arrival_times(traffic, seed), blocks)))


@pytest.mark.parametrize("traffic", [Flat(500.0), DayNight(500.0), DayNight(900.0, swing=1.0, peak=3.0)], ids=str)
def test_counts_follow_the_rate(traffic: Traffic) -> None:
    when = times(traffic, 1, 12)
    assert np.all(np.diff(when) >= 0)
    whole = int(when[-1] // DAY)
    hours = np.arange(24 * whole + 1) * 3600.0
    counts, _ = np.histogram(when, hours)
    middle = np.linspace(0, 3600.0, 60, endpoint=False) + 30.0
    expected = np.array([traffic.rate(middle + hour).mean() * 3600.0 for hour in hours[:-1]])
    busy = expected > 5
    statistic = (((counts - expected) ** 2) / np.maximum(expected, 1e-9))[busy].sum()
    low, high = stats.chi2.ppf([1e-4, 1 - 1e-4], busy.sum())
    assert low < statistic < high  # Poisson: as far from the mean as chance, and no nearer


@pytest.mark.parametrize("make", [lambda: Flat(0.0), lambda: DayNight(swing=1.5), lambda: DayNight(peak=25.0)])
def test_refusals(make) -> None:
    with pytest.raises(BadInput):
        make()
