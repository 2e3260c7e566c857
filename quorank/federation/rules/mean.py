"""The mean of the clients' updates, weighted by their interactions (FPDGD algorithm 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from quorank.arrays import Doubles


@dataclass(frozen=True)
class Mean:
    """Σ_c (n_c / n)·update_c. It needs sums only, so single updates need not be kept, nor seen."""

    kind: ClassVar[str] = "mean"
    single_updates: ClassVar[bool] = False  # whether the rule must see them one by one

    def combine(self, total: Doubles, weight: float) -> Doubles:
        """The mean from the weighted sum of the updates and the sum of the weights; nothing, if nobody took part."""
        return total / weight if weight > 0.0 else total
