"""Published attacks whose updates are a formula of the honest ones."""

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
    """Malicious clients that click irrelevant documents and never stop (thesis §5.2.2, table 5.1).

    Their users follow the click model preset "poison". The updates are computed honestly from these clicks, so the
    attack works under any rule, privacy mechanism and secure sum.

    Args:
        clients: Number of malicious clients m, at least 1 and fewer than half of all.

    >>> ClickPoisoning(clients=3).users.tables(grades=3, k=2).click
    array([1. , 0.5, 0. ])
    """

    kind: ClassVar[str] = "clicks"

    @property
    def users(self) -> Cascade:
        return Cascade(preset="poison")


@dataclass(frozen=True)
class SignFlip(Attack):
    """Malicious clients that report the ranker −z·θ_local (thesis eq. 6.3).

    As an update this is Δ_mal = −z·Δ − (z + 1)·θ_g (eq. 6.4), which also reverses all earlier rounds. The thesis uses
    it to make a leaver's influence visible before unlearning (§6.1.4).

    Args:
        clients: Number of malicious clients m, at least 1 and fewer than half of all.
        z: Scale z of the reversed local ranker, above 0.

    Raises:
        BadInput: `value.out-of-range` if `z` is not above 0.

    >>> SignFlip(z=2.0).poison(np.array([[1.0]]), np.array([True]), np.array([2.0]), np.zeros(2), 0)
    array([[-8.]])
    """

    kind: ClassVar[str] = "sign-flip"

    z: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_range("z", self.z, above=0.0)

    def malicious_updates(self, cohort: AttackedCohort) -> Doubles:
        """Return Δ_mal = −z·Δ − (z + 1)·θ_g, eq. 6.4."""
        return np.asarray(-self.z * cohort.own - (self.z + 1.0) * cohort.theta, dtype=np.float64)


@dataclass(frozen=True)
class Scaled(Attack):
    """Malicious clients that send factor·Δ instead of their honest update Δ.

    A negative factor reverses the update. A clip on the client bounds the attack to the clip.

    Args:
        clients: Number of malicious clients m, at least 1 and fewer than half of all.
        factor: Factor of the honest update, any finite number.

    Raises:
        BadInput: `value.out-of-range` if `factor` is not finite.

    >>> Scaled(factor=-5.0).poison(np.array([[1.0, 2.0]]), np.array([True]), np.zeros(2), np.zeros(2), 0)
    array([[ -5., -10.]])
    """

    kind: ClassVar[str] = "scaled"

    factor: float = -5.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_range("factor", self.factor)

    def malicious_updates(self, cohort: AttackedCohort) -> Doubles:
        return cohort.own * self.factor


@dataclass(frozen=True)
class InnerProduct(InformedAttack):
    """Malicious clients that all send −ϵ·μ (Xie, Koyejo and Gupta 2019, "Fall of empires", eq. 3).

    μ is the mean of the known honest updates. With a small ϵ the malicious updates lie closer to the honest ones than
    these lie to each other, and the mean of the updates that a rule selects may still have a negative inner product
    with μ.

    Args:
        clients: Number of malicious clients m, at least 1 and fewer than half of all.
        knowledge: Honest updates that μ is computed from: "partial", those of the malicious clients; "full", all
            others.
        factor: Factor ϵ of the reversed mean, above 0; unrelated to privacy.

    Raises:
        BadInput: `value.out-of-range` if `factor` is not above 0.

    >>> updates = np.array([[2.0], [4.0], [6.0]])
    >>> InnerProduct(factor=0.5).poison(updates, np.arange(3) < 1, np.zeros(1), np.zeros(2), 0)[0]
    array([-2.5])
    """

    kind: ClassVar[str] = "inner-product"

    factor: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        require_range("factor", self.factor, above=0.0)

    def malicious_updates(self, cohort: AttackedCohort) -> Doubles:
        return np.asarray(-self.factor * cohort.rivals(self.knowledge).mean(axis=0), dtype=np.float64)


@dataclass(frozen=True)
class LittleIsEnough(InformedAttack):
    """Malicious clients that all send μ − z·σ (Baruch, Baruch and Goldberg 2019, "A little is enough"; thesis §5.2.3).

    μ and σ are the mean and the standard deviation of the known honest updates, per parameter: close enough to the mean
    to pass for honest. By default z is the largest value for which the honest updates beyond the malicious ones and the
    malicious ones together form a majority (`largest_z`). For the ten clients of the thesis that is −0.14, 0, 0.18 and
    0.43 for one to four malicious ones: one moves the mean the wrong way (by 0 with partial knowledge), and two send
    the mean. The thesis's finding that the attack is harmless is due to ten clients.

    Args:
        clients: Number of malicious clients m, at least 1 and fewer than half of all.
        knowledge: Honest updates that μ and σ are computed from: "partial", those of the malicious clients; "full",
            all.
        z: Number z of standard deviations from the mean; None computes `largest_z` from the cohort.

    Raises:
        BadInput: `value.out-of-range` if `z` is not finite.

    >>> updates = np.array([[1.0], [3.0], [5.0]])
    >>> LittleIsEnough(knowledge="full", z=0.0).poison(updates, np.arange(3) < 1, np.zeros(1), np.zeros(2), 0)[0]
    array([3.])
    """

    kind: ClassVar[str] = "little-is-enough"

    knowledge: Knowledge = "partial"
    z: float | None = None

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

    Args:
        n: Clients of the cohort.
        m: Malicious clients among them.

    >>> round(largest_z(10, 4), 4)
    0.4307
    """
    from scipy.special import ndtri

    honest, supporters = n - m, max(n // 2 + 1 - m, 1)
    return float(ndtri((honest - supporters) / honest)) if honest > supporters else 0.0


@dataclass(frozen=True)
class Mimic(InformedAttack):
    """Malicious clients that all copy the update of one honest client i*, which then counts m + 1 times.

    Karimireddy, He and Jaggi 2022, "Byzantine-robust learning on heterogeneous datasets via bucketing", §3.2: where
    clients differ, this biases any rule. The paper takes the client with the largest |⟨z, u_i⟩| for the direction z of
    the largest variance, which it learns over rounds; here "farthest" takes each round's own z.

    Args:
        clients: Number of malicious clients m, at least 1 and fewer than half of all.
        knowledge: Honest updates to choose from: "partial", those of the malicious clients; "full", all others.
        victim: Copied client i*: "first", the one with the lowest number; "farthest", the one with the largest |⟨z,
            u_i⟩|.

    >>> updates = np.array([[0.0], [1.0], [7.0]])
    >>> Mimic(victim="farthest").poison(updates, np.arange(3) < 1, np.zeros(1), np.zeros(2), 0)[0]
    array([7.])
    """

    kind: ClassVar[str] = "mimic"

    victim: Literal["first", "farthest"] = "first"

    def malicious_updates(self, cohort: AttackedCohort) -> Doubles:
        known = cohort.rivals(self.knowledge)
        if self.victim == "first":
            return np.array(known[0])
        _, _, directions = np.linalg.svd(known - known.mean(axis=0), full_matrices=False)
        return np.array(known[np.argmax(np.abs(known @ directions[0]))])


@dataclass(frozen=True)
class _Disguised(InformedAttack):
    """Base class of attacks that send μ + γ·p, no farther from honest updates than these are from each other.

    Shejwalkar and Houmansadr 2021, "Manipulating the Byzantine: optimizing model poisoning attacks and defenses for
    federated learning", §4. The attacker need not know the rule. μ is the mean of the known honest updates and p the
    harmful direction. The paper searches for the largest γ by halving steps; both of its conditions are quadratic in γ,
    so γ is computed.

    Args:
        direction: p: "unit", the inverse unit vector −μ/‖μ‖; "deviation", the inverse standard deviation −σ; "sign",
            the inverse sign −sign(μ).
    """

    direction: Literal["unit", "deviation", "sign"] = "unit"

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
    """Malicious clients that all send μ + γ·p, bounded by the largest distance (Shejwalkar and Houmansadr 2021, eq. 7).

    γ is the largest value at which no honest update is farther away than two honest updates are from each other.

    Args:
        clients: Number of malicious clients m, at least 1 and fewer than half of all.
        knowledge: Honest updates that are known: "partial", those of the malicious clients; "full", all others.
        direction: Harmful direction p: "unit" −μ/‖μ‖, "deviation" −σ or "sign" −sign(μ).

    >>> updates = np.array([[0.0], [1.0], [3.0]])
    >>> MinMax(direction="sign").poison(updates, np.arange(3) < 1, np.zeros(1), np.zeros(2), 0)[0]
    array([1.])
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
    """Malicious clients that all send μ + γ·p, bounded by the sum of squares (Shejwalkar and Houmansadr 2021, eq. 8).

    γ is the largest value at which the sum of squared distances to the honest updates is at most that of any honest
    one.

    Args:
        clients: Number of malicious clients m, at least 1 and fewer than half of all.
        knowledge: Honest updates that are known: "partial", those of the malicious clients; "full", all others.
        direction: Harmful direction p: "unit" −μ/‖μ‖, "deviation" −σ or "sign" −sign(μ).

    >>> updates = np.array([[0.0], [1.0], [3.0]])
    >>> MinSum(direction="sign").poison(updates, np.arange(3) < 1, np.zeros(1), np.zeros(2), 0)[0]
    array([1.])
    """

    kind: ClassVar[str] = "min-sum"

    def largest_gamma(self, known: Doubles, harmful: Doubles) -> float:
        """Return the largest γ with Σ_i ‖μ + γ·p − u_i‖² ≤ max_j Σ_i ‖u_j − u_i‖² (eq. 8).

        The left side is Σ_i ‖μ − u_i‖² + n·γ²·‖p‖².
        """
        most = float((distances(known) ** 2).sum(axis=1).max())
        own = float((distances_to(known, known.mean(axis=0)) ** 2).sum())
        return float(np.sqrt(max(most - own, 0.0) / (len(known) * float(harmful @ harmful))))
