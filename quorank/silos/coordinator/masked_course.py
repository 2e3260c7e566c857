"""The coordinator's side of a training from sums: it adds up masked parts and hands the total to the training.

All parties are in every turn. What the coordinator sees of a turn is the sum over all parties; each party's own part is
under masks with every other one. Where a party leaves, the turn begins again among those who are left: their masks are then
others, since a sum has a number of its own for every turn and number of leavers. Fewer than two cannot go on: the sum would
be one party's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from quorank.kernels.arrays import Doubles, Uint64s
from quorank.silos.learning.summed_training import SumCourse, SumTraining


@dataclass(eq=False)
class MaskedCourse:
    """A training from masked sums, after so many `sums`."""

    course: SumCourse
    among: list[int]  # parties that are in the sum, ascending
    sums: int = 0  # that are complete: the number of the one that is asked for
    total: Uint64s | None = None  # of those that have answered
    answered: list[int] = field(default_factory=list)

    @property
    def ranker(self) -> Doubles | None:
        """Parameters that all parties end with, once they are there."""
        return self.course.ranker

    def take(self, party: int, part: Uint64s) -> bool:
        """A party's masked part of the sum; whether that completes it."""
        self.total = part if self.total is None else self.total + part
        self.answered.append(party)
        if sorted(self.answered) != self.among:
            return False
        total, self.total, self.answered = self.total, None, []
        self.course.advance(total)
        self.sums += 1
        return True

    def leave(self, party: int) -> None:
        """Ask for this sum again without a party."""
        self.among = [other for other in self.among if other != party]
        self.total, self.answered = None, []
        self.course.begin_again()

    def table(self) -> dict[str, Any]:
        """As plain values, exact to the last bit."""
        return {
            "course": self.course.table(),
            "among": self.among,
            "sums": self.sums,
            "total": None if self.total is None else self.total.astype("<u8").tobytes().hex(),
            "answered": self.answered,
        }

    @classmethod
    def read(cls, training: SumTraining, w0: Doubles, table: Mapping[str, Any]) -> MaskedCourse:
        """From such a table."""
        raw = table["total"]
        total = None if raw is None else np.frombuffer(bytes.fromhex(raw), dtype="<u8").astype(np.uint64)
        course = training.course(w0, table["course"])
        return cls(course, list(table["among"]), table["sums"], total, list(table["answered"]))
