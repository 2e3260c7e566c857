"""When people search: evenly, or by day more than by night (Hartmann et al. 2019, figure 6).

Searches are a Poisson process of a rate that depends on the hour: gaps of a process of rate 1 are added up and carried
over by the inverse of the cumulative rate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quorank.arrays import Doubles
from quorank.draws import Purpose, uniforms
from quorank.errors import require
from quorank.parts import Family

DAY = 86_400.0
_BLOCK = 4096
_GRID = 2881  # places of the cumulative rate of a day, every half minute


@dataclass(frozen=True)
class Flat:
    """The same rate at all hours."""

    kind: ClassVar[str] = "flat"

    per_hour: float = 800.0  # searches of all clients together

    def __post_init__(self) -> None:
        _check_rate(self.per_hour)

    def rate(self, seconds: Doubles) -> Doubles:
        """Searches per second."""
        return np.full_like(seconds, self.per_hour / 3600.0)


@dataclass(frozen=True)
class DayNight:
    """rate(t) = mean · (1 + swing · cos(2π·(t − peak)/day)); the run begins at midnight."""

    kind: ClassVar[str] = "day-night"

    per_hour: float = 800.0  # on average over a day
    swing: float = 0.9
    peak: float = 15.0  # hour

    def __post_init__(self) -> None:
        _check_rate(self.per_hour)
        require(0.0 <= self.swing <= 1.0, f"swing must lie between 0 and 1, got {self.swing}")
        require(0.0 <= self.peak <= 24.0, f"peak must be an hour from 0 to 24, got {self.peak}")

    def rate(self, seconds: Doubles) -> Doubles:
        """Searches per second."""
        wave = np.cos(2.0 * math.pi * (seconds - 3600.0 * self.peak) / DAY)
        return np.asarray(self.per_hour / 3600.0 * (1.0 + self.swing * wave), dtype=np.float64)


Traffic = Flat | DayNight
TRAFFICS: Family[Traffic] = Family("traffic", Flat, DayNight)


def arrivals(traffic: Traffic, seed: int) -> Iterator[Doubles]:
    """The times of all searches, in seconds, in blocks without end."""
    grid = np.linspace(0.0, DAY, _GRID)
    rates = traffic.rate(grid)
    cumulative = np.concatenate(([0.0], np.cumsum((rates[1:] + rates[:-1]) / 2.0 * np.diff(grid))))
    daily = float(cumulative[-1])
    before, block = 0.0, 0
    while True:
        gaps = -np.log1p(-uniforms(seed, Purpose.TRAFFIC, _BLOCK, round_=block))
        passed = before + np.cumsum(gaps)
        before, block = float(passed[-1]), block + 1
        days = np.floor(passed / daily)
        yield days * DAY + np.interp(passed - days * daily, cumulative, grid)


def _check_rate(per_hour: float) -> None:
    require(0.0 < per_hour < math.inf, f"per_hour must be above 0, got {per_hour}")
