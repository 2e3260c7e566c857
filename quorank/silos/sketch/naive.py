"""NAIVE: one sketch per document, all of them asked (CS-F-LTR algorithm 3).

The paper's 100 s a query come from asking documents one after another. Here the sketches lie so that the cells which a
term falls into are contiguous over documents: a query copies z stretches of memory and takes all medians at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from quorank.arrays import Doubles, Int8s, Int32s, Integers
from quorank.compiled import kernel
from quorank.errors import require
from quorank.silos.sketch import count_min, count_sketch
from quorank.silos.sketch.hashing import Hashing, Places

GROUP = 256
"""Documents whose sketches share an array: (z, w, GROUP)."""


class Naive:
    """The sketches of a party's documents. `counter` is the type of a cell: int32, or int16 in half of the memory."""

    def __init__(
        self, hashing: Hashing, sketch: Literal["count", "count-min"] = "count", counter: type = np.int32
    ) -> None:
        require(sketch in ("count", "count-min"), f"sketch must be 'count' or 'count-min', got {sketch!r}")
        self.hashing, self.sketch, self.counter = hashing, sketch, np.dtype(counter)
        require(self.counter in (np.int16, np.int32), f"counters are int16 or int32, got {self.counter}")
        self._places = Places(hashing)
        self._groups: list[npt.NDArray[Any]] = []
        self._slot: dict[int, int] = {}
        self._ids = np.empty(0, dtype=np.int64)

    def __len__(self) -> int:
        return len(self._slot)

    def __contains__(self, document: int) -> bool:
        return document in self._slot

    @property
    def documents(self) -> Integers:
        """The documents in the order of the rows of `cells`."""
        return self._ids[: len(self)].copy()

    @property
    def memory_bytes(self) -> int:
        """z·w counters for each document."""
        return len(self) * self.hashing.rows * self.hashing.columns * self.counter.itemsize

    def add(self, document: int, terms: Sequence[str], counts: Sequence[int] | npt.ArrayLike) -> None:
        """Sketch a document."""
        require(len(terms) > 0, f"document {document} is empty: there is nothing to find it by; leave it out")
        occurrences = count_sketch.checked_counts(counts, len(terms)).astype(np.int32)
        columns, signs = self._places.of(terms)
        bounds = np.array([0, len(terms)], dtype=np.int64)
        self._add(
            columns, signs, bounds, np.arange(len(terms), dtype=np.int32), occurrences, np.array([document])
        )

    def add_many(
        self,
        offsets: npt.ArrayLike,
        terms: npt.ArrayLike,
        counts: npt.ArrayLike,
        vocabulary: Sequence[str],
        documents: npt.ArrayLike | None = None,
    ) -> None:
        """Sketch many documents, given as `ReverseTopK.add_many` takes them."""
        bounds = np.ascontiguousarray(offsets, dtype=np.int64)
        words = np.ascontiguousarray(terms, dtype=np.int32)
        occurrences = np.ascontiguousarray(counts, dtype=np.int32)
        require(
            bounds[0] == 0 and bounds[-1] == len(words) == len(occurrences),
            "offsets must run from 0 to the number of terms, with a count for each",
        )
        require(
            not len(words) or (words.min() >= 0 and words.max() < len(vocabulary)),
            f"terms must be numbers from 0 to {len(vocabulary) - 1}, places in the vocabulary",
        )
        numbers = np.arange(len(bounds) - 1) if documents is None else np.asarray(documents, dtype=np.int64)
        require(
            len(numbers) == len(bounds) - 1 and bool(np.all(np.diff(bounds) > 0)),
            "every document needs a number and at least one term",
        )
        columns, signs = self.hashing.places(vocabulary)
        self._add(columns, signs, bounds, words, occurrences, numbers)

    def remove(self, document: int) -> None:
        """Forget a document: the last one takes its place."""
        require(document in self._slot, f"document {document} is not here; nothing was removed")
        slot, last = self._slot.pop(document), len(self._slot)
        group, at = divmod(last, GROUP)
        if slot != last:
            self._groups[slot // GROUP][:, :, slot % GROUP] = self._groups[group][:, :, at]
            self._ids[slot] = self._ids[last]
            self._slot[int(self._ids[slot])] = slot
        self._groups[group][:, :, at] = 0
        if at == 0:
            self._groups.pop()

    def cells(self, columns: npt.ArrayLike) -> npt.NDArray[Any]:
        """(documents, z) the cells that the columns of a query point at."""
        chosen = np.asarray(columns)
        rows = np.arange(self.hashing.rows)
        parts = [group[rows, chosen] for group in self._groups]
        if not parts:
            return np.empty((0, self.hashing.rows), dtype=self.counter)
        return np.concatenate(parts, axis=1)[:, : len(self)].T

    def estimates(self, term: str) -> Doubles:
        """The estimated count of a term in each document (eq. 3, or the minimum)."""
        columns, signs = self._places.of([term])
        cells = self.cells(columns[0])
        return count_sketch.count_sketch_estimate(cells, signs[0]) if self.sketch == "count" else count_min.count_min_estimate(cells)

    def top(self, term: str, k: int) -> tuple[Integers, Doubles]:
        """Algorithm 3: the k documents with the largest estimates, largest first; of equal ones the earlier slot."""
        require(k >= 1, f"K must be at least 1, got {k}")
        estimates = self.estimates(term)
        chosen = np.arange(len(estimates))
        if len(estimates) > k:
            limit = np.partition(estimates, len(estimates) - k)[len(estimates) - k]
            above = np.flatnonzero(estimates > limit)
            chosen = np.concatenate((above, np.flatnonzero(estimates == limit)[: k - len(above)]))
        chosen = chosen[np.argsort(-estimates[chosen], kind="stable")]
        return self._ids[chosen], estimates[chosen]

    def _add(
        self,
        columns: Int32s,
        signs: Int8s,
        offsets: Integers,
        terms: Int32s,
        occurrences: Int32s,
        documents: Integers,
    ) -> None:
        require(
            len(set(documents.tolist())) == len(documents)
            and not any(number in self._slot for number in documents.tolist()),
            "a document is given twice, or is already here",
        )
        most = int(np.add.reduceat(occurrences.astype(np.int64), offsets[:-1]).max()) if len(documents) else 0
        require(
            most <= 2 ** (8 * self.counter.itemsize - 1) - 1,
            f"a document has {most:,} terms, too many for {self.counter} cells; take int32",
        )
        sides = signs if self.sketch == "count" else np.ones_like(signs)
        done = 0
        while done < len(documents):
            slot = len(self._slot)
            group, at = divmod(slot, GROUP)
            if at == 0:
                self._groups.append(
                    np.zeros((self.hashing.rows, self.hashing.columns, GROUP), dtype=self.counter)
                )
            count = min(GROUP - at, len(documents) - done)
            _fill(self._groups[group], at, columns, sides, offsets, terms, occurrences, done, count)
            if slot + count > len(self._ids):
                self._ids = np.pad(self._ids, (0, max(count, len(self._ids))))
            self._ids[slot : slot + count] = documents[done : done + count]
            self._slot.update((int(d), slot + i) for i, d in enumerate(documents[done : done + count]))
            done += count


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
    """Eq. 2 for documents first, …, first + n − 1, into places at, at + 1, … of a group."""
    for d in range(n):
        for i in range(offsets[first + d], offsets[first + d + 1]):
            for a in range(columns.shape[1]):
                group[a, columns[terms[i], a], at + d] += signs[terms[i], a] * counts[i]
