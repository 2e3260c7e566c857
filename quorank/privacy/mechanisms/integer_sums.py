"""Secure sums: the part `SecureSum` and its mechanism, sums of whole numbers modulo 2^32 under masks.

A client clips its update, multiplies it by a public scale, rounds it at random and, where noise is asked for, adds its
share of it: all whole numbers, so that masks cancel exactly. The noise is Skellam, which is closed under addition: n
shares of variance σ²/n are exactly one draw of variance σ², so noise by the clients and by the coordinator have the
same distribution.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from quorank.arrays import Doubles, Int8s, Integers, Uint32s
from quorank.compiled import kernel
from quorank.draws import Purpose
from quorank.errors import require, require_range
from quorank.privacy.mechanisms.clipping import clip_updates
from quorank.privacy.mechanisms.discrete_noise import skellam, skellam_rows
from quorank.privacy.mechanisms.mechanism import Mechanism, Memory, Privacy, Sum
from quorank.privacy.mechanisms.quantise import dequantise, quantise, scale_for
from quorank.privacy.setting import Setting
from quorank.privacy.streams import Key, Seed, key_for, uniform_pair

if TYPE_CHECKING:
    from quorank.privacy.secure_sum.graph import Neighbourhood

MOST_DROPOUTS = 0.3
"""The largest share of a cohort that may be planned to leave during a round."""


@dataclass(frozen=True)
class SecureSum(Privacy):
    """Secure sums without noise: the server sees nothing but the sum of a cohort, and there is no ε."""

    kind: ClassVar[str] = "secure-sum"

    clip: float = 1.0  # on the L2 norm of an update, so that a sum cannot wrap
    masks: bool = True  # play every message of the protocol; without, only its sums
    dropouts: float = 0.0  # the share of a cohort that leaves during a round, half of them before sending

    def __post_init__(self) -> None:
        require_range("clip", self.clip, least=1e-9, most=1e9)
        require_range("dropouts", self.dropouts, least=0.0, most=MOST_DROPOUTS)

    @property
    def hides_single_updates(self) -> bool:
        return True

    @property
    def longest_update(self) -> float:
        return self.clip

    def without_masks(self) -> SecureSum:
        return replace(self, masks=False)

    def mechanism(self, setting: Setting, seed: Seed) -> IntegerSums:
        """Return the mechanism of one run, with its noise drawn under a seed or secret."""
        check_secure(setting, self.masks, self.dropouts)
        scale = scale_for(self.clip, setting.cohort, 0.0)
        return IntegerSums(setting, seed, self.clip, scale, masks=self.masks, dropouts=self.dropouts)


def check_secure(setting: Setting, masks: bool, dropouts: float) -> None:
    """Refuse a setting that secure sums cannot have: a cohort of unknown size, or of one."""
    sentence = "secure sums are planned for a known cohort, and poisson leaves its size to chance: use full or sampled"
    require(setting.participation != "poisson", "option.conflict", sentence, "privacy")
    sentence = "a secure sum needs a cohort of at least 2: the sum of one is its update"
    require(setting.cohort >= 2, "secure-sum.too-few", sentence, "privacy")
    if masks:
        neighbourhood_of(setting.cohort, dropouts)


@cache
def neighbourhood_of(cohort: int, dropouts: float) -> Neighbourhood:
    """Return who holds whose shares when more leave than on average: up to four standard deviations above the mean."""
    from quorank.privacy.secure_sum.graph import neighbours_for

    margin = 4.0 * math.sqrt(dropouts * (1.0 - dropouts) / cohort)
    return neighbours_for(cohort, max(0.1, dropouts + margin))


@dataclass(frozen=True, eq=False)
class IntegerSums(Mechanism):
    """Updates clipped, scaled, rounded to whole numbers, with their share of the noise, and summed under masks."""

    setting: Setting
    seed: Seed
    clip: float
    scale: float
    variance: float = 0.0  # of the noise on the whole sum, in integer units
    noise_by: Literal["clients", "coordinator"] = "clients"
    masks: bool = True
    dropouts: float = 0.0
    # what came in, by round and client: its vector, or None where only the sums are played
    _came: dict[int, dict[int, Uint32s | None]] = field(default_factory=dict, init=False, repr=False)

    @property
    def unit(self) -> float:
        return self.scale

    @cached_property
    def _keys(self) -> dict[Purpose, Key]:
        purposes = (Purpose.QUANTISATION, Purpose.NOISE_SHARE, Purpose.NOISE, Purpose.DROPOUT)
        return {purpose: key_for(self.seed, purpose) for purpose in purposes}

    @property
    def least(self) -> int:
        """The clients on whose shares the noise rests: those who are expected to stay, and a margin below that."""
        n, q = self.setting.cohort, self.dropouts / 2.0
        return max(1, math.floor(n * (1.0 - q) - 6.0 * math.sqrt(n * q * (1.0 - q))))

    def numbers(self, updates: Doubles, round_: int, clients: Integers) -> tuple[int, Integers]:
        """Return how many updates were within the clip, and all as whole numbers with the clients' shares of noise."""
        within = clip_updates(updates, self.clip, clients)
        rounded = quantise(updates, self.scale, self._keys[Purpose.QUANTISATION], round_, clients)
        numbers = rounded.view(np.int32).astype(np.int64)
        if self.variance > 0.0 and self.noise_by == "clients":
            shares = np.empty_like(numbers)
            skellam_rows(self._keys[Purpose.NOISE_SHARE], round_, clients, self.variance / self.least, shares)
            numbers += shares
        return within, numbers

    def release(self, updates: Doubles, theta: Doubles, round_: int, clients: Integers, memory: Memory) -> int:
        within, numbers = self.numbers(updates, round_, clients)
        came = self._came.setdefault(round_, {})
        for other in [known for known in self._came if known != round_]:  # of a round that came to nothing
            del self._came[other]
        vectors = numbers.astype(np.uint32) if self.masks else [None] * len(clients)
        came.update(zip(clients.tolist(), vectors, strict=True))
        numbers[self._leaving(clients, round_) == BEFORE] = 0
        updates[:] = numbers  # whole numbers below 2^53: exact
        return within

    def finish(self, total: Doubles, weight: float, within: int, count: int, round_: int, memory: Memory) -> Sum:
        from quorank.privacy.secure_sum.server import RoundFailed

        sent = self._came.pop(round_, {})
        clients = np.array(sorted(sent), dtype=np.int64)
        leaving = self._leaving(clients, round_)
        present = int(np.count_nonzero(leaving != BEFORE))
        words = total.astype(np.int64).astype(np.uint32)
        # where a sum fails nothing is revealed, and the ranker stays as it is
        failed = Sum(np.zeros(len(total)), 1.0, memory, 0.0, 0.0, 0)
        if present == 0 or (self.variance > 0.0 and self.noise_by == "clients" and present < self.least):
            return failed  # the noise would lack shares that it rests on
        if self.masks:
            try:
                words = self._masked(sent, clients, leaving, round_, words)
            except RoundFailed:
                return failed
        if self.variance > 0.0 and self.noise_by == "coordinator":
            noise = np.empty(len(words), dtype=np.int64)
            skellam(self._keys[Purpose.NOISE], round_, 0, self.variance, noise)
            words = words + noise.astype(np.uint32)
        planned = self.setting.cohort if self.variance > 0.0 else max(present, 1)
        shares = present / self.least if self.noise_by == "clients" else 1.0
        noise_std = math.sqrt(self.variance * shares / self.scale**2)
        return Sum(dequantise(words, self.scale), float(planned), memory, self.clip, noise_std, present)

    def _masked(
        self, sent: dict[int, Any], clients: Integers, leaving: Int8s, round_: int, expected: Uint32s
    ) -> Uint32s:
        """Play the protocol with every message; its sum must be the plain one."""
        from quorank.privacy.secure_sum.in_process import secure_sum

        result = secure_sum(
            sent,
            round_=round_,
            session=b"quorank simulation",
            neighbourhood=neighbourhood_of(len(clients), self.dropouts),
            dropped_before=clients[leaving == BEFORE].tolist(),
            dropped_after=clients[leaving == AFTER].tolist(),
        )
        if not np.array_equal(result.total, expected):
            raise RuntimeError("the masks of a secure sum did not cancel: this is a fault of Quorank")
        return result.total

    def _leaving(self, clients: Integers, round_: int) -> Int8s:
        out = np.zeros(len(clients), dtype=np.int8)
        if self.dropouts > 0.0:
            _draw_leaving(self.dropouts, self._keys[Purpose.DROPOUT], round_, clients, out)
        return out

    def statement(self, rounds: int | None = None) -> dict[str, Any] | None:
        done = self.setting.rounds if rounds is None else rounds
        warning = "the server sees sums only, but a sum without noise has no ε: what it says of a client is unbounded"
        stated = self.setting.stated(SecureSum.kind, "secure sums", done, None)
        return stated | {"clip": self.clip, "warning": warning}


BEFORE, AFTER = 1, 2
"""When a client leaves: before it sends its masked update, or after, before it helps to unmask the others."""


@kernel
def _draw_leaving(dropouts: float, key: Key, round_: int, clients: Integers, out: Int8s) -> None:
    for i in range(len(clients)):
        u, _ = uniform_pair(key, 0, 0, clients[i], round_)
        if u < dropouts:
            out[i] = 1 if u < dropouts / 2.0 else 2
