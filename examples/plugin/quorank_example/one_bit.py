"""One private bit a parameter (Duchi, Jordan and Wainwright 2018, "Minimax optimal procedures …").

A number x in [−c, c] leaves as ±c·(e^ε + 1)/(e^ε − 1), positive with probability 1/2 + x/(2c)·(e^ε − 1)/(e^ε + 1): its mean
is x, and whichever of the two is seen, no x makes it more than e^ε times as likely as another x does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from quorank.errors import require_range
from quorank.kernels.arrays import Doubles, Integers
from quorank.kernels.draws import Purpose
from quorank.privacy import Mechanism, Privacy, Setting
from quorank.privacy.mechanisms.mechanism import Memory, Sum
from quorank.privacy.streams import Seed, key_for, uniform_pair


@dataclass(frozen=True)
class OneBit(Privacy):
    """Each parameter of each message is ε-private on its own."""

    kind: ClassVar[str] = "one-bit"
    protects_messages: ClassVar[bool] = True

    epsilon: float = 1.0  # ε of one parameter in one message
    clip: float = 0.1  # c, on every parameter

    def __post_init__(self) -> None:
        require_range("epsilon", self.epsilon, above=0.0, most=20.0)
        require_range("clip", self.clip, above=0.0)

    def mechanism(self, setting: Setting, seed: Seed) -> Mechanism:
        return OneBitMechanism(self, setting, seed)


@dataclass(frozen=True, eq=False)
class OneBitMechanism(Mechanism):
    """The mechanism of one run."""

    part: OneBit
    setting: Setting
    seed: Seed = field(repr=False)

    @property
    def size(self) -> float:
        """c·(e^ε + 1)/(e^ε − 1), the size of every number that leaves."""
        return self.part.clip / math.tanh(self.part.epsilon / 2.0)

    def release(self, updates: Doubles, theta: Doubles, round_: int, clients: Integers, memory: Memory) -> int:
        key = key_for(self.seed, Purpose.RESPONSE)
        for update, client in zip(updates, clients, strict=True):
            coins = [uniform_pair(key, 0, j, client, round_)[0] for j in range(len(update))]
            inside = np.clip(update, -self.part.clip, self.part.clip)
            update[:] = np.where(np.array(coins) < 0.5 + 0.5 * inside / self.size, self.size, -self.size)
        return 0

    def finish(self, total: Doubles, weight: float, within: int, count: int, round_: int, memory: Memory) -> Sum:
        return Sum(total, float(max(count, 1)), memory, self.size * math.sqrt(len(total)))

    def statement(self, rounds: int | None = None) -> dict[str, Any]:
        done = self.setting.rounds if rounds is None else rounds
        sent = self.setting.parameters * done
        return {
            "kind": self.part.kind,
            "model": "local",
            "unit": "client",
            "epsilon": self.part.epsilon * sent,
            "delta": 0.0,
            "horizon": f"{self.setting.horizon(done)}, by adding up",
            "rounds": done,
            "bits_sent": sent,
        }
