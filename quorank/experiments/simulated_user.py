"""Simulated user in front of a real device: the searches and clicks of one client of an experiment, one at a time.

Query, list and clicks are drawn at the addresses of the simulator's own (`draws`), so a device that is given the
experiment's seed for its lists records exactly what the simulator's client does. For rehearsals and tests.
"""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from quorank.kernels.draws import BATCH
from quorank.learning import Shown
from quorank.learning.simulation import Simulation, SimulationArrays, draw_query
from quorank.users.click_model import click_list


class Searched(Protocol):
    """What a user searches with, as `quorank.member.device.Device` is it."""

    @property
    def turn(self) -> tuple[int, int]:
        """(round, interaction) of the next list."""

    def rank(self, features: npt.ArrayLike) -> Shown:
        """Draw the list to show."""

    def record(self, shown: Shown, clicks: npt.ArrayLike) -> None:
        """Take in what was clicked on it."""


class SimulatedUser:
    """Searches with a device: `user(device)` is one interaction."""

    def __init__(self, simulation: Simulation, client: int) -> None:
        self.simulation, self.client = simulation, client

    @cached_property
    def world(self) -> SimulationArrays:
        return self.simulation.world()

    def __call__(self, device: Searched) -> None:
        world, client = self.world, self.client
        round_, interaction = device.turn
        query, model = draw_query(
            world.query_key, world.group, world.first_query, world.query_count, world.click_model, world.drawn,
            interaction, client, round_,
        )  # fmt: skip
        start, end = world.offsets[query], world.offsets[query + 1]
        shown = device.rank(world.padded[start:end, : world.n_features])
        k = len(shown.order)
        clicked = np.zeros(k, dtype=np.bool_)
        click_list(
            world.labels, start, shown.order, k, world.examine, world.click, world.stop, model, world.click_key,
            interaction, client, round_, clicked, np.empty(BATCH),
        )  # fmt: skip
        device.record(shown, clicked)
