"""Count Sketch of one document (Charikar, Chen and Farach-Colton 2002; CS-F-LTR eqs 2 and 3).

C(a, h_a(t)) grows by g_a(t) for each occurrence of t (eq. 2). Eq. 3 prints the estimate as median_a C(a, h_a(t)), without
the sign, which would estimate −f for every row with g_a(t) = −1; the estimate of Charikar et al., and of this file, is
median_a g_a(t)·C(a, h_a(t)). Each row is unbiased with a variance of at most F2/w, F2 = Σ f²; their median is unbiased
where the errors are symmetric, as they are with independent signs.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from quorank.arrays import Doubles, Int8s, Int32s, Integers
from quorank.errors import require

MOST_OCCURRENCES = 2**30 - 1
"""The most occurrences of all terms in one document; a cell can then hold them with either sign."""


def checked_counts(counts: npt.ArrayLike, terms: int) -> Integers:
    """Occurrences of a document's terms: one positive whole number each, together at most 2^30 − 1."""
    given = np.asarray(counts)
    require(
        given.shape == (terms,) and (terms == 0 or given.dtype.kind in "iu"),
        f"a document with {terms} terms needs as many whole numbers as counts, got an array {given.shape} of {given.dtype}",
    )
    require(
        terms == 0 or (given.min() >= 1 and int(given.sum(dtype=np.uint64)) <= MOST_OCCURRENCES),
        f"counts of a document's terms must be 1 or more and at most {MOST_OCCURRENCES:,} together",
    )
    return given.astype(np.int64)


def count_sketch_table(columns: Int32s, signs: Int8s, counts: npt.ArrayLike, width: int) -> Int32s:
    """Eq. 2: the (z, w) sketch of a document from its terms' (terms, z) places and their counts."""
    occurrences = checked_counts(counts, len(columns))
    rows = columns.shape[1]
    out = np.zeros((rows, width), dtype=np.int32)
    for a in range(rows):
        np.add.at(out[a], columns[:, a], (signs[:, a] * occurrences).astype(np.int32))
    return out


def sketch_cells(sketch: Int32s, columns: Int32s) -> Int32s:
    """C(a, h_a(t)) of each row, for the (z,) columns of one term."""
    return sketch[np.arange(len(sketch)), columns]


def count_sketch_estimate(values: npt.ArrayLike, signs: npt.ArrayLike) -> Doubles:
    """Eq. 3 with the sign: median_a g_a(t)·C(a, h_a(t)), for (…, z) cells and (z,) signs."""
    return np.asarray(np.median(np.asarray(values) * np.asarray(signs), axis=-1), dtype=np.float64)
