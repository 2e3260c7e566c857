"""Proportions and reading of an RTK-Sketch, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from quorank.errors import require
from quorank.silos.sketch.entries import ABSOLUTE, POSITIVE, SIGNED
from quorank.silos.sketch.hashing import Hashing


@dataclass(frozen=True)
class Shape:
    """Proportions and reading of an RTK-Sketch; `Shape()` is the recommended one for K = 150."""

    kind: ClassVar[str] = "reverse-top-k"

    sketch: Literal["count", "count-min"] = "count"
    reading: Literal["recommended", "literal"] = "recommended"
    rows: int = 2  # z
    columns: int = 12_288  # w
    capacity: int = 2_000  # most entries of a cell (published: αK)
    entries: int = 4_500_000  # most entries of all cells together (published: z·w·αK)
    beta: float = 0.1  # β: share of the rows in which a candidate must stand, literal reading only

    def __post_init__(self) -> None:
        require(
            self.sketch in ("count", "count-min"),
            f"sketch must be 'count' or 'count-min', got {self.sketch!r}",
        )
        require(
            self.reading in ("recommended", "literal"),
            f"reading must be 'recommended' or 'literal', got {self.reading!r}",
        )
        Hashing(bytes(16), self.rows, self.columns)
        require(2 <= self.capacity <= 2**24, f"capacity must be from 2 to 2^24, got {self.capacity}")
        require(
            3 * self.rows * self.columns <= self.entries <= 2**32
            or self.entries == self.rows * self.columns * self.capacity,
            f"entries must be at least three for each of the {self.rows * self.columns:,} cells, got {self.entries:,}",
        )
        require(0.0 <= self.beta <= 1.0, f"beta must be from 0 to 1, got {self.beta}")

    @classmethod
    def published(cls, *, rows: int = 30, columns: int = 200, alpha: float = 5, k: int = 150) -> Shape:
        """Algorithms 4 and 5 as they stand, with the paper's α = 5, w = 200, z = 30, K = 150, β = 0.1."""
        capacity = max(1, round(alpha * k))
        return cls("count", "literal", rows, columns, capacity, rows * columns * capacity)

    @classmethod
    def recommended(cls, k: int = 150) -> Shape:
        """As many entries as the published shape has for this K, in two rows."""
        return cls(capacity=max(16, 2_000 * k // 150), entries=max(8 * 12_288, 30_000 * k))

    def hashing(self, key: bytes) -> Hashing:
        """The hash functions of this shape under a key."""
        return Hashing(key, self.rows, self.columns)

    @property
    def kept(self) -> int:
        """Which values a cell keeps."""
        if self.reading == "literal":
            return SIGNED
        return ABSOLUTE if self.sketch == "count" else POSITIVE
