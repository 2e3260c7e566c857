"""Asynchronous rounds: a round ends after so many replies, whichever round those began in (Nguyen et al. 2022, FedBuff).

Every update moves the ranker as far as it would among a whole cohort: a round of K replies from a cohort of n goes K/n of
the way, so that after the same number of interactions an asynchronous run has gone as far as a synchronous one, however
many replies came together. FedBuff's age weights, (1 + τ)^−power for an update that began τ rounds ago, are relative: they
say which updates count more, and do not shorten the way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from quorank.errors import require, require_range
from quorank.federation.rounds import Federation
from quorank.privacy import Mechanism


@dataclass(frozen=True)
class Asynchronous:
    """A round ends after `replies` of them, however old."""

    replies: int = 10  # K
    power: float = 0.0  # an update that began τ rounds ago counts (1 + τ)^−power of a fresh one
    most: int = 20  # rounds; what is older is refused

    def __post_init__(self) -> None:
        require_range("replies", self.replies, least=1)
        require_range("power", self.power, least=0.0)
        require_range("most", self.most, least=0)

    @staticmethod
    def of(share: float, federation: Federation) -> Asynchronous:
        """Rounds that end after this share of a cohort's replies."""
        require_range("asynchronous", share, above=0.0, most=1.0)
        return Asynchronous(max(1, round(share * federation.participation.size(federation.clients))))

    def weight(self, staleness: int) -> float:
        """(1 + τ)^−power."""
        return float((1.0 + staleness) ** -self.power)

    def stretch(self, ages: list[int], asked: int) -> float:
        """What the mean of the weighted updates is multiplied with: K/n over their mean weight."""
        weights = math.fsum(self.weight(age) for age in ages)
        return len(ages) / max(asked, 1) * len(ages) / weights if weights > 0.0 else 1.0


def check_asynchronous(federation: Federation, mechanism: Mechanism) -> None:
    """Refuse what asynchronous rounds cannot be."""
    mixed = "asynchronous rounds mix updates of several rankers: no noise is accounted for that"
    sentence = f"{mixed}, nor can a secure sum be made of them; leave privacy out, or asynchronous"
    require(mechanism.sums_as_sent, "option.conflict", sentence)
    sentence = "rounds that take whoever comes end by themselves after so many replies; leave asynchronous out"
    require(not federation.participation.takes_whoever_comes, "option.conflict", sentence)
    rule = federation.aggregation
    sentence = f"{rule.kind} with history needs everyone in every round; take history out, or asynchronous"
    require(rule.history == 0.0, "option.conflict", sentence)
