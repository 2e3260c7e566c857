"""The subtraction attack: it reads a client out of noise in floating point every time, out of whole numbers never."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from quorank.kernels.draws import Purpose, normal_pair
from quorank.privacy import ClippedGaussian, Setting, accounting
from quorank.privacy.audit.subtraction import TRIALS, Round, guess_presence, subtraction_attack
from quorank.privacy.mechanisms.clipping import clip_updates
from quorank.privacy.streams import key_for, uniform_pair

EPSILON, DELTA, COHORT, SIZE, CLIP = 2.0, 1e-5, 200, 46, 0.05
SETTING = Setting(COHORT, COHORT, 20, parameters=SIZE)
PART = ClippedGaussian(EPSILON, DELTA, CLIP)


def some_updates() -> np.ndarray:
    updates = np.random.default_rng(4).normal(size=(COHORT, SIZE))
    clip_updates(updates, CLIP, np.arange(COHORT))
    return updates


def floating_noise(secret: bytes, size: int) -> np.ndarray:
    """The noise as it was before: Box and Muller in float64 on the cipher's uniform numbers."""
    key = key_for(secret, Purpose.NOISE)
    pairs = [normal_pair(*uniform_pair(key, block, 0, 0, 0)) for block in range((size + 1) // 2)]
    return np.array(pairs).ravel()[:size]


@pytest.mark.parametrize("ranker", [False, True], ids=["noisy sum", "ranker"])
def test_noise_in_floating_point_is_taken_off(ranker) -> None:
    """600 of 600, from the noisy sum or from the ranker after round 1, where ε = 2 is stated for the whole run."""
    updates, z = some_updates(), accounting.noise_multiplier(SETTING, EPSILON, DELTA)
    step, weight = (7.3, float(COHORT)) if ranker else (1.0, 1.0)
    start = np.zeros(SIZE)
    known = Round(start, updates[1:].sum(axis=0), updates[0], z * CLIP, step, weight)

    def before(total: np.ndarray, secret: bytes) -> np.ndarray:
        return start + step * ((total + z * CLIP * floating_noise(secret, SIZE)) / weight)

    found = subtraction_attack(known, before, DELTA)
    assert (found.trials, found.correct, found.advantage) == (TRIALS, TRIALS, 1.0)
    assert found.epsilon > EPSILON, "the stated ε is refuted"


def test_noise_of_whole_numbers_stays() -> None:
    """600 trials: right as often as a coin, within what ε of the run allows and far below it."""
    mechanism = PART.mechanism(SETTING, 0)
    memory, rows = mechanism.start(), some_updates()
    mechanism.release(rows, np.zeros(SIZE), 0, np.arange(COHORT), memory)
    unit = mechanism.unit_of(memory)

    def now(total: np.ndarray, secret: bytes) -> np.ndarray:
        done = replace(mechanism, seed=secret).finish(np.rint(total * unit), 0.0, 0, COHORT, 0, memory)
        return np.asarray(done.total)

    std = mechanism.finish(np.zeros(SIZE), 0.0, 0, COHORT, 0, memory).noise
    known = Round(np.zeros(SIZE), rows[1:].sum(axis=0) / unit, rows[0] / unit, std)
    found = subtraction_attack(known, now, DELTA, seed=2)
    # what (ε, δ) allows any attacker, and what is left of it for one round of twenty with a margin of three deviations
    stated = mechanism.statement()["epsilon"]
    allowed = (math.exp(stated) - 1.0 + 2.0 * DELTA) / (math.exp(stated) + 1.0)
    assert found.epsilon == 0.0 and found.advantage <= allowed
    one = mechanism.statement(1)["epsilon"]
    assert found.advantage <= (math.exp(one) - 1.0) / (math.exp(one) + 1.0) + 3.0 / math.sqrt(TRIALS)


def test_the_likelier_update_is_guessed_where_nothing_else_tells() -> None:
    """With noise much smaller than the update no attack is needed."""
    known = Round(np.zeros(8), np.zeros(8), np.full(8, 3.0), 0.01)
    assert guess_presence(known, np.full(8, 2.99)) and not guess_presence(known, np.full(8, 0.02))
