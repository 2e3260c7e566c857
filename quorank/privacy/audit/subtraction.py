"""Subtraction attack: test for a known update by the noise that remains with and without it.

The threat is that of Mironov 2012, "On Significance of the Least Significant Bits for Differential Privacy", for Gaussian
noise (Jin et al. 2022, "Are We There Yet? Timing and Floating-Point Attacks on Differential Privacy Systems"), made as
strong as can be: the attacker knows the ranker before a round and after it, to the last bit, and what all other clients
sent. Only one update is in question. Without it or with it the noise must have been what is left:

    ranker after = ranker before + step·(sum + σ·noise)/weight.

Noise by Box and Muller in float64 comes in pairs from two uniform numbers that are multiples of 2^-53. Inverted, a pair
names the few multiples from which it can have come; whether any of them gives the ranker's bits is seen by drawing it
forwards. The true noise always passes. Noise that is off by an update passes by accident in one pair of ten, so that
twenty pairs decide, for any stated ε. Where both or neither explain the bits, the attacker guesses the likelier one.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from quorank.errors import require_range
from quorank.kernels.arrays import Doubles
from quorank.kernels.compiled import kernel
from quorank.kernels.draws import normal_pair
from quorank.privacy.audit.bound import epsilon_lower_bound

TRIALS = 600
PAIRS = 32
"""Limit on the pairs of numbers that are tested; twenty decide."""
_WIDEST = 200  # candidates on either side of what a pair names


@kernel
def _explained(after: Doubles, before: Doubles, plain: Doubles, std: float, step: float, weight: float) -> int:
    """Return the number of the first pairs of `after` that some pair of uniform numbers gives, to the last bit."""
    found, fine = 0, 9007199254740992.0
    for i in range(0, min(len(after) // 2, PAIRS) * 2, 2):
        x = ((after[i] - before[i]) / step * weight - plain[i]) / std
        y = ((after[i + 1] - before[i + 1]) / step * weight - plain[i + 1]) / std
        radius = math.hypot(x, y)
        if not 0.0 < radius < 9.0:
            continue
        # by how much rounding may have moved the noise, and with it each uniform number
        largest = max(abs(after[i]), abs(before[i])) + max(abs(after[i + 1]), abs(before[i + 1]))
        total = abs(plain[i]) + abs(plain[i + 1]) + std * radius
        moved = (largest / step * weight + total) / std * 2.0**-51
        survival = math.exp(-0.5 * radius * radius)
        angle = math.atan2(y, x) / (2.0 * math.pi)
        if angle < 0.0:
            angle += 1.0
        first, second = round((1.0 - survival) * fine), round(angle * fine)
        one = min(_WIDEST, int(survival * radius * moved * fine) + 2)
        two = min(_WIDEST, int(moved / (2.0 * math.pi * radius) * fine) + 2)
        hit = False
        for a in range(max(0, first - one), first + one + 1):
            for b in range(second - two, second + two + 1):
                if a >= fine:
                    break
                p, q = normal_pair(a / fine, (b % fine) / fine)
                if (
                    before[i] + step * ((plain[i] + std * p) / weight) == after[i]
                    and before[i + 1] + step * ((plain[i + 1] + std * q) / weight) == after[i + 1]
                ):
                    hit = True
                    break
            if hit:
                break
        found += hit
    return found


class Round(NamedTuple):
    """Attacker's knowledge of a round, except for the presence of the update."""

    before: Doubles  # the ranker before it; zeros where its noisy sum is seen
    others: Doubles  # the sum of what all others sent
    update: Doubles  # the update in question, as it was sent
    std: float  # of the noise on the sum
    step: float = 1.0  # of the server
    weight: float = 1.0  # what the sum is divided by


def guess_presence(known: Round, after: Doubles) -> bool:
    """Guess from the ranker after the round (d,) whether the update was in its sum."""
    pairs = min(len(after) // 2, PAIRS)
    sums = known.others, known.others + known.update
    start, more = known.before, (known.std, known.step, known.weight)
    without, with_it = (_explained(after, start, total, *more) == pairs for total in sums)
    if without != with_it:
        return with_it
    implied = (after - start) / known.step * known.weight
    far, near = (float(np.sum((implied - total) ** 2)) for total in sums)
    return near < far


@dataclass(frozen=True)
class Subtraction:
    """Finding of the attack: ε of one round is at least `epsilon`, at this δ and confidence."""

    trials: int
    correct: int
    epsilon: float
    delta: float
    confidence: float

    @property
    def advantage(self) -> float:
        """Twice the excess of right guesses over one half: 1 for an attacker that is always right."""
        return 2.0 * self.correct / self.trials - 1.0


Noisy = Callable[[Doubles, bytes], Doubles]
"""Return the ranker after a round from its sum (d,), under a secret."""


def subtraction_attack(
    known: Round, noisy: Noisy, delta: float, *, trials: int = TRIALS, confidence: float = 0.95, seed: int = 1
) -> Subtraction:
    """Play a round `trials` times, each under a new secret, with the update in it or not by a coin, and guess each coin."""
    require_range("trials", trials, least=1)
    correct = 0
    for trial in range(trials):
        secret = hashlib.blake2b(f"subtraction {seed} {trial}".encode(), digest_size=33).digest()
        present = secret[32] % 2 == 1
        total = known.others + known.update if present else known.others
        correct += guess_presence(known, noisy(total, secret[:32])) == present
    return Subtraction(
        trials, correct, epsilon_lower_bound(trials, trials, correct, delta, confidence), delta, confidence
    )
