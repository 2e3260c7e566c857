"""The sketches of one field as a party serves them: built exactly, or with noise in every cell before it is stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from quorank.arrays import Int32s
from quorank.errors import require
from quorank.silos.protocol.discrete_laplace import Stream, SystemStream
from quorank.silos.protocol.perturbation import AtBuild
from quorank.silos.sketch.count_sketch import checked_counts, count_sketch_table
from quorank.silos.sketch.hashing import Places
from quorank.silos.sketch.naive import Naive
from quorank.silos.sketch.ranking_cells import Cells
from quorank.silos.sketch.reverse_top_k import ReverseTopK


class ServedTopK:
    """An RTK-Sketch. With `noise`, documents enter it through `add` of this class and no other way.

    A structure that was saved with noise in it is served by `ServedTopK(loaded, noise)` again: what is in it stays.
    `streams` gives the random words of a document's noise, for simulation; else they are the system's.
    """

    fixed_documents = False

    def __init__(
        self,
        structure: ReverseTopK,
        noise: AtBuild | None = None,
        streams: Callable[[int], Stream] | None = None,
    ) -> None:
        self.structure, self.noise = structure, noise
        system = SystemStream()
        self._streams = streams or (lambda document: system)
        self._places = Places(structure.hashing)

    @property
    def fingerprint(self) -> str:
        """Of the hash functions that it was built with."""
        return self.structure.hashing.fingerprint()

    @property
    def at_build(self) -> bool:
        """What is stored has noise in it."""
        return self.noise is not None

    @property
    def width(self) -> int:
        """The most documents that a cell of an answer can hold."""
        return min(self.structure.shape.capacity, max(len(self.structure), 1))

    def add(self, document: int, terms: Sequence[str], counts: Sequence[int] | npt.ArrayLike) -> None:
        """Add a document; with noise, in every cell of its sketch, also in those where nothing is counted."""
        if self.noise is None:
            self.structure.add(document, terms, counts)
            return
        require(len(terms) > 0, f"document {document} is empty: there is nothing to find it by; leave it out")
        require(len(set(terms)) == len(terms), f"document {document}: a term stands twice; add up its counts")
        columns, signs = self._places.of(terms)
        sides = signs if self.structure.shape.sketch == "count" else np.ones_like(signs)
        exact = count_sketch_table(columns, sides, checked_counts(counts, len(terms)), self.structure.shape.columns)
        require(
            document not in self.structure,
            f"document {document} is already in this sketch; remove it before adding it anew",
        )
        self.structure.add_sketch(document, self.noise.table(exact, self._streams(document)))

    def remove(self, *documents: int) -> None:
        """Remove documents; what was told about them stays told."""
        self.structure.remove(*documents)

    def cells(self, columns: Int32s) -> Cells:
        """The cells of one vector."""
        return self.structure.cells(columns)


class ServedNaive:
    """One sketch per document: every answer is about all documents, in whatever cells."""

    fixed_documents = True
    at_build = False

    def __init__(self, sketches: Naive) -> None:
        self.sketches = sketches

    @property
    def fingerprint(self) -> str:
        """Of the hash functions that they were built with."""
        return self.sketches.hashing.fingerprint()

    @property
    def width(self) -> int:
        """All documents."""
        return max(len(self.sketches), 1)

    def cells(self, columns: Int32s) -> Cells:
        """The cell of every document in every row; nobody is absent."""
        found, documents = self.sketches.cells(columns), self.sketches.documents
        n, z = found.shape
        return Cells(
            np.arange(z + 1, dtype=np.int64) * n,
            np.tile(documents.astype(np.int32), z),
            np.ascontiguousarray(found.T, dtype=np.int32).ravel(),
            np.zeros(z, dtype=np.int32),
        )
