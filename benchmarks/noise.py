"""Cost of noise in whole numbers, against noise in float64 as it was: what a round of `gaussian` adds to learning.

    python benchmarks/noise.py

A round clips the updates of 1,000 clients and draws the noise on their sum, for 46 and 8,769 parameters, under a seed
(simulations) and under a secret (deployments). Prints Markdown, in microseconds, and the ratio of now to before.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from quorank.arrays import Doubles
from quorank.compiled import kernel
from quorank.draws import Purpose, normal_pair
from quorank.privacy import ClippedGaussian, Setting
from quorank.privacy.mechanisms.clipping import SLACK, clip_updates
from quorank.privacy.streams import Key, key_for, uniform_pair

CLIENTS, CLIP, MULTIPLIER = 1000, 0.05, 8.0


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


def main() -> None:
    """Print the table."""
    print("| parameters | key | noise before | noise now | ratio | clips before | clips now | ratio | whole round |")
    print("|---|---|---|---|---|---|---|---|---|")
    names = np.arange(CLIENTS)
    for size in (46, 8769):
        raw = np.random.default_rng(1).normal(size=(CLIENTS, size)) * 0.01
        rows = raw.copy()
        for name, seed in (("seed", 1), ("secret", bytes(range(32)))):
            part = ClippedGaussian(noise_multiplier=MULTIPLIER, clip=CLIP)
            mechanism = part.mechanism(Setting(CLIENTS, CLIENTS, 300, parameters=size), seed)
            memory, total, key = mechanism.start(), np.zeros(size), key_for(seed, Purpose.NOISE)

            def noise_before(
                round_: int, key: Key = key, total: Doubles = total, noise: Doubles = np.empty(size)  # noqa: B008
            ) -> Doubles:
                fill_normal(key, round_, noise)
                return np.asarray(total + MULTIPLIER * CLIP * noise)

            def noise_now(round_: int, mechanism=mechanism, total=total, memory=memory) -> object:  # type: ignore[no-untyped-def]
                return mechanism.finish(total, 0.0, 0, CLIENTS, round_, memory)

            def clips_before(_: int) -> None:
                rows[:] = raw
                clip_updates(rows, CLIP, names)
                assert (np.sqrt(np.einsum("ij,ij->i", rows, rows)) <= CLIP * SLACK).all()

            def clips_now(_: int, mechanism=mechanism, memory=memory) -> None:  # type: ignore[no-untyped-def]
                rows[:] = raw
                mechanism.release(rows, rows[0], 0, names, memory)
                mechanism.check(rows, names, memory)

            drawn = [1e6 * seconds(call) for call in (noise_before, noise_now)]
            clipped = [1e6 * seconds(call) for call in (clips_before, clips_now)]
            both = (drawn[1] + clipped[1]) / (drawn[0] + clipped[0])
            cells = [f"{before:,.1f} | {now:,.1f} | {now / before:.2f}" for before, now in (drawn, clipped)]
            print(f"| {size:,} | {name} | {' | '.join(cells)} | {both:.2f} |", flush=True)


if __name__ == "__main__":
    main()
