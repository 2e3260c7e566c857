"""Comparison of an exported model with its ranker: the order of each list, and each score up to rounding."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from quorank.data.normalisation import query_ranges_scaled
from quorank.export.exported_ranker import ExportedRanker, Scorer
from quorank.kernels.arrays import Doubles, Floats, Integers

TOLERANCE = 1e-5
"""Largest accepted difference of two scores, relative to |score| where that is above 1."""
RESOLUTION = 2.0**-20
"""Largest difference of tied scores, relative to |score| where that is above 1: float32 sums do not order closer ones."""


def expected_scores(exported: ExportedRanker, features: Floats, offsets: Integers) -> Doubles:
    """Return Quorank's (rows,) scores of (rows, n) features as the other system receives them, NaN where missing."""
    scores = exported.effective.score(features, np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)))
    return scores.astype(np.float64)


def normalise_lists(features: Floats, offsets: Integers) -> Floats:
    """Return features normalised within their lists."""
    return query_ranges_scaled(features, offsets[:-1][np.diff(offsets) > 0])


@dataclass(frozen=True)
class Comparison:
    """Result of a comparison; lists are numbered from 0."""

    lists: int = 0
    documents: int = 0
    largest: float = 0.0  # difference of two scores, relative to |score| where that is above 1
    swapped_ties: int = 0  # positions at which documents with tied scores changed places
    differing: int | None = None  # first list that differs
    why: str = ""

    @property
    def same(self) -> bool:
        """True if nothing differs."""
        return self.differing is None


def compare_scores(expected: Doubles, actual: Doubles, offsets: Integers) -> Comparison:
    """Compare (rows,) scores in lists that `offsets` (lists + 1,) delimits."""
    list_of_row = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    scale = np.maximum(1.0, np.abs(expected))
    with np.errstate(all="ignore"):
        difference = np.nan_to_num(np.abs(actual - expected) / scale, nan=np.inf)
    largest = float(difference.max(initial=0.0))
    result = Comparison(len(offsets) - 1, len(expected), largest=largest)
    if largest > TOLERANCE:
        row = int(np.argmax(difference > TOLERANCE))
        at, number = int(list_of_row[row]), row - int(offsets[list_of_row[row]]) + 1
        why = f"document {number} scores {actual[row]:.7g}, and {expected[row]:.7g} in Quorank"
        return replace(result, differing=at, why=why)
    ours, theirs = (np.lexsort((-values, list_of_row)) for values in (expected, actual))  # ties in file order
    moved = ours != theirs
    distinct = np.abs(expected[ours] - expected[theirs]) > RESOLUTION * np.maximum(scale[ours], scale[theirs])
    result = replace(result, swapped_ties=int((moved & ~distinct).sum()))
    if not (moved & distinct).any():
        return result
    position = int(np.argmax(moved & distinct))
    at = int(list_of_row[position])
    before = int(offsets[at]) - 1
    why = (
        f"document {int(theirs[position]) - before} stands at rank {position - before}, "
        f"and document {int(ours[position]) - before} in Quorank"
    )
    return replace(result, differing=at, why=why)


def compare_lists(exported: ExportedRanker, model: Scorer, features: Floats, offsets: Integers) -> Comparison:
    """Compare a model's scores of (rows, n) features with Quorank's."""
    return compare_scores(expected_scores(exported, features, offsets), model(features, offsets), offsets)


def with_gaps(features: Floats) -> Floats:
    """Return features with every eleventh one missing, in changing columns."""
    rows, columns = np.ogrid[: features.shape[0], : features.shape[1]]
    return np.where((rows * 7 + columns * 3) % 11 == 0, np.nan, features).astype(np.float32)
