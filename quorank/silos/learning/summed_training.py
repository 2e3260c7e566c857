"""Trainings of a group that learn from sums over all parties: one request to all, one sum back, until the ranker is there.

A `SumCourse` is the side where sums meet: what all parties are asked for next, and what follows from the total. A
`SumAnswers` is a party's side: its own part of a sum, in whole numbers modulo 2^64, so that the total is the same to the
bit however lists are divided among parties, and under the masks of a secure sum. In one process (`train`) and over a
network (`silos.coordinator.masked_course`, `silos.party.training`) the same two sides meet.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from quorank.kernels.arrays import Doubles, Uint64s
from quorank.rankers import Linear, Ranker
from quorank.silos.learning.searched_lists import SearchedLists


class SumRequest(NamedTuple):
    """Request for one sum, the same for all parties."""

    judging: bool  # whether it is about held-out lists
    head: Mapping[str, Any]  # plain values
    numbers: Doubles


class TrainingMemory(Protocol):
    """Bytes by name that a party keeps from one request to the next, also over a restart."""

    def fact(self, name: str) -> bytes | None: ...

    def set_fact(self, name: str, content: bytes) -> None: ...


class DictMemory(dict[str, bytes]):
    """Memory of a party in this process."""

    def fact(self, name: str) -> bytes | None:
        return self.get(name)

    def set_fact(self, name: str, content: bytes) -> None:
        self[name] = content


class SumAnswers(ABC):
    """A party's side of a training."""

    @abstractmethod
    def sums(self, request: SumRequest) -> Uint64s:
        """Compute this party's part of a sum; what was not agreed is refused."""


class SumCourse(ABC):
    """State of a training where sums meet."""

    @property
    @abstractmethod
    def turn(self) -> int:
        """Turns that are done, of those that are planned."""

    @property
    @abstractmethod
    def request(self) -> SumRequest:
        """What all parties are asked for next."""

    @property
    @abstractmethod
    def length(self) -> int:
        """Numbers of the sum that is asked for."""

    @property
    @abstractmethod
    def ranker(self) -> Doubles | None:
        """Parameters that all parties end with, once they are there."""

    @property
    @abstractmethod
    def chosen(self) -> float:
        """What the held-out lists have chosen, once the ranker is there: λ, or a number of trees."""

    @abstractmethod
    def advance(self, total: Uint64s) -> None:
        """Take the sum over all parties."""

    @abstractmethod
    def begin_again(self) -> None:
        """A party has left: sums that belong together are asked for again among the others."""

    @abstractmethod
    def table(self) -> dict[str, Any]:
        """As plain values, exact to the last bit."""


class SumTraining(ABC):
    """Training that learns from sums over the parties' searched lists."""

    kind: ClassVar[str]
    runs_in_turns: ClassVar[bool] = True
    learns_from_sums: ClassVar[bool] = True

    @property
    @abstractmethod
    def planned_turns(self) -> int:
        """Turns of a training in which nobody leaves, at most."""

    def most_sums(self, parties: int) -> int:
        """Return how many sums a training of so many parties asks for at most, whoever leaves."""
        return self.planned_turns + 1

    @property
    def ranker_part(self) -> Ranker:
        """The kind of ranker that is trained."""
        return Linear()

    @abstractmethod
    def course(self, w0: Doubles, table: Mapping[str, Any] | None = None) -> SumCourse:
        """Begin a training from the prior w₀ (features,), or go on from the table of one."""

    @abstractmethod
    def answers(self, own: SearchedLists, w0: Doubles, memory: TrainingMemory) -> SumAnswers:
        """Return the side of a party with these lists."""

    def train(self, parties: Sequence[SearchedLists], w0: Doubles) -> tuple[float, Doubles]:
        """Train in one process: what was chosen, and the ranker."""
        course = self.course(w0)
        sides = [self.answers(own, w0, DictMemory()) for own in parties]
        while course.ranker is None:
            request = course.request
            course.advance(add_up([side.sums(request) for side in sides]))
        return course.chosen, course.ranker


def add_up(vectors: Sequence[Uint64s]) -> Uint64s:
    """Return the sum modulo 2^64."""
    return np.asarray(np.sum(vectors, axis=0, dtype=np.uint64))
