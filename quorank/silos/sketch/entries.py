"""An entry of a cell as one whole number, ordered as a cell keeps its entries.

31 bits of order (the larger, the longer kept), 31 bits that scatter the document's number, so that of equal values those
of documents chosen at random are kept, and in every row those of the same documents, and one bit for a negative value.
"""

from __future__ import annotations

from quorank.compiled import kernel

MASK = (1 << 31) - 1
_SHIFT = 16
_A, _B = 0x2C1B3C6D, 0x297A2D39  # odd, so that they have inverses modulo 2^31
_A_INVERSE, _B_INVERSE = pow(_A, -1, 1 << 31), pow(_B, -1, 1 << 31)
_OFFSET = 1 << 30

ABSOLUTE, POSITIVE, SIGNED = range(3)
"""What is kept: the largest |v| ≠ 0, the largest v > 0, or, as published, the largest v, zeros and negative ones too."""


@kernel
def scatter(document: int) -> int:
    """A one-to-one map of 0, …, 2^31 − 1 onto itself that leaves no order."""
    x = (document * _A) & MASK
    x ^= x >> _SHIFT
    return (x * _B) & MASK


@kernel
def gather(x: int) -> int:
    """The inverse of `scatter`."""
    x = (x * _B_INVERSE) & MASK
    x ^= x >> _SHIFT
    return (x * _A_INVERSE) & MASK


@kernel
def entry_of(value: int, scattered: int, kept: int) -> int:
    """The entry of a value, −1 if it is not kept at all."""
    if kept == SIGNED:
        return ((value + _OFFSET) << 32) | (scattered << 1)
    if value > 0:
        return (value << 32) | (scattered << 1)
    if value < 0 and kept == ABSOLUTE:
        return (-value << 32) | (scattered << 1) | 1
    return -1


@kernel
def value_of(entry: int, kept: int) -> int:
    """The value of an entry."""
    order = entry >> 32
    if kept == SIGNED:
        return order - _OFFSET
    return -order if entry & 1 else order


@kernel
def document_of(entry: int) -> int:
    """The document of an entry."""
    return gather((entry >> 1) & MASK)
