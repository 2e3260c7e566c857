"""Rounds: many updates become one ranker (FPDGD algorithm 2), as pure steps on explicit state."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from quorank.errors import require
from quorank.federation.mean import Aggregation, Mean
from quorank.federation.participation import Full, Participation
from quorank.federation.servers import Add, Memory, Server
from quorank.learning import PDGD, Evolution, Learner
from quorank.privacy import NoPrivacy, Privacy, RandomisedResponse

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class State:
    """All that a federation carries from round to round."""

    round: int  # rounds done
    theta: Doubles  # θ
    memory: Memory  # of the server's optimiser


@dataclass(frozen=True, eq=False)
class Gathered:
    """What the cohort of a round sent, summed exactly."""

    total: Doubles  # Σ n_c · update
    weight: float  # Σ n_c
    clients: int
    interactions: int
    ndcg: float  # Σ nDCG of the lists that were shown
    reciprocal: float  # Σ MaxRR of the clicks
    clicks: float


@dataclass(frozen=True)
class Report:
    """What a round looked like from outside."""

    round: int  # from 1
    interactions: int
    online_ndcg: float  # mean over the round's interactions
    online_maxrr: float
    clicks: float  # per interaction
    update_norm: float  # of the aggregated update


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

    def __post_init__(self) -> None:
        require(self.clients >= 1, f"clients must be at least 1, got {self.clients}")
        require(self.clients < 2**31, f"clients must be below 2^31, got {self.clients}")
        require(self.interactions >= 1, f"interactions must be at least 1, got {self.interactions}")
        require(self.interactions < 2**31, f"interactions must be below 2^31, got {self.interactions}")
        cohort = self.participation.size(self.clients)
        require(
            cohort <= self.clients,
            f"participation: a cohort of {cohort} cannot be drawn from {self.clients} clients",
        )
        if isinstance(self.privacy, RandomisedResponse):
            require(
                isinstance(self.learner, Evolution),
                "privacy: randomised response protects the metric of evolution strategies; "
                f"{self.learner.kind} sends an update, so it needs another privacy",
            )
        if isinstance(self.learner, Evolution):
            require(
                self.interactions % 2 == 0,
                "interactions must be even for evolution strategies, which rank half of them by each "
                f"antithetic perturbation, got {self.interactions}",
            )

    def start(self, theta: Doubles) -> State:
        return State(0, np.array(theta, dtype=np.float64), self.server.start(len(theta)))

    def round(self, state: State, gathered: Gathered) -> tuple[State, Report]:
        """One round: combine what the cohort sent and let the server step."""
        update = self.aggregation.combine(gathered.total, gathered.weight)
        theta, memory = self.server.advance(state.theta, update, state.memory)
        report = Report(
            state.round + 1,
            gathered.interactions,
            gathered.ndcg / gathered.interactions,
            gathered.reciprocal / gathered.interactions,
            gathered.clicks / gathered.interactions,
            float(np.sqrt(np.dot(update, update))),
        )
        return State(state.round + 1, theta, memory), report
