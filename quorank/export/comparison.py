"""Comparison of an exported model's scores with Quorank's: the order of each list, and each score up to rounding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from quorank.export.exported_ranker import ExportedRanker
from quorank.export.target import Scorer
from quorank.kernels.arrays import Booleans, Doubles, Floats, Integers
from quorank.rankers.array_scoring import query_ranges_scaled

TOLERANCE = 1e-5
"""Scores may differ by this much, times |score| where that is above 1."""
RESOLUTION = 2.0**-20
"""Scores that differ by less, times |score| where that is above 1, are ties: float32 sums say nothing of their order."""
MOST_ROWS = 1 << 16
"""Rows that are compared at once, but for a longer list."""


def expected_scores(exported: ExportedRanker, features: Floats, offsets: Integers) -> Doubles:
    """Return Quorank's (rows,) scores of (rows, n) features as the export takes them, NaN where one is missing."""
    found = exported.taken.score(features, np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)))
    return found.astype(np.float64)


def normalised(features: Floats, offsets: Integers) -> Floats:
    """Return features normalised within their lists."""
    return query_ranges_scaled(features, offsets[:-1][np.diff(offsets) > 0])


@dataclass(frozen=True)
class Comparison:
    """What a comparison found, in lists that are numbered from 0."""

    lists: int = 0
    documents: int = 0
    missing: int = 0  # features that were missing
    largest: float = 0.0  # difference of two scores, divided by |score| where that is above 1
    swapped_ties: int = 0  # places of a list where documents of equal scores, but for rounding, changed places
    differing: int | None = None  # the first list that differs
    why: str = ""

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return self.differing is None

    def with_more(self, other: Comparison) -> Comparison:
        """Return this comparison, and another one of the lists behind it, as one."""
        differing = self.differing
        if differing is None and other.differing is not None:
            differing = self.lists + other.differing
        return Comparison(
            self.lists + other.lists,
            self.documents + other.documents,
            self.missing + other.missing,
            max(self.largest, other.largest),
            self.swapped_ties + other.swapped_ties,
            differing,
            self.why or other.why,
        )


def compare_scores(expected: Doubles, found: Doubles, offsets: Integers) -> Comparison:
    """Compare (rows,) scores, in lists that `offsets` (lists + 1,) divides."""
    of_row = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    scale = np.maximum(1.0, np.abs(expected))
    with np.errstate(all="ignore"):
        difference = np.nan_to_num(np.abs(found - expected) / scale, nan=np.inf)
    largest = float(difference.max(initial=0.0))
    result = Comparison(len(offsets) - 1, len(expected), largest=largest)
    if largest > TOLERANCE:
        row = int(np.argmax(difference > TOLERANCE))
        at, number = int(of_row[row]), row - int(offsets[of_row[row]]) + 1
        why = f"document {number} scores {found[row]:.7g}, and {expected[row]:.7g} in Quorank"
        return replace(result, differing=at, why=why)
    ours, theirs = (np.lexsort((-values, of_row)) for values in (expected, found))  # ties in the order of the file
    moved = ours != theirs
    apart = np.abs(expected[ours] - expected[theirs]) > RESOLUTION * np.maximum(scale[ours], scale[theirs])
    result = replace(result, swapped_ties=int((moved & ~apart).sum()))
    if not (moved & apart).any():
        return result
    place = int(np.argmax(moved & apart))
    at = int(of_row[place])
    begin = int(offsets[at]) - 1
    there, here = int(theirs[place]) - begin, int(ours[place]) - begin
    why = f"document {there} stands at rank {place - begin}, and document {here} in Quorank"
    return replace(result, differing=at, why=why)


def compare_lists(exported: ExportedRanker, model: Scorer, features: Floats, offsets: Integers) -> Comparison:
    """Compare a model's scores of (rows, n) features with Quorank's, some lists at a time."""
    result = Comparison()
    for first, last in _parts(offsets):
        rows = slice(int(offsets[first]), int(offsets[last]))
        part, within = features[rows], offsets[first : last + 1] - offsets[first]
        compared = compare_scores(expected_scores(exported, part, within), model(part, within), within)
        result = result.with_more(replace(compared, missing=int(np.isnan(part).sum())))
    return result


def _parts(offsets: Integers) -> Iterator[tuple[int, int]]:
    first = 0
    while first < len(offsets) - 1:
        last = max(first + 1, int(np.searchsorted(offsets, offsets[first] + MOST_ROWS, side="right")) - 1)
        yield first, last
        first = last


def with_gaps(features: Floats) -> Floats:
    """Return features with every eleventh of them missing, in each column and each row sooner or later."""
    found = np.array(features, dtype=np.float32)
    found[_gaps(found.shape)] = np.nan
    return found


def _gaps(shape: tuple[int, ...]) -> Booleans:
    rows, columns = np.indices(shape, sparse=True)
    found: Booleans = (rows * 7 + columns * 3) % 11 == 0
    return found
