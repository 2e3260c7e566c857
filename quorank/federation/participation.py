"""Who takes part in a round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quorank.arrays import Doubles, Integers, Uint64s
from quorank.compiled import kernel
from quorank.draws import Purpose, key_of, uniform_pair
from quorank.errors import require
from quorank.parts import Family


@dataclass(frozen=True)
class Full:
    """Everyone, every round."""

    kind: ClassVar[str] = "full"
    everyone: ClassVar[bool] = True

    def size(self, clients: int) -> int:
        return clients

    def members(self, clients: int, round_: int, seed: int) -> Integers | None:
        """None stands for all clients, which need no list."""
        return None


@dataclass(frozen=True)
class Sampled:
    """`cohort` clients a round, each set of that size alike, drawn anew every round."""

    kind: ClassVar[str] = "sampled"
    everyone: ClassVar[bool] = False

    cohort: int = 100

    def __post_init__(self) -> None:
        require(self.cohort >= 1, f"cohort must be at least 1, got {self.cohort}")

    def size(self, clients: int) -> int:
        return self.cohort

    def members(self, clients: int, round_: int, seed: int) -> Integers | None:
        """The clients whose own draw of this round is among the smallest, in order of their numbers."""
        draws = np.empty(clients)
        _draw_each(key_of(seed, Purpose.PARTICIPATION), round_, draws)
        return np.sort(np.argsort(draws, kind="stable")[: self.cohort]).astype(np.int64)


@dataclass(frozen=True)
class Poisson:
    """Each client takes part in each round with probability `rate`, by its own coin.

    The rate is rounded so that on average a whole number of clients takes part.
    """

    kind: ClassVar[str] = "poisson"
    everyone: ClassVar[bool] = False

    rate: float = 0.1

    def __post_init__(self) -> None:
        require(0.0 < self.rate <= 1.0, f"rate must be above 0 and at most 1, got {self.rate}")

    def size(self, clients: int) -> int:
        """On average, at least 1."""
        return max(1, round(self.rate * clients))

    def members(self, clients: int, round_: int, seed: int) -> Integers | None:
        draws = np.empty(clients)
        _draw_each(key_of(seed, Purpose.PARTICIPATION), round_, draws)
        return np.flatnonzero(draws < self.size(clients) / clients).astype(np.int64)


@kernel
def _draw_each(key: Uint64s, round_: int, out: Doubles) -> None:
    for client in range(len(out)):
        out[client], _ = uniform_pair(key, 0, 0, client, round_)


Participation = Full | Sampled | Poisson
PARTICIPATIONS: Family[Participation] = Family("participation", Full, Sampled, Poisson)
