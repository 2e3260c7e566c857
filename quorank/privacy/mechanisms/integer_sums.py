"""Secure sums: the part `SecureSum` and its mechanism, sums of integers modulo 2^32 under masks.

A client clips its update, multiplies it by a public scale, rounds it randomly and adds its share of the noise, if any: all
integers, so that masks cancel exactly (`skellam`).

An opened sum is used only if honest clients could have sent it: numbers and norm are bounded by the clip, the rounding and
the tail of the noise (`sum_bounds`). Otherwise an unknown client has lied, and the sum is dropped: a liar can stop a round,
and move a sum as far as the whole cohort.

With `groups` a liar moves less. The cohort is divided randomly into groups, each summed with the whole noise, and a robust
rule combines their means. A client is in one group, so ε is that of one sum; the noise on the mean of all groups is √groups
times as large.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np

from quorank.errors import BadInput, require, require_range
from quorank.kernels.arrays import Booleans, Doubles, Int8s, Integers, Uint32s
from quorank.kernels.draws import Purpose
from quorank.privacy.accounting import Setting
from quorank.privacy.mechanisms.clipping import clip_updates
from quorank.privacy.mechanisms.mechanism import Mechanism, Memory, Privacy, Sum
from quorank.privacy.mechanisms.skellam import TAIL, dequantise, quantise, quantised_norm_bound, scale_for, skellam_rows
from quorank.privacy.streams import Seed, client_draws, key_for

if TYPE_CHECKING:
    from quorank.privacy.secure_sum.graph import Neighbourhood

MOST_DROPOUTS = 0.3  # largest planned share of a cohort that leaves during a round

PROVIDED = "clients have pinned each other's identities, and not by the server's word"
"""Condition of the tolerated number of colluders: clients invented by a server count as colluders."""

OUT_OF_BOUNDS = "secure-sum.out-of-bounds"  # error code of an unused sum

BEFORE, AFTER = 1, 2
"""Times at which a client leaves: before sending its masked update, or after it and before unmasking."""


@dataclass(frozen=True)
class SecureSum(Privacy):
    """Secure sums without noise: the server learns Σ_c ⌊scale·u_c·min(1, C/‖u_c‖)⌉ modulo 2^32 and nothing else.

    ⌊·⌉ rounds randomly, keeping the mean. The sum itself is exact, so there is no ε.

    Args:
        clip: C, bound on the L2 norm of an update, 1e-9 to 1e9; decides the scale, so that a sum cannot wrap.
        masks: Whether every message of the protocol is played, or its sums only.
        dropouts: Share of a cohort that leaves during a round, 0 to 0.3; half of them before sending.
        groups: Groups of a cohort, whose means a rule combines; one by default.

    Raises:
        BadInput: `value.out-of-range` if a field is outside its range; from `mechanism`, `option.conflict` for cohorts of
            unknown size, or `secure-sum.too-few` for fewer than 2 clients in a sum.

    >>> SecureSum(clip=1.0, groups=4).sum_groups
    4
    """

    kind: ClassVar[str] = "secure-sum"
    hides_single_updates: ClassVar[bool] = True

    clip: float = 1.0
    masks: bool = True
    dropouts: float = 0.0
    groups: int | None = None

    def __post_init__(self) -> None:
        require_range("clip", self.clip, least=1e-9, most=1e9)
        require_range("groups", self.sum_groups, least=1)
        require_range("dropouts", self.dropouts, least=0.0, most=MOST_DROPOUTS)

    @property
    def sum_groups(self) -> int:  # type: ignore[override]
        return 1 if self.groups is None else self.groups

    @property
    def longest_update(self) -> float:  # type: ignore[override]
        return self.clip

    @property
    def sums_histograms(self) -> Literal["", "exact", "noisy"]:  # type: ignore[override]
        # the difference of two histograms needs the same clients in both
        return "exact" if self.sum_groups == 1 and self.dropouts == 0.0 else ""

    def without_masks(self) -> SecureSum:
        return replace(self, masks=False)

    def mechanism(self, setting: Setting, seed: Seed) -> IntegerSums:
        check_secure(setting, self.masks, self.dropouts, self.sum_groups)
        scale = scale_for(self.clip, -(-setting.cohort // self.sum_groups), 0.0)
        return IntegerSums(setting, seed, self.clip, scale, 0.0, self.masks, self.dropouts, self.sum_groups)


def check_secure(setting: Setting, masks: bool, dropouts: float, groups: int = 1) -> None:
    """Refuse a cohort of unknown size, or with fewer than 2 clients in a sum."""
    left = f"{setting.participation} leaves its size to chance: use full or sampled"
    sentence = f"secure sums are planned for a known cohort, and {left}"
    require(setting.known_size, "option.conflict", sentence, "privacy")
    sentence = "a secure sum needs a cohort of at least 2: the sum of one is its update"
    require(setting.cohort >= 2, "secure-sum.too-few", sentence, "privacy")
    sentence = f"{groups} groups of a cohort of {setting.cohort} have fewer than 2 clients each; lower groups"
    require(setting.cohort // groups >= 2, "secure-sum.too-few", sentence, "groups")
    if masks:
        for size in {setting.cohort // groups, -(-setting.cohort // groups)}:
            neighbourhood_of(size, dropouts)


@cache
def neighbourhood_of(cohort: int, dropouts: float) -> Neighbourhood:
    """Return the neighbourhood for up to four standard deviations more dropouts than the mean."""
    from quorank.privacy.secure_sum.graph import neighbours_for

    margin = 4.0 * math.sqrt(dropouts * (1.0 - dropouts) / cohort)
    return neighbours_for(cohort, max(0.05, dropouts + margin))


class OpenedSum(NamedTuple):
    """Opened sum of one group, modulo 2^32."""

    words: Uint32s
    present: int  # clients whose input is in it
    asked: int  # clients of the group
    plausible: bool  # honest clients could have sent it


@dataclass(frozen=True, eq=False)
class IntegerSums(Mechanism):
    """Clipped updates, scaled and rounded to integers, with their shares of the noise, summed under masks."""

    setting: Setting
    seed: Seed
    clip: float
    scale: float
    variance: float = 0.0  # of the noise on the whole sum, in integer units
    masks: bool = True
    dropouts: float = 0.0
    groups: int = 1
    # received vectors by round and client; None where only the sum is played
    _received: dict[int, dict[int, Uint32s | None]] = field(default_factory=dict, init=False, repr=False)

    @property
    def promise(self) -> str:  # type: ignore[override]
        if self.variance == 0.0:
            return "masked: the coordinator sees the sum of a cohort and no single update; the sum itself has no noise"
        return (
            "clipped, a share of the noise added here, masked: the coordinator sees a noisy sum and no single update; "
            f"the noise is complete if {self.least} clients of the sum send their share"
        )

    def unit_of(self, memory: Memory) -> float:
        return self.scale

    @property
    def size(self) -> int:
        """Planned clients of the smallest sum."""
        return self.setting.cohort // self.groups

    @property
    def _largest(self) -> int:
        """Planned clients of the largest sum."""
        return -(-self.setting.cohort // self.groups)

    @property
    def least(self) -> int:
        """Number of clients whose shares make up the noise: a safe lower bound on those of a sum that stay."""
        n, q = self.size, self.dropouts / 2.0
        return max(1, math.floor(n * (1.0 - q) - 6.0 * math.sqrt(n * q * (1.0 - q))))

    @property
    def signed_by(self) -> int:
        """Smallest number of survivors that clients sign: enough for the noise, and more than half."""
        return max(self.least, self._largest // 2 + 1, 2)

    def numbers(self, updates: Doubles, round_: int, clients: Integers) -> tuple[int, Integers]:
        """Return the number of updates within the clip, and all as integers with the clients' shares of noise."""
        within = clip_updates(updates, self.clip, clients)
        rounded = quantise(updates, self.scale, key_for(self.seed, Purpose.QUANTISATION), round_, clients)
        numbers = rounded.view(np.int32).astype(np.int64)
        if self.variance > 0.0:
            shares = np.empty_like(numbers)
            key = key_for(self.seed, Purpose.NOISE_SHARE)
            skellam_rows(key, round_, clients, self.variance / self.least, shares)
            numbers += shares
        return within, numbers

    def release(self, updates: Doubles, theta: Doubles, round_: int, clients: Integers, memory: Memory) -> int:
        within, numbers = self.numbers(updates, round_, clients)
        received = self._received.get(round_, {})
        self._received.clear()  # forgets an abandoned round
        kept = numbers.astype(np.uint32) if self._keeps_vectors else [None] * len(clients)
        self._received[round_] = received | dict(zip(clients.tolist(), kept, strict=True))
        numbers[self._leaving(clients, round_) == BEFORE] = 0
        updates[:] = numbers  # integers below 2^53: exact
        return within

    @property
    def _keeps_vectors(self) -> bool:
        return self.masks or self.groups > 1

    def resend(self, releases: Doubles, round_: int, clients: Integers) -> None:
        if self._keeps_vectors:
            words = releases.astype(np.int64).astype(np.uint32)
            self._received[round_].update(zip(clients.tolist(), words, strict=True))
        releases[self._leaving(clients, round_) == BEFORE] = 0.0

    def divide_cohort(self, clients: Integers, round_: int) -> list[Integers]:
        """Divide the cohort of a round randomly into groups whose sizes differ by at most one."""
        if self.groups == 1:
            return [clients]
        draws = client_draws(key_for(self.seed, Purpose.GROUP), 0, round_, clients)
        order = np.argsort(draws, kind="stable")
        return [np.sort(part) for part in np.array_split(clients[order], self.groups)]

    def companions(self, client: int, clients: Integers, round_: int) -> Booleans:
        own = [members for members in self.divide_cohort(clients, round_) if client in members]
        return np.isin(clients, own[0] if own else [])

    def reach(self, present: int, parameters: int) -> tuple[float, float]:
        """Return the bounds on number and L2 norm, in integer units, of a sum of `present` honest clients.

        Rounding takes a number of a clipped update to ⌈clip·scale⌉ at most, and its norm to `quantised_norm_bound`. The
        noise of standard deviation σ is within z = 10.6 σ on each number, and as long as (√parameters + z)·σ, but
        for 2^-80: the norm of Gaussian noise passes its mean by z standard deviations with probability at most
        exp(−z²/2), and Skellam noise of the standard deviations that `scale_for` leads to (beyond 1,000) differs from it
        there by less than a part in a hundred.
        """
        noise = self.noise_on(present)
        number = present * math.ceil(Fraction(self.clip) * Fraction(self.scale)) + math.ceil(TAIL * noise)
        length = present * quantised_norm_bound(self.clip, self.scale, parameters) + noise * (
            math.sqrt(parameters) + TAIL
        )
        return number, length

    def noise_on(self, present: int) -> float:
        """Return the standard deviation, in integer units, of the noise of `present` clients' shares."""
        return math.sqrt(self.variance * present / self.least)

    def judge(self, words: Uint32s, present: int, asked: int) -> OpenedSum:
        """Return an opened sum of `present` of the `asked` clients, plausible if honest clients could have sent it."""
        number, length = self.reach(present, len(words))
        values = words.view(np.int32).astype(np.float64)
        plausible = np.abs(values).max(initial=0.0) <= number and math.sqrt(values.dot(values)) <= length
        return OpenedSum(words, present, asked, bool(plausible))

    def finish(self, total: Doubles, weight: float, within: int, count: int, round_: int, memory: Memory) -> Sum:
        sent = self._received.pop(round_, {})
        clients = np.array(sorted(sent), dtype=np.int64)
        words = total.astype(np.int64).astype(np.uint32)
        opened = []
        for members in self.divide_cohort(clients, round_) if len(clients) else []:
            leaving = self._leaving(members, round_)
            if self.groups > 1:
                vectors = [sent[c] for c in members[leaving != BEFORE].tolist()]
                words = sum((v for v in vectors if v is not None), start=np.zeros(len(total), dtype=np.uint32))
            opened.append(self._open_group({c: sent[c] for c in members.tolist()}, members, leaving, round_, words))
        return self.combine(opened, len(total), memory)

    def _open_group(
        self, sent: dict[int, Any], clients: Integers, leaving: Int8s, round_: int, words: Uint32s
    ) -> OpenedSum | None:
        """Return the sum of one group; None if too few clients stay, so that the noise would be incomplete."""
        present = int(np.count_nonzero(leaving != BEFORE))
        if present == 0 or (self.variance > 0.0 and present < self.least):
            return None
        if self.masks:
            from quorank.privacy.secure_sum.in_process import secure_sum
            from quorank.privacy.secure_sum.server import RoundFailed

            try:
                result = secure_sum(
                    sent,
                    round_=round_,
                    session=b"quorank simulation",
                    neighbourhood=neighbourhood_of(len(clients), self.dropouts),
                    dropped_before=clients[leaving == BEFORE].tolist(),
                    dropped_after=clients[leaving == AFTER].tolist(),
                )
            except RoundFailed:
                return None
            if not np.array_equal(result.total, words):
                raise RuntimeError("the masks of a secure sum did not cancel: this is a fault of Quorank")
        return self.judge(words, present, len(clients))

    def combine(self, opened: Sequence[OpenedSum | None], parameters: int, memory: Memory) -> Sum:
        """Return the sum of a round from its groups, without failed and implausible ones.

        Without any group the ranker stays as it is. An opened sum counts as a release in any case.
        """
        seen = [one for one in opened if one is not None]
        used = [one for one in seen if one.plausible]
        dropped = (OUT_OF_BOUNDS,) * (len(seen) - len(used))
        noise = math.sqrt(sum(self.noise_on(one.present) ** 2 for one in used or seen)) / self.scale
        clip, present = self.clip if seen else 0.0, sum(one.present for one in used or seen)
        if not used:
            return Sum(np.zeros(parameters), 1.0, memory, clip, noise, present, dropped=dropped, stays=True)
        means, sizes = None, np.array([one.asked if self.variance > 0.0 else one.present for one in used], np.float64)
        totals = np.array([dequantise(one.words, self.scale) for one in used])
        weight = float(self.setting.cohort if self.variance > 0.0 and len(used) == self.groups else sizes.sum())
        if self.groups > 1:
            means = totals / sizes[:, None]
        total = totals[0] if len(used) == 1 else totals.sum(axis=0)
        return Sum(total, weight, memory, clip, noise, present, means, sizes, dropped)

    def _leaving(self, clients: Integers, round_: int) -> Int8s:
        out = np.zeros(len(clients), dtype=np.int8)
        if self.dropouts > 0.0:
            draws = client_draws(key_for(self.seed, Purpose.DROPOUT), 0, round_, clients)
            out[draws < self.dropouts] = AFTER
            out[draws < self.dropouts / 2.0] = BEFORE
        return out

    @cached_property
    def collusion(self) -> dict[str, Any]:
        """Tolerated numbers of colluding clients of one sum, with and without the server."""
        from quorank.privacy.secure_sum.graph import tolerated_colluders

        try:
            sizes = {self.size, self._largest}
            with_server = min(tolerated_colluders(size, self.plan, self.signed_by) for size in sizes)
        except BadInput:  # of a cohort that is played without masks
            with_server = 0
        alone = max(0, self.signed_by - 2)
        return {"clients": self.size, "with_server": with_server, "without_server": alone, "provided": PROVIDED}

    @property
    def plan(self) -> Neighbourhood:
        """Neighbourhood of a sum on a network, the same for groups whose sizes differ by one."""
        small, large = (neighbourhood_of(n, self.dropouts) for n in (self.size, self._largest))
        return replace(large, threshold=max((large.neighbours + 1) // 2 + 1, min(small.threshold, large.threshold)))

    def statement(self, rounds: int | None = None) -> dict[str, Any] | None:
        done = self.setting.rounds if rounds is None else rounds
        warning = "the server sees sums only, but a sum without noise has no ε: its leak about a client is unbounded"
        stated = self.setting.stated(SecureSum.kind, "secure sums", done, None)
        grouped = {"groups": self.groups} if self.groups > 1 else {}
        return stated | {"clip": self.clip, "warning": warning, "collusion": self.collusion} | grouped


def secure_sums(mechanism: Mechanism) -> IntegerSums:
    """Return the mechanism of secure sums; refuse any other with `secure-sum.none`."""
    require(isinstance(mechanism, IntegerSums), "secure-sum.none", "this run's privacy is no secure sum")
    assert isinstance(mechanism, IntegerSums)
    return mechanism
