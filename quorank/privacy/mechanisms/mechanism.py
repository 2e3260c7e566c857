"""What happens to the updates of a round between the clients and the ranker.

A privacy part is a value; for a given run it becomes a mechanism, which knows the calibrated noise. On the client's
side `release` turns updates into releases; on the sum of a cohort `finish` adds what the coordinator adds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from quorank.arrays import Doubles, Integers

Memory = dict[str, Doubles]


class Sum(NamedTuple):
    """What is known of a cohort once its releases are added up."""

    total: Doubles  # Σ weight · release
    weight: float  # what the total is divided by
    memory: Memory  # of the mechanism, for the next round
    sensitivity: float = math.nan  # how far one client can move the total, in L2
    noise: float = 0.0  # standard deviation of the noise on each number of the total
    participants: int | None = None  # whose releases are in the total, where that is not the whole cohort


class Mechanism(Protocol):
    """One run's privacy, on both sides of the wire."""

    @property
    def weighted(self) -> bool:
        """Whether releases count by their client's interactions; noise is calibrated for equal weights only."""

    @property
    def bound(self) -> float:
        """The L2 norm to which a client clips its parameters after each local step; infinite if it does not."""

    @property
    def unit(self) -> float:
        """What a release multiplies an update by: a large scale where releases are whole numbers."""

    def start(self) -> Memory:
        """What is carried from round to round, before the first one."""

    def release(
        self, updates: Doubles, theta: Doubles, round_: int, clients: Integers, memory: Memory
    ) -> int:
        """Turn updates (clients, parameters) into releases, in place; returns how many were within the clip."""

    def check(self, releases: Doubles, clients: Integers, memory: Memory) -> None:
        """The coordinator's side: refuse by the client's name a release that no honest client sends."""

    def finish(
        self, total: Doubles, weight: float, within: int, count: int, round_: int, memory: Memory
    ) -> Sum:
        """Add what the coordinator adds to the sum of `count` releases."""

    def statement(self, rounds: int | None = None) -> dict[str, Any] | None:
        """What the first `rounds` rounds give, with unit, δ and horizon; None where nothing is protected."""

    def spent(self) -> list[tuple[int, float]]:
        """(rounds done, ε spent by then), where there is an ε that adds up over rounds."""


@dataclass(frozen=True)
class Plain:
    """Updates are summed as they come."""

    weighted: bool = True
    bound: float = math.inf
    unit: float = 1.0

    def start(self) -> Memory:
        return {}

    def release(
        self, updates: Doubles, theta: Doubles, round_: int, clients: Integers, memory: Memory
    ) -> int:
        return 0

    def check(self, releases: Doubles, clients: Integers, memory: Memory) -> None:
        """What is not finite is refused by the sum."""

    def finish(
        self, total: Doubles, weight: float, within: int, count: int, round_: int, memory: Memory
    ) -> Sum:
        return Sum(total, weight, memory)

    def statement(self, rounds: int | None = None) -> dict[str, Any] | None:
        return None

    def spent(self) -> list[tuple[int, float]]:
        return []
