"""Simulated user of a real device: it searches and clicks as a client of an experiment does."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from quorank.errors import require
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import find_experiment_file
from quorank.experiments.workload import Workload, collection_of, experiment_collection, started_experiment
from quorank.kernels.draws import BATCH, Address
from quorank.learning import Shown
from quorank.learning.client_loop import Simulation, World, draw_query
from quorank.users.click_model import click_list


class Searched(Protocol):
    """Device that a user searches with; `quorank.member.device.Device` is one."""

    @property
    def turn(self) -> tuple[int, int]: ...
    def rank(self, features: npt.ArrayLike) -> Shown: ...
    def record(self, shown: Shown, clicks: npt.ArrayLike) -> None: ...


class SimulatedUser:
    """Simulated user of a device: `user(device)` is one interaction.

    Query, list and clicks have the simulator's addresses, so that a device with the experiment's seed records exactly what
    the simulator's client does.
    """

    def __init__(self, simulation: Simulation, client: int) -> None:
        self.simulation, self.client = simulation, client

    @classmethod
    def of(cls, file: Path, client: int) -> SimulatedUser:
        """Return a client of the experiment in a file."""
        experiment = Experiment.read(find_experiment_file(file))
        clients = experiment.federation.clients
        sentence = f"the experiment has clients 0 to {clients - 1}"
        require(0 <= client < clients, "value.out-of-range", sentence, f"--client {client}")
        collection = collection_of(experiment.data)
        experiment = started_experiment(experiment, collection.train.n_features, collection)
        return cls(Workload(experiment, experiment_collection(experiment)).simulation, client)

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
