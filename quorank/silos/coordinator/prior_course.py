"""The coordinator's side of training from a prior: it adds up masked sums and takes Newton's step.

All parties are in every turn. What the coordinator sees of a turn is the sum over all parties; each party's own part is
under masks with every other one. Where a party leaves, the turn begins again among those who are left: their masks are then
others, since a sum has a number of its own for every turn and number of leavers. Fewer than two cannot go on: the sum would
be one party's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from quorank.arrays import Doubles, Uint64s
from quorank.silos.learning.prior import FromPrior, NewtonState, sums_length


@dataclass(eq=False)
class PriorCourse:
    """A training from a prior, after `turn` turns; behind the last one the held-out lists are judged."""

    training: FromPrior
    state: NewtonState
    among: list[int]  # parties that are in the sum, ascending
    turn: int = 0
    total: Uint64s | None = None  # of those that have answered in this turn
    answered: list[int] = field(default_factory=list)
    ranker: Doubles | None = None

    @classmethod
    def begin(cls, training: FromPrior, w0: Doubles, among: Sequence[int]) -> PriorCourse:
        """Before the first turn."""
        return cls(training, training.begin(w0), list(among))

    @property
    def judging(self) -> bool:
        """All turns are over, and the held-out lists are waited for."""
        return self.turn >= self.training.turns

    @property
    def done(self) -> bool:
        return self.ranker is not None

    @property
    def asked(self) -> Doubles:
        """(models, features) where sums are taken next, or which rankers are judged."""
        return self.state.accepted if self.judging else self.state.candidates

    @property
    def length(self) -> int:
        """Length of a party's sums in this turn."""
        if self.judging:
            return self.training.told_length
        return len(self.training.models) * sums_length(len(self.state.w0))

    def take(self, party: int, sums: Uint64s) -> bool:
        """A party's masked sums of this turn; whether that ends the turn."""
        self.total = sums if self.total is None else self.total + sums
        self.answered.append(party)
        if sorted(self.answered) != self.among:
            return False
        total, self.total, self.answered = self.total, None, []
        if self.judging:
            value = self.training.choose(self.training.moments(total))
            self.ranker = self.training.ranker(self.state, value)
        else:
            self.state = self.training.advance(self.state, total)
            self.turn += 1
        return True

    def leave(self, party: int) -> None:
        """Begin this turn again without a party."""
        self.among = [other for other in self.among if other != party]
        self.total, self.answered = None, []

    def table(self) -> dict[str, Any]:
        """As plain values, exact to the last bit."""
        return {
            "w0": self.state.w0.tolist(),
            "arrays": [array.tolist() for array in self.state.arrays],
            "among": self.among,
            "turn": self.turn,
            "total": None if self.total is None else self.total.tolist(),
            "answered": self.answered,
            "ranker": None if self.ranker is None else self.ranker.tolist(),
        }

    @classmethod
    def read(cls, training: FromPrior, table: Mapping[str, Any]) -> PriorCourse:
        """From such a table."""
        state = NewtonState(np.array(table["w0"]), *(np.array(array, dtype=np.float64) for array in table["arrays"]))
        total = None if table["total"] is None else np.array(table["total"], dtype=np.uint64)
        ranker = None if table["ranker"] is None else np.array(table["ranker"])
        return cls(training, state, list(table["among"]), table["turn"], total, list(table["answered"]), ranker)
