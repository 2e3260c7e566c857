"""A ranker with one hidden layer: f(x) = v·relu(Wx + b)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from quorank.arrays import Doubles
from quorank.draws import Purpose, normals
from quorank.errors import require


@dataclass(frozen=True)
class MLP:
    """θ holds W (hidden × n_features), b (hidden), v (hidden) one after the other; no output bias, since it ranks nothing.

    `start = "zero"` is what the published evolution strategies use; gradients need broken symmetry, so the default
    draws W and v from N(0, 1/inputs) and starts b at zero.
    """

    kind: ClassVar[str] = "mlp"

    hidden: int = 64  # units of the hidden layer
    start: Literal["scaled", "zero"] = "scaled"

    def __post_init__(self) -> None:
        require(1 <= self.hidden <= 4096, f"hidden must be between 1 and 4096, got {self.hidden}")

    def size(self, n_features: int) -> int:
        """Parameters for lists of `n_features`."""
        return (n_features + 2) * self.hidden

    def initial(self, n_features: int, seed: int) -> Doubles:
        if self.start == "zero":
            return np.zeros(self.size(n_features))
        theta = normals(seed, Purpose.INITIAL, self.size(n_features))
        weights, bias = n_features * self.hidden, (n_features + 1) * self.hidden
        theta[:weights] /= np.sqrt(n_features)
        theta[weights:bias] = 0.0
        theta[bias:] /= np.sqrt(self.hidden)
        return theta
