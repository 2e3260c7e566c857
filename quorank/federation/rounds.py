"""Rounds of a federation (FPDGD algorithm 2), as pure steps on explicit state, and the sums of their releases.

Sums are exact in any order (`kernels.exact_sums`). An accepted reply is added at once, so a round's memory does not grow
with its cohort but for the clients' numbers; only rules that need single updates keep them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from quorank.errors import BadInput, require, require_range
from quorank.federation.attacks.attack import Attack
from quorank.federation.combinations import check_federation
from quorank.federation.participation import Full, Participation, TurnsTaken
from quorank.federation.personal import Personalisation, Shared
from quorank.federation.reply import Reply
from quorank.federation.rules import Aggregation
from quorank.federation.rules.rule import Mean, RuleMemory
from quorank.federation.server_optimisers import AVERAGE, Add, Memory, Server
from quorank.kernels.arrays import Doubles, Integers
from quorank.kernels.exact_sums import ExactSum
from quorank.learning import PDGD, Learner
from quorank.learning.client_loop import STATISTICS
from quorank.privacy import Mechanism, NoPrivacy, Privacy, Setting

COMBINED = "combined"  # key of R(h) of the round before, for a rule that keeps pace


@dataclass(frozen=True, eq=False)
class State:
    """State of a federation between two rounds.

    >>> state = Federation().start(np.zeros(46))
    >>> state.round, state.theta.shape
    (0, (46,))
    """

    round: int  # rounds done
    theta: Doubles  # θ
    memory: Memory  # of the server optimiser
    private: Memory = field(default_factory=dict)  # of the privacy mechanism
    personal: Doubles | None = None  # (clients, parameters) offset of each client
    history: Doubles | None = None  # (clients, parameters) exponential mean of each client's updates
    rule: RuleMemory = field(default_factory=dict)  # further memory of the aggregation
    turns: TurnsTaken | None = None  # participations of each client, in open participation
    carried: Doubles | None = None  # (clients, parameters) m: momentum of each client


class CohortSum(NamedTuple):
    """Exact sum of a cohort's releases, with the noise of its privacy mechanism.

    >>> metrics = {"interactions": 8, "ndcg": 4.0, "reciprocal": 6.0, "clicks": 8.0}
    >>> two = CohortSum(np.array([0.4, 0.2]), 8.0, clients=2, private={}, **metrics)
    >>> two.total / two.weight
    array([0.05 , 0.025])
    """

    total: Doubles  # Σ n_c · release
    weight: float  # Σ n_c, or the mechanism's divisor
    clients: int
    interactions: int
    ndcg: float  # Σ nDCG of the lists that were shown
    reciprocal: float  # Σ MaxRR of the clicks
    clicks: float
    private: Memory  # of the privacy mechanism, for the next round
    sensitivity: float = math.nan  # of the total to one client, L2
    noise: float = 0.0  # standard deviation of the noise on each number of the total
    updates: Doubles | None = None  # (clients, parameters), for rules that need single updates
    weights: Doubles | None = None  # (clients,)
    personal: Doubles | None = None  # `State.personal` of the next round
    carried: Doubles | None = None  # `State.carried` of the next round
    dropped: tuple[str, ...] = ()  # code of each sum that was not used
    stays: bool = False  # no sum can be used, so the ranker stays as it is
    members: Integers | None = None  # participating clients, where `State.turns` counts them


class PlayedRounds(NamedTuple):
    """Sums of consecutive rounds of one cohort without noise, played from predicted θ."""

    thetas: Doubles  # (rounds, parameters) θ before each round
    momenta: Doubles  # (rounds, parameters) m of the server's recursion before each round
    sums: Doubles  # (rounds, parameters + STATISTICS)
    clients: int
    interactions: int  # per round


class Report(NamedTuple):
    """Metrics of one completed round.

    >>> federation = Federation(clients=2)
    >>> metrics = {"interactions": 8, "ndcg": 4.0, "reciprocal": 6.0, "clicks": 8.0}
    >>> two = CohortSum(np.array([3.0, 4.0]), 1.0, clients=2, private={}, **metrics)
    >>> state, report = federation.round(federation.start(np.zeros(2)), two)
    >>> report.round, report.online_ndcg, report.update_norm, state.theta.tolist()
    (1, 0.5, 5.0, [3.0, 4.0])
    """

    round: int  # from 1
    interactions: int
    online_ndcg: float  # mean over the round's interactions
    online_maxrr: float
    clicks: float  # per interaction
    update_norm: float  # of the aggregated update
    participants: int
    sensitivity: float  # of the sum of releases to one client
    noise: float  # standard deviation of the noise on each number of that sum


class Reports(NamedTuple):
    """Metrics of consecutive completed rounds, the fields of `Report`."""

    round: int  # the last one, from 1
    interactions: int  # of each
    online_ndcg: Doubles  # (rounds,)
    online_maxrr: Doubles  # (rounds,)
    clicks: Doubles  # (rounds,)
    update_norm: Doubles  # (rounds,)
    participants: int
    sensitivity: float
    noise: float


@dataclass(frozen=True)
class Federation:
    """Parts of a federation: learner, participation, privacy, aggregation, server optimiser and attack.

    Args:
        clients: n, number of clients.
        interactions: B, interactions of a client in a round.
        learner: Learning algorithm of a client.
        participation: Rule that forms the cohort of a round.
        aggregation: Rule that combines the releases of a cohort.
        server: Optimiser that applies the combined update.
        privacy: Protection of updates before they leave a client.
        attack: Attack of malicious clients, if any.
        personal: Parameters that clients keep for themselves.
        client_momentum: β in [0, 1): a client sends m ← β·m + update.

    >>> Federation(clients=10).setting(rounds=5, parameters=46).cohort
    10
    """

    clients: int = 1000
    interactions: int = 4  # B
    learner: Learner = field(default_factory=PDGD)
    participation: Participation = field(default_factory=Full)
    aggregation: Aggregation = field(default_factory=Mean)
    server: Server = field(default_factory=Add)
    privacy: Privacy = field(default_factory=NoPrivacy)
    attack: Attack | None = None
    personal: Personalisation = field(default_factory=Shared)
    client_momentum: float = 0.0  # β

    def __post_init__(self) -> None:
        require_range("clients", self.clients, least=1, below=2**31)
        require_range("interactions", self.interactions, least=1, below=2**31)
        require_range("client_momentum", self.client_momentum, least=0.0, below=1.0)
        cohort = self.participation.size(self.clients)
        sentence = f"a cohort of {cohort} cannot be drawn from {self.clients} clients"
        require(cohort <= self.clients, "federation.cohort-too-large", sentence, "participation")
        if self.attack is not None:
            self.attack.check(self.participation.fewest(self.clients))
        fewest = self.participation.fewest(self.clients)
        self.aggregation.check(fewest if self.privacy.sum_groups == 1 else self.privacy.sum_groups)
        self.learner.check(self.interactions)
        check_federation(self)

    @property
    def everyone(self) -> bool:
        """True if every cohort consists of all clients."""
        drawn = not self.participation.open_arrivals
        return drawn and self.participation.size(self.clients) == self.clients

    @property
    def assumes_secret_cohorts(self) -> bool:
        """True if its ε relies on nobody knowing the cohorts."""
        drawn = not (self.everyone or self.participation.open_arrivals)
        return drawn and self.privacy.assumes_secret_cohorts

    def check_pair_memory(self, memory: int) -> None:
        """Refuse a rule whose comparisons of pairs exceed this many bytes of memory."""
        groups = self.privacy.sum_groups
        self.aggregation.check_pair_memory(groups if groups > 1 else self.participation.size(self.clients), memory)

    def setting(self, rounds: int, parameters: int, values: int = 11) -> Setting:
        """Return the setting for which the privacy of a run is calibrated."""
        cohort = self.participation.size(self.clients)
        kind = "full" if self.everyone else self.participation.kind
        sent, turns = (self.interactions, parameters, values), self.participation.turns
        return Setting(self.clients, cohort, rounds, kind, *sent, turns.most, turns.rest)  # type: ignore[arg-type]

    def start(self, theta: Doubles) -> State:
        """Return the state before the first round, from θ (parameters,)."""
        turns = TurnsTaken.none(self.clients) if self.participation.open_arrivals else None
        return State(0, np.array(theta, dtype=np.float64), self.server.start(len(theta)), turns=turns)

    def ranker(self, state: State) -> Doubles:
        """Return the published parameters: θ, or the server's average of all θ."""
        return state.memory.get(AVERAGE, state.theta) if state.round > 0 else state.theta

    def choices(self, state: State) -> dict[float, Doubles]:
        """Return the candidates for publication by γ, `ranker` first; empty if there is one only."""
        return self.server.choices(state.theta, state.memory) if state.round > 0 else {}

    def round(self, state: State, cohort_sum: CohortSum) -> tuple[State, Report]:
        """Combine a cohort's releases and step the server; return the next state and the round's report."""
        theta, memory, history, rule = state.theta, state.memory, state.history, state.rule
        update = np.zeros_like(theta)
        if not cohort_sum.stays and self._enough(cohort_sum):
            if self.aggregation.needs_single_updates:
                assert cohort_sum.updates is not None and cohort_sum.weights is not None
                history = self.history_after(state, cohort_sum.updates)
                update, rule = self._combined(state, cohort_sum.updates, cohort_sum.weights)
            else:
                update, history, rule = self.aggregation.combine(cohort_sum.total, cohort_sum.weight), None, {}
            is_mean = self.aggregation.divides_sums and cohort_sum.weight > 0.0  # else the noise is unknown
            memory = self.server.with_noise(memory, cohort_sum.noise / cohort_sum.weight if is_mean else 0.0)
            theta, memory = self.server.advance(theta, update, memory)
        shown = max(cohort_sum.interactions, 1)
        online = cohort_sum.ndcg / shown, cohort_sum.reciprocal / shown, cohort_sum.clicks / shown
        released = cohort_sum.clients, cohort_sum.sensitivity, cohort_sum.noise
        length = math.sqrt(update.dot(update))
        report = Report(state.round + 1, cohort_sum.interactions, *online, length, *released)
        turns = state.turns
        if turns is not None:
            assert cohort_sum.members is not None
            turns = turns.after(cohort_sum.members, state.round)
        own = cohort_sum.private, cohort_sum.personal, history, rule, turns, cohort_sum.carried
        return State(state.round + 1, theta, memory, *own), report

    def rounds(self, state: State, played: PlayedRounds) -> tuple[State, Reports] | None:
        """Close rounds together by the same steps as `round`, on (rounds, parameters) arrays.

        Returns:
            The state after the last round and the reports; None unless each θ and m is to the bit what the round before
            leads to.
        """
        thetas, momenta, shown = played.thetas, played.momenta, played.interactions
        if len(thetas) == 0:
            return None
        update = self.aggregation.combine(played.sums[:, : thetas.shape[1]], float(shown))
        after, memory = self.server.advance(thetas, update, dict.fromkeys(state.memory, momenta))
        reached = [(state.theta, thetas, after), *((state.memory[name], momenta, memory[name]) for name in memory)]
        for first, before, then in reached:
            if first.tobytes() != before[0].tobytes() or then[:-1].tobytes() != before[1:].tobytes():
                return None
        # products of vectors have the bits of `dot` of each; other sums have not
        length = np.sqrt((update[:, None, :] @ update[:, :, None])[:, 0, 0])
        round_ = state.round + len(thetas)
        ndcg, reciprocal, clicks = played.sums[:, thetas.shape[1] :].T / shown
        reports = Reports(round_, shown, ndcg, reciprocal, clicks, length, played.clients, math.nan, 0.0)
        last = {name: values[-1].copy() for name, values in memory.items()}
        return State(round_, after[-1].copy(), last, state.private), reports

    def _enough(self, cohort_sum: CohortSum) -> bool:
        """Return whether the rule is defined for the remaining groups of the cohort."""
        if self.privacy.sum_groups == 1 or cohort_sum.updates is None:
            return True
        try:
            self.aggregation.check(len(cohort_sum.updates))
        except BadInput:
            return False
        return True

    def history_after(self, state: State, updates: Doubles) -> Doubles | None:
        """Return h ← β·h + (1 − β)·update for every client; None for a rule without history."""
        beta = self.aggregation.history
        if beta == 0.0:
            return None
        before = state.history if state.history is not None else np.zeros_like(updates)
        return np.asarray(beta * before + (1.0 - beta) * updates, dtype=np.float64)

    def combined(self, state: State, updates: Doubles, weights: Doubles) -> Doubles:
        """Combine single updates (clients, parameters).

        A rule with history combines h/(1 − β^t), the mean of each client's updates so far. One that keeps pace steps by
        (R(h) − β·R(h before))/(1 − β), which for a linear R is R of this round's updates.
        """
        rule, beta, history = self.aggregation, self.aggregation.history, self.history_after(state, updates)
        if history is None:
            return rule.combine_all(updates, weights)
        if not rule.keeps_pace:
            return rule.combine_all(history / (1.0 - beta ** (state.round + 1)), weights)
        after = rule.combine_remembering(history, weights, state.rule)
        before = state.rule.get(COMBINED, np.zeros_like(after))
        return np.asarray((after - beta * before) / (1.0 - beta), dtype=np.float64)

    def _combined(self, state: State, updates: Doubles, weights: Doubles) -> tuple[Doubles, RuleMemory]:
        """Return `combined` and the rule's next memory."""
        update, rule, beta = self.combined(state, updates, weights), self.aggregation, self.aggregation.history
        memory = dict(rule.remember(state.rule, updates, weights))
        if beta > 0.0 and rule.keeps_pace:
            memory[COMBINED] = (1.0 - beta) * update + beta * state.rule.get(COMBINED, np.zeros_like(update))
        return update, memory


@dataclass(eq=False)
class RunningSum:
    """Running sum of a cohort's releases and statistics, until its round is closed."""

    mechanism: Mechanism
    parameters: int
    clients: int = field(default=0, init=False)
    interactions: int = field(default=0, init=False)
    within: int = field(default=0, init=False)  # updates within the clip
    total: ExactSum = field(init=False)

    def __post_init__(self) -> None:
        self.total = ExactSum(self.parameters + STATISTICS)

    def weights(self, interactions: Integers) -> Doubles:
        """Return the weights of releases: their interactions, or 1 where noise needs equal weights."""
        if self.mechanism.weighted:
            return interactions.astype(np.float64)
        return np.ones(len(interactions))

    def add(self, clients: Integers, rows: Doubles, interactions: Integers, within: int) -> None:
        """Add releases with their statistics, (clients, parameters + STATISTICS)."""
        self.total.add(rows, self.weights(interactions), self.parameters, clients)
        self.clients += len(clients)
        self.interactions += int(interactions.sum())
        self.within += within

    def merge(self, other: RunningSum) -> None:
        """Add another running sum of the same round."""
        self.total.merge(other.total)
        self.clients += other.clients
        self.interactions += other.interactions
        self.within += other.within

    def close(
        self,
        state: State,
        *,
        canaries: Doubles | None = None,
        updates: Doubles | None = None,
        weights: Doubles | None = None,
        personal: Doubles | None = None,
    ) -> CohortSum:
        """Return the round's sum with the noise of its privacy mechanism.

        Args:
            state: State of the federation before the round.
            canaries: Contribution of an audit's canary clients to the sum, (parameters,).
            updates: Single releases, (clients, parameters), for rules that need them.
            weights: Their weights, (clients,).
            personal: Next offsets of the clients.
        """
        sums, size = self.total.value(), self.parameters
        weight = float(self.interactions if self.mechanism.weighted else self.clients)
        unit = self.mechanism.unit_of(state.private)
        if canaries is not None and unit == 1.0:
            sums[:size] += canaries
        private = self.mechanism.finish(sums[:size], weight, self.within, self.clients, state.round, state.private)
        if canaries is not None and unit != 1.0 and not private.stays:
            # integers over a power of two: exact; the bound on the cohort's sum does not count the canaries
            private = private._replace(total=private.total + np.rint(canaries * unit) / unit)
        if private.groups is not None:
            updates, weights = private.groups, private.sizes
        clients = self.clients if private.participants is None else private.participants
        ndcg, reciprocal, clicks = sums[size:].tolist()
        shown = self.interactions, ndcg, reciprocal, clicks
        released = private.memory, private.sensitivity, private.noise
        summed = CohortSum(private.total, private.weight, clients, *shown, *released, updates, weights, personal)
        return summed._replace(dropped=private.dropped, stays=private.stays)


def private_sum(sent: Doubles, mechanism: Mechanism, state: State) -> CohortSum:
    """Return the sum of all clients' numbers (clients, numbers), clipped, with the noise of a round."""
    clients, size = sent.shape
    rows, who = np.zeros((clients, size + STATISTICS)), np.arange(clients, dtype=np.int64)
    rows[:, :size] = sent
    within = mechanism.release(rows[:, :size], state.theta, state.round, who, state.private)
    running = RunningSum(mechanism, size)
    running.add(who, rows, np.ones(clients, dtype=np.int64), within)
    return running.close(state)


class AcceptedReplies:
    """Accepted replies of one round: their clients and their sum."""

    def __init__(self, mechanism: Mechanism, parameters: int, *, keep_updates: bool) -> None:
        self._sum = RunningSum(mechanism, parameters)
        self._clients = set[int]()
        self._updates: dict[int, tuple[Doubles, int]] | None = {} if keep_updates else None  # with interactions

    def __contains__(self, client: int) -> bool:
        return client in self._clients

    def __len__(self) -> int:
        return len(self._clients)

    def clients(self) -> Integers:
        """Return the clients in ascending order."""
        return np.array(sorted(self._clients), dtype=np.int64)

    def add(self, reply: Reply) -> None:
        """Count a checked reply."""
        row = np.append(reply.release, reply.statistics)[None, :]
        self._sum.add(np.array([reply.client]), row, np.array([reply.interactions]), int(reply.within))
        self._clients.add(reply.client)
        if self._updates is not None:
            self._updates[reply.client] = reply.release, reply.interactions

    def cohort_sum(self, state: State) -> CohortSum:
        """Return the sum, with single updates in the order of their clients where they are kept."""
        if self._updates is None:
            return self._sum.close(state)
        found = [self._updates[client] for client in sorted(self._updates)]
        updates = np.array([row for row, _ in found]).reshape(len(found), self._sum.parameters)
        weights = np.array([interactions for _, interactions in found], dtype=np.float64)
        return self._sum.close(state, updates=updates, weights=weights)
