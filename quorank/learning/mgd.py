"""Multileave Gradient Descent (Schuth, Oosterhuis, Whiteson and de Rijke 2016, "Multileave gradient descent for fast online
learning to rank", algorithm 2).

After each interaction: n candidates w_i = w + δ·u_i, u_i uniform on the unit sphere, are compared with w on one multileaved
list. Of the candidates that beat w, MGD-M follows the mean, w + α·Σ u_j / |winners| (mean-winner), and MGD-W one by lot
(winner-takes-all). A client's update is how far it went in its interactions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from quorank.errors import require_range
from quorank.kernels.arrays import Doubles
from quorank.kernels.draws import Purpose, key_of
from quorank.learning.interleaving import duel_clients
from quorank.learning.learner import Learner
from quorank.learning.list_learner import NO_OFFSETS
from quorank.learning.simulation import Work


@dataclass(frozen=True)
class MGD(Learner):
    """θ ← θ + α·mean of the directions u_i whose θ + δ·u_i beat θ in one multileaved list."""

    kind: ClassVar[str] = "mgd"
    needs_gradient: ClassVar[bool] = False

    candidates: int = 9  # n, rankers that are compared with θ on a list
    delta: float = 1.0  # δ, how far away the candidates lie
    alpha: float = 0.01  # α, how far the winners are followed
    winner: Literal["mean", "one"] = "mean"  # MGD-M follows the mean of the winners, MGD-W one by lot

    def __post_init__(self) -> None:
        require_range("candidates", self.candidates, least=1, most=1000)
        require_range("delta", self.delta, above=0.0)
        require_range("alpha", self.alpha, above=0.0)

    def updates(self, work: Work, rows: Doubles) -> None:
        offsets = work.offsets if work.offsets is not None else NO_OFFSETS
        key, cohort = key_of(work.seed, Purpose.DIRECTION), (work.round, work.clients, work.interactions)
        how = self.candidates, self.delta, self.alpha, self.winner == "mean"
        duel_clients(work.world, work.theta, *how, key, *cohort, work.bound, offsets, rows)
