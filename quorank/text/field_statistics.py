"""What features need to know about a field of all documents, as plain numbers.

A party's own numbers are exact. Those of several parties add up, and estimates from sketches may stand for counts, so
nothing here needs to be whole: it need only be a finite number.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from quorank.arrays import Doubles
from quorank.errors import require


@dataclass(frozen=True, eq=False)
class FieldStatistics:
    """One field (body or title) of a set of documents, seen by the terms of one query."""

    documents: float  # N
    document_frequency: Doubles  # (terms,) documents that hold the term
    collection_frequency: Doubles  # (terms,) occurrences of the term in all documents
    collection_length: float  # |C|, occurrences of all terms
    # Σ_d |d|_u, the numbers of distinct terms, added up over the documents; None where it is not known
    distinct_total: float | None = field(default=None)

    def __post_init__(self) -> None:
        for name in ("document_frequency", "collection_frequency"):
            values = np.ascontiguousarray(getattr(self, name), dtype=np.float64)
            require(
                values.ndim == 1, f"{name}: expected one number a query term, got the shape {values.shape}"
            )
            require(np.isfinite(values).all(), f"{name}: expected finite numbers")
            object.__setattr__(self, name, values)
        require(
            len(self.document_frequency) == len(self.collection_frequency),
            f"document and collection frequencies of {len(self.document_frequency)} and "
            f"{len(self.collection_frequency)} terms; expected the same terms",
        )
        for name in ("documents", "collection_length", "distinct_total"):
            value = getattr(self, name)
            require(
                value is None or (np.isfinite(value) and value >= 0.0),
                f"{name}: expected at least 0, got {value}",
            )

    @property
    def mean_length(self) -> float:
        """Terms of a document on average."""
        return self.collection_length / self.documents if self.documents > 0 else 0.0

    def likely_distinct(self, lengths: Doubles) -> Doubles:
        """|d|_u for documents of which only the length is known: the share that all documents have on average."""
        if self.distinct_total is None or self.collection_length <= 0:
            return lengths
        return np.asarray(lengths * min(self.distinct_total / self.collection_length, 1.0))


def pooled(*parties: FieldStatistics) -> FieldStatistics:
    """The statistics of all parties' documents together, for the same terms (the sums in IDF, §III)."""
    require(parties, "the statistics of no party cannot be put together; expected at least one")
    distinct = [party.distinct_total for party in parties]
    known = [total for total in distinct if total is not None]
    require(
        len({len(party.document_frequency) for party in parties}) == 1,
        "statistics of different terms cannot be put together; expected those of one query's terms",
    )
    return FieldStatistics(
        documents=sum(party.documents for party in parties),
        document_frequency=np.sum([party.document_frequency for party in parties], axis=0),
        collection_frequency=np.sum([party.collection_frequency for party in parties], axis=0),
        collection_length=sum(party.collection_length for party in parties),
        distinct_total=sum(known) if len(known) == len(distinct) else None,
    )
