"""Rounds: many updates become one ranker (FPDGD algorithm 2), as pure steps on explicit state."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from quorank.errors import BadInput, require, require_range
from quorank.federation.attacks.attack import Attack
from quorank.federation.participation import Full, Participation, TurnsTaken
from quorank.federation.personal import Personalisation, Shared
from quorank.federation.rules import Aggregation
from quorank.federation.rules.mean import Mean
from quorank.federation.rules.rule import RuleMemory
from quorank.federation.server_optimisers import AVERAGE, Add, Memory, Server
from quorank.kernels.arrays import Doubles, Integers
from quorank.learning import PDGD, Learner
from quorank.privacy import NoPrivacy, Privacy, Setting
from quorank.privacy.mechanisms.mechanism import INCOMPLETE

COMBINED = "combined"
"""Where R(h) of the round before is remembered, for a rule that keeps pace."""


@dataclass(frozen=True, eq=False)
class State:
    """All that a federation carries from round to round."""

    round: int  # rounds done
    theta: Doubles  # θ
    memory: Memory  # of the server's optimiser
    private: Memory = field(default_factory=dict)  # of the privacy mechanism
    personal: Doubles | None = None  # (clients, parameters) what each client keeps for itself
    history: Doubles | None = None  # (clients, parameters) an exponential mean of what each client sent
    rule: RuleMemory = field(default_factory=dict)  # what the aggregation remembers beside it
    taken: TurnsTaken | None = None  # who has taken part how often, where a round takes whoever comes
    carried: Doubles | None = None  # (clients, parameters) m: what each client carries on of its earlier updates


class CohortSum(NamedTuple):
    """What the cohort of a round sent, summed exactly, with the noise that its privacy adds."""

    total: Doubles  # Σ n_c · release
    weight: float  # Σ n_c, or what the mechanism divides by
    clients: int
    interactions: int
    ndcg: float  # Σ nDCG of the lists that were shown
    reciprocal: float  # Σ MaxRR of the clicks
    clicks: float
    private: Memory  # of the privacy mechanism, for the next round
    sensitivity: float = math.nan  # how far one client could move the total
    noise: float = 0.0  # standard deviation of the noise on each number of the total
    updates: Doubles | None = None  # (clients, parameters) one by one, for rules that must see them
    weights: Doubles | None = None  # (clients,)
    personal: Doubles | None = None  # what each client keeps for itself, for the next round
    carried: Doubles | None = None  # what each client carries on of its updates
    dropped: tuple[str, ...] = ()  # why sums were not used: the codes, one for each
    stays: bool = False  # no sum can be used: the ranker stays as it is
    came: Integers | None = None  # the clients that took part, where that is counted (`State.taken`)


class Report(NamedTuple):
    """What a round looked like from outside."""

    round: int  # from 1
    interactions: int
    online_ndcg: float  # mean over the round's interactions
    online_maxrr: float
    clicks: float  # per interaction
    update_norm: float  # of the aggregated update
    participants: int
    sensitivity: float  # of the sum of releases to one client
    noise: float  # standard deviation of the noise on each number of that sum


@dataclass(frozen=True)
class Federation:
    """Who learns, how updates are protected, combined and applied."""

    clients: int = 1000
    interactions: int = 4  # B
    learner: Learner = field(default_factory=PDGD)
    participation: Participation = field(default_factory=Full)
    aggregation: Aggregation = field(default_factory=Mean)
    server: Server = field(default_factory=Add)
    privacy: Privacy = field(default_factory=NoPrivacy)
    attack: Attack | None = None
    personal: Personalisation = field(default_factory=Shared)
    client_momentum: float = (
        0.0  # β: a client sends m ← β·m + update; its earlier searches speak again, at no cost in ε
    )

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
        self._check_parts()

    def _check_parts(self) -> None:
        """Refuse parts that do not fit together, by what they say that they need and give."""
        learner, privacy, rule = self.learner, self.privacy, self.aggregation
        sentence = f"{privacy.kind} protects a metric, and {learner.kind} sends an update, so it needs another privacy"
        require(learner.sends_metric or not privacy.protects_metric, "privacy.no-metric", sentence, "privacy")
        clips = f"{privacy.kind} clips parameters that a client learns, and {learner.kind} learns none on the client"
        sentence = f'{clips}; use kind = "randomised-response" or "gaussian"'
        learns = learner.learns_on_client
        require(learns or not privacy.needs_client_parameters, "privacy.no-client-parameters", sentence, "privacy")
        plain = not rule.needs_single_updates
        sentence = f"the noise is complete on sums only, and {rule.kind} makes none; choose the mean"
        require(plain or not privacy.noise_on_sums, "privacy.noise-on-sums", sentence, "privacy")
        sentence = (
            f"shrinking takes the noise of each round as independent, and over_rounds of {privacy.kind} correlates it"
        )
        correlated = self.server.counts_noise and not privacy.independent_noise
        require(not correlated, "option.conflict", f"{sentence}; leave one of them out", "server")
        complete = self.participation.fixed_size or self.everyone
        drawn = f"{self.participation.kind} leaves that to chance; use full or sampled"
        sentence = f"{INCOMPLETE.format(privacy.kind)}, and {drawn}"
        require(complete or not privacy.needs_equal_shares, "option.conflict", sentence, "privacy")
        hidden, grouped = privacy.hides_single_updates, privacy.sum_groups > 1
        sentence = (
            f"a secure sum is made by clients that know each other's keys beforehand, and with {self.participation.kind} "
            "nobody knows who will come; use full or sampled, or gaussian with plain sums"
        )
        unknown = self.participation.takes_whoever_comes
        require(not (hidden and unknown), "option.conflict", sentence, "privacy")
        sentence = (
            f"{rule.kind} needs to see single updates, and secure sums hide them; use the mean, or sums in groups"
        )
        require(plain or not hidden or grouped, "privacy.hides-updates", sentence, "privacy")
        sentence = f"{rule.kind} with history needs single clients, and groups are drawn anew; take history out"
        require(rule.history == 0.0 or not grouped, "aggregation.history-of-groups", sentence, "aggregation")
        sentence = f"{rule.kind} with history needs everyone in every round; take history out, or participation full"
        require(rule.history == 0.0 or self.everyone, "aggregation.history-of-sampled", sentence, "aggregation")
        sentence = f"{learner.kind} learns nothing on the client that it could keep; use pdgd"
        require(learns or not self.personal.keeps_parameters, "personal.nothing-to-keep", sentence, "personal")
        sentence = (
            f"{learner.kind} learns nothing on the client that it could carry on; use pdgd, or momentum on the server"
        )
        require(learns or self.client_momentum == 0.0, "option.conflict", sentence, "client_momentum")

    @property
    def everyone(self) -> bool:
        """Whether every cohort holds all clients."""
        drawn = not self.participation.takes_whoever_comes
        return drawn and self.participation.size(self.clients) == self.clients

    @property
    def counts_on_secret_cohorts(self) -> bool:
        """Whether its ε is smaller because nobody knows who was in a round."""
        drawn = not (self.everyone or self.participation.takes_whoever_comes)
        return drawn and self.privacy.relies_on_secret_cohorts

    def check_room(self, memory: int) -> None:
        """Refuse a rule that compares more pairs than so many bytes of memory hold."""
        groups = self.privacy.sum_groups
        self.aggregation.check_room(groups if groups > 1 else self.participation.size(self.clients), memory)

    def setting(self, rounds: int, parameters: int, values: int = 11) -> Setting:
        """Return what the privacy of a run of so many rounds must know."""
        cohort = self.participation.size(self.clients)
        kind = "full" if self.everyone else self.participation.kind
        sent, turns = (self.interactions, parameters, values), self.participation.turns
        return Setting(self.clients, cohort, rounds, kind, *sent, turns.most, turns.rest)  # type: ignore[arg-type]

    def start(self, theta: Doubles) -> State:
        """Return the state before the first round, from parameters θ."""
        taken = TurnsTaken.none(self.clients) if self.participation.takes_whoever_comes else None
        return State(0, np.array(theta, dtype=np.float64), self.server.start(len(theta)), taken=taken)

    def ranker(self, state: State) -> Doubles:
        """Return the parameters that are handed out: θ, or what the server has made of all θ so far."""
        return state.memory.get(AVERAGE, state.theta) if state.round > 0 else state.theta

    def choices(self, state: State) -> dict[float, Doubles]:
        """Return the rankers that a validation split may choose among, `ranker` first; nothing where there is no choice."""
        return self.server.choices(state.theta, state.memory) if state.round > 0 else {}

    def round(self, state: State, gathered: CohortSum) -> tuple[State, Report]:
        """Combine what the cohort sent and let the server step: the next state, and the report of the round."""
        stays = gathered.stays or not self._enough(gathered)
        if stays:
            update, history, rule = np.zeros_like(state.theta), state.history, state.rule
        elif self.aggregation.needs_single_updates:
            assert gathered.updates is not None and gathered.weights is not None
            history = self.history_after(state, gathered.updates)
            update, rule = self._combined(state, gathered.updates, gathered.weights)
        else:
            update, history, rule = self.aggregation.combine(gathered.total, gathered.weight), None, {}
        if stays:
            theta, memory = state.theta, state.memory
        else:
            memory = self.server.with_noise(state.memory, self._noise_of_mean_update(gathered))
            theta, memory = self.server.advance(state.theta, update, memory)
        shown = max(gathered.interactions, 1)
        online = gathered.ndcg / shown, gathered.reciprocal / shown, gathered.clicks / shown
        released = gathered.clients, gathered.sensitivity, gathered.noise
        length = math.sqrt(update.dot(update))
        report = Report(state.round + 1, gathered.interactions, *online, length, *released)
        taken = state.taken
        if taken is not None:
            assert gathered.came is not None
            taken = taken.after(gathered.came, state.round)
        own = gathered.private, gathered.personal, history, rule, taken, gathered.carried
        return State(state.round + 1, theta, memory, *own), report

    def _noise_of_mean_update(self, gathered: CohortSum) -> float:
        """Return the standard deviation of the noise on each number of the update; 0 for a rule that makes no mean."""
        if gathered.weight <= 0.0 or not self.aggregation.divides_sums:
            return 0.0
        return gathered.noise / gathered.weight

    def _enough(self, gathered: CohortSum) -> bool:
        """Whether the rule is defined for so few groups as are left of the cohort."""
        if self.privacy.sum_groups == 1 or gathered.updates is None:
            return True
        try:
            self.aggregation.check(len(gathered.updates))
        except BadInput:
            return False
        return True

    def history_after(self, state: State, updates: Doubles) -> Doubles | None:
        """h ← β·h + (1 − β)·update for every client; None for a rule that looks at this round alone."""
        beta = self.aggregation.history
        if beta == 0.0:
            return None
        before = state.history if state.history is not None else np.zeros_like(updates)
        return np.asarray(beta * before + (1.0 - beta) * updates, dtype=np.float64)

    def combined(self, state: State, updates: Doubles, weights: Doubles) -> Doubles:
        """The update that a rule which sees single updates makes of a cohort's, and of what it sent before.

        A rule with a history combines h/(1 − β^t), the mean of what each client sent so far. One that keeps pace takes
        the step (R(h) − β·R(h before))/(1 − β) instead: for a linear R that is R of this round's updates.
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
        """`combined`, and what the rule remembers then: its own things, and R(h) where it keeps pace."""
        update, rule, beta = self.combined(state, updates, weights), self.aggregation, self.aggregation.history
        memory = dict(rule.remember(state.rule, updates, weights))
        if beta > 0.0 and rule.keeps_pace:
            memory[COMBINED] = (1.0 - beta) * update + beta * state.rule.get(COMBINED, np.zeros_like(update))
        return update, memory
