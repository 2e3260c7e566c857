"""A ranker that is linear in the features and their squares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quorank.kernels.arrays import Doubles, Floats
from quorank.rankers import Ranker


@dataclass(frozen=True)
class Quadratic(Ranker):
    """f(x) = θ₁·x + θ₂·x², starting from zero."""

    kind: ClassVar[str] = "quadratic"

    def inputs(self, n_features: int) -> int:
        return 2 * n_features

    def transform(self, features: Floats) -> Floats:
        return np.concatenate((features, features**2), axis=1)

    def initial(self, n_features: int, seed: int) -> Doubles:
        return np.zeros(self.size(n_features))
