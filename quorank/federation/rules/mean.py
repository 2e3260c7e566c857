"""The mean of the clients' updates, weighted by their interactions (FPDGD algorithm 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from quorank.federation.rules.rule import Aggregation
from quorank.kernels.arrays import Doubles


@dataclass(frozen=True)
class Mean(Aggregation):
    """Weighted mean Σ_c (n_c / n)·update_c, from sums alone.

    >>> import numpy as np
    >>> Mean().combine(np.array([2.0, 4.0]), weight=2.0)
    array([1., 2.])
    """

    kind: ClassVar[str] = "mean"
    divides_sums: ClassVar[bool] = True

    def combine(self, total: Doubles, weight: float) -> Doubles:
        """Return the mean; zero for an empty cohort."""
        return total / weight if weight > 0.0 else total
