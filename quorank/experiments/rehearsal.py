"""Rehearsal of a device: it is real, with its private file and all, among the simulated clients of an experiment.

The device's user is simulated too, and the coordinator is in this process, so the run comes to the bits of `quorank run`
where no device draws noise of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Protocol

import numpy as np

from quorank.engines.carried_updates import CarriedUpdates
from quorank.engines.process import Simulator
from quorank.errors import require
from quorank.experiments.client_terms import terms_of
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import read_experiment_file, shipped_file
from quorank.experiments.run_directory import CARRIED
from quorank.experiments.simulated_user import Searched, SimulatedUser
from quorank.experiments.starting_ranker import started_experiment
from quorank.experiments.workload import Workload, collection_of, experiment_collection
from quorank.federation.coordinator import Coordinator, RoundLimits, Verdict
from quorank.federation.journal import DirectoryStorage
from quorank.federation.reply import Reply, Task, encode_task
from quorank.protocol.messages import Declined
from quorank.protocol.terms import Terms

FOLDER = "rehearsal"

Search = Callable[[Searched], None]
"""Lets a user search once with the device: simulated users, in rehearsals."""

Others = Callable[[Task, list[int]], Iterable[bytes | Reply]]
"""What the other clients of a cohort reply to a task."""


class Rehearsed(Searched, Protocol):
    """The device that is rehearsed, as `quorank.member.device.Device` is one."""

    def ready(self) -> bool:
        """Whether a task would be answered."""

    def answer(self, task: bytes) -> bytes | Declined:
        """The reply to a task, or why there is none."""


def take_part(
    device: Rehearsed,
    link: Direct,
    search: Search | None = None,
    seen: Callable[[bytes | Declined], None] | None = None,
) -> int:
    """Answer tasks until the line ends; returns how many releases were sent.

    Where `search` is given, a task that waits for interactions is answered after as many searches as it takes.
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
    """One client's line to a coordinator in this process; `others` play the rest of each cohort."""

    coordinator: Coordinator
    client: int
    others: Others = _nobody
    patience: int = 3  # answers without a release in a row, after which the line ends
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
    """One client of an experiment, to be played by a device."""

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
        """A line to a coordinator in this process, which goes on where it stood in this folder."""
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
        """What the simulated clients carry on of their updates, which is on file from the first round on."""
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
