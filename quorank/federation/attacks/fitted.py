"""Attacks fitted to their target: Fang's to a rule, a search against any rule, and false integers in a secure sum."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from quorank.errors import require_range
from quorank.federation.attacks.attack import Attack, AttackedCohort, InformedAttack, Knowledge, opposite
from quorank.federation.rules.centres import distances_to
from quorank.federation.rules.neighbours import distances, krum_scores
from quorank.kernels.arrays import Booleans, Doubles, Integers, Uint64s
from quorank.kernels.draws import fill_uniform
from quorank.privacy import Mechanism

BEYOND, LEAST_LAMBDA = 2.0, 1e-5  # b, factor beyond the extremes; λ below which the search ends
GAMMAS = (0.0, 0.05, 0.1, 0.2, 0.35, 0.6, 1.0, 2.0, 5.0)  # tried values of γ, in units of r
ALMOST = 0.999  # fraction of a sum's bound that is used: the bound is that of the remaining clients, unknown to a liar


@dataclass(frozen=True)
class Fang(InformedAttack):
    """Updates that push every parameter against the direction s in which the honest clients move it, fitted to a rule.

    Fang et al. 2020, "Local model poisoning attacks to Byzantine-robust federated learning"; thesis §5.2.3. Against
    Krum and Multi-Krum all malicious clients send θ_g + λ·s with the largest λ, found by halving, for which the rule
    still picks them. Against the trimmed mean and the median they send values just beyond the honest extremes. The
    extremes are extended as published, by a factor of the parameter itself: [θ_max, b·θ_max] is narrow near zero and,
    once the ranker has grown, wide against an update.

    Args:
        clients: Number of malicious clients m, at least 1 and fewer than half of all.
        knowledge: Honest updates that are known: "partial", those of the malicious clients, which then stand for the
            others'; "full", all.
        against: Rule that the attack is fitted to.

    >>> updates = np.array([[1.0], [2.0], [3.0]])
    >>> Fang(knowledge="full", against="krum").poison(updates, np.arange(3) < 1, np.zeros(1), np.zeros(2), 0)[0] < 0
    array([ True])
    """

    kind: ClassVar[str] = "fang"

    knowledge: Knowledge = "partial"
    against: Literal["krum", "multi-krum", "trimmed-mean", "median"] = "krum"

    def malicious_updates(self, cohort: AttackedCohort) -> Doubles:
        """Return the malicious rows; a client draws by its row in the cohort."""
        away, theta = -np.sign(cohort.view(self.knowledge).mean(axis=0)), cohort.theta  # s = −sign(μ − θ_g)
        known, rows = cohort.rivals(self.knowledge), np.flatnonzero(cohort.malicious)
        sent = np.empty((len(rows), len(theta)))
        if self.against in ("krum", "multi-krum"):
            sent[:] = self._largest_lambda(known, away, len(rows)) * away
            return sent
        low, high = beyond_extremes(known + theta, away)
        uniform = np.empty(len(theta))
        for at, row in enumerate(rows):
            fill_uniform(cohort.key, 0, int(row), cohort.round, uniform)
            sent[at] = low + (high - low) * uniform - theta
        return sent

    def _largest_lambda(self, known: Doubles, away: Doubles, m: int) -> float:
        """Halve λ from its start until the rule picks malicious updates among the known honest ones.

        Krum must pick a malicious one, Multi-Krum all m: they are equal, so that none is picked without the others unless
        by a tie. An attacker with partial knowledge simulates the rule with as few malicious updates as succeed, since its
        own honest updates are a small sample of those that its updates must beat (Fang et al., §4.2).
        """
        between, size = distances(known), 0.0
        for copies in (m,) if self.knowledge == "full" else range(1, m + 1):
            size = lambda_bound(known, away, copies)
            while size >= LEAST_LAMBDA:
                if is_picked(between, distances_to(known, size * away), copies, self.against == "multi-krum"):
                    return size
                size /= 2.0
        return size


def lambda_bound(known: Doubles, away: Doubles, m: int) -> float:
    """Compute the λ above which Krum cannot pick a malicious update (Fang et al., theorem 1), where the search starts.

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


def beyond_extremes(rankers: Doubles, away: Doubles) -> tuple[Doubles, Doubles]:
    """Return the interval of each parameter from which malicious clients draw.

    It is [θ_max, b·θ_max] above the honest rankers where s_j = 1 and [b·θ_min, θ_min] below them where s_j = −1, with 1/b
    for b on the other side of zero. Where s_j = 0 there is no direction to oppose, and the honest mean is sent.
    """
    top, bottom, mean = rankers.max(axis=0), rankers.min(axis=0), rankers.mean(axis=0)
    highest = np.where(top > 0.0, BEYOND * top, top / BEYOND)
    lowest = np.where(bottom > 0.0, bottom / BEYOND, BEYOND * bottom)
    low = np.where(away > 0.0, top, np.where(away < 0.0, lowest, mean))
    high = np.where(away > 0.0, highest, np.where(away < 0.0, bottom, mean))
    return low, high


@dataclass(frozen=True)
class Tailored(Attack):
    """Position among the honest clients from which the rule's result moves farthest against them.

    After Shejwalkar and Houmansadr 2021, "Manipulating the Byzantine", §4.1, eq. 5: the attacker knows all honest
    updates and the rule, and sends μ + γ·p with the γ that moves the rule's result farthest against the honest
    direction. Here it also knows the rule's memory h of clients: the malicious clients move to μ_h + γ·r·p, where r is
    the median distance of the honest ones to their mean μ_h. γ is tried from 0 to 5 in every round.

    Args:
        clients: Number of malicious clients m, at least 1 and fewer than half of all.
        against: Opposed direction: "update", the round's honest mean; "sign", its signs; "deviation", its signs times
            the honest deviations; "memory", the mean of the rule's memory.
        apart: Whether malicious clients keep the differences between their honest updates.
        decoys: Whether a tenth of them, at least one of several, deviates by three honest norms, orthogonally to p.

    >>> updates = np.array([[1.0], [1.0], [3.0]])
    >>> Tailored().poison(updates, np.arange(3) < 1, np.zeros(1), np.zeros(2), 0)[0]
    array([-3.])
    """

    kind: ClassVar[str] = "tailored"
    knows_rule: ClassVar[bool] = True

    against: Literal["update", "sign", "deviation", "memory"] = "update"
    apart: bool = False
    decoys: bool = False

    def malicious_updates(self, cohort: AttackedCohort) -> Doubles:
        """Return the updates that move the malicious clients to the best tried position."""
        others = cohort.updates[~cohort.malicious]
        if len(others) == 0:
            return cohort.own
        past, mean = remembered_updates(cohort)[~cohort.malicious], others.mean(axis=0)
        opposed = {"sign": np.sign(mean), "deviation": np.sign(mean) * past.std(axis=0), "memory": past.mean(axis=0)}
        towards = opposite(opposed.get(self.against, mean))
        return best_position(cohort, towards, apart=self.apart, decoys=self.decoys)


@dataclass(frozen=True)
class TwoPhase(Attack):
    """Attackers that change their direction in the last rounds, too late for the rule's memory.

    The attacker knows all honest updates, the rule and its memory. In every round its clients move to the position
    that `Tailored` finds best, along a direction p. C is the covariance of the honest clients' memory: a push along
    directions in which honest clients differ by chance is found last.

    Args:
        clients: Number of malicious clients m, at least 1 and fewer than half of all.
        before: First phase: "honest", honest updates; "drift", p = −C·(mean memory); "memory", p = −(mean memory).
        turn: First round of the second phase, from 0; 0 leaves the first phase out.
        after: Second phase: "ranker", p = −C·θ; "axis", p = ∓ the first eigenvector of C, against θ.

    Raises:
        BadInput: `value.out-of-range` if `turn` is below 0.

    >>> updates = np.array([[1.0], [1.0], [3.0]])
    >>> TwoPhase(turn=5).poison(updates, np.arange(3) < 1, np.ones(1), np.zeros(2), 5)[0]
    array([-3.])
    """

    kind: ClassVar[str] = "two-phase"
    knows_rule: ClassVar[bool] = True

    before: Literal["honest", "drift", "memory"] = "drift"
    turn: int = 197
    after: Literal["ranker", "axis"] = "ranker"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_range("turn", self.turn, least=0, below=2**31)

    def malicious_updates(self, cohort: AttackedCohort) -> Doubles:
        """Return honest updates, or those that move the malicious clients to the best tried position."""
        phase = self.before if cohort.round < self.turn else self.after
        past = remembered_updates(cohort)[~cohort.malicious]
        if phase == "honest" or len(past) == 0:
            return cohort.own
        mean = past.mean(axis=0)
        differences = past - mean
        if phase == "axis":
            axis = np.linalg.svd(differences, full_matrices=False)[2][0]
            return best_position(cohort, -axis if axis @ cohort.theta >= 0.0 else axis)
        if phase == "memory":
            return best_position(cohort, opposite(mean))
        opposed = mean if phase == "drift" else cohort.theta
        along = np.einsum("ij,j->i", differences, opposed)
        return best_position(cohort, opposite(np.einsum("ij,i->j", differences, along)))


def remembered_updates(cohort: AttackedCohort) -> Doubles:
    """Return the rule's memory of each client after this round, (n, d), if all were honest."""
    rule = cohort.rule
    return rule.beta * rule.before(len(cohort.updates), len(cohort.theta)) + (1.0 - rule.beta) * cohort.updates


def best_position(cohort: AttackedCohort, towards: Doubles, *, apart: bool = False, decoys: bool = False) -> Doubles:
    """Return the malicious updates that move the rule's result farthest, of those tried.

    They take the malicious clients, in the rule's memory, to μ_h + γ·r·p.

    Args:
        cohort: Cohort with at least one honest client.
        towards: (d,) unit vector p.
        apart: Whether malicious clients keep the differences between their honest updates.
        decoys: Whether a tenth of them deviates orthogonally to p.
    """
    honest, malicious, rule = cohort.updates, cohort.malicious, cohort.rule
    before, remembered = rule.beta * rule.before(*honest.shape), remembered_updates(cohort)
    past = remembered[~malicious]
    centre = past.mean(axis=0)
    spread = float(np.median(distances_to(past, centre)))
    start = np.tile(centre, (int(malicious.sum()), 1))
    if apart:
        start += remembered[malicious] - remembered[malicious].mean(axis=0)
    best, most = honest[malicious], -np.inf
    for gamma in GAMMAS:
        rows = np.array(honest)
        rows[malicious] = (start + gamma * spread * towards - before[malicious]) / (1.0 - rule.beta)
        if decoys:
            _place_decoys(rows, malicious, towards)
        moved = float(rule.combined(rows) @ towards)
        if moved > most:
            best, most = rows[malicious], moved
    return best


def _place_decoys(rows: Doubles, malicious: Booleans, towards: Doubles) -> None:
    """Replace the updates of decoys by three honest norms along ±a direction orthogonal to p."""
    clients = np.flatnonzero(malicious)
    count = max(len(clients) // 10, 1) if len(clients) > 1 else 0
    length = float(np.median(np.sqrt(np.einsum("ij,ij->i", rows[~malicious], rows[~malicious]))))
    across = np.where(np.arange(len(towards)) % 2 == 0, 1.0, -1.0)
    across -= (across @ towards) * towards
    size = max(float(np.sqrt(across @ across)), 1e-300)
    for at, client in enumerate(clients[:count]):
        rows[client] = (1.0 if at % 2 == 0 else -1.0) * 3.0 * length * across / size


@dataclass(frozen=True)
class Lies(Attack):
    """Malicious clients that send arbitrary integers into a secure sum, which hides the sender.

    Args:
        clients: Number of malicious clients m, at least 1 and fewer than half of all.
        sends: "words", uniform 32-bit words; "worst", the reversed sum of all other inputs at the largest norm with
            which a sum is still used.

    >>> reversed_sum(np.array([1.0, -2.0]), number=100.0, length=np.inf)
    array([-50., 100.])
    """

    kind: ClassVar[str] = "lies"

    sends: Literal["words", "worst"] = "worst"

    def lie(
        self, releases: Doubles, malicious: Booleans, clients: Integers, mechanism: Mechanism, key: Uint64s, round_: int
    ) -> Doubles:
        """Return the malicious rows; of several liars in a sum the first reverses it, and the others send zeros."""
        lies, liars = np.zeros((int(malicious.sum()), releases.shape[1])), clients[malicious]
        for at, client in enumerate(liars.tolist()):
            if self.sends == "words":
                fill_uniform(key, 0, client, round_, lies[at])
                lies[at] = np.floor(lies[at] * 2.0**32) - 2.0**31
                continue
            together = mechanism.companions(client, clients, round_)
            if client == liars[np.isin(liars, clients[together])][0]:
                others = releases[together & ~malicious].sum(axis=0)
                lies[at] = reversed_sum(others, *mechanism.reach(int(together.sum()), releases.shape[1])) - others
        return lies


def reversed_sum(total: Doubles, number: float, length: float) -> Doubles:
    """Return the longest integers opposite to `total` within bounds on number and norm; −10·total without bounds."""
    norm = math.sqrt(total.dot(total))
    if norm == 0.0:
        return np.zeros_like(total)
    farthest = min(length / norm, number / float(np.abs(total).max()))
    return np.rint(-total * (ALMOST * farthest if math.isfinite(farthest) else 10.0))
