"""The coordinator's side of silo training: which party learns in which turn, and how its result is used.

Several rankers are trained at once, in the same turns: for the choice of a weight by validation one for each fold and
weight (`silos.learning.validation`), then the one that all parties end with. One turn is `players`, `learned` and
`combined` of `silos.learning.training`; here are the first and the last, and each party does the second.

What the coordinator sees: how many instances each party learns from (by fold and weight), the parameters before and after
every turn, and for each weight the number of a party's held-out lists and two sums of their gains. Parameters after some
steps on few instances tell about these: with one step and one instance they would be that instance's features times a
number. Nothing hides them here, and no noise is added; whoever asks for that needs fewer, longer turns or another
protection. The sums tell how well a party's own lists are ranked, and of a party with one such list its very gain.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from quorank.errors import require
from quorank.kernels.arrays import Doubles
from quorank.silos.learning.training import Descent


@dataclass(eq=False)
class TrainingCourse:
    """A training of several rankers at once: rows[party][model] instances, thetas[model] after `turn` turns."""

    training: Descent
    rows: Sequence[Sequence[int]]
    thetas: Doubles  # (models, parameters)
    turn: int = 0
    learned: dict[int, Doubles] = field(default_factory=dict)  # party → (its models of this turn, parameters)
    gone: Collection[int] = ()  # parties that have left: their turns pass with the parameters as they were

    @classmethod
    def begin(
        cls, training: Descent, rows: Sequence[Sequence[int]], n_features: int, gone: Collection[int] = ()
    ) -> TrainingCourse:
        """Before the first turn; every model needs a party that has an instance."""
        models = len(rows[0])
        sentence = "no party has an instance to learn from"
        require(all(any(own[model] for own in rows) for model in range(models)), "training.no-instances", sentence)
        return cls(training, rows, np.tile(training.initial(n_features), (models, 1)), gone=gone)

    @property
    def done(self) -> bool:
        return self.turn >= self.training.length

    def plays(self) -> dict[int, list[tuple[int, int]]]:
        """Party → (model, its place among those who have instances for it), of all who learn in this turn."""
        found: dict[int, list[tuple[int, int]]] = {}
        for model in range(len(self.thetas)):
            present = self._present(model)
            for client in self.training.players(self.turn, len(present)):
                found.setdefault(present[client], []).append((model, client))
        return found

    def take(self, party: int, learned: Doubles) -> bool:
        """What a party learned in this turn; whether that ends the turn."""
        plays = self.plays()
        sentence = "a party learned in a turn that was not its own"
        require(party in plays and party not in self.learned, "silo-message.turn", sentence)
        self.learned[party] = learned
        return self.end_turn()

    def end_turn(self) -> bool:
        """End this turn where nobody is waited for, and those after it that are leavers' alone; whether it did."""
        ended = False
        while not self.done and all(party in self.learned or party in self.gone for party in self.plays()):
            self._end_turn()
            ended = True
        return ended

    def _end_turn(self) -> None:
        after = {
            (model, client): self.learned[p][at]
            for p, played in self.plays().items()
            if p in self.learned
            for at, (model, client) in enumerate(played)
        }
        for model, theta in enumerate(self.thetas.copy()):
            present = self._present(model)
            players = self.training.players(self.turn, len(present))
            found = [(self.rows[present[c]][model], after[model, c]) for c in players if (model, c) in after]
            if found:
                self.thetas[model] = self.training.combined(theta, found)
        self.turn, self.learned = self.turn + 1, {}

    def _present(self, model: int) -> list[int]:
        return [party for party, own in enumerate(self.rows) if own[model]]

    def table(self) -> dict[str, Any]:
        """As plain values, exact to the last bit."""
        return {
            "rows": [list(own) for own in self.rows],
            "thetas": self.thetas.tolist(),
            "turn": self.turn,
            "learned": {str(party): learned.tolist() for party, learned in self.learned.items()},
        }

    @classmethod
    def read(cls, training: Descent, table: Mapping[str, Any], gone: Collection[int] = ()) -> TrainingCourse:
        """From such a table."""
        learned = {int(party): np.array(rows) for party, rows in table["learned"].items()}
        return cls(training, table["rows"], np.array(table["thetas"]), table["turn"], learned, gone)
