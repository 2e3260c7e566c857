"""Sign-only updates: one bit a parameter leaves the client, truthful or flipped at random.

The bit of a parameter is the sign of its update, a fair coin for an update of zero. Flipped bits are ε-locally
differentially private; ε adds up to d·ε per message of d parameters and T·d·ε per run of T rounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from quorank.errors import require_range
from quorank.kernels.arrays import Doubles, Integers
from quorank.kernels.compiled import kernel
from quorank.kernels.draws import Purpose
from quorank.privacy.accounting import Setting
from quorank.privacy.mechanisms.clipping import ReleaseBound, not_finite
from quorank.privacy.mechanisms.mechanism import AddingUp, Memory, Privacy, Sum
from quorank.privacy.streams import Key, Seed, key_for, uniform_pair


@dataclass(frozen=True)
class Signs(Privacy):
    """Signs of the updates, each flipped with probability 1 − p: ε = log(p/(1 − p)) per bit, none for p = 1.

    The mean over clients is multiplied by 1/(2p − 1), which removes the bias of the flips.

    Args:
        p: Probability of the true sign, above 0.5 and at most 1.
        size: Magnitude of each sent number, above 0.

    Raises:
        BadInput: `value.out-of-range` if a field is outside its range.

    >>> Signs(p=0.75, size=0.01).mechanism(Setting(10, 10, 1, parameters=2), 1).statement()["epsilon_per_bit_sent"]
    1.0986122886681098
    """

    kind: ClassVar[str] = "signs"
    protects_messages: ClassVar[bool] = True

    p: float = 1.0
    size: float = 0.01

    def __post_init__(self) -> None:
        require_range("p", self.p, above=0.5, most=1.0)
        require_range("size", self.size, above=0.0)

    def mechanism(self, setting: Setting, seed: Seed) -> SignMechanism:
        return SignMechanism(self, setting, seed)


@dataclass(frozen=True, eq=False)
class SignMechanism(AddingUp):
    """Randomised response on the sign of each number of an update."""

    part: Signs
    setting: Setting
    seed: Seed

    @property
    def promise(self) -> str:  # type: ignore[override]
        signs = "flipped at random here" if self.part.p < 1.0 else "unchanged"
        return f"only signs were sent, {signs}: the promise holds against the coordinator too"

    def release(self, updates: Doubles, theta: Doubles, round_: int, clients: Integers, memory: Memory) -> int:
        key = key_for(self.seed, Purpose.RESPONSE)
        bad = _take_signs(updates, self.part.p, self.part.size, key, round_, clients)
        if bad >= 0:
            raise not_finite(int(clients[bad]))
        return 0

    def bound_of(self, memory: Memory, parameters: int) -> ReleaseBound:
        return ReleaseBound(self.part.size * math.sqrt(parameters))

    def finish(self, total: Doubles, weight: float, within: int, count: int, round_: int, memory: Memory) -> Sum:
        debiased = np.asarray(total / (2.0 * self.part.p - 1.0), dtype=np.float64)
        longest = self.part.size * math.sqrt(self.setting.parameters)
        return Sum(debiased, float(max(count, 1)), memory, longest)

    def statement(self, rounds: int | None = None) -> dict[str, Any]:
        setting, p = self.setting, self.part.p
        done = setting.rounds if rounds is None else rounds
        sent = setting.parameters * setting.participations(done)
        whole = setting.horizon(done)
        stated = {"kind": self.part.kind, "model": "local", "unit": "client", "rounds": done, "bits_sent": sent, "p": p}
        if p == 1.0:
            warning = "true signs have no ε: a message reveals one bit per parameter"
            return stated | {"epsilon": None, "delta": 0.0, "horizon": whole, "warning": warning}
        each = math.log(p / (1.0 - p))
        budget = {"epsilon": each * sent, "delta": 0.0, "horizon": f"{whole}, by adding up"}
        return stated | budget | {"epsilon_per_bit_sent": each}


@kernel
def _take_signs(updates: Doubles, p: float, size: float, key: Key, round_: int, clients: Integers) -> int:
    """Replace updates by ±size; return −1, or the first row that is not finite."""
    for i in range(updates.shape[0]):
        for j in range(updates.shape[1]):
            if not abs(updates[i, j]) < np.inf:
                return i
            truth, coin = uniform_pair(key, 0, j, clients[i], round_)
            positive = updates[i, j] > 0.0 or (updates[i, j] == 0.0 and coin < 0.5)
            updates[i, j] = size if positive == (truth < p) else -size
    return -1
