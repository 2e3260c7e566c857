"""The line between a device and its coordinator, as the device sees it: tasks come, one answer goes back for each.

A link knows nothing of what it carries. An engine implements `Link`; `Direct` is one without any engine, against a
coordinator in the same process; `Handed` turns an engine that calls for answers (a worker's `respond`) into one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from queue import Empty, Queue
from typing import Protocol

from quorank.device.answering import DeviceAnswers
from quorank.device.device import Device
from quorank.errors import BadInput
from quorank.federation import wire
from quorank.federation.bundle import Bundle
from quorank.federation.coordinator import Coordinator, Verdict
from quorank.federation.declined import Declined
from quorank.federation.leaving import Leaving, check_request, receipt_of

ENGINE = "quorank.network.flower_device"
"""The module whose `connect(bundle, folder)` gives a `Link`; `folder` is the device's, for what the engine keeps."""

LOOK_SECONDS = 0.25
"""A line is asked so often whether it is to end."""

Search = Callable[[Device], None]
"""Lets a user search once with the device: simulated users, in rehearsals."""

Others = Callable[[wire.Task, list[int]], Iterable[bytes | wire.Reply]]
"""What the other clients of a cohort reply to a task."""


class Link(Protocol):
    """A device's line to its coordinator."""

    stop: Callable[[], bool] | None
    """Ends the line between two tasks, where it says so."""

    def tasks(self) -> Iterator[bytes]:
        """What the coordinator asks (`wire` tasks), until the line ends. Each is answered by one `send`."""

    def send(self, answer: bytes | None) -> None:
        """The reply (`wire`) to the task that came last; None where there is nothing to give."""

    def leave(self, request: bytes) -> bytes:
        """Hand in a request to leave (`leaving`); returns the confirmation."""

    def close(self) -> None:
        """Hang up."""


def connect(bundle: Bundle, folder: Path) -> Link:
    """A line to the coordinator of an invitation, over the engine that is installed."""
    try:
        engine = import_module(ENGINE)
    except ImportError:
        raise BadInput(
            "engine.not-installed",
            "no engine is installed that could reach a coordinator; install quorank[network], or rehearse with --simulate",
        ) from None
    line: Link = engine.connect(bundle, folder)
    return line


def take_part(
    device: Device, link: Link, search: Search | None = None, seen: Callable[[bytes | Declined], None] | None = None
) -> int:
    """Answer tasks until the line ends; returns how many releases were sent.

    Where `search` is given, a task that waits for interactions is answered after as many searches as it takes.
    """
    sent, answering = 0, DeviceAnswers.of(device, getattr(link, "pinned", None))
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
    keys: dict[int, bytes] = field(default_factory=dict)  # by client: the public keys that nodes are known by
    patience: int = 3  # answers without a release in a row, after which the line ends
    stop: Callable[[], bool] | None = None
    verdicts: list[Verdict] = field(default_factory=list, init=False)
    leavers: list[Leaving] = field(default_factory=list, init=False)
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

    def leave(self, request: bytes) -> bytes:
        try:
            self.leavers.append(check_request(request, self.coordinator.run, self.keys))
        except BadInput as error:
            return str(error).encode()
        return receipt_of(request)

    def close(self) -> None:
        """Nothing to do."""


@dataclass(eq=False)
class Handed:
    """A link whose tasks are handed in by another thread, which waits for the answer: `respond` for a worker."""

    confirm: Callable[[bytes], bytes] | None = None  # how requests to leave reach the coordinator
    stop: Callable[[], bool] | None = None
    _tasks: Queue[tuple[bytes, Queue[bytes | None]] | None] = field(default_factory=Queue, init=False)
    _reply: Queue[bytes | None] | None = field(default=None, init=False)

    def respond(self, task: bytes) -> bytes | None:
        """The engine's side."""
        reply: Queue[bytes | None] = Queue()
        self._tasks.put((task, reply))
        return reply.get()

    def tasks(self) -> Iterator[bytes]:
        while not (self.stop and self.stop()):
            try:
                found = self._tasks.get(timeout=LOOK_SECONDS)
            except Empty:
                continue
            if found is None:
                return
            task, self._reply = found
            try:
                yield task
            finally:
                self.send(None)  # whoever waits is not left waiting

    def send(self, answer: bytes | None) -> None:
        if self._reply is not None:
            self._reply.put(answer)
            self._reply = None

    def leave(self, request: bytes) -> bytes:
        if self.confirm is None:
            raise BadInput("leaving.not-carried", "this line carries no requests to leave; ask the coordinator's owner")
        return self.confirm(request)

    def close(self) -> None:
        self._tasks.put(None)
