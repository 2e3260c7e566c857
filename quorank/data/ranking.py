"""Ranking data in columns: queries, their candidate documents' features, labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from quorank.arrays import Floats, Int8s, Integers
from quorank.data.strings import Strings, take
from quorank.errors import require

LANES = 8
"""Rows are padded with zeros to a multiple of this many float32, so that kernels read whole vectors."""


@dataclass(frozen=True, eq=False)
class RankingData:
    """One split of a collection: rows are (query, document) pairs, sorted by query.

    Row r holds the features of one document for its query; rows offsets[q] .. offsets[q+1] belong to query q.
    """

    # (rows, stride) in C order; stride is a multiple of LANES, zeros behind n_features
    padded: Floats
    labels: Int8s  # (rows,) graded relevance, 0 is not relevant
    offsets: Integers  # (queries + 1,) first row of each query
    n_features: int
    query_ids: Sequence[str] = field(repr=False)  # (queries,)
    # (rows,), None where the file names none
    document_ids: Sequence[str] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        rows, stride = self.padded.shape
        require(
            self.padded.dtype == np.float32 and self.padded.flags.c_contiguous,
            "features must be float32 in C order",
        )
        require(
            stride % LANES == 0 and stride >= self.n_features,
            f"row stride {stride} must be a multiple of {LANES}",
        )
        require(
            self.labels.shape == (rows,) and self.labels.dtype == np.int8, "labels must be int8, one per row"
        )
        require(
            self.offsets[0] == 0 and self.offsets[-1] == rows,
            "query offsets must run from 0 to the row count",
        )
        require(len(self.query_ids) == len(self.offsets) - 1, "there must be one query id per query")

    @classmethod
    def from_arrays(
        cls,
        features: npt.ArrayLike,
        labels: npt.ArrayLike,
        offsets: npt.ArrayLike,
        query_ids: Sequence[str] | None = None,
        document_ids: Sequence[str] | None = None,
    ) -> RankingData:
        """Build from an ordinary (rows, features) array; the rows of a query must stand together."""
        dense = np.asarray(features, dtype=np.float32)
        offsets_ = np.ascontiguousarray(offsets, dtype=np.int64)
        ids = query_ids if query_ids is not None else [str(q) for q in range(len(offsets_) - 1)]
        return cls(
            pad(dense),
            np.ascontiguousarray(labels, dtype=np.int8),
            offsets_,
            dense.shape[1],
            ids,
            document_ids,
        )

    @property
    def features(self) -> Floats:
        """(rows, n_features) view without the padding."""
        return self.padded[:, : self.n_features]

    @property
    def n_rows(self) -> int:
        return len(self.labels)

    @property
    def n_queries(self) -> int:
        return len(self.offsets) - 1

    @property
    def longest(self) -> int:
        """Documents of the longest candidate list."""
        return int(np.diff(self.offsets).max(initial=0))

    @property
    def max_label(self) -> int:
        return int(self.labels.max(initial=0))

    def resident(self) -> RankingData:
        """The same data with its features in the process's own memory.

        A cache file is mapped in small pages, and lists drawn at random cost a page walk each: copying them once pays
        for itself within the first rounds.
        """
        if self.padded.flags.owndata:
            return self
        return replace(self, padded=np.array(self.padded))

    def with_features(self, features: npt.ArrayLike) -> RankingData:
        """Return the same lists with other (rows, n) features."""
        dense = np.asarray(features, dtype=np.float32)
        require(
            dense.ndim == 2 and len(dense) == self.n_rows,
            "ranking-data.shape",
            f"expected features of shape ({self.n_rows}, n), got {dense.shape}",
        )
        return replace(self, padded=pad(dense), n_features=dense.shape[1])

    def rows_of(self, query: int) -> slice:
        return slice(int(self.offsets[query]), int(self.offsets[query + 1]))


@dataclass(frozen=True, eq=False)
class Collection:
    """A collection split for an experiment. `validation` may be missing."""

    name: str
    train: RankingData
    test: RankingData
    validation: RankingData | None = None

    def __post_init__(self) -> None:
        for split in (self.test, self.validation):
            if split is not None:
                require(
                    split.n_features == self.train.n_features,
                    f"{self.name}: all splits must have the same features, "
                    f"train has {self.train.n_features} and another split {split.n_features}",
                )

    def resident(self) -> Collection:
        """The same collection in the process's own memory (see `RankingData.resident`)."""
        return replace(self, train=self.train.resident(), test=self.test.resident())

    @property
    def grades(self) -> int:
        """3 for labels 0..2 and 5 for labels 0..4: the two scales for which click models are published."""
        splits = [s for s in (self.train, self.test, self.validation) if s is not None]
        highest = max(s.max_label for s in splits)
        require(highest <= 4, f"{self.name}: label {highest} found; labels 0..2 or 0..4 are supported")
        return 3 if highest <= 2 else 5


def pad(features: Floats) -> Floats:
    """(rows, n) → (rows, stride) with zeros behind the n-th column."""
    rows, n = features.shape
    stride = -(-n // LANES) * LANES
    out = np.zeros((rows, stride), dtype=np.float32)
    out[:, :n] = features
    return out


def documents_of(data: RankingData, rows: Integers) -> Sequence[str] | None:
    """The document ids of some rows."""
    documents = data.document_ids
    if documents is None or isinstance(documents, Strings):
        return documents and take(documents, rows)
    return [documents[row] for row in rows.tolist()]
