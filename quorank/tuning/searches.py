"""Searches and the items shown in them, in columns: the format that every heuristic's items share.

Items are a NamedTuple of columns. `offsets` (searches + 1,) divides the items into searches, `chosen` (searches,) is
the position of the chosen item within its search; every other column has one entry, or one row, per item.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from quorank.errors import BadInput, require
from quorank.kernels.arrays import Doubles, Integers

Items = TypeVar("Items", bound=Any)


class Listed(NamedTuple):
    """Items of any Python type, for a score that is a plain function of one item."""

    offsets: Integers
    item: Sequence[Any]
    chosen: Integers

    @classmethod
    def of(cls, shown: Sequence[Sequence[Any]], chosen: Sequence[int]) -> Listed:
        """Return the items of one list per search, with the index of the chosen item in each.

        >>> Listed.of([["a", "b"], ["c", "d", "e"]], [0, 2]).offsets.tolist()
        [0, 2, 5]
        """
        offsets = np.cumsum([0, *map(len, shown)], dtype=np.int64)
        return cls(offsets, [item for block in shown for item in block], np.array(chosen, dtype=np.int64))


def count_searches(items: Any) -> int:
    """Return the number of searches."""
    return len(items.offsets) - 1


def slice_searches(items: Items, first: int, last: int) -> Items:
    """Return the searches first … last − 1."""
    low, high = int(items.offsets[first]), int(items.offsets[last])
    columns = {name: column[low:high] for name, column in items._asdict().items()}
    columns |= {"offsets": items.offsets[first : last + 1] - low, "chosen": items.chosen[first:last]}
    made: Items = type(items)(**columns)
    return made


def pick_searches(items: Items, which: Integers) -> Items:
    """Return these searches in this order, possibly repeated."""
    sizes = np.diff(items.offsets)[which]
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
    rows = np.repeat(items.offsets[:-1][which] - offsets[:-1], sizes) + np.arange(offsets[-1])
    columns = {name: column[rows] for name, column in items._asdict().items() if name not in ("offsets", "chosen")}
    made: Items = type(items)(**columns, offsets=offsets, chosen=items.chosen[which])
    return made


def join_searches(parts: Sequence[Items]) -> Items:
    """Concatenate the searches of all parts."""
    ends = np.cumsum([0, *(int(part.offsets[-1]) for part in parts)])
    offsets = [part.offsets[1:] + end for part, end in zip(parts, ends, strict=False)]
    columns = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in parts[0]._fields if name != "offsets"
    }
    made: Items = type(parts[0])(**columns, offsets=np.concatenate([np.zeros(1, np.int64), *offsets]))
    return made


def search_blocks(items: Items, size: int) -> Iterator[Items]:
    """Yield the searches in blocks of `size`, small enough for their scores to stay in the cache."""
    total = count_searches(items)
    for first in range(0, total, size):
        yield slice_searches(items, first, min(first + size, total))


def check_items(items: Any) -> None:
    """Raise BadInput unless every search has a chosen item that is among its items."""
    lengths, given = np.diff(items.offsets), len(items.chosen)
    wrong = f"{len(lengths)} searches need as many choices, got {given}"
    require(given == len(lengths), "searches.wrong-shape", wrong)
    bad = np.flatnonzero((items.chosen < 0) | (items.chosen >= lengths))
    if bad.size:
        at = bad[0]
        wrong = f"item {items.chosen[at]} was chosen of {lengths[at]}; expected the place of one, counted from 0"
        raise BadInput("searches.unknown-choice", wrong, f"search {at}")


def check_scores(scores: Doubles, vectors: int, items: Any) -> None:
    """Raise BadInput unless the scores have shape (vectors, items) and are finite."""
    expected = (vectors, int(items.offsets[-1]))
    wrong = f"the score of {vectors} weight vectors must have shape {expected}, got {scores.shape}"
    require(scores.shape == expected, "score.wrong-shape", wrong)
    require(np.isfinite(scores).all(), "score.not-finite", "the score returned a value that is not a finite number")
