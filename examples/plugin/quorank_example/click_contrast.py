"""A learner that moves θ towards what was clicked and away from what was seen and left (after Rocchio 1971)."""

from __future__ import annotations

from dataclasses import dataclass

import quorank as qr
from quorank.errors import require_range


@dataclass(frozen=True)
class ClickContrast(qr.Learner):
    """θ ← θ + η·(mean features of clicked documents − mean features of the others that were shown)."""

    kind = "click-contrast"
    eta: float = 0.1  # η

    def __post_init__(self) -> None:
        require_range("eta", self.eta, above=0.0)

    def learn(self, theta, shown):
        if shown.clicks.any() and not shown.clicks.all():
            chosen, skipped = shown.features[shown.clicks], shown.features[~shown.clicks]
            theta = theta + self.eta * (chosen.mean(0) - skipped.mean(0))
        return theta
