"""Privacy losses on a grid, composed by convolution: lower bounds on ε that owe nothing to the library that we account by.

A loss is log P(x)/Q(x) for x drawn from P. Each is rounded down to the grid, so that ε never comes out too large.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import optimize, signal, stats

from quorank.privacy import Setting
from quorank.privacy.ledger import ledger

STEP = 2e-3
Losses = tuple[np.ndarray, int]
"""Chances of the losses (first + i)·STEP, and `first`."""


def losses_of(p: np.ndarray, q: np.ndarray, dx: float) -> Losses:
    """From two densities on a grid of points dx apart."""
    there = (p > 1e-300) & (q > 1e-300)
    steps = np.floor(np.log(p[there] / q[there]) / STEP).astype(np.int64)
    first = int(steps.min())
    return np.bincount(steps - first, p[there] * dx), first


def mixture_losses(z: float, upper: dict[float, float], lower: dict[float, float]) -> Losses:
    """Of two mixtures of N(place, z²), given as chances by place."""
    x = np.linspace(-10 * z - 3, 10 * z + 3, 60_001)

    def density(mixture: dict[float, float]) -> np.ndarray:
        return sum(chance * stats.norm.pdf(x, place, z) for place, chance in mixture.items())

    return losses_of(density(upper), density(lower), x[1] - x[0])


def gaussian_losses(z: float, clips: float = 1.0) -> Losses:
    """Of a sum that a client moves by so many clips."""
    return mixture_losses(z, {clips: 1.0}, {0.0: 1.0})


def poisson_losses(z: float, rate: float) -> Losses:
    """Of a cohort that a client is in with this chance, and that it is removed from."""
    return mixture_losses(z, {1.0: rate, 0.0: 1.0 - rate}, {0.0: 1.0})


def replaced_losses(z: float, rate: float) -> Losses:
    """Of a cohort of fixed size among clients who all send −1, where one of them is replaced by one who sends 1."""
    return mixture_losses(z, {2.0: rate, 0.0: 1.0 - rate}, {0.0: 1.0})


def epsilon_of(rounds: list[Losses], delta: float) -> float:
    """ε at δ of all of these together: E[1 − e^(ε − loss)]₊ = δ."""
    chances, first = np.array([1.0]), 0
    for mass, start in rounds:
        chances = np.maximum(signal.fftconvolve(chances, mass), 0.0)
        first += start
    losses = (first + np.arange(len(chances))) * STEP

    def passed(epsilon: float) -> float:
        above = losses > epsilon
        return float(np.sum(chances[above] * -np.expm1(epsilon - losses[above])))

    low, high = 0.0, max(float(losses[-1]), 0.0)
    if passed(0.0) <= delta:
        return 0.0
    while high - low > 1e-6 * (1.0 + high):
        middle = (low + high) / 2.0
        low, high = (middle, high) if passed(middle) > delta else (low, middle)
    assert math.isfinite(low)
    return low


def gaussian_delta(mu: float, epsilon: float) -> float:
    """δ of one Gaussian mechanism with sensitivity / noise = μ (Balle and Wang 2018, theorem 8)."""
    return float(stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """ε of the same mechanism, solved by itself."""
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    return float(optimize.brentq(lambda epsilon: gaussian_delta(mu, epsilon) - delta, 0.0, 200.0, xtol=1e-12))


def played_ledger(part: Any, table: dict[str, Any], setting: Setting, there: np.ndarray) -> dict[str, Any]:
    """The ledger of a run in whose rounds so many took part."""
    mechanism = part.mechanism(setting, 1)
    zeros = np.zeros(setting.parameters)
    sums = [mechanism.finish(zeros, n, 0, int(n), t, mechanism.start()) for t, n in enumerate(there)]
    columns = np.array([s.sensitivity for s in sums]), np.array([s.noise for s in sums])
    return ledger(table, mechanism, setting, there, *columns)
