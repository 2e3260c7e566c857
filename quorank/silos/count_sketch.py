"""Count Sketch and Count-Min sketch of documents under a group's key, and NAIVE: one sketch per document, all read.

**Hash functions** h_a(t) ∈ {0, …, w − 1} and g_a(t) ∈ {−1, +1} of each row a (CS-F-LTR §IV-A). The paper hashes each term
z times with MD5. Here a term costs one SHAKE-256 output of 32·z bits (FIPS 202), keyed by a prefix. Row a takes 32 of them:
the lowest for g_a, the others, x, for h_a = ⌊x·w / 2^31⌋. The probability of a column differs from 1/w by a share of less
than w / 2^31 of itself. Without the key the output is indistinguishable from the values of a random function.

**Count Sketch** (Charikar, Chen and Farach-Colton 2002; CS-F-LTR eqs 2 and 3): C(a, h_a(t)) grows by g_a(t) for each
occurrence of t (eq. 2). Eq. 3 prints the estimate as median_a C(a, h_a(t)), without the sign, which would estimate −f for
every row with g_a(t) = −1; the estimate of Charikar et al., and of this file, is median_a g_a(t)·C(a, h_a(t)). Each row is
unbiased with a variance of at most F2/w, F2 = Σ f²; their median is unbiased where the errors are symmetric, as they are
with independent signs.

**Count-Min** (Cormode and Muthukrishnan 2005), the alternative in CS-F-LTR §IV-A: C(a, h_a(t)) grows by one for each
occurrence of t, and the estimate is min_a C(a, h_a(t)): never less than the count, and more only if other terms of the
document share the term's cell in every row.

**NAIVE** is CS-F-LTR algorithm 3. The paper's 100 s per query come from asking documents one after another. Here the cells
of a term are contiguous over documents: a query copies z blocks of memory and computes all medians at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from quorank.errors import require, require_range
from quorank.kernels.arrays import Doubles, Int8s, Int32s, Integers
from quorank.text import Index

VERSION = 2  # version of the hash functions, part of their fingerprint
MOST_ROWS, MOST_COLUMNS = 256, 1 << 20
MOST_OCCURRENCES = 2**30 - 1  # largest number of occurrences in one document, which a cell can hold with either sign


@dataclass(frozen=True)
class Hashing:
    """The z pairs of hash functions that all parties of a group share, under one secret key."""

    key: bytes = field(repr=False)
    rows: int  # z
    columns: int  # w

    def __post_init__(self) -> None:
        fits = isinstance(self.key, bytes) and 16 <= len(self.key) <= 64
        require(fits, "sketch.bad-key", "the key of hash functions must have 16 to 64 bytes; take 32 random ones")
        require_range("rows", self.rows, least=1, most=MOST_ROWS)
        require_range("columns", self.columns, least=2, most=MOST_COLUMNS)

    def places(self, terms: Sequence[str]) -> tuple[Int32s, Int8s]:
        """Return the (terms, z) columns h_a(t) and the (terms, z) signs g_a(t)."""
        prefix, size = hashlib.blake2b(key=self.key, digest_size=32, person=b"quorank term").digest(), 4 * self.rows
        outputs = [hashlib.shake_256(prefix + t.encode("utf-8", "surrogatepass")).digest(size) for t in terms]
        words = np.frombuffer(b"".join(outputs), dtype="<u4").reshape(len(terms), self.rows)
        columns = ((words >> 1).astype(np.uint64) * np.uint64(self.columns)) >> np.uint64(31)
        return columns.astype(np.int32), 1 - 2 * (words & 1).astype(np.int8)

    def fingerprint(self) -> str:
        """Return a public 128-bit digest of version, key, z and w, as hex."""
        stated = f"{VERSION} {self.rows} {self.columns}".encode()
        return hashlib.blake2b(stated, key=self.key, digest_size=16, person=b"quorank print").hexdigest()


def seeded_secret(seed: int, purpose: str) -> bytes:
    """Return 32 bytes for a simulation: the same for the same seed, and therefore not secret."""
    return hashlib.blake2b(f"{seed} {purpose}".encode(), digest_size=32, person=b"quorank seeded").digest()


def sketch_rows(index: Index, hashing: Hashing, sketch: Literal["count", "count-min"]) -> Iterator[Any]:
    """Compute the sparse (documents, w) cells of each of the z rows: eq. 2 for all documents at once."""
    from scipy.sparse import csr_array  # a search, which makes no such sketch, starts without it

    columns, signs = hashing.places(index.vocabulary)
    words = len(index.vocabulary)
    counts = csr_array((index.counts.astype(np.int32), index.terms, index.offsets), (index.n_documents, words))
    sides = (signs if sketch == "count" else np.ones_like(signs)).astype(np.int32)
    for a in range(hashing.rows):
        hashed = (sides[:, a].copy(), columns[:, a].copy(), np.arange(words + 1))
        yield counts @ csr_array(hashed, (words, hashing.columns))


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

    def estimates(self, term: str, rows: int | None = None) -> Doubles:
        """Estimate the (documents,) occurrences of a term from the first `rows` rows, all unless given."""
        columns, signs = (places[0, :rows] for places in self.hashing.places([term]))
        cells = self.table[np.arange(len(columns)), columns].T
        return count_sketch_estimate(cells, signs) if self.sketch == "count" else count_min_estimate(cells)

    def top(self, term: str, k: int) -> tuple[Integers, Doubles]:
        """Return the k documents with the largest estimates, largest first (algorithm 3); of equal ones the earlier."""
        require_range("k", k, least=1)
        estimates = self.estimates(term)
        chosen = np.argsort(-estimates, kind="stable")[:k]
        return chosen, estimates[chosen]
