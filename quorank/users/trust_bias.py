"""Users who trust the ranking: TrustPBM (Agarwal et al. 2019, "Addressing trust bias for unbiased learning-to-rank").

    P(click | d, rank k) = θ_k · (ε⁺_k · γ_d + ε⁻_k · (1 − γ_d))

A document at rank k is looked at with θ_k = (1/k)^η. With probability γ_d it is relevant, and then clicked with ε⁺_k; if it
is not, it is still clicked with ε⁻_k, the more often the higher it stands: people take what a search engine puts first for
relevant. Clicks on different ranks are independent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quorank.errors import require, require_range
from quorank.kernels.arrays import Doubles
from quorank.users.click_model import ClickModel, ClickTables
from quorank.users.presets import check_range


@dataclass(frozen=True)
class TrustBias(ClickModel):
    """Position-based looking, and clicks on documents that are not relevant where they stand high.

    By default ε⁺_k = 1 − (min(k, 20) + 1)/100 and ε⁻_k = 0.65/min(k, 10), after the simulations of Vardasbi, Oosterhuis
    and de Rijke (2020), and γ rises evenly from 0 for label 0 to 1 for the highest label. Of own ε the last holds for
    all ranks below.
    """

    kind: ClassVar[str] = "trust-bias"

    eta: float = 1.0  # η of θ_k
    relevance: tuple[float, ...] | None = None  # γ, one per label
    epsilon_plus: tuple[float, ...] | None = None  # ε⁺_k by rank from 1
    epsilon_minus: tuple[float, ...] | None = None  # ε⁻_k by rank from 1

    def __post_init__(self) -> None:
        require_range("eta", self.eta, least=0.0, below=100.0)
        for name in ("relevance", "epsilon_plus", "epsilon_minus"):
            values = getattr(self, name)
            check_range(name, values)
            require(values is None or len(values) >= 1, "value.out-of-range", "expected at least one value", name)

    def tables(self, grades: int, k: int) -> ClickTables:
        gamma = np.arange(grades) / max(grades - 1, 1) if self.relevance is None else np.array(self.relevance)
        few = f"has {len(gamma)} probabilities, but the data has labels 0..{grades - 1}"
        require(len(gamma) >= grades, "click-model.too-few-grades", few, "relevance")
        rank = np.arange(1, k + 1)
        plus = _by_rank(self.epsilon_plus, 1.0 - (np.minimum(rank, 20) + 1) / 100)
        minus = _by_rank(self.epsilon_minus, 0.65 / np.minimum(rank, 10))
        click = plus[:, None] * gamma + minus[:, None] * (1.0 - gamma)
        return ClickTables((1.0 / rank) ** self.eta, click, np.zeros(len(gamma)))


def _by_rank(own: tuple[float, ...] | None, default: Doubles) -> Doubles:
    """Return the field's values for `k` ranks, the last one repeated; else the default."""
    if own is None:
        return default
    return np.array(own, dtype=np.float64)[np.minimum(np.arange(len(default)), len(own) - 1)]
