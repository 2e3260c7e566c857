"""Dueling Bandit Gradient Descent (Yue and Joachims 2009, "Interactively optimizing information retrieval systems as a
dueling bandits problem", algorithm 1).

After each interaction: u_t uniform on the unit sphere, w'_t = w_t + δ·u_t, and the two are compared on an interleaved list;
if w'_t wins, w_(t+1) = w_t + γ·u_t, else w_(t+1) = w_t. A client's update is how far it went in its interactions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from quorank.errors import require_range
from quorank.kernels.arrays import Doubles
from quorank.kernels.draws import Purpose, key_of
from quorank.learning.interleaving import duel_clients
from quorank.learning.learner import Learner
from quorank.learning.list_learner import NO_OFFSETS
from quorank.learning.simulation import Work


@dataclass(frozen=True)
class DBGD(Learner):
    """θ ← θ + γ·u if θ + δ·u wins a team-draft comparison."""

    kind: ClassVar[str] = "dbgd"
    needs_gradient: ClassVar[bool] = False

    delta: float = 1.0  # δ, how far away the candidate lies
    gamma: float = 0.01  # γ, how far a winner is followed

    def __post_init__(self) -> None:
        require_range("delta", self.delta, above=0.0)
        require_range("gamma", self.gamma, above=0.0)

    def updates(self, work: Work, rows: Doubles) -> None:
        offsets = work.offsets if work.offsets is not None else NO_OFFSETS
        key, cohort = key_of(work.seed, Purpose.DIRECTION), (work.round, work.clients, work.interactions)
        duel_clients(
            work.world, work.theta, 1, self.delta, self.gamma, True, key, *cohort, work.bound, offsets, rows
        )  # fmt: skip
