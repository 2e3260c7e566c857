"""Nesterov's momentum on the server (Nesterov 1983; in the form of Sutskever et al. 2013)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quorank.errors import require_range
from quorank.federation.server_optimisers import Memory, Server
from quorank.kernels.arrays import Doubles


@dataclass(frozen=True)
class Nesterov(Server):
    """m ← β·m + u; θ ← θ + step·(u + β·m)."""

    kind: ClassVar[str] = "nesterov"

    step: float = 1.0
    beta: float = 0.9  # β

    def __post_init__(self) -> None:
        require_range("step", self.step, above=0.0)
        require_range("beta", self.beta, least=0.0, below=1.0)

    def start(self, size: int) -> Memory:
        return {"momentum": np.zeros(size)}

    def advance(self, theta: Doubles, update: Doubles, memory: Memory) -> tuple[Doubles, Memory]:
        momentum = self.beta * memory["momentum"] + update
        return theta + self.step * (update + self.beta * momentum), {"momentum": momentum}
