"""Training across parties on labelled instances: each party keeps its own, only parameters travel.

`RoundRobin` is CS-F-LTR §III.B *as published*: "a simple round-robin distributed SGD". `Averaging` lets all parties
learn from the same parameters and takes the mean of their updates, weighted by their instances (McMahan et al. 2017).
`ClickTraining` is the house's pairwise learner in the house's simulator: every party is a client whose users search its lists
and click on what is labelled relevant; PDGD learns from the clicks and the updates are averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from quorank.arrays import Doubles
from quorank.errors import require
from quorank.federation import Federation, Mean, Simulator
from quorank.learning import PDGD, Simulation
from quorank.learning.pointwise import Pointwise, cumulated
from quorank.learning.simulation import Who
from quorank.parts import Family
from quorank.rankers import Linear
from quorank.silos.learning.instances import HIGHEST, Instances, join_instances
from quorank.users import Cascade


class Learnable:
    """The instances of one party, with what their draws need and is the same in every turn."""

    def __init__(self, instances: Instances) -> None:
        self.instances, self.shares = instances, cumulated(instances.weights)

    @property
    def n_rows(self) -> int:
        return self.instances.n_rows


@dataclass(frozen=True)
class Descent:
    """Stochastic gradient descent on a pointwise loss: what both ways of taking turns share.

    `players`, `learned` and `combined` are one turn; over a network the second runs at each player.
    """

    loss: Literal["squared", "logistic"] = "squared"
    eta: float = 0.3  # η
    batch: int = 32
    decay: float = 1e-4  # λ

    def _learner(self) -> Pointwise:
        return Pointwise(self.loss, self.eta, self.batch, self.decay)

    @property
    def length(self) -> int:
        """Turns or rounds of the whole training."""
        raise NotImplementedError

    @property
    def steps_each(self) -> int:
        """Steps of a player in a turn."""
        raise NotImplementedError

    def players(self, turn: int, present: int) -> Sequence[int]:
        """Who learns in a turn, of so many parties that have something to learn from."""
        raise NotImplementedError

    def combined(self, theta: Doubles, learned: Sequence[tuple[int, Doubles]]) -> Doubles:
        """The parameters after a turn, from those before it and (instances, parameters) of each player in order."""
        raise NotImplementedError

    def initial(self, n_features: int) -> Doubles:
        """Where training starts; the last parameter is the intercept."""
        return self._learner().initial(n_features)

    def learned(self, theta: Doubles, own: Learnable, turn: int, client: int, seed: int) -> Doubles:
        """What one party makes of the parameters in one turn; `client` is its place among those present."""
        return self._learner().steps(
            theta,
            own.instances.data,
            own.shares,
            self.steps_each,
            highest=HIGHEST,
            progress=(turn / self.length, (turn + 1) / self.length),
            seed=seed,
            client=client,
            round_=turn,
        )

    def train(self, parties: Sequence[Instances], seed: int = 1) -> Doubles:
        """The weights of a linear ranker, all parties in one process."""
        present = [Learnable(own) for own in parties_with_instances(parties)]
        theta = self.initial(present[0].instances.data.n_features)
        for turn in range(self.length):
            players = self.players(turn, len(present))
            found = [(present[c].n_rows, self.learned(theta, present[c], turn, c, seed)) for c in players]
            theta = self.combined(theta, found)
        return theta[:-1]


@dataclass(frozen=True)
class RoundRobin(Descent):
    """The parameters go from party to party; each takes some steps of SGD on its own instances and hands them on."""

    kind: ClassVar[str] = "round-robin"

    turns: int = 80  # of all parties together, so that one party alone takes as many
    steps: int = 30  # of a turn

    def __post_init__(self) -> None:
        self._learner()
        require(self.turns >= 1 and self.steps >= 1, "turns and steps must be at least 1")

    @property
    def length(self) -> int:
        """All turns."""
        return self.turns

    @property
    def steps_each(self) -> int:
        return self.steps

    def players(self, turn: int, present: int) -> Sequence[int]:
        """One party after the other."""
        return (turn % present,)

    def combined(self, theta: Doubles, learned: Sequence[tuple[int, Doubles]]) -> Doubles:
        """What the player handed on."""
        ((_, after),) = learned
        return after


@dataclass(frozen=True)
class Averaging(Descent):
    """Each round every party takes some steps from the same parameters; the mean of their updates is the next ones."""

    kind: ClassVar[str] = "averaging"

    rounds: int = 60
    steps: int = 30  # of each party in a round

    def __post_init__(self) -> None:
        self._learner()
        require(self.rounds >= 1 and self.steps >= 1, "rounds and steps must be at least 1")

    @property
    def length(self) -> int:
        """All rounds."""
        return self.rounds

    @property
    def steps_each(self) -> int:
        return self.steps

    def players(self, turn: int, present: int) -> Sequence[int]:
        """Everybody."""
        return range(present)

    def combined(self, theta: Doubles, learned: Sequence[tuple[int, Doubles]]) -> Doubles:
        """θ + Σ n_c·(θ_c − θ) / Σ n_c."""
        total, weight = np.zeros(len(theta)), 0.0
        for rows, after in learned:
            total += rows * (after - theta)
            weight += rows
        return theta + Mean().combine(total, weight)


@dataclass(frozen=True)
class ClickTraining:
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
        present = parties_with_instances(parties)
        together = join_instances(present).data
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


Training = RoundRobin | Averaging | ClickTraining
TRAININGS: Family[Training] = Family("training", RoundRobin, Averaging, ClickTraining)


def parties_with_instances(parties: Sequence[Instances]) -> list[Instances]:
    """The parties that have something to learn from."""
    present = [own for own in parties if own.n_rows]
    require(present, "no party has an instance to learn from")
    return present
