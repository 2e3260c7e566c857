"""Sums of many updates whose bits do not depend on the order of the clients.

Floating-point addition is not associative, so a sum over threads, chunks or arriving messages would change its last
bits with their order. Here each number is split into two integers, a coarse part in units of 2^-12 and the remainder
in units of 2^-52, and integers add up exactly: the same total for any order and any chunking, in memory that does not
grow with the number of clients. What a single number loses is below 2^-53.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from quorank.compiled import kernel
from quorank.errors import BadInput

Doubles = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

LARGEST = 2.0**36
"""A number beyond this is refused: 2^14 of them would reach the end of the coarse integers."""

_COARSE = 2.0**12
_FINE = 2.0**52


@kernel
def _add_rows(rows: Doubles, weights: Doubles, weighted: int, coarse: Integers, fine: Integers) -> int:
    """Add every row; returns −1, or the first row that holds a number which is not finite or too large."""
    for r in range(rows.shape[0]):
        bad = False
        for j in range(rows.shape[1]):
            bad |= not abs(rows[r, j] * weights[r]) < LARGEST
        if bad:
            return r
        for j in range(rows.shape[1]):
            x = rows[r, j] * (weights[r] if j < weighted else 1.0)
            high = np.rint(x * _COARSE)
            coarse[j] += np.int64(high)
            fine[j] += np.int64(np.rint((x - high / _COARSE) * _FINE))
    return -1


@dataclass(eq=False)
class ExactSum:
    """A running sum of rows of `size` numbers."""

    size: int
    coarse: Integers = field(init=False, repr=False)
    fine: Integers = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.coarse = np.zeros(self.size, dtype=np.int64)
        self.fine = np.zeros(self.size, dtype=np.int64)

    def add(self, rows: Doubles, weights: Doubles, weighted: int) -> None:
        """Add rows (n, size), the first `weighted` columns times the row's weight; refuses numbers beyond LARGEST."""
        bad = _add_rows(rows, weights, weighted, self.coarse, self.fine)
        if bad >= 0:
            raise BadInput(
                "an update holds a number that is not finite or is beyond 2^36: lower eta, or normalise the features "
                '(data.normalize = "query")'
            )

    def merge(self, other: ExactSum) -> None:
        """Add another running sum."""
        self.coarse += other.coarse
        self.fine += other.fine

    def value(self) -> Doubles:
        """The total, as floats."""
        return np.asarray(self.coarse / _COARSE + self.fine / _FINE, dtype=np.float64)
