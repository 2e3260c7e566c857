"""The geometric median (Pillutla, Kakade and Harchaoui 2022, "Robust aggregation for federated learning").

The point with the smallest sum of distances to all updates. A minority of malicious clients moves it by at most a multiple
of the spread of the honest updates, without knowing m.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quorank.errors import require_range
from quorank.federation.rules.distances import distances_to, weighted_sum
from quorank.federation.rules.rule import RobustRule
from quorank.federation.rules.trimmed import coordinate_median
from quorank.kernels.arrays import Doubles


@dataclass(frozen=True)
class GeometricMedian(RobustRule):
    """Smoothed Weiszfeld steps from the coordinate-wise median; m is only checked against the cohort.

    >>> GeometricMedian().combine_all(np.array([[0.0], [1.0], [90.0]]), np.ones(3)).round(3)
    array([1.])
    """

    kind: ClassVar[str] = "geometric-median"

    byzantine: int = 0  # m, tolerated number of malicious clients; only checked against the cohort
    smoothing: float = 1e-6  # ν, as a share of the median distance to the start
    iterations: int = 100  # R, steps at most

    def __post_init__(self) -> None:
        super().__post_init__()
        require_range("smoothing", self.smoothing, above=0.0, below=1.0)
        require_range("iterations", self.iterations, least=1, most=10_000)

    def combine_rows(self, rows: Doubles) -> Doubles:
        """Return the point with the smallest sum of distances."""
        return geometric_median(rows, self.smoothing, self.iterations)


def geometric_median(rows: Doubles, smoothing: float, iterations: int) -> Doubles:
    """Iterate Weiszfeld steps until one is below 1e-9 of the median distance, or `iterations` times."""
    point = coordinate_median(rows)
    spread = float(np.median(distances_to(rows, point)))
    if spread == 0.0 or not np.isfinite(spread):
        return point
    for _ in range(iterations):
        after = weiszfeld(rows, point, smoothing * spread)
        step = float(np.sqrt(np.sum((after - point) ** 2)))
        point = after
        if step <= 1e-9 * spread:
            break
    return point


def weiszfeld(rows: Doubles, point: Doubles, smoothing: float) -> Doubles:
    """Return Σ β_i·x_i / Σ β_i with β_i = 1 / max(ν, ‖v − x_i‖)."""
    beta = 1.0 / np.maximum(smoothing, distances_to(rows, point))
    return np.asarray(weighted_sum(rows, beta / beta.sum()), dtype=np.float64)
