"""Light devices: they answer tasks with releases of the right form, learn nothing, and do not always behave.

Some never answer, some answer twice, some send what no honest device sends: half a message, a wrong shape, what is not a
number, what is far too long. For load generators (`load`, `flower_load`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from quorank import frames
from quorank.arrays import Doubles
from quorank.draws import Purpose, key_of, normals, uniform_pair
from quorank.errors import require, require_range
from quorank.federation import wire

INTERACTIONS = 4


@dataclass(frozen=True)
class DeviceTraffic:
    """How many devices there are and how they behave; shares are of the tasks that they get."""

    devices: int = 10_000
    parameters: int = 136
    rounds: int = 3
    drop: float = 0.05  # never answered
    twice: float = 0.02  # answered twice
    garbage: float = 0.02  # answered with what is refused
    delay: int = 5  # looks of the driver until an answer comes, at most
    enough: float = 0.85  # share of the devices whose replies end a round
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("devices", "parameters", "rounds"):
            require_range(name, getattr(self, name), least=1)
        for name in ("drop", "twice", "garbage"):
            require_range(name, getattr(self, name), least=0.0, most=0.5)
        require_range("delay", self.delay, least=0)
        require(
            0.0 < self.enough < 1.0 - self.drop - self.garbage or self.enough == 1.0 - self.drop - self.garbage == 1.0,
            "value.out-of-range",
            f"enough is {self.enough:g}, and only {1.0 - self.drop - self.garbage:g} of the devices answer as they should",
        )

    @property
    def names(self) -> Sequence[str]:
        """What a device is called; its number is its client's."""
        return [f"node-{number}" for number in range(self.devices)]


class Devices:
    """What the light devices answer; the same to the same task, whoever asks and when."""

    def __init__(self, traffic: DeviceTraffic) -> None:
        self.traffic = traffic
        self.release = 0.01 * normals(traffic.seed, Purpose.PERTURBATION, traffic.parameters)
        self._key = key_of(traffic.seed, Purpose.DROPOUT)

    def reply(self, task: wire.Task, client: int) -> bytes:
        """A device's reply, or what it sends in its place."""
        chance, other = uniform_pair(self._key, 0, 0, client, task.round)
        if chance < self.traffic.garbage:
            return self._garbage(task, client, int(4 * other))
        return self._encoded(task, client, self.release * (0.5 + other))

    def answer(self, node: str, content: bytes) -> bytes:
        """For a transport: the bundle that goes back."""
        task = wire.decode_task(content)
        clients = task.clients or (int(node.rsplit("-", 1)[1]),)
        return frames.pack([self.reply(task, client) for client in clients])

    def _garbage(self, task: wire.Task, client: int, kind: int) -> bytes:
        """Cut off, of the wrong length, not a number, or far too long."""
        if kind == 0:
            return self._encoded(task, client, self.release)[:-1]
        if kind == 1:
            return self._encoded(task, client, np.append(self.release, 0.0))
        return self._encoded(task, client, self.release * (math.nan if kind == 2 else 1e12))

    def _encoded(self, task: wire.Task, client: int, release: Doubles) -> bytes:
        return wire.encode_reply(wire.Reply(task.run, task.round, client, release, INTERACTIONS))
