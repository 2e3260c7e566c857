"""A load generator: thousands of light devices against one coordinator, and what gives way first.

Nothing is learned by them (`light_devices`); all else is real: messages, checks, exact sums, the journal and the checkpoint
on disk. `coordinator_load` hands replies straight to a coordinator, so that its memory is its own;
`driver_load` plays rounds with the driver over the transport in memory; `flower_load` does so over a SuperLink.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from quorank.errors import require_range
from quorank.federation import Federation, wire
from quorank.federation.coordinator import Coordinator, RoundLimits, Verdict
from quorank.federation.keeping import JOURNAL, KeptInFolder
from quorank.federation.replies import Key
from quorank.federation.rounds import Report
from quorank.federation.transport import Arrival, Failure, Memory, Transport
from quorank.flower.driver import Driver, Own
from quorank.network.light_devices import INTERACTIONS, Devices, DeviceTraffic
from quorank.privacy import Plain


class Clock:
    """Seconds spent, by what they were spent on."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def on(self, name: str) -> Iterator[None]:
        before = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - before

    def __getitem__(self, name: str) -> float:
        return self.seconds.get(name, 0.0)


@dataclass(eq=False)
class TimedCoordinator(Coordinator):
    """A coordinator that knows where its time goes."""

    watch: Clock = field(default_factory=Clock)
    accepted: int = 0
    journal_bytes: int = 0  # of the largest round

    def receive_many(self, contents: Iterable[bytes | wire.Reply]) -> list[Verdict]:
        with self.watch.on("receive"):
            verdicts = super().receive_many(contents)
        self.accepted += sum(verdict.accepted for verdict in verdicts)
        return verdicts

    def _accept(self, group: dict[Key, wire.Reply]) -> None:
        with self.watch.on("accept"):
            super()._accept(group)

    def _count(self, reply: wire.Reply) -> None:
        with self.watch.on("sum"):
            super()._count(reply)

    def advance(self) -> Report:
        if isinstance(self.keeping, KeptInFolder):
            self.journal_bytes = max(self.journal_bytes, (self.keeping.folder / JOURNAL).stat().st_size)
        with self.watch.on("advance"):
            return super().advance()


class TimedTransport(NamedTuple):
    """A transport whose calls are timed."""

    transport: Transport
    watch: Clock

    def nodes(self) -> Sequence[str]:
        with self.watch.on("transport"):
            return self.transport.nodes()

    def push(self, node: str, content: bytes) -> str:
        with self.watch.on("transport"):
            return self.transport.push(node, content)

    def pull(self) -> list[Arrival]:
        with self.watch.on("transport"):
            return self.transport.pull()

    def forget(self, message: str) -> None:
        self.transport.forget(message)


def coordinator_of(traffic: DeviceTraffic, folder: Path, **options: Any) -> TimedCoordinator:
    """A coordinator of these devices whose journal and checkpoint lie in a folder."""
    federation = Federation(traffic.devices, INTERACTIONS)
    state = federation.start(np.zeros(traffic.parameters))
    rules = RoundLimits(enough=traffic.enough)
    return TimedCoordinator(
        federation,
        Plain(),
        state,
        traffic.rounds,
        seed=traffic.seed,
        rules=rules,
        keeping=KeptInFolder(folder),
        **options,
    )


def coordinator_load(traffic: DeviceTraffic, folder: Path, together: int = 1000) -> dict[str, Any]:
    """Replies straight to a coordinator, so many at a time, made when they are handed in: its time and memory alone."""
    require_range("together", together, least=1)
    coordinator, devices = coordinator_of(traffic, folder), Devices(traffic)
    warm(traffic, folder)
    before, watch = resident(), coordinator.watch
    while not coordinator.done:
        task = coordinator.plan()
        replies = (devices.reply(task, client) for client in range(traffic.devices))
        while group := list(itertools.islice(replies, together)):
            coordinator.receive_many(group)
        coordinator.advance()
    own = watch["receive"] + watch["advance"]
    return {
        **asdict(traffic),
        "together": together,
        **_figures(coordinator, own),
        "microseconds_per_reply": {
            "check": 1e6 * (watch["receive"] - watch["accept"]) / (traffic.devices * traffic.rounds),
            "journal": 1e6 * (watch["accept"] - watch["sum"]) / max(1, coordinator.accepted),
            "sum": 1e6 * watch["sum"] / max(1, coordinator.accepted),
        },
        "memory_bytes": max(0, peak() - before),
    }


def driver_load(traffic: DeviceTraffic, folder: Path) -> dict[str, Any]:
    """Rounds with the driver over the transport in memory, whose queues are in this process too."""
    watch, devices = Clock(), Devices(traffic)

    def answer(node: str, content: bytes) -> bytes | Failure:
        with watch.on("devices"):
            return devices.answer(node, content)

    lost = 1.0 - math.sqrt(1.0 - traffic.drop)  # of messages, and of answers
    memory = Memory(answer, traffic.names, lost, traffic.twice, traffic.delay, traffic.seed)
    coordinator = coordinator_of(traffic, folder, watch=watch)
    warm(traffic, folder)
    before = resident()
    seconds = play(coordinator, TimedTransport(memory, watch), traffic, sleep=lambda _: None)
    stages = {
        "transport": watch["transport"] - watch["devices"],
        "check": watch["receive"] - watch["accept"],
        "journal": watch["accept"] - watch["sum"],
        "sum": watch["sum"],
        "advance": watch["advance"],
    }
    stages["driver"] = seconds - watch["devices"] - sum(stages.values())
    return {
        **asdict(traffic),
        **_figures(coordinator, seconds - watch["devices"]),
        **per_device(memory.sent, memory.came, traffic),
        "memory_bytes": max(0, peak() - before),
        "seconds_by_stage": stages,
        "gives_way_first": max(stages, key=lambda name: stages[name]),
    }


def play(
    coordinator: Coordinator,
    transport: Transport,
    traffic: DeviceTraffic,
    sleep: Callable[[float], None],
    **options: Any,
) -> float:
    """All rounds; returns the seconds that they took."""
    driver = Driver(transport, Own(dict(enumerate(traffic.names))), sleep=sleep, **options)
    started = time.perf_counter()
    while not coordinator.done:
        driver.round(coordinator)
    return time.perf_counter() - started


def per_device(sent: int, came: int, traffic: DeviceTraffic) -> dict[str, Any]:
    """Bytes of messages per device and round, as they are handed to and come from the engine."""
    each = traffic.devices * traffic.rounds
    return {"bytes_to_device": sent / each, "bytes_from_device": came / each}


def _figures(coordinator: TimedCoordinator, seconds: float) -> dict[str, Any]:
    return {
        "seconds_per_round": seconds / coordinator.rounds,
        "rounds_per_hour": 3600.0 * coordinator.rounds / seconds,
        "accepted": coordinator.accepted,
        "accepted_per_second": coordinator.accepted / seconds,
        "refused": dict(coordinator.refused),
        "journal_bytes": coordinator.journal_bytes,
    }


def warm(traffic: DeviceTraffic, folder: Path) -> None:
    """Load what is compiled, so that neither time nor memory of that is counted."""
    with tempfile.TemporaryDirectory(dir=folder) as other:
        few = DeviceTraffic(2, traffic.parameters, 1, 0.0, 0.0, 0.0, 0, 1.0)
        coordinator, devices = coordinator_of(few, Path(other)), Devices(few)
        task = coordinator.plan()
        coordinator.receive_many([devices.reply(task, client) for client in range(2)])
        coordinator.advance()


def resident(process: int | str = "self") -> int:
    """Bytes of memory that a process holds now; 0 where the system does not say."""
    return _status(process, "VmRSS:")


def peak(process: int | str = "self") -> int:
    """The most bytes that a process held at any time."""
    return _status(process, "VmHWM:")


def _status(process: int | str, name: str) -> int:
    try:
        lines = Path("/proc", str(process), "status").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(name)), 0)


LOADS: dict[str, Callable[..., dict[str, Any]]] = {"coordinator": coordinator_load, "driver": driver_load}


def main(arguments: list[str]) -> None:
    """`load coordinator|driver TABLE`: prints the figures; TABLE is fields of `DeviceTraffic` (and `together`) in JSON."""
    kind, table = arguments[0], json.loads(arguments[1]) if arguments[1:] else {}
    options = {name: table.pop(name) for name in ("together",) if name in table}
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(LOADS[kind](DeviceTraffic(**table), Path(folder), **options)))


if __name__ == "__main__":
    main(sys.argv[1:])
