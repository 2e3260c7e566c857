"""Rules that compute a centre of the updates: trimmed mean, median, geometric median and centred clipping."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quorank.errors import require_range
from quorank.federation.rules.rule import RobustRule
from quorank.kernels.arrays import Doubles
from quorank.kernels.compiled import kernel

SMOOTHING, STEPS = 1e-6, 100
"""ν of the geometric median, as a share of the median distance to the start, and R, its steps at most."""


@kernel
def squared_distance(a: Doubles, b: Doubles) -> float:
    """Return ‖a − b‖², summed in four strands, with the same bits on every machine."""
    s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
    whole = len(a) - len(a) % 4
    for k in range(0, whole, 4):
        d0, d1, d2, d3 = a[k] - b[k], a[k + 1] - b[k + 1], a[k + 2] - b[k + 2], a[k + 3] - b[k + 3]
        s0 += d0 * d0
        s1 += d1 * d1
        s2 += d2 * d2
        s3 += d3 * d3
    for k in range(whole, len(a)):
        d0 = a[k] - b[k]
        s0 += d0 * d0
    return (s0 + s1) + (s2 + s3)


@kernel
def distances_to(rows: Doubles, point: Doubles) -> Doubles:
    """Return ‖x_i − point‖ for every row."""
    out = np.empty(len(rows))
    for i in range(len(rows)):
        out[i] = math.sqrt(squared_distance(rows[i], point))
    return out


def weighted_sum(rows: Doubles, weights: Doubles) -> Doubles:
    """Return Σ w_i·x_i; a row of weight 0 may be infinite."""
    there = weights != 0.0
    return np.asarray((weights[there, None] * rows[there]).sum(axis=0), dtype=np.float64)


@dataclass(frozen=True)
class TrimmedMean(RobustRule):
    """Mean of each parameter without its β largest and β smallest values, β = m (thesis eq. 5.4).

    Yin et al. 2018, "Byzantine-robust distributed learning: towards optimal statistical rates".

    Args:
        byzantine: Tolerated number of malicious clients m = β, at least 0 and fewer than half of a cohort.

    >>> TrimmedMean(byzantine=1).combine_all(np.array([[0.0], [1.0], [2.0], [90.0]]), np.ones(4))
    array([1.5])
    """

    kind: ClassVar[str] = "trimmed-mean"

    byzantine: int = 1

    def combine_rows(self, rows: Doubles) -> Doubles:
        """Return the trimmed mean of every parameter."""
        return trimmed_mean(rows, self.byzantine)


@dataclass(frozen=True)
class CentreRule(RobustRule):
    """Base class of rules that do not depend on m.

    Args:
        byzantine: Tolerated number of malicious clients m; only checked against the size of a cohort.
    """

    byzantine: int = 0


@dataclass(frozen=True)
class Median(CentreRule):
    """Median of every parameter (Yin et al. 2018; thesis eq. 5.5); for even n the mean of the two middle values.

    Args:
        byzantine: Tolerated number of malicious clients m; only checked against the size of a cohort.

    >>> Median().combine_all(np.array([[0.0], [1.0], [90.0]]), np.ones(3))
    array([1.])
    """

    kind: ClassVar[str] = "median"

    def combine_rows(self, rows: Doubles) -> Doubles:
        """Return the median of every parameter."""
        return coordinate_median(rows)


@dataclass(frozen=True)
class GeometricMedian(CentreRule):
    """Point with the smallest sum of distances to the updates, by smoothed Weiszfeld steps.

    Pillutla, Kakade and Harchaoui 2022, "Robust aggregation for federated learning". A minority of malicious clients
    moves it by at most a multiple of the spread of the honest updates, without knowing m.

    Args:
        byzantine: Tolerated number of malicious clients m; only checked against the size of a cohort.

    >>> GeometricMedian().combine_all(np.array([[0.0], [1.0], [90.0]]), np.ones(3)).round(3)
    array([1.])
    """

    kind: ClassVar[str] = "geometric-median"

    def combine_rows(self, rows: Doubles) -> Doubles:
        """Return the point with the smallest sum of distances."""
        return geometric_median(rows)


@dataclass(frozen=True)
class CentredClipping(CentreRule):
    """Mean of the updates clipped to a radius around a centre: v ← v + (1/n)·Σ (x_i − v)·min(1, τ / ‖x_i − v‖).

    Karimireddy, He and Jaggi 2021, "Learning from history for Byzantine robust optimization", centre on the aggregate
    of the last round and clip the clients' momentum; this variant has no memory, starts at the coordinate-wise median
    of the round and repeats the step.

    Args:
        byzantine: Tolerated number of malicious clients m; only checked against the size of a cohort.
        radius: Radius τ in the unit of updates, above 0; None takes the median distance to the centre in every step.
        iterations: Steps L of the centre, from 1 to 10,000.

    Raises:
        BadInput: `value.out-of-range` if a field is outside its range.

    >>> CentredClipping(radius=1.0, iterations=50).combine_all(np.array([[0.0], [0.0], [90.0]]), np.ones(3)).round(2)
    array([0.5])
    """

    kind: ClassVar[str] = "centred-clipping"

    radius: float | None = None
    iterations: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.radius is not None:
            require_range("radius", self.radius, above=0.0)
        require_range("iterations", self.iterations, least=1, most=10_000)

    def combine_rows(self, rows: Doubles) -> Doubles:
        """Return the centre v after L steps."""
        centre = coordinate_median(rows)
        for _ in range(self.iterations):
            away = distances_to(rows, centre)
            tau = float(np.median(away)) if self.radius is None else self.radius
            share = np.divide(tau, away, out=np.ones(len(rows)), where=away > tau) / len(rows)
            centre = np.asarray(weighted_sum(rows, share) + (1.0 - share.sum()) * centre, dtype=np.float64)
        return centre


def by_coordinate(rows: Doubles) -> Doubles:
    """Return (d, n) values of every parameter, ascending."""
    return np.sort(np.ascontiguousarray(rows.T), axis=1)


def trimmed_mean(rows: Doubles, trim: int) -> Doubles:
    """Return eq. 5.4 with β = trim."""
    return np.asarray(by_coordinate(rows)[:, trim : len(rows) - trim].mean(axis=1), dtype=np.float64)


def coordinate_median(rows: Doubles) -> Doubles:
    """Return eq. 5.5."""
    return np.asarray(np.median(np.ascontiguousarray(rows.T), axis=1), dtype=np.float64)


def geometric_median(rows: Doubles, steps: int = STEPS) -> Doubles:
    """Iterate v ← Σ β_i·x_i / Σ β_i, β_i = 1 / max(ν, ‖v − x_i‖), until a step is below 1e-9 of the median distance.

    Args:
        rows: (n, d) updates x_i.
        steps: Upper bound R on the iterations.

    Returns:
        (d,) point v.
    """
    point = coordinate_median(rows)
    spread = float(np.median(distances_to(rows, point)))
    if spread == 0.0 or not np.isfinite(spread):
        return point
    for _ in range(steps):
        beta = 1.0 / np.maximum(SMOOTHING * spread, distances_to(rows, point))
        before, point = point, weighted_sum(rows, beta / beta.sum())
        if float(np.sqrt(np.sum((point - before) ** 2))) <= 1e-9 * spread:
            break
    return point
