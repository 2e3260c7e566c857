"""Trainings that need only sums over all parties: one request to all, one sum back, until the ranker is complete.

A `SumCourse` is the coordinator's side: the next request, and the update from its total. `SumTraining.answers` is a party's
side: its part of a sum as integers modulo 2^64. Totals are therefore exact, the same however lists are divided among
parties, and can be taken under the masks of a secure sum. A request says all that its answer depends on besides the lists.
In one process (`SumTraining.train`) and over a network (`silos.session`, `member.party`) the same two sides meet.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from quorank.errors import require
from quorank.kernels.arrays import Doubles, Integers, Uint64s
from quorank.rankers import Linear, Ranker
from quorank.silos.training.lists import SearchedLists

ONE = 2.0**32  # real numbers are summed in units of 2^−32


def to_units(values: Doubles) -> Integers:
    """Round real numbers to units of 2^−32."""
    return np.floor(values * ONE + 0.5).astype(np.int64)


class SumRequest(NamedTuple):
    """Request for one sum, the same for all parties."""

    judging: bool  # whether it is over held-out lists
    head: Mapping[str, Any]  # JSON values
    numbers: Doubles


SumAnswers = Callable[[SumRequest], Uint64s]  # a party's part of a sum; refuses a request that was not agreed


class SumCourse(ABC):
    """Coordinator's side of a training.

    Attributes:
        ranker: Final parameters, once they are known.
        chosen: λ or number of trees that the held-out lists have chosen.
    """

    ranker: Doubles | None = None
    chosen: float = 0.0

    @property
    @abstractmethod
    def turn(self) -> int:
        """Completed turns, of those that are planned."""

    @property
    @abstractmethod
    def request(self) -> SumRequest:
        """Next request to all parties."""

    @property
    @abstractmethod
    def length(self) -> int:
        """Length of the requested sum."""

    @abstractmethod
    def advance(self, total: Uint64s) -> None:
        """Take the sum over all parties."""

    def restart(self) -> None:
        """Discard partial results that contain a party which has left."""

    @abstractmethod
    def table(self) -> dict[str, Any]:
        """Return the state as JSON values, exact to the last bit."""


class SumTraining(ABC):
    """Training that learns from sums over the parties' searched lists."""

    kind: ClassVar[str]

    @property
    @abstractmethod
    def planned_turns(self) -> int:
        """Largest number of turns of a training that no party leaves."""

    def most_sums(self, parties: int) -> int:
        """Return the largest number of sums of a training, some of whose parties may leave."""
        return self.planned_turns + 1

    @property
    def ranker_part(self) -> Ranker:
        """Kind of the trained ranker."""
        return Linear()

    @abstractmethod
    def course(self, w0: Doubles, table: Mapping[str, Any] | None = None) -> SumCourse:
        """Begin a training from the prior w₀ (features,), or continue from a stored table."""

    @abstractmethod
    def answers(self, own: SearchedLists, w0: Doubles) -> SumAnswers:
        """Return the side of a party with these lists."""

    def train(self, parties: Sequence[SearchedLists], w0: Doubles) -> tuple[float, Doubles]:
        """Train in one process; return what was chosen, and the parameters."""
        course, sides = self.course(w0), [self.answers(own, w0) for own in parties]
        while course.ranker is None:
            request = course.request
            course.advance(np.asarray(np.sum([side(request) for side in sides], axis=0, dtype=np.uint64)))
        return course.chosen, course.ranker


def check_agreed(condition: object) -> None:
    """Refuse a request that the terms do not allow."""
    require(condition, "silo-message.not-agreed", "the coordinator requests a sum that was not agreed")
