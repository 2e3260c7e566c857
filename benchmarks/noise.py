"""Cost of noise in whole numbers, against noise in float64 as it was: what a round of `gaussian` adds to learning.

    python benchmarks/noise.py

A round clips the updates of 1,000 clients and draws the noise on their sum, for 46 and 8,769 parameters, under a seed
(simulations) and under a secret (deployments). Prints Markdown, in microseconds, and the ratio of now to before.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from quorank.kernels.arrays import Doubles
from quorank.kernels.compiled import kernel
from quorank.kernels.draws import Purpose, normal_pair
from quorank.privacy import ClippedGaussian, Setting
from quorank.privacy.mechanisms.clipping import ReleaseBound, clip_updates
from quorank.privacy.mechanisms.gaussian import GaussianMechanism
from quorank.privacy.mechanisms.mechanism import Memory
from quorank.privacy.streams import Key, Seed, key_for, uniform_pair

CLIENTS, CLIP, MULTIPLIER = 1000, 0.05, 8.0
NAMES = np.arange(CLIENTS)


@kernel
def fill_normal(key: Key, round_: int, out: Doubles) -> None:
    """Box and Muller in float64: what the noise was."""
    for i in range(0, len(out), 2):
        first, second = uniform_pair(key, i >> 1, 0, 0, round_)
        out[i], other = normal_pair(first, second)
        if i + 1 < len(out):
            out[i + 1] = other


def seconds(call: Callable[[int], object], least: float = 0.2) -> float:
    """Processor time: the best of nine turns, each long enough for the clock."""
    call(0)
    turns, spent = 1, 0.0
    while spent < least / 9:
        begun = time.process_time()
        for i in range(turns):
            call(i)
        spent = time.process_time() - begun
        turns = turns if spent >= least / 9 else turns * 2
    best = spent / turns
    for _ in range(8):
        begun = time.process_time()
        for i in range(turns):
            call(i)
        best = min(best, (time.process_time() - begun) / turns)
    return best


@dataclass(frozen=True, eq=False)
class Round:
    """A round of 1,000 clients, as it was and as it is."""

    size: int
    seed: Seed

    @cached_property
    def mechanism(self) -> GaussianMechanism:
        part, setting = ClippedGaussian(clip=CLIP), Setting(CLIENTS, CLIENTS, 300, parameters=self.size)
        return GaussianMechanism(part, setting, self.seed, MULTIPLIER)

    @cached_property
    def updates(self) -> Doubles:
        return np.random.default_rng(1).normal(size=(CLIENTS, self.size)) * 0.01

    @cached_property
    def rows(self) -> Doubles:
        return np.empty_like(self.updates)

    @cached_property
    def memory(self) -> Memory:
        return self.mechanism.start()

    @cached_property
    def total(self) -> Doubles:
        return np.zeros(self.size)

    @cached_property
    def key(self) -> Key:
        return key_for(self.seed, Purpose.NOISE)

    def noise_before(self, round_: int) -> Doubles:
        noise = np.empty(self.size)
        fill_normal(self.key, round_, noise)
        return np.asarray(self.total + MULTIPLIER * CLIP * noise)

    def noise_now(self, round_: int) -> Doubles:
        return self.mechanism.finish(self.total, 0.0, 0, CLIENTS, round_, self.memory).total

    def clips_before(self, _: int) -> None:
        self.rows[:] = self.updates
        clip_updates(self.rows, CLIP, NAMES)
        ReleaseBound(CLIP).check(self.rows, NAMES)

    def clips_now(self, _: int) -> None:
        self.rows[:] = self.updates
        self.mechanism.release(self.rows, self.total, 0, NAMES, self.memory)
        self.mechanism.check(self.rows, NAMES, self.memory)


def main() -> None:
    """Print the table."""
    print("| parameters | key | noise before | noise now | ratio | clips before | clips now | ratio | whole round |")
    print("|---|---|---|---|---|---|---|---|---|")
    for size in (46, 8769):
        for name, seed in (("seed", 1), ("secret", bytes(range(32)))):
            one = Round(size, seed)
            drawn = [1e6 * seconds(call) for call in (one.noise_before, one.noise_now)]
            clipped = [1e6 * seconds(call) for call in (one.clips_before, one.clips_now)]
            both = (drawn[1] + clipped[1]) / (drawn[0] + clipped[0])
            cells = [f"{before:,.1f} | {now:,.1f} | {now / before:.2f}" for before, now in (drawn, clipped)]
            print(f"| {size:,} | {name} | {' | '.join(cells)} | {both:.2f} |", flush=True)


if __name__ == "__main__":
    main()
