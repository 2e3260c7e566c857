"""Term statistics summed over all parties without showing any party's own.

IDF (CS-F-LTR §III) and language models need sums over the documents of all parties: documents with a term, and its
occurrences. The paper asks every party about every term and document. Here each party counts both for its terms into
Count-Min tables under the group's hashing key. Tables add up, so one sum under masks suffices for all later queries: the
coordinator sees a sum whose columns it cannot read without the key. With a budget ε every party first adds discrete Laplace
noise to its own tables.

One occurrence of one term changes z cells of either table of its field by one, and the field's length and number of
distinct terms: an L1 sensitivity of 2z + 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from quorank.kernels.arrays import Int32s, Integers, Uint32s
from quorank.silos.count_sketch import Hashing, seeded_secret
from quorank.silos.discrete_laplace import AddressedStream, SystemStream, draw_noise, scale_for
from quorank.silos.holdings import FIELDS, Holding
from quorank.silos.training.lists import Statistics
from quorank.text import FieldStatistics, Index, pooled

NOISE = 1 << 21  # in the addresses of the noise in tables
ROWS, COLUMNS = 4, 1 << 14  # z and w of the tables
SCALARS = 3  # documents, occurrences, distinct terms: after the two tables of a field
VECTOR_LENGTH = len(FIELDS) * (2 * ROWS * COLUMNS + SCALARS)  # length of a party's part of the sum


@dataclass(frozen=True, eq=False)
class SharedStatistics:
    """Sum of all parties' vectors, readable with the hashing key."""

    hashing: Hashing
    total: Uint32s = field(repr=False)  # two tables and scalars of each field
    epsilon: float | None  # ε of one occurrence; None: no noise

    def __call__(self, terms: Sequence[str]) -> tuple[FieldStatistics, FieldStatistics]:
        """Return the statistics of terms in bodies and in titles."""
        columns, _ = self.hashing.places(terms)
        body, title = (self._read(totals, columns) for totals in np.split(self.total.view(np.int32), len(FIELDS)))
        return body, title

    def _read(self, totals: Int32s, columns: Int32s) -> FieldStatistics:
        """Read (terms, z) cells: the smallest of a term's rows, or with noise, which a minimum would select, the median."""
        tables = totals[:-SCALARS].reshape(2, self.hashing.rows, self.hashing.columns)
        cells = tables[:, np.arange(self.hashing.rows)[:, None], columns.T].astype(np.float64)  # (2, z, terms)
        found = np.maximum(np.median(cells, axis=1) if self.epsilon is not None else cells.min(axis=1), 0.0)
        documents, length, distinct = np.maximum(totals[-SCALARS:], 0).astype(np.float64)
        return FieldStatistics(documents, found[0], found.max(axis=0), length, distinct)


def party_vector(
    party: Holding, hashing: Hashing, epsilon: float | None, stream_of: Callable[[int], SystemStream]
) -> Uint32s:
    """Return a party's part of the sum, modulo 2^32: the tables of all fields, with noise where there is a budget.

    `stream_of` is the source of a field's noise, by the field's number.
    """
    parts: list[Integers] = []
    for number, name in enumerate(FIELDS):
        index: Index = getattr(party.documents, name)
        tables, places = np.zeros((2, hashing.rows, hashing.columns), dtype=np.int64), hashing.places(index.vocabulary)
        for table, frequency in zip(tables, (index.document_frequency, index.collection_frequency), strict=True):
            np.add.at(table, (np.arange(hashing.rows), places[0]), frequency[:, None])
        scalars = (index.n_documents, index.collection_length, len(index.terms))
        parts.append(np.concatenate((tables.reshape(-1), scalars)))
        if epsilon is not None:
            parts[-1] += draw_noise(stream_of(number), scale_for(2 * hashing.rows + 2, epsilon), len(parts[-1]))
    return np.concatenate(parts).astype(np.uint32)


def seeded_statistics_noise(seed: int, party: int, field: int) -> SystemStream:
    """Return the noise of a simulated party's tables of a field."""
    return AddressedStream(seed, round_=NOISE, client=party, interaction=field)


def share_statistics(parties: Sequence[Holding], epsilon: float | None = None, seed: int = 1) -> SharedStatistics:
    """Sum all parties' tables in one process: the same sum as a rehearsal over a network with this seed."""
    hashing = Hashing(seeded_secret(seed, "statistics"), ROWS, COLUMNS)
    vectors = [
        party_vector(party, hashing, epsilon, partial(seeded_statistics_noise, seed, number))
        for number, party in enumerate(parties)
    ]
    return SharedStatistics(hashing, np.sum(vectors, axis=0, dtype=np.uint32), epsilon)


def exact_statistics(parties: Sequence[Holding]) -> Statistics:
    """Return the exact sums over all parties' documents (the IDF of §III)."""

    def statistics(terms: Sequence[str]) -> tuple[FieldStatistics, FieldStatistics]:
        each = [party.documents.statistics(terms) for party in parties]
        return pooled(*(body for body, _ in each)), pooled(*(title for _, title in each))

    return statistics
