"""Count Sketch and Count-Min sketch of one document.

Count Sketch (Charikar, Chen and Farach-Colton 2002; CS-F-LTR eqs 2 and 3): C(a, h_a(t)) grows by g_a(t) for each
occurrence of t (eq. 2). Eq. 3 prints the estimate as median_a C(a, h_a(t)), without the sign, which would estimate −f for
every row with g_a(t) = −1; the estimate of Charikar et al., and of this file, is median_a g_a(t)·C(a, h_a(t)). Each row is
unbiased with a variance of at most F2/w, F2 = Σ f²; their median is unbiased where the errors are symmetric, as they are
with independent signs.

Count-Min (Cormode and Muthukrishnan 2005), the other choice that CS-F-LTR §IV-A names: C(a, h_a(t)) grows by one for each
occurrence of t, and the estimate is min_a C(a, h_a(t)): never less than the count, and more only if other terms of the
document fell into the term's cell in every row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from quorank.errors import require
from quorank.kernels.arrays import Doubles, Int8s, Int32s, Integers

MOST_OCCURRENCES = 2**30 - 1
"""The most occurrences of all terms in one document; a cell can then hold them with either sign."""


def checked_counts(counts: npt.ArrayLike, terms: int) -> Integers:
    """Return the counts of a document's terms: one positive whole number each, together at most 2^30 − 1."""
    given = np.asarray(counts)
    fits = given.shape == (terms,) and (terms == 0 or given.dtype.kind in "iu")
    said = f"a document of {terms} terms needs as many whole numbers as counts, got an array {given.shape} of {given.dtype}"
    require(fits, "sketch.bad-counts", said)
    is_inside = terms == 0 or (given.min() >= 1 and int(given.sum(dtype=np.uint64)) <= MOST_OCCURRENCES)
    said = f"counts of a document's terms must be 1 or more and at most {MOST_OCCURRENCES:,} together"
    require(is_inside, "sketch.out-of-range", said)
    return given.astype(np.int64)


def checked_columns(
    offsets: npt.ArrayLike, terms: npt.ArrayLike, counts: npt.ArrayLike, vocabulary: Sequence[str]
) -> tuple[Integers, Int32s, Int32s]:
    """Return (documents + 1,) offsets, (entries,) term numbers and (entries,) counts of documents, if they fit together."""
    bounds = np.ascontiguousarray(offsets, dtype=np.int64)
    words = np.ascontiguousarray(terms, dtype=np.int32)
    occurrences = np.ascontiguousarray(counts, dtype=np.int32)
    fits = len(bounds) >= 1 and bounds[0] == 0 and bounds[-1] == len(words) == len(occurrences)
    require(fits, "sketch.bad-offsets", "offsets must run from 0 to the number of terms, with a count for each")
    is_inside = not len(words) or (words.min() >= 0 and words.max() < len(vocabulary))
    said = f"terms must be numbers from 0 to {len(vocabulary) - 1}, places in the vocabulary"
    require(is_inside, "sketch.out-of-range", said)
    return bounds, words, occurrences


def count_sketch_table(columns: Int32s, signs: Int8s, counts: npt.ArrayLike, width: int) -> Int32s:
    """Compute the (z, w) Count Sketch of a document (eq. 2) from its terms' (terms, z) columns and signs, and counts."""
    occurrences = checked_counts(counts, len(columns))
    rows = columns.shape[1]
    out = np.zeros((rows, width), dtype=np.int32)
    for a in range(rows):
        np.add.at(out[a], columns[:, a], (signs[:, a] * occurrences).astype(np.int32))
    return out


def count_min_table(columns: Int32s, counts: npt.ArrayLike, width: int) -> Int32s:
    """Compute the (z, w) Count-Min sketch of a document from its terms' (terms, z) columns and their counts."""
    return count_sketch_table(columns, np.ones(columns.shape, dtype=np.int8), counts, width)


def sketch_cells(sketch: Int32s, columns: Int32s) -> Int32s:
    """Return C(a, h_a(t)) of each row of a (z, w) sketch, for the (z,) columns of one term."""
    return sketch[np.arange(len(sketch)), columns]


def count_sketch_estimate(values: npt.ArrayLike, signs: npt.ArrayLike) -> Doubles:
    """Compute eq. 3 with the sign, median_a g_a(t)·C(a, h_a(t)), for (…, z) cells and (z,) signs."""
    return np.asarray(np.median(np.asarray(values) * np.asarray(signs), axis=-1), dtype=np.float64)


def count_min_estimate(values: npt.ArrayLike) -> Doubles:
    """Compute min_a C(a, h_a(t)) for (…, z) cells."""
    return np.asarray(np.min(np.asarray(values), axis=-1), dtype=np.float64)
