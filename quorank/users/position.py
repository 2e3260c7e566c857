"""Click models whose examination depends on the rank: position-based, trust bias and user browsing."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quorank.errors import require, require_range
from quorank.kernels.arrays import Doubles
from quorank.users.click_model import CLICK, ClickModel, ClickTables, Preset, by_label, check_range


@dataclass(frozen=True)
class ExaminedByRank(ClickModel):
    """Base class of models with P(click) = P(examine)·P(click | label), whose users never stop early.

    Args:
        eta: Exponent η of P(examine), in [0, 100); 0 examines every rank.
        preset: Cascade preset of P(click | label).
        click: P(click = 1 | examined, label), one per label, in place of the preset.

    Raises:
        BadInput: `value.out-of-range` if a field is outside its range.
    """

    eta: float = 1.0
    preset: Preset = "perfect"
    click: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        require_range("eta", self.eta, least=0.0, below=100.0)
        check_range("click", self.click)

    @abstractmethod
    def examination(self, k: int) -> Doubles:
        """Return P(examine) of lists of k, as `ClickTables.examine`."""

    def tables(self, grades: int, k: int) -> ClickTables:
        click = by_label("click", self.click, CLICK, grades, self.preset, grades)
        return ClickTables(self.examination(k), click, np.zeros(len(click)))


@dataclass(frozen=True)
class PositionBased(ExaminedByRank):
    """Users who examine rank r with probability (1/r)^η, whichever documents stand above (thesis §4.5.1).

    Args:
        eta: Exponent η in [0, 100): 0 examines every rank, 2 hardly any below the first.
        preset: Cascade preset of P(click | label).
        click: P(click = 1 | examined, label), one per label, in place of the preset.

    >>> PositionBased(eta=1.0).tables(grades=2, k=4).examine.round(3)
    array([1.   , 0.5  , 0.333, 0.25 ])
    """

    kind: ClassVar[str] = "position"

    def examination(self, k: int) -> Doubles:
        return np.asarray((1.0 / np.arange(1, k + 1)) ** self.eta)


@dataclass(frozen=True)
class TrustBias(ClickModel):
    """Users who trust the ranking: P(click | d, rank k) = θ_k·(ε⁺_k·γ_d + ε⁻_k·(1 − γ_d)).

    Agarwal et al. 2019, "Addressing trust bias for unbiased learning-to-rank". A document at rank k is examined with
    θ_k = (1/k)^η. With probability γ_d it is relevant, and then clicked with ε⁺_k; else it is clicked with ε⁻_k, the
    more often the higher it stands. Clicks on different ranks are independent. The defaults of ε are those of the
    simulations of Vardasbi, Oosterhuis and de Rijke (2020).

    Args:
        eta: η of θ_k, in [0, 100).
        relevance: γ, one per label; by default evenly from 0 for label 0 to 1 for the highest.
        epsilon_plus: ε⁺_k by rank from 1, the last for all ranks below; by default 1 − (min(k, 20) + 1)/100.
        epsilon_minus: ε⁻_k by rank from 1, the last for all ranks below; by default 0.65/min(k, 10).

    Raises:
        BadInput: `value.out-of-range` if a field is outside its range or empty.

    >>> TrustBias().tables(grades=2, k=2).click  # rank 1: 0.65/1 and 1 − 2/100
    array([[0.65 , 0.98 ],
           [0.325, 0.97 ]])
    """

    kind: ClassVar[str] = "trust-bias"

    eta: float = 1.0
    relevance: tuple[float, ...] | None = None
    epsilon_plus: tuple[float, ...] | None = None
    epsilon_minus: tuple[float, ...] | None = None

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
"""γ_{r,d} by rank r and distance d from 1; the last value of a row is that of a list without a click so far, d = r.

Table and indices of `UserBrowsingModel` in the ULTRA toolbox (github.com/ULTR-Community/ULTRA,
`ultra/utils/click_models.py` and `example/ClickModel/ubm_0.1_1_4_1.0.json`)."""


@dataclass(frozen=True)
class UserBrowsing(ExaminedByRank):
    """Users who read on near their last click: P(click at rank r | last click at rank r − d) = γ_{r,d}^η·α_y.

    Dupret and Piwowarski 2008, "A user browsing model to predict search engine click data from past observations".
    α_y is P(click | label). Without a click above, d = r. A click makes the next documents likely to be examined, and
    after many documents without one users stop examining.

    Args:
        eta: Exponent η in [0, 100): 0 examines every rank, 1 is the published model, more examines fewer.
        preset: Cascade preset of α.
        click: α, one per label, in place of the preset.

    >>> UserBrowsing().tables(grades=2, k=3).examine[0]  # no click so far: γ_{1,1}, γ_{2,2}, γ_{3,3}
    array([1.  , 1.  , 0.95])
    """

    kind: ClassVar[str] = "user-browsing"

    def examination(self, k: int) -> Doubles:
        return np.array([[gamma(rank, last) ** self.eta for rank in range(1, k + 1)] for last in range(k + 1)])


def gamma(rank: int, last: int) -> float:
    """Return γ_{r,d}; a rank or distance beyond the table counts as its last one.

    Args:
        rank: r, from 1.
        last: r − d, the rank of the last click; 0 for none.

    >>> gamma(rank=3, last=1)  # d = 2
    0.62
    """
    row = GAMMA[min(rank, len(GAMMA)) - 1]
    if last == 0 or len(row) == 1:
        return row[-1]
    return row[min(max(rank - last, 1), len(row) - 1) - 1]
