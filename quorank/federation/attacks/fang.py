"""Attacks fitted to the rule that they attack (Fang et al. 2020; thesis §5.2.3).

Paper: "Local model poisoning attacks to Byzantine-robust federated learning".

Both push every parameter against the direction in which the honest clients move it. Against Krum and Multi-Krum all
malicious clients send θ_g + λ·s with the largest λ, found by halving, for which the rule still picks them. Against the
trimmed mean and the median they send values just beyond the honest extremes.

The extremes are extended as published, by a factor of the parameter itself: [θ_max, b·θ_max] is narrow for parameters
near zero and, once the ranker has grown, wide against an update.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from quorank.errors import require_range
from quorank.federation.attacks.attack import Attack, AttackedCohort, Knowledge
from quorank.federation.rules.distances import distances, distances_to
from quorank.federation.rules.krum import krum_scores
from quorank.kernels.arrays import Doubles
from quorank.kernels.draws import fill_uniform


@dataclass(frozen=True)
class Fang(Attack):
    """Updates opposite to the honest direction, fitted to a rule.

    With partial knowledge the attacker's own honest updates stand for those of the others.

    >>> Fang(clients=2, against="median").b
    2.0
    """

    kind: ClassVar[str] = "fang"

    knowledge: Knowledge = "partial"  # honest updates that the attacker knows: its clients' or all
    against: Literal["krum", "multi-krum", "trimmed-mean", "median"] = "krum"  # rule that the attack is fitted to
    b: float = 2.0  # b, factor beyond the extremes
    threshold: float = 1e-5  # λ below which the search ends

    def __post_init__(self) -> None:
        super().__post_init__()
        require_range("b", self.b, above=1.0)
        require_range("threshold", self.threshold, above=0.0)

    def malicious_updates(self, cohort: AttackedCohort) -> Doubles:
        """Return the malicious rows; a client draws by its row in the cohort."""
        away, theta = against_the_mean(cohort.view(self.knowledge)), cohort.theta
        known, rows = cohort.rivals(self.knowledge), np.flatnonzero(cohort.malicious)
        sent = np.empty((len(rows), len(theta)))
        if self.against in ("krum", "multi-krum"):
            sent[:] = self._size(known, away, len(rows)) * away
            return sent
        low, high = beyond_extremes(known + theta, away, self.b)
        uniform = np.empty(len(theta))
        for at, row in enumerate(rows):
            fill_uniform(cohort.key, 0, int(row), cohort.round, uniform)
            sent[at] = low + (high - low) * uniform - theta
        return sent

    def _size(self, known: Doubles, away: Doubles, m: int) -> float:
        """Search for λ.

        An attacker with partial knowledge simulates the rule with as few malicious updates as succeed, since its own honest
        updates are a small sample of those that its updates must beat (Fang et al., §4.2).
        """
        size = 0.0
        for copies in (m,) if self.knowledge == "full" else range(1, m + 1):
            size = largest_lambda(known, away, copies, self.against == "multi-krum", self.threshold)
            if size >= self.threshold:
                break
        return size


def against_the_mean(honest: Doubles) -> Doubles:
    """Return s = −sign(μ − θ_g) of honest updates, which are differences to θ_g."""
    return np.asarray(-np.sign(honest.mean(axis=0)), dtype=np.float64)


def lambda_bound(known: Doubles, away: Doubles, m: int) -> float:
    """The λ above which Krum cannot pick a malicious update (Fang et al., theorem 1), where the search starts.

    √(min_i Σ_{i→j} ‖u_i − u_j‖² / ((n − 2m − 1)·d)) + max_i ‖u_i‖ / √d for the n − m honest updates u. It is proved for
    a Krum that sums squared distances. For the distances of eq. 5.2 it is a start, not a bound: four malicious clients
    of ten are picked beyond it. Parameters that nobody moves have s = 0 and do not count in d.
    """
    honest = len(known)
    neighbours = max(honest - 2, 0)
    spread = float(krum_scores(distances(known) ** 2, neighbours).min()) if neighbours else 0.0
    dimensions = max(float(np.abs(away).sum()), 1.0)
    longest = float(distances_to(known, np.zeros(known.shape[1])).max())
    return float(np.sqrt(spread / (max(honest - m - 1, 1) * dimensions)) + longest / np.sqrt(dimensions))


def largest_lambda(known: Doubles, away: Doubles, m: int, several: bool, threshold: float) -> float:
    """λ, halved from its start until the rule picks malicious updates, or it falls below the threshold.

    The rule is played with the known honest updates and m malicious ones. Krum must pick a malicious one, Multi-Krum
    (`several`) all m: they are equal, so that none is picked without the others unless by a tie.
    """
    between = distances(known)
    size = lambda_bound(known, away, m)
    while size >= threshold and not is_picked(between, distances_to(known, size * away), m, several):
        size /= 2.0
    return size


def is_picked(between: Doubles, to_malicious: Doubles, m: int, several: bool) -> bool:
    """Return whether the rule picks the m equal malicious updates at distances `to_malicious` from the honest ones."""
    honest = len(between)
    distance = np.zeros((honest + m, honest + m))
    distance[:honest, :honest] = between
    distance[:honest, honest:] = to_malicious[:, None]
    distance[honest:, :honest] = to_malicious[None, :]
    scores = krum_scores(distance, max(honest - 2, 1))
    better = int(np.sum(scores[:honest] < scores[honest]))
    return better + m <= honest if several else better == 0


def beyond_extremes(rankers: Doubles, away: Doubles, b: float) -> tuple[Doubles, Doubles]:
    """Return the interval of each parameter from which malicious clients draw.

    It is [θ_max, b·θ_max] above the honest rankers where s_j = 1 and [b·θ_min, θ_min] below them where s_j = −1, with 1/b
    for b on the other side of zero. Where s_j = 0 there is no direction to oppose, and the honest mean is sent.
    """
    top, bottom, mean = rankers.max(axis=0), rankers.min(axis=0), rankers.mean(axis=0)
    highest = np.where(top > 0.0, b * top, top / b)
    lowest = np.where(bottom > 0.0, bottom / b, b * bottom)
    low = np.where(away > 0.0, top, np.where(away < 0.0, lowest, mean))
    high = np.where(away > 0.0, highest, np.where(away < 0.0, bottom, mean))
    return low, high
