"""A linear ranker: f(x) = θ·x."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quorank.arrays import Doubles


@dataclass(frozen=True)
class Linear:
    """f(x) = θ·x, starting from zero as in FPDGD §4."""

    kind: ClassVar[str] = "linear"
    hidden: ClassVar[int] = 0

    def size(self, n_features: int) -> int:
        """Parameters for lists of `n_features`."""
        return n_features

    def initial(self, n_features: int, seed: int) -> Doubles:
        return np.zeros(n_features)
