"""Factorisations that correlate Gaussian noise over the rounds of a run, when every client is in every round.

The server adds up the cohorts' sums x₁, …, x_T; prefix sums are A x with A the lower triangle of ones. A factorisation
A = B C releases B(C x + z) with independent Gaussian z (Denisov et al. 2022, "Improved Differential Privacy for SGD via
Optimal Private Linear Operators on Adaptive Streams"; Choquette-Choo et al. 2023, "Multi-Epoch Matrix Factorization
Mechanisms for Private Machine Learning"). It is the same to add row t of C⁻¹ z to the sum of round t, which is what
`Factor.noise` gives, in whole numbers. With z of standard deviation σ · sensitivity · clip, the whole run is one
Gaussian release of noise multiplier σ, for clients that are there or not, with any updates of L2 norm at most clip,
chosen adaptively.

Four factors: `independent` (C = I), `tree` (the binary counter of Chan, Shi, Song 2011, as in Kairouz et al. 2021,
"Practical and Private (Deep) Learning without Sampling or Shuffling"; only the blocks that a prefix can need),
`square-root` (C = A^½, Fichtenberger, Henzinger, Upadhyay 2023, "Constant Matters"), and `optimal`, the least mean
squared error of the prefixes that any factorisation can have with everyone in every round. It is diagonal: noise
that is independent over the rounds, on a schedule. docs/privacy/correlated-noise.md has the proof and the measurements.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from quorank.errors import BadInput, require, require_range, suggest
from quorank.kernels.arrays import Doubles, Integers
from quorank.privacy.mechanisms.discrete_gaussian import discrete_gaussian
from quorank.privacy.streams import Key

Kind = Literal["independent", "tree", "square-root", "optimal"]
KINDS: tuple[str, ...] = get_args(Kind)


@dataclass(frozen=True)
class Factor:
    """The factor C of a run of T rounds, by its rows: nothing of size T² is kept. Rounds count from 0."""

    kind: str
    rounds: int  # T

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            known = f"{suggest(self.kind, KINDS)}; known: {', '.join(KINDS)}"
            raise BadInput("factor.unknown", f"unknown factor {self.kind!r}{known}")
        require_range("rounds", self.rounds, least=1)

    @property
    def sensitivity(self) -> float:
        """How far one client that is in every round, with updates of norm 1, can move C x.

        No entry of these factors is negative, nor of CᵀC, so it is (1ᵀCᵀC1)^½ = ‖C1‖, from the sums of C's rows.
        """
        steps = np.arange(1, self.rounds + 1)
        sums = np.ones(self.rounds)
        if self.kind == "square-root":
            sums = np.cumsum(square_root_coefficients(self.rounds))
        elif self.kind == "tree":
            sums = (steps & -steps).astype(np.float64)
        elif self.kind == "optimal":
            sums = np.sqrt(np.sqrt(steps))
        return float(np.linalg.norm(sums))

    def row(self, round_: int) -> Doubles:
        """Return row `round_` of C, up to the diagonal: how the sums so far enter what is noised in this round."""
        self._check(round_)
        row = np.zeros(round_ + 1)
        if self.kind == "square-root":
            return square_root_coefficients(round_ + 1)[::-1].copy()
        if self.kind == "tree":
            row[round_ + 1 - lowest_bit(round_ + 1) :] = 1.0
        else:
            row[round_] = self._diagonal(round_)
        return row

    def inverse_row(self, round_: int) -> Doubles:
        """Return row `round_` of C⁻¹, up to the diagonal: how z so far enters the noise of this round's sum."""
        self._check(round_)
        row = np.zeros(round_ + 1)
        if self.kind == "square-root":
            return inverse_square_root_coefficients(round_ + 1)[::-1].copy()
        if self.kind == "tree":
            row[tree_children(round_ + 1)] = -1.0
        row[round_] = 1.0 / self._diagonal(round_)
        return row

    def noise(self, round_: int, size: int, key: Key, sigma: float) -> Integers:
        """Draw (size,) whole numbers to add to this round's sum: row `round_` of C⁻¹ z, z discrete Gaussian of deviation σ.

        z_s is drawn anew from its address, round s, each time that it is needed. So nothing has to be stored and
        a resumed run has the same noise; a round costs one draw of z for each entry of its row that is not zero. The
        noise of earlier rounds is rounded to whole numbers, the round's own is whole: see `rounding`.
        """
        row = self.inverse_row(round_)
        earlier, drawn = np.zeros(size), np.empty(size, dtype=np.int64)
        for s in np.flatnonzero(row[:-1]).tolist():
            discrete_gaussian(key, s, 0, sigma, drawn)
            earlier += row[s] * drawn
        discrete_gaussian(key, round_, 0, sigma * row[-1], drawn)
        drawn += np.rint(earlier).astype(np.int64)
        return drawn

    def rounding(self, sigma: float) -> float:
        """Return by how much, in units, rounding in `noise` can differ between two z that explain the same released sums.

        Released is x_t + z_t + f_t(z_1, …, z_(t−1)), where f_t is the rest of row t of C⁻¹ z but for ρ_t. Two runs with
        sums x and x' that release the same have C⁻¹(z − z') = (x' − x) + (ρ' − ρ): a client moves z as if each number of
        its update could be longer by |ρ' − ρ|. Where C⁻¹ is whole, or diagonal, ρ = 0. Else f_t rounds to whole numbers, by
        at most ½, after a sum in float64 of up to T products, whose coefficients have an error as well: together at most
        2(T + 2)·2^-53·Σ|z|·|row|, with |z| < 64σ and Σ|row| < 2.
        """
        return 1.0 + (self.rounds + 2) * 2.0**-44 * sigma if self.kind == "square-root" else 0.0

    def own_share(self, round_: int) -> float:
        """Return how z of the round itself enters the noise of its sum: the diagonal of C⁻¹."""
        return 1.0 / self._diagonal(round_)

    def noise_std(self, round_: int) -> float:
        """Return the standard deviation of `noise` in this round for std = 1: the norm of row `round_` of C⁻¹."""
        return float(np.linalg.norm(self.inverse_row(round_)))

    def prefix_errors(self) -> Doubles:
        """Compute (rounds,) the variance of each prefix's error, in one coordinate, for σ · clip = 1.

        It is sensitivity² · ‖row t of A C⁻¹‖². The rows of B = A C⁻¹ are running sums of the rows of C⁻¹.
        """
        errors, running = np.empty(self.rounds), np.zeros(self.rounds)
        for t in range(self.rounds):
            running[: t + 1] += self.inverse_row(t)
            errors[t] = running[: t + 1] @ running[: t + 1]
        return errors * self.sensitivity**2

    def _diagonal(self, round_: int) -> float:
        return (self.rounds - round_) ** 0.25 if self.kind == "optimal" else 1.0

    def _check(self, round_: int) -> None:
        sentence = f"round {round_} is not one of the {self.rounds} rounds that this noise was planned for"
        require(0 <= round_ < self.rounds, "value.out-of-range", sentence)


def sensitivity(c: Doubles) -> float:
    """Compute how far one client in every round with updates of norm ≤ 1 can move C x: at most (Σ|CᵀC|)^½.

    It is reached, by one update repeated, when no entry of CᵀC is negative (Choquette-Choo et al. 2023); else it is
    a bound on the safe side.
    """
    return float(np.sqrt(np.abs(c.T @ c).sum()))


def square_root_coefficients(count: int) -> Doubles:
    """Return binom(2k, k)/4^k for k = 0, 1, …: the series of (1 − x)^−½ and the diagonals of A^½."""
    k = np.arange(1, count)
    return np.concatenate(([1.0], np.cumprod(1.0 - 0.5 / k)))


def inverse_square_root_coefficients(count: int) -> Doubles:
    """Return −binom(2k, k)/(4^k (2k − 1)) for k = 0, 1, …: the series of (1 − x)^½ and the diagonals of A^−½."""
    k = np.arange(1, count)
    return np.concatenate(([1.0], np.cumprod(1.0 - 1.5 / k)))


def lowest_bit(t: int) -> int:
    """Return the largest power of two that divides t: the length of the binary counter's block that ends with step t."""
    return t & -t


def tree_children(t: int) -> list[int]:
    """Return the 0-based rounds whose blocks make up, with step t itself, the block that ends with step t (from 1)."""
    children, last = [], t - 1
    while last > t - lowest_bit(t):
        children.append(last - 1)
        last -= lowest_bit(last)
    return children
