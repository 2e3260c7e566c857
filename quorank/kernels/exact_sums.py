"""Exact sums of rows of doubles, whose bits do not depend on the order of the rows.

Floating-point addition is not associative, so a sum over threads, chunks or arriving messages would change its last
bits with their order. Each number is therefore split into two integers, a coarse part in units of 2^-12 and the remainder
in units of 2^-52, which add up exactly: the same total for any order and chunking, in constant memory. The rounding error
of a single number is below 2^-53.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from quorank.errors import BadInput
from quorank.kernels.arrays import Doubles, Integers
from quorank.kernels.compiled import kernel

LARGEST = 2.0**36  # bound on the magnitude of one number
LARGEST_SUM = 2.0**50  # bound on the sum of the largest numbers of all rows; the coarse integers end at 2^51

_COARSE = 2.0**12
_FINE = 2.0**52


@kernel
def add_rows(rows: Doubles, weights: Doubles, weighted: int, coarse: Integers, fine: Integers) -> tuple[int, float]:
    """Add every row; return (−1, Σ of the rows' largest numbers), or the first row with a number beyond LARGEST."""
    reach = 0.0
    for r in range(rows.shape[0]):
        largest = 0.0
        for j in range(rows.shape[1]):
            size = abs(rows[r, j] * weights[r])
            if not size < LARGEST:
                return r, reach
            largest = max(largest, size)
        reach += largest
        for j in range(rows.shape[1]):
            x = rows[r, j] * (weights[r] if j < weighted else 1.0)
            high = np.rint(x * _COARSE)
            coarse[j] += np.int64(high)
            fine[j] += np.int64(np.rint((x - high / _COARSE) * _FINE))
    return -1, reach


@kernel
def join(coarse: int, fine: int) -> float:
    """Return the number with these parts, or the total with these sums of parts."""
    return coarse / _COARSE + fine / _FINE


@dataclass(eq=False)
class ExactSum:
    """Running sum of rows of `size` numbers."""

    size: int
    coarse: Integers = field(init=False, repr=False)
    fine: Integers = field(init=False, repr=False)
    reach: float = field(default=0.0, init=False, repr=False)  # bound on the total

    def __post_init__(self) -> None:
        self.coarse = np.zeros(self.size, dtype=np.int64)
        self.fine = np.zeros(self.size, dtype=np.int64)

    def add(self, rows: Doubles, weights: Doubles, weighted: int, clients: Integers | None = None) -> None:
        """Add rows (n, size), the first `weighted` columns times the row's weight; reject numbers too large to be exact."""
        bad, reach = add_rows(rows, weights, weighted, self.coarse, self.fine)
        if bad >= 0:
            sender = f"client {clients[bad]}" if clients is not None else f"row {bad}"
            raise _not_summable(f"the update of {sender} holds a number that is not finite or is beyond 2^36")
        self._extend(reach)

    def _extend(self, reach: float) -> None:
        self.reach += reach
        if self.reach >= LARGEST_SUM:
            raise _not_summable("the updates of this round are too large to be summed exactly (beyond 2^50)")

    def merge(self, other: ExactSum) -> None:
        """Add another running sum."""
        self.coarse += other.coarse
        self.fine += other.fine
        self._extend(other.reach)

    def value(self) -> Doubles:
        """Return the total, (size,)."""
        return np.asarray(self.coarse / _COARSE + self.fine / _FINE, dtype=np.float64)


def _not_summable(fault: str) -> BadInput:
    advice = 'lower eta, or normalise the features (data.normalize = "query")'
    return BadInput("update.not-summable", f"{fault}: {advice}")
