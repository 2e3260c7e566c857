"""Sums of many updates whose bits do not depend on the order of the clients.

Floating-point addition is not associative, so a sum over threads, chunks or arriving messages would change its last
bits with their order. Here each number is split into two integers, a coarse part in units of 2^-12 and the remainder
in units of 2^-52, and integers add up exactly: the same total for any order and any chunking, in memory that does not
grow with the number of clients. What a single number loses is below 2^-53.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from quorank.arrays import Doubles, Integers
from quorank.compiled import kernel
from quorank.errors import BadInput

LARGEST = 2.0**36
"""A number beyond this is refused."""

ROOM = 2.0**50
"""The sum of the largest numbers of all rows may reach this: the coarse integers end at 2^51."""

_COARSE = 2.0**12
_FINE = 2.0**52


@kernel
def add_rows(
    rows: Doubles, weights: Doubles, weighted: int, coarse: Integers, fine: Integers
) -> tuple[int, float]:
    """Add every row: (−1, Σ of the rows' largest numbers), or (the first row with a number beyond LARGEST, …)."""
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
    """The number of which these are the parts, or the sums of the parts."""
    return coarse / _COARSE + fine / _FINE


@dataclass(eq=False)
class ExactSum:
    """A running sum of rows of `size` numbers."""

    size: int
    coarse: Integers = field(init=False, repr=False)
    fine: Integers = field(init=False, repr=False)
    reach: float = field(default=0.0, init=False, repr=False)  # no total can be larger

    def __post_init__(self) -> None:
        self.coarse = np.zeros(self.size, dtype=np.int64)
        self.fine = np.zeros(self.size, dtype=np.int64)

    def add(self, rows: Doubles, weights: Doubles, weighted: int, clients: Integers | None = None) -> None:
        """Add rows (n, size), the first `weighted` columns times the row's weight; refuses what would not be exact."""
        bad, reach = add_rows(rows, weights, weighted, self.coarse, self.fine)
        if bad >= 0:
            who = f"client {clients[bad]}" if clients is not None else f"row {bad}"
            raise BadInput(
                "update.not-summable",
                f"the update of {who} holds a number that is not finite or is beyond 2^36: lower eta, or normalise "
                'the features (data.normalize = "query")',
            )
        self._extend(reach)

    def _extend(self, reach: float) -> None:
        self.reach += reach
        if self.reach >= ROOM:
            raise BadInput(
                "update.not-summable",
                "the updates of this round are too large to be summed exactly (beyond 2^50): lower eta, or normalise "
                'the features (data.normalize = "query")',
            )

    def merge(self, other: ExactSum) -> None:
        """Add another running sum."""
        self.coarse += other.coarse
        self.fine += other.fine
        self._extend(other.reach)

    def value(self) -> Doubles:
        """The total, as floats."""
        return np.asarray(self.coarse / _COARSE + self.fine / _FINE, dtype=np.float64)
