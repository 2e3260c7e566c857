"""Searches and what was suggested in them, in columns: what every heuristic's items have in common.

Items are a NamedTuple of columns. `offsets` says which items belong to which search, `chosen` which of them the person
took (counted within the search); every other column has one entry, or one row, for each item.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from quorank.arrays import Doubles, Integers
from quorank.errors import require

Items = TypeVar("Items", bound=Any)


class Listed(NamedTuple):
    """Items of any type, for a score that is a plain function of one item."""

    offsets: Integers
    item: Sequence[Any]
    chosen: Integers

    @classmethod
    def of(cls, shown: Sequence[Sequence[Any]], chosen: Sequence[int]) -> Listed:
        """From one list of items per search, and which of them the person took."""
        offsets = np.cumsum([0, *map(len, shown)], dtype=np.int64)
        return cls(offsets, [item for block in shown for item in block], np.array(chosen, dtype=np.int64))


def count(items: Any) -> int:
    """The number of searches."""
    return len(items.offsets) - 1


def part(items: Items, first: int, last: int) -> Items:
    """Searches first … last − 1 alone."""
    low, high = int(items.offsets[first]), int(items.offsets[last])
    columns = {
        name: column[low:high]
        for name, column in items._asdict().items()
        if name not in ("offsets", "chosen")
    }
    columns["offsets"] = items.offsets[first : last + 1] - low
    columns["chosen"] = items.chosen[first:last]
    made: Items = type(items)(**columns)
    return made


def parts(items: Items, size: int) -> Iterator[Items]:
    """The searches in blocks of `size`, small enough for their scores to stay in the cache."""
    total = count(items)
    for first in range(0, total, size):
        yield part(items, first, min(first + size, total))


def check_items(items: Any) -> None:
    """Every search has items, and the chosen one is among them."""
    lengths = np.diff(items.offsets)
    require(
        len(items.chosen) == len(lengths),
        f"{len(lengths)} searches need as many choices, got {len(items.chosen)}",
    )
    bad = np.flatnonzero((items.chosen < 0) | (items.chosen >= lengths))
    if bad.size:
        at = int(bad[0])
        require(
            False,
            f"search {at}: item {int(items.chosen[at])} was chosen of {int(lengths[at])}; "
            "expected the place of one of them, counted from 0",
        )


def check_scores(scores: Doubles, vectors: int, items: Any) -> None:
    """A score must answer for every weight vector and every item."""
    expected = (vectors, int(items.offsets[-1]))
    require(
        scores.shape == expected,
        f"the score of {vectors} weight vectors and {expected[1]} items must have shape {expected}, got {scores.shape}",
    )
    require(bool(np.isfinite(scores).all()), "the score returned a value that is not a finite number")
