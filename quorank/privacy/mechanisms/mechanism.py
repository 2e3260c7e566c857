"""Privacy mechanism of one run: what turns updates into releases on the client and adds noise to their sum.

A privacy part is a value; `part.mechanism(setting, seed)` is its mechanism for a given run, with calibrated noise. On
the client's side `release` turns updates into releases; on the sum of a cohort `finish` adds what the coordinator adds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

from quorank.arrays import Doubles, Integers
from quorank.privacy.setting import Setting
from quorank.privacy.streams import Seed

Memory = dict[str, Doubles]


class Sum(NamedTuple):
    """The sum of a cohort's releases after the coordinator's part of the mechanism."""

    total: Doubles  # Σ weight · release
    weight: float  # what the total is divided by
    memory: Memory  # of the mechanism, for the next round
    sensitivity: float = math.nan  # how far one client can move the total, in L2
    noise: float = 0.0  # standard deviation of the noise on each number of the total
    participants: int | None = None  # whose releases are in the total, where that is not the whole cohort


class Mechanism(Protocol):
    """Interface of one run's privacy on both sides of the wire; subclasses inherit what is written here as default."""

    @property
    def weighted(self) -> bool:
        """Whether releases count by their client's interactions; noise is calibrated for equal weights only."""
        return False

    @property
    def bound(self) -> float:
        """The L2 norm to which a client clips its parameters after each local step; infinite if it does not."""
        return math.inf

    @property
    def unit(self) -> float:
        """What a release multiplies an update by: a large scale where releases are whole numbers."""
        return 1.0

    @property
    def least_multiplier(self) -> float:
        """The least noise that any round may have, as a standard deviation over the clip; 0 where none is promised."""
        return 0.0

    def start(self) -> Memory:
        """Return what is carried from round to round, before the first one."""
        return {}

    def release(
        self, updates: Doubles, theta: Doubles, round_: int, clients: Integers, memory: Memory
    ) -> int:
        """Turn updates (clients, parameters) into releases, in place; returns how many were within the clip."""
        ...

    def check(self, releases: Doubles, clients: Integers, memory: Memory) -> None:
        """Refuse, on the coordinator, a release (clients, parameters) that no honest client sends, by the client's number.

        By default nothing: what is not finite is refused by the sum.
        """
        return  # an empty body would be abstract

    def finish(
        self, total: Doubles, weight: float, within: int, count: int, round_: int, memory: Memory
    ) -> Sum:
        """Add what the coordinator adds to the sum (parameters,) of `count` releases."""
        ...

    def statement(self, rounds: int | None = None) -> dict[str, Any] | None:
        """Return what the first `rounds` rounds give, with unit, δ and horizon; None where nothing is protected."""
        ...

    def spent(self) -> list[tuple[int, float]]:
        """Return (rounds done, ε spent by then), where there is an ε that adds up over rounds."""
        return []


@dataclass(frozen=True)
class Plain(Mechanism):
    """Mechanism that sums updates as they come."""

    weighted: ClassVar[bool] = True

    def release(
        self, updates: Doubles, theta: Doubles, round_: int, clients: Integers, memory: Memory
    ) -> int:
        return 0

    def finish(
        self, total: Doubles, weight: float, within: int, count: int, round_: int, memory: Memory
    ) -> Sum:
        return Sum(total, weight, memory)

    def statement(self, rounds: int | None = None) -> dict[str, Any] | None:
        return None


@dataclass(frozen=True)
class NoPrivacy:
    """No privacy mechanism: data stay with the clients, and updates leave them as they are."""

    kind: ClassVar[str] = "none"

    def mechanism(self, setting: Setting, seed: Seed) -> Plain:
        """Return the mechanism of one run: plain sums."""
        return Plain()
