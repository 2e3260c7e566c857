"""Rehearsal: a real device, with its private file, among the simulated clients of an experiment.

The device's user is simulated and the coordinator is in this process, so that the run has the bits of `quorank run`
unless the device draws noise of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from quorank.engines.carried_updates import CarriedUpdates
from quorank.engines.process import Simulator
from quorank.errors import require
from quorank.experiments.deployment import terms_of
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import read_experiment_file, shipped_file
from quorank.experiments.run_directory import CARRIED
from quorank.experiments.workload import Workload, collection_of, experiment_collection, started_experiment
from quorank.federation.coordinator import Coordinator, RoundLimits, Verdict
from quorank.federation.journal import DirectoryStorage
from quorank.federation.reply import Reply, Task, encode_task
from quorank.kernels.draws import BATCH, Address
from quorank.learning import Shown
from quorank.learning.client_loop import Simulation, World, draw_query
from quorank.protocol.messages import Declined
from quorank.protocol.terms import Terms
from quorank.users.click_model import click_list

FOLDER = "rehearsal"


class Searched(Protocol):
    """Device that a user searches with; `quorank.member.device.Device` is one."""

    @property
    def turn(self) -> tuple[int, int]:
        """Round and interaction of the next list."""

    def rank(self, features: npt.ArrayLike) -> Shown:
        """Return a sampled list."""

    def record(self, shown: Shown, clicks: npt.ArrayLike) -> None:
        """Record the clicks on a list."""


class SimulatedUser:
    """Simulated user of a real device: `user(device)` is one interaction.

    Query, list and clicks have the simulator's addresses, so that a device with the experiment's seed records exactly what
    the simulator's client does.
    """

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


Search = Callable[[Searched], None]
"""Searches once with the device."""

Others = Callable[[Task, list[int]], Iterable[bytes | Reply]]
"""Replies of the other clients of a cohort to a task."""


class Rehearsed(Searched, Protocol):
    """Device that answers tasks; `quorank.member.device.Device` is one."""

    def ready(self) -> bool:
        """Return whether a task would be answered."""

    def answer(self, task: bytes) -> bytes | Declined:
        """Return the reply to a task, or the reason for declining it."""


def take_part(
    device: Rehearsed,
    link: Direct,
    search: Search | None = None,
    seen: Callable[[bytes | Declined], None] | None = None,
) -> int:
    """Answer tasks until the link ends; return the number of releases.

    With `search`, a task that waits for interactions is answered after as many searches as it takes.
    """
    sent = 0
    for task in link.tasks():
        answer = device.answer(task)
        if search is not None and answer == Declined("waiting"):
            while not device.ready():
                search(device)
            answer = device.answer(task)
        if seen is not None:
            seen(answer)
        link.send(None if isinstance(answer, Declined) else answer)
        sent += not isinstance(answer, Declined)
    return sent


def _nobody(task: Task, clients: list[int]) -> Iterable[bytes | Reply]:
    return ()


@dataclass(eq=False)
class Direct:
    """Link of one client to a coordinator in this process; `others` play the rest of each cohort."""

    coordinator: Coordinator
    client: int
    others: Others = _nobody
    patience: int = 3  # consecutive answers without a release, after which the link ends
    verdicts: list[Verdict] = field(default_factory=list, init=False)
    _refused: int = field(default=0, init=False)

    def tasks(self) -> Iterator[bytes]:
        coordinator = self.coordinator
        while not coordinator.done and self._refused < self.patience:
            task = coordinator.plan()
            for reply in self.others(task, sorted(coordinator.waiting - {self.client})):
                coordinator.receive(reply)
            if self.client in coordinator.waiting:
                yield encode_task(replace(task, clients=(self.client,)))
            if coordinator.is_complete():
                coordinator.advance()
                self._refused = 0
            else:
                self._refused += 1

    def send(self, answer: bytes | None) -> None:
        if answer is not None:
            self.verdicts.append(self.coordinator.receive(answer))


class JoinRehearsal:
    """Client of an experiment that a device plays."""

    def __init__(self, file: Path, client: int) -> None:
        found = shipped_file(file) or file
        require(found.is_file(), "file.missing", "there is no such experiment file", f"{file}")
        self._given, self.client = Experiment.read(read_experiment_file(found)), client

    @cached_property
    def experiment(self) -> Experiment:
        collection = collection_of(self._given.data)
        return started_experiment(self._given, collection.train.n_features, collection)

    @cached_property
    def simulator(self) -> Simulator:
        experiment = self.experiment
        workload = Workload(experiment, experiment_collection(experiment))
        each = None if workload.shares is None else workload.shares.interactions
        return Simulator(
            experiment.federation, workload.simulation, 1, None, rounds=experiment.rounds, interactions=each
        )

    @cached_property
    def terms(self) -> Terms:
        simulator = self.simulator
        each = simulator.interactions
        own = None if each is None or self.client >= len(each) else int(each[self.client])
        terms = terms_of(self.experiment, simulator.simulation.data.n_features, self.client, FOLDER, own)
        return replace(terms, setting=simulator.setting)

    @property
    def user(self) -> SimulatedUser:
        return SimulatedUser(self.simulator.simulation, self.client)

    def link(self, folder: Path) -> Direct:
        """Return a link to a coordinator in this process, which resumes from this directory."""
        simulator = self.simulator
        require(
            not self.terms.secure,
            "secure-sum.rehearsal",
            "a secure sum needs devices only, and a rehearsal has one among simulated clients; use another privacy",
        )
        (folder / FOLDER).mkdir(mode=0o700, exist_ok=True)
        coordinator = Coordinator(
            self.experiment.federation,
            simulator.mechanism,
            simulator.initial(),
            self.experiment.rounds,
            FOLDER,
            self.experiment.seed,
            RoundLimits(max_interactions=simulator.setting.interactions),
            DirectoryStorage(folder / FOLDER),
        )
        carried = self._carried(folder / FOLDER, coordinator.state.round)
        return Direct(coordinator, self.client, partial(self._others, carried))

    def _carried(self, folder: Path, done: int) -> CarriedUpdates | None:
        """Return the file of the updates that simulated clients carry, written before the first round."""
        first = self.simulator.initial().carried
        if first is None:
            return None
        if done == 0 and not (folder / CARRIED).exists():
            return CarriedUpdates.begin(folder / CARRIED, 0, first)
        return CarriedUpdates(folder / CARRIED, *first.shape)

    def _others(self, file: CarriedUpdates | None, task: Task, clients: list[int]) -> list[Reply]:
        if not clients:
            return []
        numbers = np.array(clients)
        return self.simulator.replies(task, numbers) if file is None else file.replies(self.simulator, task, numbers)
