"""Min-Max and Min-Sum (Shejwalkar and Houmansadr 2021, §4).

Paper: "Manipulating the Byzantine: optimizing model poisoning attacks and defenses for federated learning".

All malicious clients send μ + γ·p, the honest mean moved along a direction p that does harm, with the largest γ for which
they are no farther from the honest updates than these are from each other: by the largest distance (Min-Max, eq. 7) or
by the sum of squared distances (Min-Sum, eq. 8). They need not know the rule. The paper looks for γ by halving steps;
both conditions are quadratic in γ, so it is computed.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from quorank.federation.attacks.attack import Attack, AttackedCohort, Knowledge
from quorank.federation.rules.distances import distances, distances_to
from quorank.kernels.arrays import Doubles

Direction = Literal["unit", "deviation", "sign"]
"""p of the paper: the inverse unit vector −μ/‖μ‖, the inverse standard deviation −σ, the inverse sign −sign(μ)."""


@dataclass(frozen=True)
class _Disguised(Attack):
    """μ + γ·p."""

    knowledge: Knowledge = "full"  # honest updates that the attacker knows: its clients' or all
    direction: Direction = "unit"  # p: against the honest mean, its deviations or its signs

    def malicious_updates(self, cohort: AttackedCohort) -> Doubles:
        """Return μ + γ·p."""
        known = cohort.rivals(self.knowledge)
        harmful = perturbation(known, self.direction)
        mean = known.mean(axis=0)
        return np.asarray(mean + self.largest_gamma(known, harmful) * harmful if harmful.any() else mean)

    @abstractmethod
    def largest_gamma(self, known: Doubles, harmful: Doubles) -> float:
        """Return γ for the known honest updates and p ≠ 0."""


@dataclass(frozen=True)
class MinMax(_Disguised):
    """Largest γ whose distance to any honest update is at most the largest between two of them.

    >>> MinMax(clients=2, direction="sign").knowledge
    'full'
    """

    kind: ClassVar[str] = "min-max"

    def largest_gamma(self, known: Doubles, harmful: Doubles) -> float:
        """Return the largest γ with ‖μ + γ·p − u_i‖ ≤ max_{j,k} ‖u_j − u_k‖ for all i."""
        mean = known.mean(axis=0)
        square, along = float(harmful @ harmful), (mean - known) @ harmful
        room = float(distances(known).max()) ** 2 - distances_to(known, mean) ** 2
        return float(np.min((np.sqrt(along**2 + square * np.maximum(room, 0.0)) - along) / square))


@dataclass(frozen=True)
class MinSum(_Disguised):
    """Largest γ whose sum of squared distances to the honest updates is at most that of any honest one.

    >>> MinSum(clients=2).direction
    'unit'
    """

    kind: ClassVar[str] = "min-sum"

    def largest_gamma(self, known: Doubles, harmful: Doubles) -> float:
        """Return the largest γ with Σ_i ‖μ + γ·p − u_i‖² ≤ max_j Σ_i ‖u_j − u_i‖².

        The left side is Σ_i ‖μ − u_i‖² + n·γ²·‖p‖².
        """
        most = float((distances(known) ** 2).sum(axis=1).max())
        own = float((distances_to(known, known.mean(axis=0)) ** 2).sum())
        return float(np.sqrt(max(most - own, 0.0) / (len(known) * float(harmful @ harmful))))


def perturbation(known: Doubles, direction: Direction) -> Doubles:
    """Return p; zero where the honest updates have no direction."""
    mean = known.mean(axis=0)
    if direction == "deviation":
        return np.asarray(-known.std(axis=0), dtype=np.float64)
    if direction == "sign":
        return np.asarray(-np.sign(mean), dtype=np.float64)
    length = float(np.sqrt(mean @ mean))
    return np.asarray(-mean / length if length > 0.0 else np.zeros_like(mean), dtype=np.float64)
