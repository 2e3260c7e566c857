"""Published attacks whose updates are one formula of the honest ones.

- `ClickPoisoning` (thesis §5.2.2, table 5.1): malicious clients click what is irrelevant and never stop;
- `SignFlip` (thesis eqs 6.3 and 6.4), which makes a leaver's influence visible before unlearning (§6.1.4);
- `InnerProduct` (Xie, Koyejo and Gupta 2019, "Fall of empires", eq. 3);
- `LittleIsEnough` (Baruch, Baruch and Goldberg 2019, "A little is enough"; thesis §5.2.3);
- `Mimic` (Karimireddy, He and Jaggi 2022, "Byzantine-robust learning on heterogeneous datasets via bucketing", §3.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from quorank.errors import require_range
from quorank.federation.attacks.attack import Attack, AttackedCohort, Knowledge
from quorank.kernels.arrays import Doubles
from quorank.users import Cascade


@dataclass(frozen=True)
class ClickPoisoning(Attack):
    """Malicious clients whose users follow the preset "poison"; they compute and send honest updates of these clicks.

    `knowledge` has no effect; it lets one experiment section name every published attack.

    >>> ClickPoisoning(clients=3).users.preset
    'poison'
    """

    kind: ClassVar[str] = "clicks"

    knowledge: Knowledge = "partial"  # makes no difference here

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
class InnerProduct(Attack):
    """All malicious clients send −ϵ·μ, with the mean μ of the known honest updates.

    A small ϵ lies closer to the honest updates than they lie to each other, and still the mean of what a rule chooses may
    point the wrong way.

    >>> updates = np.array([[2.0], [4.0], [6.0]])
    >>> InnerProduct().poison(updates, np.arange(3) < 1, np.zeros(1), np.zeros(2), 0)[0]
    array([-2.5])
    """

    kind: ClassVar[str] = "inner-product"

    knowledge: Knowledge = "full"  # honest updates that the attacker knows: its clients' or all
    factor: float = 0.5  # ϵ, times which the reversed mean is sent; no privacy figure

    def __post_init__(self) -> None:
        super().__post_init__()
        require_range("factor", self.factor, above=0.0)

    def malicious_updates(self, cohort: AttackedCohort) -> Doubles:
        return np.asarray(-self.factor * cohort.rivals(self.knowledge).mean(axis=0), dtype=np.float64)


@dataclass(frozen=True)
class LittleIsEnough(Attack):
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

    supporters = max(n // 2 + 1 - m, 1)
    honest = n - m
    return float(ndtri((honest - supporters) / honest)) if honest > supporters else 0.0


@dataclass(frozen=True)
class Mimic(Attack):
    """All malicious clients copy u_i* of an honest client i*, the first or the farthest, which then counts m + 1 times.

    The paper takes the client with the largest |⟨z, u_i⟩| for the direction z of the largest variance, which it learns
    over rounds; "farthest" uses each round's own z, "first" copies the same client in all rounds.

    >>> Mimic(clients=2, victim="farthest").knowledge
    'full'
    """

    kind: ClassVar[str] = "mimic"

    knowledge: Knowledge = "full"  # honest updates that the attacker knows: its clients' or all
    victim: Literal["first", "farthest"] = "first"  # i*, the honest client that is copied

    def malicious_updates(self, cohort: AttackedCohort) -> Doubles:
        known = cohort.rivals(self.knowledge)
        if self.victim == "first":
            return np.array(known[0])
        _, _, directions = np.linalg.svd(known - known.mean(axis=0), full_matrices=False)
        return np.array(known[np.argmax(np.abs(known @ directions[0]))])
