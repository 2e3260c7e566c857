"""Participation: which clients form the cohort of a round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quorank.arrays import Doubles, Integers, Uint64s
from quorank.compiled import kernel
from quorank.draws import Purpose, key_of, uniform_pair
from quorank.errors import require_range
from quorank.parts import Family


@dataclass(frozen=True)
class Participation(ABC):
    """Which clients form the cohort of a round."""

    kind: ClassVar[str]
    everyone: ClassVar[bool] = False  # all clients, in every round
    fixed_size: ClassVar[bool] = True  # every cohort is as large as planned

    @abstractmethod
    def size(self, clients: int) -> int:
        """Return the size of a cohort of so many clients; on average, where it varies."""

    @abstractmethod
    def members(self, clients: int, round_: int, seed: int) -> Integers | None:
        """Return the cohort of a round in ascending order; None stands for all clients, which need no list."""


@dataclass(frozen=True)
class Full(Participation):
    """Everyone, every round."""

    kind: ClassVar[str] = "full"
    everyone: ClassVar[bool] = True

    def size(self, clients: int) -> int:
        return clients

    def members(self, clients: int, round_: int, seed: int) -> Integers | None:
        return None


@dataclass(frozen=True)
class Sampled(Participation):
    """`cohort` clients a round, each set of that size equally likely, drawn anew every round."""

    kind: ClassVar[str] = "sampled"

    cohort: int = 100

    def __post_init__(self) -> None:
        require_range("cohort", self.cohort, least=1)

    def size(self, clients: int) -> int:
        return self.cohort

    def members(self, clients: int, round_: int, seed: int) -> Integers | None:
        """Return the clients whose own draw of this round is among the smallest."""
        draws = _draws(clients, round_, seed)
        return np.sort(np.argsort(draws, kind="stable")[: self.cohort]).astype(np.int64)


@dataclass(frozen=True)
class Poisson(Participation):
    """Each client takes part in each round with probability `rate`, by its own coin.

    The rate is rounded so that on average a whole number of clients takes part.
    """

    kind: ClassVar[str] = "poisson"
    fixed_size: ClassVar[bool] = False

    rate: float = 0.1

    def __post_init__(self) -> None:
        require_range("rate", self.rate, above=0.0, most=1.0)

    def size(self, clients: int) -> int:
        """Return the expected size, at least 1."""
        return max(1, round(self.rate * clients))

    def members(self, clients: int, round_: int, seed: int) -> Integers | None:
        draws = _draws(clients, round_, seed)
        return np.flatnonzero(draws < self.size(clients) / clients).astype(np.int64)


def _draws(clients: int, round_: int, seed: int) -> Doubles:
    """(clients,) each client's own draw of a round."""
    draws = np.empty(clients)
    _draw_each(key_of(seed, Purpose.PARTICIPATION), round_, draws)
    return draws


@kernel
def _draw_each(key: Uint64s, round_: int, out: Doubles) -> None:
    for client in range(len(out)):
        out[client], _ = uniform_pair(key, 0, 0, client, round_)


PARTICIPATIONS: Family[Participation] = Family("participation", Full, Sampled, Poisson, base=Participation)
