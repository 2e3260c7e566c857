"""CS-F-LTR's training: stochastic gradient descent on labelled instances, in turns; only parameters travel.

`RoundRobin` is CS-F-LTR §III.B *as published*: "a simple round-robin distributed SGD". In `Averaging` all parties start
from the same parameters, and their updates are averaged with their instances as weights (McMahan et al. 2017).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from quorank.errors import require, require_range
from quorank.federation import Mean
from quorank.kernels.arrays import Doubles
from quorank.learning.pointwise import Pointwise, cumulated
from quorank.metrics.evaluator import Evaluator
from quorank.parts import Family
from quorank.silos.sketch.instances import HIGHEST, Instances, split_fold, weigh_augmented
from quorank.silos.training.lists import LINEAR


@dataclass(frozen=True)
class Descent:
    """Base of `RoundRobin` and `Averaging`: stochastic gradient descent on a pointwise loss."""

    loss: Literal["squared", "logistic"] = "squared"  # of each instance
    eta: float = 0.3  # η, learning rate
    batch: int = 32  # instances of a step
    decay: float = 1e-4  # λ, weight decay
    turns: int = 80
    steps: int = 30  # of a player in a turn

    def __post_init__(self) -> None:
        self._learner()
        require_range("turns", self.turns, least=1)
        require_range("steps", self.steps, least=1)

    def _learner(self) -> Pointwise:
        return Pointwise(self.loss, self.eta, self.batch, self.decay)

    def players(self, turn: int, present: int) -> Sequence[int]:
        """Return the parties that learn in a turn, of those that have instances."""
        raise NotImplementedError

    def combined(self, theta: Doubles, learned: Sequence[tuple[int, Doubles]]) -> Doubles:
        """Compute the parameters after a turn from those before it and (instances, parameters) of each player, in order."""
        raise NotImplementedError

    def train(self, parties: Sequence[Instances], seed: int = 1) -> Doubles:
        """Train the weights of a linear ranker."""
        present = [own for own in parties if own.n_rows]
        require(present, "training.no-instance", "no party has an instance to learn from")
        shares, learner = [cumulated(own.weights) for own in present], self._learner()
        theta = learner.initial(present[0].data.n_features)  # the last one is the intercept
        for turn in range(self.turns):
            learned = []
            for client in self.players(turn, len(present)):
                after = learner.steps(
                    theta,
                    present[client].data,
                    shares[client],
                    self.steps,
                    highest=HIGHEST,
                    progress=(turn / self.turns, (turn + 1) / self.turns),
                    seed=seed,
                    client=client,
                    round_=turn,
                )
                learned.append((present[client].n_rows, after))
            theta = self.combined(theta, learned)
        return theta[:-1]


@dataclass(frozen=True)
class RoundRobin(Descent):
    """Round-robin SGD: one party per turn takes steps on its own instances."""

    kind: ClassVar[str] = "round-robin"

    def players(self, turn: int, present: int) -> Sequence[int]:
        """Return one party, in turn."""
        return (turn % present,)

    def combined(self, theta: Doubles, learned: Sequence[tuple[int, Doubles]]) -> Doubles:
        """Return the parameters of the one player."""
        return learned[0][1]


@dataclass(frozen=True)
class Averaging(Descent):
    """Federated averaging: all parties take steps from the same parameters in each turn."""

    kind: ClassVar[str] = "averaging"

    turns: int = 60

    def players(self, turn: int, present: int) -> Sequence[int]:
        """Return all parties."""
        return range(present)

    def combined(self, theta: Doubles, learned: Sequence[tuple[int, Doubles]]) -> Doubles:
        """Compute θ + Σ n_c·(θ_c − θ) / Σ n_c."""
        total = sum((rows * (after - theta) for rows, after in learned), np.zeros(len(theta)))
        return theta + Mean().combine(total, float(sum(rows for rows, _ in learned)))


InstanceTraining = RoundRobin | Averaging
INSTANCE_TRAININGS: Family[InstanceTraining] = Family("training", RoundRobin, Averaging)


def best_weight(
    training: InstanceTraining,
    own: Sequence[Instances],
    found: Sequence[Instances],
    weights: Sequence[float],
    folds: int,
    seed: int,
) -> float:
    """Return the weight of augmented instances whose rankers order the held-out lists of all parties and folds best."""
    scores = [np.empty((len(weights), 0))]
    for fold in range(folds):
        parts = [split_fold(part, fold, folds) for part in own]
        if not any(kept.n_rows for kept, _ in parts):
            continue
        thetas = []
        for weight in weights:
            both = [weigh_augmented(kept, f, weight) for (kept, _), f in zip(parts, found, strict=True)]
            thetas.append(training.train(both, seed))
        for _, held in parts:
            if held.n_rows:
                evaluator = Evaluator(held.data, LINEAR)
                scores.append(evaluator.per_query(thetas)[0][:, evaluator.counted()])
    return choose_weight(weights, np.concatenate(scores, axis=1))


def choose_weight(weights: Sequence[float], scores: Doubles) -> float:
    """Return the weight with the best mean of (weights, lists) nDCG@10.

    The first weight is kept unless another one is better by more than the standard error of their difference: few lists
    say little, and a random choice costs more than a weight that is not quite the best.
    """
    gains = scores - scores[:1]
    lists = gains.shape[1]
    if lists < 2:
        return float(weights[0])
    mean, error = gains.mean(axis=1), gains.std(axis=1, ddof=1) / np.sqrt(lists)
    return float(weights[int(np.argmax(np.where(mean > error, mean, 0.0)))])
