"""Count Sketch and Count-Min sketch of documents, and NAIVE: one sketch per document, all read for every query.

Count Sketch (Charikar, Chen and Farach-Colton 2002; CS-F-LTR eqs 2 and 3): C(a, h_a(t)) grows by g_a(t) for each
occurrence of t (eq. 2). Eq. 3 prints the estimate as median_a C(a, h_a(t)), without the sign, which would estimate −f for
every row with g_a(t) = −1; the estimate of Charikar et al., and of this file, is median_a g_a(t)·C(a, h_a(t)). Each row is
unbiased with a variance of at most F2/w, F2 = Σ f²; their median is unbiased where the errors are symmetric, as they are
with independent signs.

Count-Min (Cormode and Muthukrishnan 2005), the alternative in CS-F-LTR §IV-A: C(a, h_a(t)) grows by one for each
occurrence of t, and the estimate is min_a C(a, h_a(t)): never less than the count, and more only if other terms of the
document share the term's cell in every row.

NAIVE is CS-F-LTR algorithm 3. The paper's 100 s a query come from asking documents one after another. Here the cells that
a term falls into are contiguous over documents: a query copies z stretches of memory and takes all medians at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from quorank.errors import require_range
from quorank.kernels.arrays import Doubles, Int8s, Int32s, Integers
from quorank.silos.hashing import Hashing
from quorank.text import Index

MOST_OCCURRENCES = 2**30 - 1
"""Largest number of occurrences in one document, which a cell can hold with either sign."""


def sketch_rows(index: Index, hashing: Hashing, sketch: Literal["count", "count-min"]) -> Iterator[Any]:
    """Compute the sparse (documents, w) cells of each of the z rows: eq. 2 for all documents at once."""
    columns, signs = hashing.places(index.vocabulary)
    words = len(index.vocabulary)
    counts = csr_array((index.counts.astype(np.int32), index.terms, index.offsets), (index.n_documents, words))
    sides = (signs if sketch == "count" else np.ones_like(signs)).astype(np.int32)
    for a in range(hashing.rows):
        hashed = (sides[:, a].copy(), columns[:, a].copy(), np.arange(words + 1))
        yield counts @ csr_array(hashed, (words, hashing.columns))


def count_sketch_table(columns: Int32s, signs: Int8s, counts: npt.ArrayLike, width: int) -> Int32s:
    """Compute the (z, w) Count Sketch of a document (eq. 2) from its terms' (terms, z) columns and signs, and counts."""
    out = np.zeros((columns.shape[1], width), dtype=np.int32)
    np.add.at(out, (np.arange(len(out)), columns), signs * np.asarray(counts, dtype=np.int32)[:, None])
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


class Naive:
    """Sketches of a party's documents, one each; cells are int16 where the longest document allows, else int32."""

    def __init__(self, hashing: Hashing, index: Index, sketch: Literal["count", "count-min"] = "count") -> None:
        self.hashing, self.sketch = hashing, sketch
        kind = np.int16 if index.lengths.max(initial=0) < 2**15 else np.int32
        self.table: npt.NDArray[Any] = np.empty((hashing.rows, hashing.columns, index.n_documents), dtype=kind)
        for a, row in enumerate(sketch_rows(index, hashing, sketch)):
            self.table[a] = row.toarray().T

    def top(self, term: str, k: int) -> tuple[Integers, Doubles]:
        """Return the k documents with the largest estimates, largest first (algorithm 3); of equal ones the earlier."""
        require_range("k", k, least=1)
        columns, signs = self.hashing.places([term])
        cells = self.table[np.arange(self.hashing.rows), columns[0]].T
        estimates = count_sketch_estimate(cells, signs[0]) if self.sketch == "count" else count_min_estimate(cells)
        chosen = np.arange(len(estimates))
        if len(estimates) > k:
            chosen = np.flatnonzero(estimates >= np.partition(estimates, len(estimates) - k)[len(estimates) - k])
        chosen = chosen[np.argsort(-estimates[chosen], kind="stable")][:k]
        return chosen, estimates[chosen]
