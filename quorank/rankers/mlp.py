"""The ranker with one hidden layer: f(x) = v·a(Wx + b), where a is the rectifier or the logistic function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from quorank.arrays import Doubles
from quorank.draws import Purpose, normals
from quorank.errors import require_range
from quorank.rankers.ranker import Ranker


@dataclass(frozen=True)
class MLP(Ranker):
    """Scores v·a(Wx + b), without an output bias, which would change no ranking.

    `activation = "sigmoid"` is the network of the code that was published with PDGD and FPDGD, "relu" trains faster.
    `start = "zero"` is what the published evolution strategies use; gradients need broken symmetry, so the default
    draws W and v from N(0, 1/inputs) and starts b at zero.
    """

    kind: ClassVar[str] = "mlp"

    hidden: int = 64  # units of the hidden layer
    start: Literal["scaled", "zero"] = "scaled"
    activation: Literal["relu", "sigmoid"] = "relu"  # a: max(0, x), or 1 / (1 + e^−x)

    def __post_init__(self) -> None:
        require_range("hidden", self.hidden, least=1, most=4096)

    @property
    def starts_flat(self) -> bool:
        return self.start == "zero"

    def initial(self, n_features: int, seed: int) -> Doubles:
        if self.start == "zero":
            return np.zeros(self.size(n_features))
        theta = normals(seed, Purpose.INITIAL, self.size(n_features))
        weights, bias = n_features * self.hidden, (n_features + 1) * self.hidden
        theta[:weights] /= np.sqrt(n_features)
        theta[weights:bias] = 0.0
        theta[bias:] /= np.sqrt(self.hidden)
        return theta
