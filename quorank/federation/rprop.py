"""Rprop on the server (Riedmiller and Braun 1993; Hartmann et al. 2019, eqs 1 and 2).

Only the sign of each coordinate moves it; the length of its step grows while the sign stays and shrinks when it turns.
So a round changes a parameter by at most `most`, whatever clients send. The paper steps against the gradient; here an
update points the way to go, so a step adds.

The factors are those of the original paper, which Igel and Hüsken (2003) keep. The study's public server code had
α = 2, β = 0.6, steps of 1 to 3 points and 2 to begin with, and adapts from the second iteration on, where the paper's
text says that the second step still has its first length; the text is followed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quorank.arrays import Doubles
from quorank.errors import require

Memory = dict[str, Doubles]


@dataclass(frozen=True)
class Rprop:
    """θ ← θ + η·sgn(u), eq. 1, with a step η of its own for every weight, eq. 2."""

    kind: ClassVar[str] = "rprop"

    initial: float = 0.05  # η(0) = η(1)
    alpha: float = 1.2  # α
    beta: float = 0.5  # β
    least: float = 0.01  # η_min
    most: float = 1.0  # η_max

    def __post_init__(self) -> None:
        require(
            0.0 < self.least <= self.initial <= self.most < math.inf,
            f"expected 0 < least ≤ initial ≤ most, got {self.least}, {self.initial}, {self.most}",
        )
        require(
            0.0 < self.beta < 1.0 < self.alpha < math.inf,
            f"expected beta < 1 < alpha, got {self.beta} and {self.alpha}",
        )

    def start(self, size: int) -> Memory:
        return {"step": np.full(size, self.initial), "sign": np.zeros(size), "count": np.zeros(1)}

    def advance(self, theta: Doubles, update: Doubles, memory: Memory) -> tuple[Doubles, Memory]:
        sign = np.sign(update)
        count = memory["count"] + 1.0
        step = memory["step"]
        if count[0] > 2:
            step = adapt(step, sign * memory["sign"], self.alpha, self.beta, self.least, self.most)
        return theta + step * sign, {"step": step, "sign": sign, "count": count}


def adapt(step: Doubles, agreement: Doubles, alpha: float, beta: float, least: float, most: float) -> Doubles:
    """η(t), eq. 2: longer where two signs agree, shorter where they differ, the same where one of them is 0."""
    longer, shorter = np.minimum(step * alpha, most), np.maximum(step * beta, least)
    return np.where(agreement > 0.0, longer, np.where(agreement < 0.0, shorter, step))
