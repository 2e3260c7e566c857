"""Attack fitted to any rule by trying it out.

After the AGR-tailored attack of Shejwalkar and Houmansadr (2021, "Manipulating the Byzantine", §4.1, eq. 5).

The paper's attacker knows all honest updates and the rule, and sends μ + γ·p with the γ that moves the rule's result
farthest against the honest direction. This one also knows the rule's memory h of clients: the malicious clients move to
μ_h + γ·r·p, where r is the median distance of the honest ones to their mean μ_h. γ is tried from 0 to 5 in every round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from quorank.federation.attacks.attack import Attack, AttackedCohort
from quorank.federation.rules.distances import distances_to
from quorank.kernels.arrays import Booleans, Doubles

GAMMAS = (0.0, 0.05, 0.1, 0.2, 0.35, 0.6, 1.0, 2.0, 5.0)
"""Tried values of γ, in units of r."""

DECOYS = 10
"""Malicious clients per decoy; at least one of several is a decoy."""


@dataclass(frozen=True)
class Tailored(Attack):
    """Position among the honest clients from which the rule's result moves farthest against them.

    p opposes the round's honest mean ("update"), its signs ("sign"), its signs times the honest deviations ("deviation"),
    or the mean of the rule's memory ("memory"). With `apart` the malicious clients keep the differences between their
    honest updates. With `decoys` a tenth of them deviates in another direction, by three times an honest norm.

    >>> Tailored(clients=3, against="sign").knows_rule
    True
    """

    kind: ClassVar[str] = "tailored"
    knows_rule: ClassVar[bool] = True

    against: Literal["update", "sign", "deviation", "memory"] = "update"  # what p opposes
    apart: bool = False  # keep the differences between their honest updates
    decoys: bool = False  # a tenth of them deviates in another direction

    def malicious_updates(self, cohort: AttackedCohort) -> Doubles:
        """Return the updates that move the malicious clients to the best tried position."""
        honest, malicious, rule = cohort.updates, cohort.malicious, cohort.rule
        others = honest[~malicious]
        if len(others) == 0:
            return honest[malicious]
        before = rule.beta * (np.zeros_like(honest) if rule.history is None else rule.history)
        remembered = before + (1.0 - rule.beta) * honest
        towards = harmful_direction(others, remembered[~malicious], self.against)
        centre = remembered[~malicious].mean(axis=0)
        spread = float(np.median(distances_to(remembered[~malicious], centre)))
        start = np.tile(centre, (int(malicious.sum()), 1))
        if self.apart:
            start += remembered[malicious] - remembered[malicious].mean(axis=0)
        best, most = honest[malicious], -np.inf
        for gamma in GAMMAS:
            rows = np.array(honest)
            place = start + gamma * spread * towards
            rows[malicious] = (place - before[malicious]) / (1.0 - rule.beta)
            if self.decoys:
                _place_decoys(rows, malicious, towards)
            moved = float(rule.combined(rows) @ towards)
            if moved > most:
                best, most = rows[malicious], moved
        return best


def harmful_direction(others: Doubles, remembered: Doubles, against: str) -> Doubles:
    """Return p of norm 1; zero where the honest clients have no direction."""
    mean = others.mean(axis=0)
    opposed = {
        "update": mean,
        "sign": np.sign(mean),
        "deviation": np.sign(mean) * remembered.std(axis=0),
        "memory": remembered.mean(axis=0),
    }[against]
    length = float(np.sqrt(opposed @ opposed))
    return np.asarray(-opposed / length if length > 0.0 else np.zeros_like(mean), dtype=np.float64)


def _place_decoys(rows: Doubles, malicious: Booleans, towards: Doubles) -> None:
    """Replace the updates of decoys by three honest norms along ±a direction orthogonal to p."""
    clients = np.flatnonzero(malicious)
    count = max(len(clients) // DECOYS, 1) if len(clients) > 1 else 0
    length = float(np.median(np.sqrt(np.einsum("ij,ij->i", rows[~malicious], rows[~malicious]))))
    across = np.where(np.arange(len(towards)) % 2 == 0, 1.0, -1.0)
    across -= (across @ towards) * towards
    size = float(np.sqrt(across @ across))
    for at, client in enumerate(clients[:count]):
        rows[client] = (1.0 if at % 2 == 0 else -1.0) * 3.0 * length * across / max(size, 1e-300)
