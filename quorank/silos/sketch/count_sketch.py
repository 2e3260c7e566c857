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

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from quorank.errors import require, require_range
from quorank.kernels.arrays import Doubles, Int8s, Int32s, Integers
from quorank.kernels.compiled import kernel
from quorank.silos.hashing import Hashing, RememberedPlaces

GROUP = 256
"""Documents whose sketches share an array: (z, w, GROUP)."""
MOST_OCCURRENCES = 2**30 - 1
"""Largest number of occurrences in one document, which a cell can hold with either sign."""


def checked_counts(counts: npt.ArrayLike, terms: int) -> Integers:
    """Return the counts of a document's terms: positive integers, at most 2^30 − 1 in total."""
    given = np.asarray(counts)
    fits = given.shape == (terms,) and (terms == 0 or given.dtype.kind in "iu")
    said = f"a document of {terms} terms needs as many integers as counts, got an array {given.shape} of {given.dtype}"
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


class Naive:
    """Sketches of a party's documents, one each; a cell (`counter`) is an int32, or an int16 in half of the memory."""

    def __init__(
        self, hashing: Hashing, sketch: Literal["count", "count-min"] = "count", counter: type = np.int32
    ) -> None:
        self.hashing, self.sketch, self.counter = hashing, sketch, np.dtype(counter)
        sound, sizes = sketch in ("count", "count-min"), (np.int16, np.int32)
        require(sound, "value.unknown", f"must be 'count' or 'count-min', got {sketch!r}", "sketch")
        require(self.counter in sizes, "value.unknown", f"must be int16 or int32, got {self.counter}", "counter")
        self._places = RememberedPlaces(hashing)
        self._groups: list[npt.NDArray[Any]] = []
        self.documents = np.empty(0, dtype=np.int64)  # in the order of the rows of `cells`

    def __len__(self) -> int:
        return len(self.documents)

    @property
    def memory_bytes(self) -> int:
        """Size of z·w counters for each document."""
        return len(self) * self.hashing.rows * self.hashing.columns * self.counter.itemsize

    def add_many(
        self,
        offsets: npt.ArrayLike,
        terms: npt.ArrayLike,
        counts: npt.ArrayLike,
        vocabulary: Sequence[str],
        documents: npt.ArrayLike | None = None,
    ) -> None:
        """Sketch many documents, given as `ReverseTopK.add_many` takes them."""
        bounds, words, occurrences = checked_columns(offsets, terms, counts, vocabulary)
        numbers = np.arange(len(bounds) - 1) if documents is None else np.asarray(documents, dtype=np.int64)
        is_full = len(numbers) == len(bounds) - 1 and bool(np.all(np.diff(bounds) > 0))
        said = "every document needs a number and at least one term; leave empty ones out"
        require(is_full, "sketch.empty-document", said)
        is_new = len(np.unique(numbers)) == len(numbers) and not np.isin(numbers, self.documents).any()
        require(is_new, "sketch.known-document", "a document is given twice, or is already here")
        most = int(np.add.reduceat(occurrences.astype(np.int64), bounds[:-1]).max()) if len(numbers) else 0
        said = f"a document has {most:,} terms, too many for {self.counter} cells; take int32"
        require(most < 2 ** (8 * self.counter.itemsize - 1), "sketch.out-of-range", said)
        columns, signs = self.hashing.places(vocabulary)
        sides = signs if self.sketch == "count" else np.ones_like(signs)
        done = 0
        while done < len(numbers):
            at = (len(self) + done) % GROUP
            if at == 0:
                self._groups.append(np.zeros((self.hashing.rows, self.hashing.columns, GROUP), dtype=self.counter))
            count = min(GROUP - at, len(numbers) - done)
            _fill(self._groups[-1], at, columns, sides, bounds, words, occurrences, done, count)
            done += count
        self.documents = np.concatenate((self.documents, numbers))

    def cells(self, columns: npt.ArrayLike) -> npt.NDArray[Any]:
        """Return the (documents, z) cells that the (z,) columns of a query point at."""
        chosen, rows = np.asarray(columns), np.arange(self.hashing.rows)
        parts = [group[rows, chosen] for group in self._groups] or [np.empty((len(rows), 0), dtype=self.counter)]
        return np.concatenate(parts, axis=1)[:, : len(self)].T

    def estimates(self, term: str) -> Doubles:
        """Estimate the (documents,) counts of a term (eq. 3, or the minimum)."""
        columns, signs = self._places.places([term])
        cells = self.cells(columns[0])
        return count_sketch_estimate(cells, signs[0]) if self.sketch == "count" else count_min_estimate(cells)

    def top(self, term: str, k: int) -> tuple[Integers, Doubles]:
        """Return the k documents with the largest estimates, largest first (algorithm 3); of equal ones the earlier."""
        require_range("k", k, least=1)
        estimates = self.estimates(term)
        chosen = np.arange(len(estimates))
        if len(estimates) > k:
            limit = np.partition(estimates, len(estimates) - k)[len(estimates) - k]
            above = np.flatnonzero(estimates > limit)
            chosen = np.concatenate((above, np.flatnonzero(estimates == limit)[: k - len(above)]))
        chosen = chosen[np.argsort(-estimates[chosen], kind="stable")]
        return self.documents[chosen], estimates[chosen]


@kernel
def _fill(
    group: Any,
    at: int,
    columns: Int32s,
    signs: Any,
    offsets: Integers,
    terms: Int32s,
    counts: Int32s,
    first: int,
    n: int,
) -> None:
    """Sketch (eq. 2) documents first, …, first + n − 1, into slots at, at + 1, … of a group."""
    for d in range(n):
        for i in range(offsets[first + d], offsets[first + d + 1]):
            for a in range(columns.shape[1]):
                group[a, columns[terms[i], a], at + d] += signs[terms[i], a] * counts[i]
