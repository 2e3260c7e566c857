"""Centred clipping (Karimireddy, He and Jaggi 2021, "Learning from history for Byzantine robust optimization").

Every update is clipped to distance τ from a centre, and their mean is the next centre. The paper centres on the aggregate
of the last round and clips the clients' momentum. This is the variant without memory: it starts at the coordinate-wise
median of the round and repeats the step.
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
class CentredClipping(RobustRule):
    """Mean of the updates clipped to a radius τ around a centre, repeated; m is only checked against the cohort.

    >>> CentredClipping(radius=1.0, iterations=50).combine_all(np.array([[0.0], [0.0], [90.0]]), np.ones(3)).round(2)
    array([0.5])
    """

    kind: ClassVar[str] = "centred-clipping"

    byzantine: int = 0  # m, tolerated number of malicious clients; only checked against the cohort
    radius: float | None = None  # τ; by default the median distance to the centre, in every step
    iterations: int = 5  # L, steps of the centre

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.radius is not None:
            require_range("radius", self.radius, above=0.0)
        require_range("iterations", self.iterations, least=1, most=10_000)

    def combine_rows(self, rows: Doubles) -> Doubles:
        """Return the centre after L steps."""
        centre = coordinate_median(rows)
        for _ in range(self.iterations):
            centre = clipped_step(rows, centre, self.radius)
        return centre


def clipped_step(rows: Doubles, centre: Doubles, radius: float | None) -> Doubles:
    """Return v + (1/n)·Σ (x_i − v)·min(1, τ / ‖x_i − v‖)."""
    away = distances_to(rows, centre)
    tau = float(np.median(away)) if radius is None else radius
    share = np.divide(tau, away, out=np.ones(len(rows)), where=away > tau) / len(rows)
    return np.asarray(weighted_sum(rows, share) + (1.0 - share.sum()) * centre, dtype=np.float64)
