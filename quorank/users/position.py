"""Users whose looking depends on the rank: position-based, with trust bias, and the user browsing model.

- Position-based: rank r is looked at with probability (1/r)^η, whichever documents stand above (thesis §4.5.1).
- TrustPBM (Agarwal et al. 2019, "Addressing trust bias for unbiased learning-to-rank"),

      P(click | d, rank k) = θ_k · (ε⁺_k · γ_d + ε⁻_k · (1 − γ_d))

  A document at rank k is looked at with θ_k = (1/k)^η. With probability γ_d it is relevant, and then clicked with ε⁺_k; if
  it is not, it is still clicked with ε⁻_k, the more often the higher it stands: people take what a search engine puts first
  for relevant. Clicks on different ranks are independent.
- User browsing (Dupret and Piwowarski 2008, "A user browsing model to predict search engine click data from past
  observations"),

      P(click at rank r | last click at rank r − d) = γ_{r,d} · α_y

  Whether rank r is looked at depends on the rank and on the distance d to the last click above; without one, d is r. What
  is looked at is clicked with α of its label. So a click makes those next to it likely to be read, and after many documents
  without one people stop reading.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quorank.errors import require, require_range
from quorank.kernels.arrays import Doubles
from quorank.users.click_model import CLICK, ClickModel, ClickTables, Preset, by_label, check_range


@dataclass(frozen=True)
class PositionBased(ClickModel):
    """P(click) = (1/rank)^η · P(click | label); nobody stops early. The label's part is a cascade preset's."""

    kind: ClassVar[str] = "position"

    eta: float = 1.0  # η: 0 looks at everything, 2 hardly past the first
    preset: Preset = "perfect"  # who clicks: P(click) by label
    click: tuple[float, ...] | None = None  # P(click = 1 | examined, r), one per label

    def __post_init__(self) -> None:
        require_range("eta", self.eta, least=0.0, below=100.0)
        check_range("click", self.click)

    def tables(self, grades: int, k: int) -> ClickTables:
        click = by_label("click", self.click, CLICK, grades, self.preset, grades)
        return ClickTables((1.0 / np.arange(1, k + 1)) ** self.eta, click, np.zeros(len(click)))


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


GAMMA: tuple[tuple[float, ...], ...] = (
    (1.0,),
    (0.98, 1.0),
    (1.0, 0.62, 0.95),
    (1.0, 0.77, 0.42, 0.82),
    (1.0, 0.92, 0.55, 0.31, 0.69),
    (1.0, 0.96, 0.63, 0.40, 0.22, 0.54),
    (1.0, 0.99, 0.73, 0.46, 0.29, 0.17, 0.47),
    (1.0, 1.0, 0.89, 0.52, 0.35, 0.24, 0.14, 0.43),
    (1.0, 1.0, 0.95, 0.68, 0.40, 0.29, 0.19, 0.12, 0.41),
    (1.0, 1.0, 1.0, 0.96, 0.52, 0.36, 0.27, 0.18, 0.12, 0.43),
)
"""γ_{r,d} by rank r from 1 and distance d from 1, with which simulations of unbiased learning to rank are made: the table
and the indices of `UserBrowsingModel` in the ULTRA toolbox (github.com/ULTR-Community/ULTRA, `ultra/utils/click_models.py`
and `example/ClickModel/ubm_0.1_1_4_1.0.json`). The last value of a row is that of a list without a click so far, d = r."""


@dataclass(frozen=True)
class UserBrowsing(ClickModel):
    """P(click) = γ_{r,d}^η · P(click | label); nobody stops. The label's part α is a cascade preset's, or `click`."""

    kind: ClassVar[str] = "user-browsing"

    eta: float = 1.0  # η: 0 looks at everything, 1 as published, more looks less far
    preset: Preset = "perfect"  # who clicks: P(click) by label
    click: tuple[float, ...] | None = None  # α, one per label

    def __post_init__(self) -> None:
        require_range("eta", self.eta, least=0.0, below=100.0)
        check_range("click", self.click)

    def tables(self, grades: int, k: int) -> ClickTables:
        click = by_label("click", self.click, CLICK, grades, self.preset, grades)
        examine = np.array([[gamma(rank, last) ** self.eta for rank in range(1, k + 1)] for last in range(k + 1)])
        return ClickTables(examine, click, np.zeros(len(click)))


def gamma(rank: int, last: int) -> float:
    """γ at a rank after a last click at rank `last`, 0 for none; ranks and distances past the table are its last ones."""
    row = GAMMA[min(rank, len(GAMMA)) - 1]
    if last == 0 or len(row) == 1:
        return row[-1]
    return row[min(max(rank - last, 1), len(row) - 1) - 1]
