"""Pairwise Differentiable Gradient Descent (FPDGD algorithm 1; Oosterhuis and de Rijke 2018).

A client shows Plackett-Luce lists, infers preferences from clicks and follows the debiased gradient of eq. 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from quorank.errors import require, require_range
from quorank.learning.exploration import FREE
from quorank.learning.inverse_propensity import PAIRS, ClickRule
from quorank.learning.list_learner import ListLearner, check_dial


@dataclass(frozen=True)
class PDGD(ListLearner):
    """θ ← θ + η ∇f after each interaction (algorithm 1), or once with the sum over a batch (the batched baseline).

    `temperature`, `window` and `share` say how far and how often lists may differ from the ranking (`exploration`): no
    document is shown more than `window` positions from its rank, and all but a `share` of the lists are the ranking
    itself, from which nothing is learned. ρ is that of the distribution which drew the list, the slope that of f.
    """

    kind: ClassVar[str] = "pdgd"

    eta: float = 0.1  # η of algorithm 1, how far a step goes
    step: Literal["interaction", "batch"] = "interaction"  # θ moves after each, or once by their sum
    proximal: float = 0.0  # μ of FedProx (Li et al. 2020): each step also goes −η·μ·(θ − θ of the round)
    temperature: float = 1.0  # τ: lists are drawn from f/τ
    window: int | None = None  # w: how far a document may move; none leaves it free
    share: float = 1.0  # s of the lists are explored

    def __post_init__(self) -> None:
        require_range("eta", self.eta, above=0.0)
        overshoots = f"must be at least 0 and at most 2/eta, or steps overshoot, got {self.proximal}"
        require(0.0 <= self.proximal * self.eta <= 2.0, "pdgd.proximal-overshoots", overshoots, "proximal")
        check_dial(self.temperature, self.window)
        require_range("share", self.share, above=0.0, most=1.0)

    def click_rule(self, k: int) -> ClickRule:
        return ClickRule(PAIRS, False, np.ones(k), 1.0, 0)

    @property
    def pdgd_eta(self) -> float | None:
        return self.eta if self.dial == FREE else None
