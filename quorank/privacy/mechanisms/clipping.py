"""Clipping of updates to an L2 norm, which bounds their contribution to a sum, and their rounding to integers.

On the grid an update is a vector of integers in units of 1/unit, rounded towards zero. Its squared norm is an integer below
2^52, which float64 computes exactly: the bound on a client's contribution holds to the last bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from quorank.errors import BadInput
from quorank.kernels.arrays import Doubles, Integers
from quorank.kernels.compiled import kernel

CLIP_BITS, SUM_BITS = 26, 49
"""A clip is below 2^26 units and the sum of a planned cohort below 2^49, so sums and squares are exact."""

SLACK = 1.0 + 1e-9  # factor by which a clipped update may exceed the clip through rounding


@kernel
def norm(vector: Doubles) -> float:
    """Compute ‖vector‖₂ in a fixed order, so that its bits do not depend on the machine."""
    total = 0.0
    for j in range(len(vector)):
        total += vector[j] * vector[j]
    return math.sqrt(total)


@kernel
def _clip_rows(updates: Doubles, clip: float) -> tuple[int, int]:
    """Scale every row by min(1, clip/‖u‖); return (rows within the clip, −1 or the first row that is not finite)."""
    within = 0
    for i in range(updates.shape[0]):
        length = norm(updates[i])
        if not length < np.inf:
            return within, i
        if length <= clip:
            within += 1
        else:
            for j in range(updates.shape[1]):
                updates[i, j] *= clip / length
    return within, -1


def clip_updates(updates: Doubles, clip: float, clients: Integers) -> int:
    """Clip updates (clients, parameters) in place; return the number within the clip, refuse non-finite ones."""
    within, bad = _clip_rows(updates, clip)
    if bad >= 0:
        raise not_finite(int(clients[bad]))
    return within


def grid_unit(clip: float, cohort: int) -> float:
    """Return the largest power of two with clip·unit < 2^26 and cohort·clip·unit ≤ 2^49."""
    bits = min(CLIP_BITS, SUM_BITS - (cohort - 1).bit_length())
    return math.ldexp(1.0, min(1000, bits - math.frexp(clip)[1]))


@kernel
def _to_grid(updates: Doubles, unit: float, longest: float) -> None:
    """Round |u|·unit down, keeping signs; a row that exceeds the norm by float64 rounding is reduced."""
    for i in range(updates.shape[0]):
        factor, square = unit, np.inf
        while square > longest * longest:
            even, odd = 0.0, 0.0  # sums of integers below 2^53: exact in any order
            for j in range(0, updates.shape[1] - 1, 2):
                one, two = float(np.int64(updates[i, j] * factor)), float(np.int64(updates[i, j + 1] * factor))
                even += one * one
                odd += two * two
                updates[i, j], updates[i, j + 1] = one, two
            if updates.shape[1] % 2 == 1:
                last = float(np.int64(updates[i, -1] * factor))
                even += last * last
                updates[i, -1] = last
            square, factor = even + odd, 1.0 - 2.0**-30


def clip_to_grid(updates: Doubles, clip: float, unit: float, clients: Integers) -> int:
    """Clip updates (clients, parameters) and round them to integers of 1/unit in place; return the number within the clip.

    The norm of the integers is at most ⌊clip·unit⌋, exactly.
    """
    within = clip_updates(updates, clip, clients)
    _to_grid(updates, unit, math.floor(clip * unit))
    return within


def not_finite(client: int) -> BadInput:
    """Return the error for a non-finite update."""
    advice = 'lower eta, or normalise the features (data.normalize = "query")'
    sentence = f"the update of client {client} holds a number that is not finite: it is refused; {advice}"
    return BadInput("update.not-finite", sentence)


@dataclass(frozen=True)
class ReleaseBound:
    """Bounds of an honest release: its norm, and whether it consists of integers of 1/unit."""

    clip: float  # C, of the update
    unit: float = 1.0  # factor between update and release
    integers: bool = False

    def check(self, releases: Doubles, clients: Integers) -> None:
        """Refuse releases (clients, parameters) beyond the bounds, exactly for integers, naming the client.

        Plain NumPy: intake workers check every reply, and Numba would triple their memory.
        """
        longest = math.floor(self.clip * self.unit) if self.integers else self.clip * self.unit * SLACK
        with np.errstate(over="ignore", invalid="ignore"):
            fits = np.einsum("ij,ij->i", releases, releases) <= longest * longest  # exact for integers, False for NaN
        whole = (np.trunc(releases) == releases).all(axis=1) if self.integers else fits
        if (fits & whole).all():
            return
        at = int(np.argmin(fits & whole))
        client = int(clients[at])
        if not np.isfinite(releases[at]).all():
            raise not_finite(client)
        if fits[at]:
            sentence = (
                f"the update of client {client} does not consist of integers of 2^{-round(math.log2(self.unit))}; install "
                "the same version on both sides"
            )
            raise BadInput("update.not-whole", sentence)
        length = math.hypot(*releases[at].tolist()) / self.unit
        sentence = f"the update of client {client} has norm {length:.6g}, longer than the clip {self.clip:.6g}"
        raise BadInput("update.longer-than-clip", sentence)
