"""Base class of learners that learn from one clicked list after the other, on a simulated client or a real one."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from quorank.errors import require_range
from quorank.kernels.arrays import Doubles
from quorank.learning.exploration import Dial
from quorank.learning.exploring_clients import explore_clients
from quorank.learning.inverse_propensity import ClickRule
from quorank.learning.learner import Learner
from quorank.learning.logged_clients import replay_clients
from quorank.learning.simulation import Work

NO_OFFSETS = np.zeros((0, 0))


@dataclass(frozen=True)
class ListLearner(Learner):
    """A learner whose update is θ + η·Σ_p coefficient·∇f over the documents of each list."""

    learns_late: ClassVar[bool] = True

    eta: float
    step: Literal["interaction", "batch"]
    proximal: float

    @property
    @abstractmethod
    def dial(self) -> Dial:
        """How its lists are explored."""

    @property
    def list_temperature(self) -> float:
        return self.dial.temperature

    @abstractmethod
    def rule(self, k: int) -> ClickRule:
        """How it weighs the clicks of lists of k documents."""

    def check_list(self, k: int) -> None:
        self.rule(k)

    def replay(self, work: Work, rows: Doubles) -> None:
        """Play the clients of a cohort with the lists and clicks of a log."""
        assert work.ranks is not None
        offsets = work.offsets if work.offsets is not None else NO_OFFSETS
        replay_clients(
            work.world, work.ranks, work.theta, self.rule(work.world.k), self.eta, self.step == "batch",
            self.eta * self.proximal, work.round, work.clients, work.interactions, work.bound, offsets, rows,
        )  # fmt: skip

    def explore(self, work: Work, rows: Doubles) -> None:
        """Play the clients of a cohort with lists drawn by the dial."""
        offsets = work.offsets if work.offsets is not None else NO_OFFSETS
        explore_clients(
            work.world, work.theta, self.dial, self.rule(work.world.k), self.eta, self.step == "batch",
            self.eta * self.proximal, work.round, work.clients, work.interactions, work.bound, offsets, rows,
        )  # fmt: skip


def check_dial(temperature: float, window: int | None) -> None:
    """Refuse a temperature or a window that no list can be drawn by."""
    require_range("temperature", temperature, above=0.0)
    if window is not None:
        require_range("window", window, least=1, below=2**20)
