"""Term statistics summed over all parties without showing any party's own.

IDF (CS-F-LTR §III) and language models need sums over the documents of all parties: documents with a term, and its
occurrences. The paper asks every party about every term and document. Here each party counts both for its terms into
Count-Min tables under the group's hashing key. Tables add up, so a secure sum of them (`privacy.secure_sum`) suffices,
once for all later queries: the coordinator sees a sum whose columns it cannot read without the key. With a budget ε every
party first adds discrete Laplace noise to its own tables.

One occurrence of one term changes z cells of either table of its field by one, and the field's length and number of
distinct terms: an L1 sensitivity of 2z + 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from quorank.kernels.arrays import Integers, Uint32s
from quorank.privacy.secure_sum.in_process import secure_sum
from quorank.silos.discrete_laplace import AddressedStream, SystemStream, draw_noise, scale_for
from quorank.silos.hashing import Hashing
from quorank.silos.holdings import FIELDS, Holding
from quorank.silos.training.lists import Statistics
from quorank.text import FieldStatistics, Index, pooled

Streams = Callable[[int], SystemStream]
"""Noise of a field's tables, by the field's number."""

NOISE = 1 << 21  # in the addresses of the noise in tables
ROWS, COLUMNS = 4, 1 << 14  # z and w of the tables
SCALARS = 3  # documents, occurrences, distinct terms: after the two tables of a field
VECTOR_LENGTH = len(FIELDS) * (2 * ROWS * COLUMNS + SCALARS)
"""Length of a party's part of the sum."""


@dataclass(frozen=True, eq=False)
class SharedStatistics:
    """Sum of all parties' tables, readable with the hashing key."""

    hashing: Hashing
    totals: dict[str, Integers] = field(repr=False)  # field → its two tables and scalars
    epsilon: float | None = None  # ε of one occurrence; None: no noise
    _known: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict, repr=False)

    def __call__(self, terms: Sequence[str]) -> tuple[FieldStatistics, FieldStatistics]:
        """Return the statistics of terms in bodies and in titles."""
        body, title = (self._of(name, terms) for name in FIELDS)
        return body, title

    def _of(self, name: str, terms: Sequence[str]) -> FieldStatistics:
        new = [term for term in dict.fromkeys(terms) if (name, term) not in self._known]
        if new:
            self._look_up(name, new)
        held, occurrences = np.array([self._known[name, term] for term in terms]).reshape(-1, 2).T
        documents, length, distinct = np.maximum(self.totals[name][-SCALARS:], 0).astype(np.float64)
        return FieldStatistics(documents, held, occurrences, length, distinct)

    def _look_up(self, name: str, terms: list[str]) -> None:
        """Read terms from the tables: the smallest row or, with noise, which a minimum would select, the median."""
        z, w = self.hashing.rows, self.hashing.columns
        columns, _ = self.hashing.places(terms)
        tables = self.totals[name][:-SCALARS].reshape(2, z, w)
        cells = tables[:, np.arange(z)[:, None], columns.T].astype(np.float64)  # (2, z, terms)
        found = np.maximum(np.median(cells, axis=1) if self.epsilon is not None else cells.min(axis=1), 0.0)
        for term, (held, occurrences) in zip(terms, found.T.tolist(), strict=True):
            self._known[name, term] = held, max(occurrences, held)


def party_totals(index: Index, hashing: Hashing) -> Integers:
    """Return one party's tables of a field, flat, followed by the scalars."""
    z, w = hashing.rows, hashing.columns
    tables = np.zeros((2, z, w), dtype=np.int64)
    columns, _ = hashing.places(index.vocabulary)
    for table, numbers in zip(tables, (index.document_frequency, index.collection_frequency), strict=True):
        for row in range(z):
            np.add.at(table[row], columns[:, row], numbers)
    scalars = (index.n_documents, index.collection_length, len(index.terms))
    return np.concatenate((tables.reshape(-1), np.array(scalars, dtype=np.int64)))


def party_vector(party: Holding, hashing: Hashing, epsilon: float | None, streams: Streams) -> Uint32s:
    """Return a party's part of the sum, modulo 2^32: the tables of all fields, with noise where there is a budget."""
    parts = [party_totals(getattr(party.documents, name), hashing) for name in FIELDS]
    if epsilon is not None:
        for number, totals in enumerate(parts):
            totals += draw_noise(streams(number), scale_for(2 * hashing.rows + 2, epsilon), len(totals))
    return np.concatenate(parts).astype(np.uint32)


def read_total(total: Uint32s, hashing: Hashing, epsilon: float | None) -> SharedStatistics:
    """Return the statistics in the sum of all parties' vectors."""
    signed = total.astype(np.uint32).view(np.int32).astype(np.int64)
    by_field = dict(zip(FIELDS, np.split(signed, len(FIELDS)), strict=True))
    return SharedStatistics(hashing, by_field, epsilon)


def seeded_statistics_noise(seed: int, party: int) -> Streams:
    """Return the noise of a simulated party's tables."""
    return lambda field: AddressedStream(seed, round_=NOISE, client=party, interaction=field)


def share_statistics(
    parties: Sequence[Holding], key: bytes, epsilon: float | None = None, seed: int = 1
) -> SharedStatistics:
    """Sum all parties' tables by a secure sum in this process."""
    hashing = Hashing(key, ROWS, COLUMNS)
    vectors = {
        p: party_vector(party, hashing, epsilon, seeded_statistics_noise(seed, p)) for p, party in enumerate(parties)
    }
    if len(parties) < 2:
        return read_total(vectors[0], hashing, epsilon)
    summed = secure_sum(vectors, round_=0, session=b"statistics")
    return read_total(summed.total, hashing, epsilon)


def exact_statistics(parties: Sequence[Holding]) -> Statistics:
    """Return the exact sums over all parties' documents (the IDF of §III)."""

    def statistics(terms: Sequence[str]) -> tuple[FieldStatistics, FieldStatistics]:
        each = [party.documents.statistics(terms) for party in parties]
        return pooled(*(body for body, _ in each)), pooled(*(title for _, title in each))

    return statistics
