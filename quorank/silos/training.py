"""Training across parties on labelled instances: each party keeps its own, only parameters travel.

`RoundRobin` is CS-F-LTR §III.B *as published*: "a simple round-robin distributed SGD". `Averaging` lets all parties
learn from the same parameters and takes the mean of their updates, weighted by their instances (McMahan et al. 2017).
`Clicks` is the house's pairwise learner in the house's simulator: every party is a client whose users search its lists
and click on what is labelled relevant; PDGD learns from the clicks and the updates are averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from quorank.errors import require
from quorank.federation import Federation, Mean, Simulator
from quorank.learning import PDGD, Simulation
from quorank.learning.pointwise import Pointwise, cumulated
from quorank.learning.simulation import Who
from quorank.parts import Family
from quorank.rankers import Linear
from quorank.silos.instances import HIGHEST, Instances, joined
from quorank.users import Cascade

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class _Descent:
    """Stochastic gradient descent on a pointwise loss: what both ways of taking turns share."""

    loss: Literal["squared", "logistic"] = "squared"
    eta: float = 0.3  # η
    batch: int = 32
    decay: float = 1e-4  # λ

    def _learner(self) -> Pointwise:
        return Pointwise(self.loss, self.eta, self.batch, self.decay)


@dataclass(frozen=True)
class RoundRobin(_Descent):
    """The parameters go from party to party; each takes some steps of SGD on its own instances and hands them on."""

    kind: ClassVar[str] = "round-robin"

    turns: int = 80  # of all parties together, so that one party alone takes as many
    steps: int = 30  # of a turn

    def __post_init__(self) -> None:
        self._learner()
        require(self.turns >= 1 and self.steps >= 1, "turns and steps must be at least 1")

    def train(self, parties: Sequence[Instances], seed: int = 1) -> Doubles:
        """The weights of a linear ranker."""
        learner, present = self._learner(), with_instances(parties)
        shares = [cumulated(own.weights) for own in present]
        theta = learner.initial(present[0].data.n_features)
        for turn in range(self.turns):
            own = present[turn % len(present)]
            theta = learner.steps(
                theta,
                own.data,
                shares[turn % len(present)],
                self.steps,
                highest=HIGHEST,
                progress=(turn / self.turns, (turn + 1) / self.turns),
                seed=seed,
                client=turn % len(present),
                round_=turn,
            )
        return theta[:-1]


@dataclass(frozen=True)
class Averaging(_Descent):
    """Each round every party takes some steps from the same parameters; the mean of their updates is the next ones."""

    kind: ClassVar[str] = "averaging"

    rounds: int = 60
    steps: int = 30  # of each party in a round

    def __post_init__(self) -> None:
        self._learner()
        require(self.rounds >= 1 and self.steps >= 1, "rounds and steps must be at least 1")

    def train(self, parties: Sequence[Instances], seed: int = 1) -> Doubles:
        """The weights of a linear ranker."""
        learner, present = self._learner(), with_instances(parties)
        shares = [cumulated(own.weights) for own in present]
        theta = learner.initial(present[0].data.n_features)
        for round_ in range(self.rounds):
            progress = (round_ / self.rounds, (round_ + 1) / self.rounds)
            total, weight = np.zeros(len(theta)), 0.0
            for client, own in enumerate(present):
                after = learner.steps(
                    theta,
                    own.data,
                    shares[client],
                    self.steps,
                    highest=HIGHEST,
                    progress=progress,
                    seed=seed,
                    client=client,
                    round_=round_,
                )
                total += own.n_rows * (after - theta)
                weight += own.n_rows
            theta = theta + Mean().combine(total, weight)
        return theta[:-1]


@dataclass(frozen=True)
class Clicks:
    """PDGD on simulated clicks in the parties' lists, averaged by the simulator: a pairwise learner."""

    kind: ClassVar[str] = "clicks"

    eta: float = 0.1  # η
    interactions: int = 20  # B, of each party in a round
    rounds: int = 100
    preset: Literal["perfect", "navigational", "informational"] = "perfect"  # how people click

    def __post_init__(self) -> None:
        PDGD(self.eta)
        Cascade(preset=self.preset)
        require(self.rounds >= 1 and self.interactions >= 1, "rounds and interactions must be at least 1")

    def train(self, parties: Sequence[Instances], seed: int = 1) -> Doubles:
        """The weights of a linear ranker. Weights of instances do not matter here: a list is clicked or not."""
        present = with_instances(parties)
        together = joined(present).data
        counts = np.array([own.data.n_queries for own in present])
        numbers = np.arange(len(present))
        users = Cascade(preset=self.preset)
        who = Who(
            numbers, np.cumsum(counts) - counts, counts, np.zeros(len(present), dtype=np.int64), (users,)
        )
        simulation = Simulation(together, Linear(), users, HIGHEST + 1, seed, who=who)
        federation = Federation(len(present), self.interactions, PDGD(self.eta))
        simulator = Simulator(federation, simulation, rounds=self.rounds)
        state = simulator.initial()
        for _ in range(self.rounds):
            state, _ = federation.round(state, simulator.gather(state))
        simulator.close()
        return np.asarray(federation.ranker(state))


Training = RoundRobin | Averaging | Clicks
TRAININGS: Family[Training] = Family("training", RoundRobin, Averaging, Clicks)


def with_instances(parties: Sequence[Instances]) -> list[Instances]:
    """The parties that have something to learn from."""
    present = [own for own in parties if own.n_rows]
    require(present, "no party has an instance to learn from")
    return present
