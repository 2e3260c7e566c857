"""The linear ranker: f(x) = θ·x."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quorank.arrays import Doubles
from quorank.rankers.ranker import Ranker


@dataclass(frozen=True)
class Linear(Ranker):
    """Scores θ·x, starting from zero as in FPDGD §4."""

    kind: ClassVar[str] = "linear"

    def initial(self, n_features: int, seed: int) -> Doubles:
        return np.zeros(n_features)
