"""Simulated user in front of a real device: the searches and clicks of one client of an experiment, one at a time.

Query, list and clicks are drawn at the addresses of the simulator's own (`draws`), so a device that is given the
experiment's seed for its lists records exactly what the simulator's client does. For rehearsals and tests.
"""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from quorank.kernels.draws import BATCH, Address
from quorank.learning import Shown
from quorank.learning.client_loop import draw_query
from quorank.learning.simulation import Simulation, World
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
    def world(self) -> World:
        return self.simulation.world()

    def __call__(self, device: Searched) -> None:
        world, client = self.world, self.client
        round_, interaction = device.turn
        address = Address(interaction, client, round_)
        query, model = draw_query(world, address)
        start, end = world.offsets[query], world.offsets[query + 1]
        shown = device.rank(world.padded[start:end, : world.n_features])
        k = len(shown.order)
        clicked = np.zeros(k, dtype=np.bool_)
        click_list(world.users, model, address, start, shown.order, k, clicked, np.empty(BATCH))
        device.record(shown, clicked)
