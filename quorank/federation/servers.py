"""What the server does with the mean update: the optimisers of federated learning (Reddi et al. 2021).

An update points uphill, so every step adds. `memory` is the optimiser's state: explicit, saved with the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quorank.arrays import Doubles
from quorank.errors import require
from quorank.federation.rprop import Rprop
from quorank.parts import Family

Memory = dict[str, Doubles]

AVERAGE = "average"
"""Where an optimiser keeps the ranker that is handed out, if that is not θ itself."""


@dataclass(frozen=True)
class Add:
    """θ ← θ + step·u. With step 1 this is federated averaging (FPDGD algorithm 2); other steps are SGD on the server.

    With `average` = γ the ranker that is handed out is a mean of all θ so far, in which round t counts about t^γ
    (polynomial-decay averaging, Shamir and Zhang 2013); clients go on learning from θ itself. It takes noise out of the
    ranker, and as it looks at nothing new it costs no privacy.
    """

    kind: ClassVar[str] = "add"

    step: float = 1.0
    average: float | None = None  # γ

    def __post_init__(self) -> None:
        _check_step(self.step)
        require(
            self.average is None or 0.0 <= self.average < float("inf"),
            f"average must be at least 0, got {self.average}",
        )

    def start(self, size: int) -> Memory:
        return {} if self.average is None else {AVERAGE: np.zeros(size), "count": np.zeros(1)}

    def recursion(self, size: int, memory: Memory) -> tuple[float, float, Doubles]:
        """(step, β, m) as of momentum, with a β of 0."""
        return self.step, 0.0, np.zeros(size)

    def advance(self, theta: Doubles, update: Doubles, memory: Memory) -> tuple[Doubles, Memory]:
        after = theta + self.step * update
        if self.average is None:
            return after, memory
        count = memory["count"] + 1.0
        weight = (self.average + 1.0) / (float(count[0]) + self.average)
        mean = memory[AVERAGE] + weight * (after - memory[AVERAGE])
        return after, {AVERAGE: mean, "count": count}


@dataclass(frozen=True)
class Momentum:
    """m ← β·m + u; θ ← θ + step·m."""

    kind: ClassVar[str] = "momentum"

    step: float = 1.0
    beta: float = 0.9  # β

    def __post_init__(self) -> None:
        _check_step(self.step)
        require(0.0 <= self.beta < 1.0, f"beta must be at least 0 and below 1, got {self.beta}")

    def start(self, size: int) -> Memory:
        return {"momentum": np.zeros(size)}

    def recursion(self, size: int, memory: Memory) -> tuple[float, float, Doubles]:
        """(step, β, m) before the next round, from which the θ of the rounds behind it can be foretold."""
        return self.step, self.beta, memory["momentum"].copy()

    def advance(self, theta: Doubles, update: Doubles, memory: Memory) -> tuple[Doubles, Memory]:
        momentum = self.beta * memory["momentum"] + update
        return theta + self.step * momentum, {"momentum": momentum}


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma and Ba 2015) on the mean update as a gradient; its defaults are those of FOLtR-ES."""

    kind: ClassVar[str] = "adam"

    step: float = 0.001
    beta1: float = 0.9  # β₁
    beta2: float = 0.999  # β₂
    tiny: float = 1e-8  # ϵ of the paper: keeps the division finite, no privacy figure

    def __post_init__(self) -> None:
        _check_step(self.step)
        for name, beta in (("beta1", self.beta1), ("beta2", self.beta2)):
            require(0.0 <= beta < 1.0, f"{name} must be at least 0 and below 1, got {beta}")
        require(0.0 < self.tiny < float("inf"), f"tiny must be above 0, got {self.tiny}")

    def start(self, size: int) -> Memory:
        return {"first": np.zeros(size), "second": np.zeros(size), "count": np.zeros(1)}

    def advance(self, theta: Doubles, update: Doubles, memory: Memory) -> tuple[Doubles, Memory]:
        count = memory["count"] + 1.0
        first = self.beta1 * memory["first"] + (1.0 - self.beta1) * update
        second = self.beta2 * memory["second"] + (1.0 - self.beta2) * update * update
        t = float(count[0])
        corrected = first / (1.0 - self.beta1**t)
        scale = np.sqrt(second / (1.0 - self.beta2**t)) + self.tiny
        return theta + self.step * corrected / scale, {"first": first, "second": second, "count": count}


def _check_step(step: float) -> None:
    require(0.0 < step < float("inf"), f"step must be above 0, got {step}")


Server = Add | Momentum | Adam | Rprop
SERVERS: Family[Server] = Family(
    "server optimiser", Add, Momentum, Adam, Rprop
)  # a new one: its class, and its name here
