"""Training of one ranker on the labels of several parties: only parameters, or sums of derivatives, travel.

`FromPrior` (`prior`) is what we recommend: the parties' own search, corrected by their labels. `TreeTraining`
(`tree_training`) grows trees where there are many labelled lists. The others are those of CS-F-LTR, which start from zeros.

`RoundRobin` is CS-F-LTR §III.B *as published*: "a simple round-robin distributed SGD". `Averaging` lets all parties
learn from the same parameters and takes the mean of their updates, weighted by their instances (McMahan et al. 2017).
`ClickTraining` is pairwise: in the simulator every party is a client whose users search its lists and click on what is
labelled relevant; PDGD learns from the clicks and the updates are averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from quorank.engines.process import Simulator
from quorank.errors import require, require_range
from quorank.federation import Federation, Mean
from quorank.kernels.arrays import Doubles
from quorank.learning import PDGD, Simulation
from quorank.learning.pointwise import Pointwise, cumulated
from quorank.learning.simulation import ClientDifferences
from quorank.parts import Family
from quorank.rankers import Linear
from quorank.silos.learning.instances import HIGHEST, Instances, join_instances
from quorank.silos.learning.prior import FromPrior
from quorank.silos.learning.tree_training import TreeTraining
from quorank.users import Cascade


class Learnable:
    """Instances of one party, with the cumulated weights that their draws need in every turn."""

    def __init__(self, instances: Instances) -> None:
        self.instances, self.shares = instances, cumulated(instances.weights)

    @property
    def n_rows(self) -> int:
        return self.instances.n_rows


@dataclass(frozen=True)
class Descent:
    """Stochastic gradient descent on a pointwise loss, in turns: the base of `RoundRobin` and `Averaging`.

    `players`, `learned` and `combined` are one turn; over a network the second runs at each player.
    """

    runs_in_turns: ClassVar[bool] = True
    learns_from_sums: ClassVar[bool] = False

    loss: Literal["squared", "logistic"] = "squared"  # of each instance
    eta: float = 0.3  # η, how far a step goes
    batch: int = 32  # instances of a step
    decay: float = 1e-4  # λ, weight decay

    def _learner(self) -> Pointwise:
        return Pointwise(self.loss, self.eta, self.batch, self.decay)

    @property
    def schedule(self) -> tuple[int, int]:
        """Number of turns or rounds of the whole training, and of steps of a player in each."""
        raise NotImplementedError

    @property
    def length(self) -> int:
        """Number of turns or rounds of the whole training."""
        return self.schedule[0]

    def players(self, turn: int, present: int) -> Sequence[int]:
        """Return which parties learn in a turn, of so many that have something to learn from."""
        raise NotImplementedError

    def combined(self, theta: Doubles, learned: Sequence[tuple[int, Doubles]]) -> Doubles:
        """Compute the parameters after a turn, from those before it and (instances, parameters) of each player in order."""
        raise NotImplementedError

    def initial(self, n_features: int) -> Doubles:
        """Return the parameters where training starts; the last one is the intercept."""
        return self._learner().initial(n_features)

    def learned(self, theta: Doubles, own: Learnable, turn: int, client: int, seed: int) -> Doubles:
        """Compute one party's parameters after its steps of a turn; `client` is its place among those present."""
        return self._learner().steps(
            theta,
            own.instances.data,
            own.shares,
            self.schedule[1],
            highest=HIGHEST,
            progress=(turn / self.length, (turn + 1) / self.length),
            seed=seed,
            client=client,
            round_=turn,
        )

    def train(self, parties: Sequence[Instances], seed: int = 1) -> Doubles:
        """Train the weights of a linear ranker, all parties in one process."""
        present = [Learnable(own) for own in parties_with_instances(parties)]
        theta = self.initial(present[0].instances.data.n_features)
        for turn in range(self.length):
            players = self.players(turn, len(present))
            found = [(present[c].n_rows, self.learned(theta, present[c], turn, c, seed)) for c in players]
            theta = self.combined(theta, found)
        return theta[:-1]


@dataclass(frozen=True)
class RoundRobin(Descent):
    """Round-robin SGD: the parameters go from party to party, and each takes some steps on its own instances."""

    kind: ClassVar[str] = "round-robin"

    turns: int = 80  # of all parties together, so that one party alone takes as many
    steps: int = 30  # steps of a turn

    def __post_init__(self) -> None:
        self._learner()
        require_range("turns", self.turns, least=1)
        require_range("steps", self.steps, least=1)

    @property
    def schedule(self) -> tuple[int, int]:
        return self.turns, self.steps

    def players(self, turn: int, present: int) -> Sequence[int]:
        """Return one party after the other."""
        return (turn % present,)

    def combined(self, theta: Doubles, learned: Sequence[tuple[int, Doubles]]) -> Doubles:
        """Return the parameters of the one player."""
        ((_, after),) = learned
        return after


@dataclass(frozen=True)
class Averaging(Descent):
    """Federated averaging: each round all parties take some steps from the same parameters; their updates are averaged."""

    kind: ClassVar[str] = "averaging"

    rounds: int = 60  # rounds of the training
    steps: int = 30  # of each party in a round

    def __post_init__(self) -> None:
        self._learner()
        require_range("rounds", self.rounds, least=1)
        require_range("steps", self.steps, least=1)

    @property
    def schedule(self) -> tuple[int, int]:
        return self.rounds, self.steps

    def players(self, turn: int, present: int) -> Sequence[int]:
        """Return all parties."""
        return range(present)

    def combined(self, theta: Doubles, learned: Sequence[tuple[int, Doubles]]) -> Doubles:
        """Compute θ + Σ n_c·(θ_c − θ) / Σ n_c."""
        total, weight = np.zeros(len(theta)), 0.0
        for rows, after in learned:
            total += rows * (after - theta)
            weight += rows
        return theta + Mean().combine(total, weight)


@dataclass(frozen=True)
class ClickTraining:
    """PDGD on simulated clicks in the parties' lists, averaged by the simulator: a pairwise learner."""

    kind: ClassVar[str] = "clicks"
    runs_in_turns: ClassVar[bool] = False
    learns_from_sums: ClassVar[bool] = False

    eta: float = 0.1  # η, how far a step goes
    interactions: int = 20  # B, of each party in a round
    rounds: int = 100  # rounds of the training
    preset: Literal["perfect", "navigational", "informational"] = "perfect"  # how people click

    def __post_init__(self) -> None:
        PDGD(self.eta)
        Cascade(preset=self.preset)
        require_range("rounds", self.rounds, least=1)
        require_range("interactions", self.interactions, least=1)

    def train(self, parties: Sequence[Instances], seed: int = 1) -> Doubles:
        """Train the weights of a linear ranker. Weights of instances do not matter here: a list is clicked or not."""
        present = parties_with_instances(parties)
        together = join_instances(present).data
        counts = np.array([own.data.n_queries for own in present])
        numbers = np.arange(len(present))
        users = Cascade(preset=self.preset)
        who = ClientDifferences(
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


InstanceTraining = RoundRobin | Averaging | ClickTraining
"""Trainings on labelled instances, as CS-F-LTR has them."""
Training = FromPrior | TreeTraining | InstanceTraining
TRAININGS: Family[Training] = Family("training", FromPrior, TreeTraining, RoundRobin, Averaging, ClickTraining)


def parties_with_instances(parties: Sequence[Instances]) -> list[Instances]:
    """Return the parties that have something to learn from."""
    present = [own for own in parties if own.n_rows]
    require(present, "training.no-instance", "no party has an instance to learn from")
    return present
