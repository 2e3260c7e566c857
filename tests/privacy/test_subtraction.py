"""Subtraction attack: it removes noise in floating point from every sum, and noise of integers from none.

The threat is that of Mironov 2012, "On Significance of the Least Significant Bits for Differential Privacy", for Gaussian
noise (Jin et al. 2022, "Are We There Yet? Timing and Floating-Point Attacks on Differential Privacy Systems"), in its
strongest form: the attacker knows the ranker before and after a round to the last bit, and all other clients' updates.

    ranker after = ranker before + step·(sum + σ·noise)/weight

Noise by Box and Muller in float64 is a function of two uniform multiples of 2^-53. Inverted, a pair of noise numbers names
few candidates; each is drawn forwards and compared with the ranker's bits. The true noise always passes, noise that is off
by an update passes in one pair of ten, so twenty pairs decide. Where both or neither pass, the likelier one is guessed.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from quorank.kernels.compiled import kernel
from quorank.kernels.draws import Purpose, normal_pair
from quorank.privacy import ClippedGaussian, Setting, accounting
from quorank.privacy.audit.bound import epsilon_lower_bound
from quorank.privacy.mechanisms.clipping import clip_updates
from quorank.privacy.streams import key_for, uniform_pair

EPSILON, DELTA, COHORT, SIZE, CLIP = 2.0, 1e-5, 200, 46, 0.05
SETTING = Setting(COHORT, COHORT, 20, parameters=SIZE)
PART = ClippedGaussian(EPSILON, DELTA, CLIP)
TRIALS, PAIRS, WIDEST = 600, 32, 200  # rounds, tested pairs of numbers, candidates on each side of a pair


@kernel
def explained_pairs(after, before, plain, std: float, step: float, weight: float) -> int:
    """Return the number of the first pairs of `after` that some pair of uniform numbers gives, to the last bit."""
    found, fine = 0, 9007199254740992.0
    for i in range(0, min(len(after) // 2, PAIRS) * 2, 2):
        x = ((after[i] - before[i]) / step * weight - plain[i]) / std
        y = ((after[i + 1] - before[i + 1]) / step * weight - plain[i + 1]) / std
        radius = math.hypot(x, y)
        if not 0.0 < radius < 9.0:
            continue
        # bound on the change of the noise, and with it of each uniform number, by rounding
        largest = max(abs(after[i]), abs(before[i])) + max(abs(after[i + 1]), abs(before[i + 1]))
        total = abs(plain[i]) + abs(plain[i + 1]) + std * radius
        moved = (largest / step * weight + total) / std * 2.0**-51
        survival = math.exp(-0.5 * radius * radius)
        angle = math.atan2(y, x) / (2.0 * math.pi)
        if angle < 0.0:
            angle += 1.0
        first, second = round((1.0 - survival) * fine), round(angle * fine)
        one = min(WIDEST, int(survival * radius * moved * fine) + 2)
        two = min(WIDEST, int(moved / (2.0 * math.pi * radius) * fine) + 2)
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
    """Attacker's knowledge of a round."""

    before: np.ndarray  # the ranker before it
    others: np.ndarray  # sum of the other clients' releases
    update: np.ndarray  # the release in question
    std: float  # of the noise on the sum
    step: float = 1.0  # of the server
    weight: float = 1.0  # divisor of the sum


def guess_presence(known: Round, after: np.ndarray) -> bool:
    """Guess from the ranker after the round (d,) whether the update was in its sum."""
    sums = known.others, known.others + known.update
    start, how = known.before, (known.std, known.step, known.weight)
    without, with_it = (explained_pairs(after, start, total, *how) == min(SIZE // 2, PAIRS) for total in sums)
    if without != with_it:
        return with_it
    implied = (after - start) / known.step * known.weight
    far, near = (float(np.sum((implied - total) ** 2)) for total in sums)
    return near < far


def correct_guesses(known: Round, noisy: Callable[[np.ndarray, bytes], np.ndarray]) -> int:
    """Play `TRIALS` rounds, each under another secret and with the update by a fair coin; count the correct guesses."""
    correct = 0
    for trial in range(TRIALS):
        secret = hashlib.blake2b(f"subtraction 2 {trial}".encode(), digest_size=33).digest()
        present = secret[32] % 2 == 1
        total = known.others + known.update if present else known.others
        correct += guess_presence(known, noisy(total, secret[:32])) == present
    return correct


def some_updates() -> np.ndarray:
    updates = np.random.default_rng(4).normal(size=(COHORT, SIZE))
    clip_updates(updates, CLIP, np.arange(COHORT))
    return updates


def floating_noise(secret: bytes, size: int) -> np.ndarray:
    """Noise by Box and Muller in float64 on the cipher's uniform numbers."""
    key = key_for(secret, Purpose.NOISE)
    pairs = [normal_pair(*uniform_pair(key, block, 0, 0, 0)) for block in range((size + 1) // 2)]
    return np.array(pairs).ravel()[:size]


@pytest.mark.parametrize("ranker", [False, True], ids=["noisy sum", "ranker"])
def test_noise_in_floating_point_is_taken_off(ranker) -> None:
    """All guesses are correct, from the noisy sum or from the ranker after round 1, where the whole run states ε = 2."""
    updates, z = some_updates(), accounting.noise_multiplier(SETTING, EPSILON, DELTA)
    step, weight = (7.3, float(COHORT)) if ranker else (1.0, 1.0)
    start = np.zeros(SIZE)
    known = Round(start, updates[1:].sum(axis=0), updates[0], z * CLIP, step, weight)

    def before(total: np.ndarray, secret: bytes) -> np.ndarray:
        return start + step * ((total + z * CLIP * floating_noise(secret, SIZE)) / weight)

    assert correct_guesses(known, before) == TRIALS
    assert epsilon_lower_bound(TRIALS, TRIALS, TRIALS, DELTA) > EPSILON, "the stated ε is refuted"


def test_noise_of_whole_numbers_stays() -> None:
    """Correct guesses are as frequent as ε of one round permits, within three standard deviations."""
    mechanism = PART.mechanism(SETTING, 0)
    memory, rows = mechanism.start(), some_updates()
    mechanism.release(rows, np.zeros(SIZE), 0, np.arange(COHORT), memory)
    unit = mechanism.unit_of(memory)

    def now(total: np.ndarray, secret: bytes) -> np.ndarray:
        done = replace(mechanism, seed=secret).finish(np.rint(total * unit), 0.0, 0, COHORT, 0, memory)
        return np.asarray(done.total)

    std = mechanism.finish(np.zeros(SIZE), 0.0, 0, COHORT, 0, memory).noise
    known = Round(np.zeros(SIZE), rows[1:].sum(axis=0) / unit, rows[0] / unit, std)
    correct = correct_guesses(known, now)
    one = mechanism.statement(1)["epsilon"]
    advantage = (math.exp(one) - 1.0 + 2.0 * DELTA) / (math.exp(one) + 1.0)  # of any attacker of one round of twenty
    assert epsilon_lower_bound(TRIALS, TRIALS, correct, DELTA) <= one
    assert 2.0 * correct / TRIALS - 1.0 <= advantage + 3.0 / math.sqrt(TRIALS)
