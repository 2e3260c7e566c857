"""The mean of the clients' updates, weighted by their interactions (FPDGD algorithm 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from quorank.federation.rules.rule import Aggregation
from quorank.kernels.arrays import Doubles


@dataclass(frozen=True)
class Mean(Aggregation):
    """Σ_c (n_c / n)·update_c. It needs sums only, so single updates need not be kept, nor seen."""

    kind: ClassVar[str] = "mean"
    divides_sums: ClassVar[bool] = True

    def combine(self, total: Doubles, weight: float) -> Doubles:
        """Return the mean; zero if nobody took part."""
        return total / weight if weight > 0.0 else total
