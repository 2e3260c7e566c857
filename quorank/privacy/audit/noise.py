"""Test of a run's noise: what was added to its sums, against the noise that the claimed ε asks for.

Canaries refute no ε above a ceiling (`canaries.Audit`), and miss noise of half the size. The noise itself is seen in a
repetition of the run: it is the released sum less the exact one. With r the noise over its planned
standard deviation, N numbers in all, Σ r² is s²·χ²_N for noise of s times the planned deviation, and

    √(Σ r² / χ²_N(1 − α/2))  ≤  s  ≤  √(Σ r² / χ²_N(α/2))

holds with probability 1 − α. The run fails if that interval leaves out 1, if the Kolmogorov-Smirnov test refutes that r is
standard normal, or if two rounds have the same noise. Each test fails an honest run with probability `ALPHA`. The noise is
of integers with a standard deviation of thousands of units, so that its law and the normal one differ by less than 10^-4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import numpy as np

from quorank.errors import require
from quorank.kernels.arrays import Doubles, Integers
from quorank.privacy.mechanisms.gaussian import SkellamSums
from quorank.privacy.mechanisms.mechanism import Mechanism, Memory, Sum

ALPHA, POWER = 1e-6, 0.95


@dataclass(frozen=True)
class NoiseTest:
    """Outcome of the test; deviations are over the planned standard deviation."""

    numbers: int  # N
    deviation: float  # measured
    low: float  # interval of the deviation
    high: float
    noticed_below: float  # largest deviation below 1 that fails with probability `POWER`
    distance: float  # largest distance of the distribution function from the normal one
    noticed_beyond: float  # least distance that fails with probability `POWER`
    repeated: int  # rounds whose noise is that of an earlier one
    passed: bool


def check_noise(noise: Doubles) -> NoiseTest:
    """Test noise (rounds, parameters), in units of its planned standard deviation."""
    from scipy.stats import chi2, kstest, kstwo  # imported late: they take a second

    require(np.isfinite(noise).all(), "audit.not-finite", "released sums must be finite numbers")
    count, total = noise.size, float(np.sum(noise**2))
    few, many = float(chi2.ppf(ALPHA / 2.0, count)), float(chi2.isf(ALPHA / 2.0, count))
    low, high = math.sqrt(total / many), math.sqrt(total / few)
    shape = kstest(noise.ravel(), "norm")
    repeated = len(noise) - len(np.unique(np.round(noise, 9), axis=0))
    return NoiseTest(
        numbers=count,
        deviation=math.sqrt(total / count),
        low=low,
        high=high,
        noticed_below=math.sqrt(few / float(chi2.ppf(POWER, count))),
        distance=float(shape.statistic),
        noticed_beyond=float(kstwo.isf(ALPHA, count) + kstwo.isf(1.0 - POWER, count)),
        repeated=repeated,
        passed=low <= 1.0 <= high and float(shape.pvalue) >= ALPHA and repeated == 0,
    )


class WatchedMechanism:
    """A mechanism whose last sum is kept without its noise, in `exact`; otherwise it is the mechanism."""

    def __init__(self, mechanism: Mechanism) -> None:
        self.watched, self.exact = mechanism, np.empty(0)
        self._shares: Doubles | float = 0.0  # Σ of the noise that clients have added, in integer units
        self._lock = Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.watched, name)

    def release(self, updates: Doubles, theta: Doubles, round_: int, clients: Integers, memory: Memory) -> int:
        watched = self.watched
        if not isinstance(watched, SkellamSums):
            return watched.release(updates, theta, round_, clients, memory)
        silent = updates.copy()
        replace(watched, variance=0.0).release(silent, theta, round_, clients, memory)
        with self._lock:  # a cohort is released in several threads
            within = watched.release(updates, theta, round_, clients, memory)
            self._shares = self._shares + np.sum(updates - silent, axis=0)
        return within

    def finish(self, total: Doubles, weight: float, within: int, count: int, round_: int, memory: Memory) -> Sum:
        self.exact, self._shares = (total - self._shares) / self.watched.unit_of(memory), 0.0
        return self.watched.finish(total, weight, within, count, round_, memory)
