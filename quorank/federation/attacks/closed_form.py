"""Published attacks whose updates are a formula of the honest ones.

- `ClickPoisoning` (thesis §5.2.2, table 5.1): malicious clients click what is irrelevant and never stop;
- `SignFlip` (thesis eqs 6.3 and 6.4), which makes a leaver's influence visible before unlearning (§6.1.4);
- `InnerProduct` (Xie, Koyejo and Gupta 2019, "Fall of empires", eq. 3);
- `LittleIsEnough` (Baruch, Baruch and Goldberg 2019, "A little is enough"; thesis §5.2.3);
- `Mimic` (Karimireddy, He and Jaggi 2022, "Byzantine-robust learning on heterogeneous datasets via bucketing", §3.2);
- `MinMax` and `MinSum` (Shejwalkar and Houmansadr 2021, "Manipulating the Byzantine: optimizing model poisoning attacks and
  defenses for federated learning", §4), which need not know the rule.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from quorank.errors import require_range
from quorank.federation.attacks.attack import Attack, AttackedCohort, InformedAttack, Knowledge, opposite
from quorank.federation.rules.centres import distances_to
from quorank.federation.rules.neighbours import distances
from quorank.kernels.arrays import Doubles
from quorank.users import Cascade


@dataclass(frozen=True)
class ClickPoisoning(Attack):
    """Malicious clients whose users follow the preset "poison"; they compute and send honest updates of these clicks.

    >>> ClickPoisoning(clients=3).users.preset
    'poison'
    """

    kind: ClassVar[str] = "clicks"

    @property
    def users(self) -> Cascade:
        return Cascade(preset="poison")


@dataclass(frozen=True)
class SignFlip(Attack):
    """Malicious clients that send the ranker −z·θ_local (eq. 6.3), which also reverses all earlier rounds.

    >>> SignFlip(z=2.0).poison(np.array([[1.0]]), np.array([True]), np.array([2.0]), np.zeros(2), 0)
    array([[-8.]])
    """

    kind: ClassVar[str] = "sign-flip"

    z: float = 2.0  # z, scale of the reversed local ranker

    def __post_init__(self) -> None:
        super().__post_init__()
        require_range("z", self.z, above=0.0)

    def malicious_updates(self, cohort: AttackedCohort) -> Doubles:
        """Return Δ_mal = −z·Δ − (z + 1)·θ_g, eq. 6.4."""
        return np.asarray(-self.z * cohort.own - (self.z + 1.0) * cohort.theta, dtype=np.float64)


@dataclass(frozen=True)
class Scaled(Attack):
    """Malicious clients that send factor·Δ instead of Δ.

    >>> Scaled(clients=1, factor=-5.0).factor
    -5.0
    """

    kind: ClassVar[str] = "scaled"

    factor: float = -5.0  # factor of the honest update

    def __post_init__(self) -> None:
        super().__post_init__()
        require_range("factor", self.factor)

    def malicious_updates(self, cohort: AttackedCohort) -> Doubles:
        return cohort.own * self.factor


@dataclass(frozen=True)
class InnerProduct(InformedAttack):
    """All malicious clients send −ϵ·μ, with the mean μ of the known honest updates.

    A small ϵ lies closer to the honest updates than they lie to each other, and still the mean of what a rule chooses may
    point the wrong way.

    >>> updates = np.array([[2.0], [4.0], [6.0]])
    >>> InnerProduct().poison(updates, np.arange(3) < 1, np.zeros(1), np.zeros(2), 0)[0]
    array([-2.5])
    """

    kind: ClassVar[str] = "inner-product"

    factor: float = 0.5  # ϵ, times which the reversed mean is sent; no privacy figure

    def __post_init__(self) -> None:
        super().__post_init__()
        require_range("factor", self.factor, above=0.0)

    def malicious_updates(self, cohort: AttackedCohort) -> Doubles:
        return np.asarray(-self.factor * cohort.rivals(self.knowledge).mean(axis=0), dtype=np.float64)


@dataclass(frozen=True)
class LittleIsEnough(InformedAttack):
    """All malicious clients send μ − z·σ, with mean μ and deviation σ of the known honest updates.

    That is close enough to the mean to pass for honest. By default z is the largest value for which the honest updates
    beyond the malicious ones and the malicious ones together form a majority. For the ten clients of the thesis that is
    −0.14, 0, 0.18 and 0.43 for one to four malicious ones: with one the attack moves the wrong way (by 0 with partial
    knowledge), with two it sends the mean. The thesis's finding that it is harmless is due to ten clients; `z` may be set.

    >>> round(largest_z(10, 4), 4)
    0.4307
    """

    kind: ClassVar[str] = "little-is-enough"

    knowledge: Knowledge = "partial"  # honest updates that the attacker knows: its clients' or all
    z: float | None = None  # z, standard deviations from the mean; by default from n and m

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.z is not None:
            require_range("z", self.z)

    def malicious_updates(self, cohort: AttackedCohort) -> Doubles:
        """Return μ − z·σ; the thesis's θ_g cancels, as μ and μ − z·σ are both rankers."""
        known = cohort.view(self.knowledge)
        z = largest_z(len(cohort.updates), len(cohort.own)) if self.z is None else self.z
        return np.asarray(known.mean(axis=0) - z * known.std(axis=0), dtype=np.float64)


def largest_z(n: int, m: int) -> float:
    """Return the largest z with Φ(z) ≤ (n − m − s) / (n − m), where s = ⌊n/2⌋ + 1 − m honest clients make a majority.

    A drawn cohort may hold a majority of malicious clients; then one honest client beyond them suffices.
    """
    from scipy.special import ndtri

    honest, supporters = n - m, max(n // 2 + 1 - m, 1)
    return float(ndtri((honest - supporters) / honest)) if honest > supporters else 0.0


@dataclass(frozen=True)
class Mimic(InformedAttack):
    """All malicious clients copy u_i* of an honest client i*, the first or the farthest, which then counts m + 1 times.

    The paper takes the client with the largest |⟨z, u_i⟩| for the direction z of the largest variance, which it learns
    over rounds; "farthest" uses each round's own z, "first" copies the same client in all rounds.

    >>> Mimic(clients=2, victim="farthest").knowledge
    'full'
    """

    kind: ClassVar[str] = "mimic"

    victim: Literal["first", "farthest"] = "first"  # i*, the honest client that is copied

    def malicious_updates(self, cohort: AttackedCohort) -> Doubles:
        known = cohort.rivals(self.knowledge)
        if self.victim == "first":
            return np.array(known[0])
        _, _, directions = np.linalg.svd(known - known.mean(axis=0), full_matrices=False)
        return np.array(known[np.argmax(np.abs(known @ directions[0]))])


@dataclass(frozen=True)
class _Disguised(InformedAttack):
    """μ + γ·p: the honest mean moved along a harmful direction p, no farther than honest updates are from each other.

    p is the inverse unit vector −μ/‖μ‖, the inverse standard deviation −σ or the inverse sign −sign(μ). The paper searches
    for the largest γ by halving steps; both conditions are quadratic in γ, so it is computed.
    """

    direction: Literal["unit", "deviation", "sign"] = "unit"  # p: against the honest mean, its deviations or its signs

    def malicious_updates(self, cohort: AttackedCohort) -> Doubles:
        """Return μ + γ·p."""
        known = cohort.rivals(self.knowledge)
        mean = known.mean(axis=0)
        harmful = {"unit": opposite(mean), "deviation": -known.std(axis=0), "sign": -np.sign(mean)}[self.direction]
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
        """Return the largest γ with ‖μ + γ·p − u_i‖ ≤ max_{j,k} ‖u_j − u_k‖ for all i (eq. 7)."""
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
        """Return the largest γ with Σ_i ‖μ + γ·p − u_i‖² ≤ max_j Σ_i ‖u_j − u_i‖² (eq. 8).

        The left side is Σ_i ‖μ − u_i‖² + n·γ²·‖p‖².
        """
        most = float((distances(known) ** 2).sum(axis=1).max())
        own = float((distances_to(known, known.mean(axis=0)) ** 2).sum())
        return float(np.sqrt(max(most - own, 0.0) / (len(known) * float(harmful @ harmful))))
