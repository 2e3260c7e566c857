"""A device's line to a coordinator in the same process: tasks come, one answer goes back for each. For rehearsals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from quorank.device.answering import DeviceAnswers
from quorank.device.device import Device
from quorank.federation import wire
from quorank.federation.coordinator import Coordinator, Verdict
from quorank.federation.declined import Declined

Search = Callable[[Device], None]
"""Lets a user search once with the device: simulated users, in rehearsals."""

Others = Callable[[wire.Task, list[int]], Iterable[bytes | wire.Reply]]
"""What the other clients of a cohort reply to a task."""


def take_part(
    device: Device, link: Direct, search: Search | None = None, seen: Callable[[bytes | Declined], None] | None = None
) -> int:
    """Answer tasks until the line ends; returns how many releases were sent.

    Where `search` is given, a task that waits for interactions is answered after as many searches as it takes.
    """
    sent, answering = 0, DeviceAnswers.of(device)
    for task in link.tasks():
        answer = answering.answer(task)
        if search is not None and answer == Declined("waiting"):
            while not device.ready():
                search(device)
            answer = answering.answer(task)
        if seen is not None:
            seen(answer)
        link.send(None if isinstance(answer, Declined) else answer)
        sent += not isinstance(answer, Declined)
    return sent


def _nobody(task: wire.Task, clients: list[int]) -> Iterable[bytes | wire.Reply]:
    return ()


@dataclass(eq=False)
class Direct:
    """One client's line to a coordinator in this process; `others` play the rest of each cohort."""

    coordinator: Coordinator
    client: int
    others: Others = _nobody
    patience: int = 3  # answers without a release in a row, after which the line ends
    stop: Callable[[], bool] | None = None
    verdicts: list[Verdict] = field(default_factory=list, init=False)
    _refused: int = field(default=0, init=False)

    def tasks(self) -> Iterator[bytes]:
        coordinator = self.coordinator
        while not coordinator.done and self._refused < self.patience and not (self.stop and self.stop()):
            task = coordinator.plan()
            for reply in self.others(task, sorted(coordinator.waiting - {self.client})):
                coordinator.receive(reply)
            if self.client in coordinator.waiting:
                yield wire.encode_task(replace(task, clients=(self.client,)))
            if coordinator.complete():
                coordinator.advance()
                self._refused = 0
            else:
                self._refused += 1

    def send(self, answer: bytes | None) -> None:
        if answer is not None:
            self.verdicts.append(self.coordinator.receive(answer))
