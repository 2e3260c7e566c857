"""Canary clients, which make one run auditable (Steinke, Nasr, Jagielski 2023; Andrew et al. 2024 for federations).

A canary is a client that sends, in each of its rounds, an update of the largest permitted norm in a secret direction. One
fair coin per canary, drawn before the run, decides whether it takes part. Afterwards the auditor estimates the coins from
the released sums; `bound` turns the number of right guesses into an ε.

No more than d directions of d parameters are orthogonal, and an audit needs hundreds of canaries. So the direction of a
canary changes every round: entry j of its update in round t is ±clip/√d with a sign addressed by (canary, t, j). Over T
rounds that is a code of length d·T, and two codes overlap by about 1/√(d·T). Honest sums change slowly with θ, so the
slowest waves over the rounds are removed from sums and codes. The rest of the honest updates and the noise are whitened by
their covariance, and the coins are estimated by ridge regression, the best linear estimate for coins of variance 1/4, which
also separates overlapping canaries.

The quality of the estimate decides only how much an audit finds. Its conclusion holds for any score, as long as the coins
are used for nothing but the run and the count of right guesses.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from quorank.errors import require, require_range
from quorank.kernels.arrays import Booleans, Doubles, Int8s, Uint64s
from quorank.kernels.compiled import kernel
from quorank.kernels.draws import philox
from quorank.privacy.audit.bound import epsilon_lower_bound
from quorank.privacy.streams import client_draws

COIN, CODE, PRESENCE = 0, 1, 2
"""The third word of the address, `interaction`, of a canary's coin, of its signs and of its coin in a round."""

SLOW_WAVES = 8  # cosines over the rounds, from the constant up, that count as honest; at most a quarter of the rounds
SPAN_BYTES = 1 << 24  # bytes of the codes of a span of rounds, which are recomputed when needed
PASSES = 3  # passes, each with a new estimate of the covariance without the canaries found so far
SHARES = (1.0, 0.2)  # shares of the canaries that are guessed, fixed in advance; an audit pays for each by Bonferroni


@dataclass(frozen=True, eq=False)
class Canaries:
    """m canaries of a run of T rounds with d parameters; `key` = key_of(seed, Purpose.CANARY) is their secret.

    An included canary is expected in every round; its score shrinks with random absences.
    """

    count: int  # m
    parameters: int  # d
    rounds: int  # T
    clip: float  # the norm of a canary's update
    key: Uint64s = field(repr=False)

    def __post_init__(self) -> None:
        require_range("canaries", self.count, least=1)

    @cached_property
    def included(self) -> Booleans:
        """Coins of the canaries, (m,)."""
        return self._draws(COIN, 0) < 0.5

    def updates(self, round_: int) -> Doubles:
        """Return (m, d) the updates of all canaries in a round, for both coins."""
        return self._codes(round_, round_ + 1).reshape(self.count, self.parameters)

    def contribution(self, round_: int, rate: float = 1.0) -> Doubles:
        """Return (d,) what the included canaries add to a round's sum if each takes part with probability `rate`."""
        there = self.included
        if rate < 1.0:
            there = there & (self._draws(PRESENCE, round_) < rate)
        return np.asarray(there @ self.updates(round_), dtype=np.float64)

    def scores(self, released: npt.ArrayLike) -> Doubles:
        """Estimate (m,) the coins, near 1 for in and 0 for out, from the released sums (T, d)."""
        sums = np.asarray(released, dtype=np.float64)
        require(np.isfinite(sums).all(), "audit.not-finite", "released sums must be finite numbers")
        waves = slow_waves(self.rounds)
        guessed = estimates = np.full(self.count, 0.5)
        for _ in range(PASSES):
            rest = self._without(sums, guessed, waves)
            covariance = _noise_covariance(rest, waves.shape[1], self.clip)
            estimates = guessed + self._ridge(rest, waves, covariance, guessed)
            guessed = np.clip(estimates, 0.0, 1.0)
        return estimates

    def _draws(self, kind: int, round_: int) -> Doubles:
        """Return one uniform draw of each canary, (m,)."""
        return client_draws(self.key, kind, round_, np.arange(self.count))

    def _codes(self, start: int, stop: int) -> Doubles:
        """Return the updates of a span of rounds, (canaries, rounds, d)."""
        out = np.empty((self.count, stop - start, self.parameters))
        _fill_codes(self.key, start, self.clip / math.sqrt(self.parameters), out)
        return out

    def _spans(self) -> Iterator[tuple[slice, Doubles]]:
        """Yield spans of rounds with their codes, of at most `SPAN_BYTES`."""
        step = max(1, SPAN_BYTES // (8 * self.count * self.parameters))
        for start in range(0, self.rounds, step):
            stop = min(start + step, self.rounds)
            yield slice(start, stop), self._codes(start, stop)

    def _without(self, sums: Doubles, guessed: Doubles, waves: Doubles) -> Doubles:
        """Subtract the guessed canaries from the sums, then the slow waves."""
        rest = sums.copy()
        for span, codes in self._spans():
            rest[span] -= np.tensordot(guessed, codes, 1)
        return np.asarray(rest - waves @ (waves.T @ rest), dtype=np.float64)

    def _ridge(self, rest: Doubles, waves: Doubles, covariance: Doubles, guessed: Doubles) -> Doubles:
        """Return argmin_s |rest − Σ s_i code_i|² in the metric of covariance⁻¹, plus 4|guessed + s − ½|²."""
        whiten = np.linalg.inv(np.linalg.cholesky(covariance)).T
        white, m = rest @ whiten, self.count
        gram, matched = 4.0 * np.eye(m), 4.0 * (0.5 - guessed)
        slow = np.zeros((m, waves.shape[1], self.parameters))
        for span, codes in self._spans():
            flat = (codes.reshape(-1, self.parameters) @ whiten).reshape(m, -1)
            gram += flat @ flat.T
            matched += flat @ white[span].ravel()
            slow += waves[span].T @ flat.reshape(codes.shape)
        flat = slow.reshape(m, -1)
        return np.asarray(np.linalg.solve(gram - flat @ flat.T, matched), dtype=np.float64)


def slow_waves(rounds: int) -> Doubles:
    """Return (T, waves) the orthonormal cosines cos(π·w·(t + ½)/T) of the lowest frequencies w = 0, 1, …."""
    count = min(SLOW_WAVES, rounds // 4)
    waves = np.cos(np.pi * np.arange(count) * (np.arange(rounds)[:, None] + 0.5) / rounds)
    return np.asarray(waves / np.linalg.norm(waves, axis=0), dtype=np.float64)


def _noise_covariance(rest: Doubles, waves: int, clip: float) -> Doubles:
    """Return the covariance (d, d) of a round's sum around its slow part, shrunk towards a multiple of I for few rounds.

    The multiple is the median eigenvalue, robust against a few directions of large variance. The floor, a millionth of a
    canary's variance, keeps the matrix invertible without noise.
    """
    free, d = rest.shape[0] - waves, rest.shape[1]
    measured = rest.T @ rest / free
    rank = min(free, d)
    level = max(0.0, float(np.median(np.linalg.eigvalsh(measured)[-rank:])) * rank / d)
    share = d / (d + free)
    covariance = (1.0 - share) * measured + (share * level + 1e-6 * clip**2 / d) * np.eye(d)
    return np.asarray(covariance, dtype=np.float64)


def guess_coins(scores: npt.ArrayLike, guesses: int) -> Int8s:
    """Guess the coins (m,): +1 "in" for high scores, −1 "out" for low ones, 0 for the scores nearest to the middle.

    The middle lies halfway between the medians of the upper and the lower half, so that separated scores are classified
    without error although the coins are not balanced exactly.
    """
    values = np.asarray(scores, dtype=np.float64)
    m = len(values)
    if guesses == 0:
        return np.zeros(m, dtype=np.int8)
    ordered = np.sort(values)
    middle = 0.5 * (np.median(ordered[: (m + 1) // 2]) + np.median(ordered[m // 2 :]))
    furthest = np.argsort(-np.abs(values - middle), kind="stable")[:guesses]
    answers = np.zeros(m, dtype=np.int8)
    answers[furthest] = np.where(values[furthest] >= middle, 1, -1)
    return answers


@dataclass(frozen=True)
class Audit:
    """Finding of an audit: ε is at least `epsilon`, at this δ and confidence; all guesses right would show `ceiling`."""

    epsilon: float
    ceiling: float
    delta: float
    confidence: float
    canaries: int
    guesses: int
    correct: int


def audit_coins(scores: npt.ArrayLike, included: npt.ArrayLike, delta: float, confidence: float = 0.95) -> Audit:
    """Return the best bound on ε from guessing `SHARES` of the coins `included` (m,) by the scores (m,).

    Each bound holds at confidence 1 − (1 − confidence)/shares, since the shares were chosen before the coins are seen.
    """
    coins = np.asarray(included, dtype=np.bool_)
    found, each, ceiling = [], 1.0 - (1.0 - confidence) / len(SHARES), 0.0
    for share in SHARES:
        guesses = min(len(coins), max(1, round(share * len(coins))))
        answers = guess_coins(scores, guesses)
        correct = int(np.sum(answers == np.where(coins, 1, -1)))
        ceiling = max(ceiling, epsilon_lower_bound(len(coins), guesses, guesses, delta, each))
        found.append((epsilon_lower_bound(len(coins), guesses, correct, delta, each), guesses, correct))
    epsilon, guesses, correct = max(found)
    return Audit(epsilon, ceiling, delta, confidence, len(coins), guesses, correct)


@kernel
def _fill_codes(key: Uint64s, start: int, size: float, out: Doubles) -> None:
    """Fill `out` with ±size by the bits of 128-bit blocks."""
    canaries, rounds, d = out.shape
    for i in range(canaries):
        for t in range(rounds):
            for base in range(0, d, 128):
                words = philox(base // 128, CODE, i, start + t, key[0], key[1])
                for j in range(min(128, d - base)):
                    bit = (words[j // 32] >> np.uint64(j % 32)) & np.uint64(1)
                    out[i, t, base + j] = size if bit else -size
