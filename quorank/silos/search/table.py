"""Owner's table of a search: one row of w columns, exact and sparse, of which noisy columns are made on demand.

A column holds, for every document d, v(d, j) = c(d, j) + X(d, j): the occurrences of the terms that the group's key hashes
to column j, and discrete Laplace noise of scale 1/ε_c. X(d, j) is draw number d of a ChaCha20 stream whose key follows
from the owner's lasting secret and j. So a cell has the same noise for ever, whoever asks, after restarts too, and however
many documents there are. The noise of a length, of scale 1/ε_L, is made in the same way. One occurrence of one term
changes one cell and one length by one: ε_c + ε_L = ε, and everything that is computed from v and the noisy lengths alone
is post-processing.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

from quorank.errors import require
from quorank.kernels.arrays import Doubles, Int32s, Integers
from quorank.silos.protocol.discrete_laplace import SystemStream, draw_noise, scale_for
from quorank.silos.search.estimates import count_prior, estimated_frequency, expected_frequency, shrink_lengths
from quorank.silos.search.messages import MOST_VALUE
from quorank.silos.search.settings import SearchTerms
from quorank.silos.sketch.hashing import Hashing
from quorank.text import Index
from quorank.text.features import idf_smoothed

KEPT_CELLS = 1 << 22
"""Cells of noisy columns that are kept in memory; older ones are made again when they are asked for."""
_COUNTS_EACH = 1.5  # cf/df that an owner supposes: its own would be exact


def release_key(secret: bytes, salt: bytes, hashing: Hashing, terms: SearchTerms) -> bytes:
    """Derive the key of all noise of one release from the owner's secret, its ledger's salt, the group's hashing and ε.

    With another ε or key of the group nothing of the noise is the same: the same words with another scale would show it.
    """
    sound = isinstance(secret, bytes) and 16 <= len(secret) <= 64
    require(sound, "silo-search.bad-secret", "an owner's secret must have 16 to 64 bytes; take 32 random ones")
    stated = f"{salt.hex()} {hashing.fingerprint()} {terms.perturbation} {terms.cell_epsilon} {terms.length_epsilon}"
    return hashlib.blake2b(stated.encode(), key=secret, digest_size=32, person=b"quorank release").digest()


def derived_key(key: bytes, purpose: str) -> bytes:
    """Derive a key for one purpose."""
    return hashlib.blake2b(purpose.encode(), key=key, digest_size=32, person=b"quorank cells").digest()


def table_digests(index: Index, hashing: Hashing, ids: tuple[str, ...], key: bytes) -> list[bytes]:
    """Return for every document 16 bytes that say what its cells hold, keyed, so that they say nothing to others."""
    columns = hashing.places(index.vocabulary)[0][:, 0] if index.vocabulary else np.zeros(0, dtype=np.int32)
    found = []
    for row, name in enumerate(ids):
        own = slice(index.offsets[row], index.offsets[row + 1])
        cells = np.stack((columns[index.terms[own]], index.counts[own]), axis=1).astype("<i4")
        held = cells[np.lexsort((cells[:, 1], cells[:, 0]))].tobytes()
        digest = hashlib.blake2b(held, key=key, digest_size=16, person=b"quorank content")
        digest.update(name.encode("utf-8", "surrogatepass"))
        found.append(digest.digest())
    return found


@dataclass(frozen=True)
class NoisyColumn:
    """Cells of a column that are 1 or more: places of their documents, values, and what each adds to a score."""

    places: Int32s  # in the order of document numbers
    values: Integers
    scores: Doubles  # idf·E[tf | v], from noisy values alone


class SearchTable:
    """Noisy cells and lengths of one owner's documents; row r of the index is document number numbers[r]."""

    def __init__(self, index: Index, hashing: Hashing, key: bytes, terms: SearchTerms, numbers: Integers) -> None:
        require(hashing.rows == 1, "value.out-of-range", f"a search hashes into one row, got {hashing.rows}", "rows")
        self.index, self.terms, self._key = index, terms, key
        self.rows = np.argsort(numbers, kind="stable")  # (documents,) row of the index by place
        self.numbers: Integers = numbers[self.rows]  # (documents,) ascending
        self._place = np.empty(len(numbers), dtype=np.int64)
        self._place[self.rows] = np.arange(len(numbers))
        columns = hashing.places(index.vocabulary)[0][:, 0] if index.vocabulary else np.zeros(0, dtype=np.int32)
        self._by_column = np.argsort(columns, kind="stable")
        self._columns = columns[self._by_column]
        self.announced = self._announced()
        self.lengths = shrink_lengths(self.announced, terms.length_epsilon if terms.has_noise else None)
        self._relative = self.lengths / max(float(self.lengths.mean()), 1.0) if len(self.lengths) else self.lengths
        self._kept: OrderedDict[int, NoisyColumn] = OrderedDict()
        self._cells = 0

    @property
    def n_documents(self) -> int:
        return len(self.numbers)

    def column(self, number: int) -> NoisyColumn:
        """Return the cells of a column that are 1 or more."""
        if number in self._kept:
            self._kept.move_to_end(number)
            return self._kept[number]
        made = self._made(number)
        self._kept[number] = made
        self._cells += 1 + len(made.places)
        while self._cells > KEPT_CELLS and len(self._kept) > 1:
            _, oldest = self._kept.popitem(last=False)
            self._cells -= 1 + len(oldest.places)
        return made

    def _made(self, number: int) -> NoisyColumn:
        first, last = np.searchsorted(self._columns, [number, number + 1])
        cells = self._noise(f"column {number}", self.terms.cell_epsilon)
        for term in self._by_column[first:last].tolist():
            documents, counts = self.index.postings(term)
            cells[self._place[documents]] += counts
        n, q = self.n_documents, self.terms.q
        places = np.flatnonzero(cells >= 1)
        values = np.minimum(cells[places], MOST_VALUE)
        df = estimated_frequency(len(places), n, q)
        weight = float(idf_smoothed(float(n), np.array([df]))[0])
        scores = weight * expected_frequency(values, self._relative[places], count_prior(df, _COUNTS_EACH * df, n), q)
        return NoisyColumn(places.astype(np.int32), values, scores)

    def _announced(self) -> Integers:
        """Return the lengths as they are announced: the same in every session."""
        noisy = self.index.lengths[self.rows] + self._noise("lengths", self.terms.length_epsilon)
        return np.asarray(np.clip(noisy, -(2**31), 2**31 - 1))

    def _noise(self, purpose: str, epsilon: float) -> Integers:
        """Draw the noise of every document: draw number d of a stream for the document with number d."""
        if not self.terms.has_noise or not self.n_documents:
            return np.zeros(self.n_documents, dtype=np.int64)
        stream = SystemStream(derived_key(self._key, purpose))
        return draw_noise(stream, scale_for(1, epsilon), int(self.numbers[-1]) + 1)[self.numbers]
