"""What a collection holds, in numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from quorank.data.ranking import Collection, RankingData


def describe(collection: Collection) -> dict[str, Any]:
    """The numbers of each split, ready for JSON."""
    splits = {"train": collection.train, "validation": collection.validation, "test": collection.test}
    return {
        "name": collection.name,
        "features": collection.train.n_features,
        "splits": {name: describe_split(split) for name, split in splits.items() if split is not None},
    }


def describe_split(data: RankingData) -> dict[str, Any]:
    lengths = np.diff(data.offsets)
    grades, counts = np.unique(data.labels, return_counts=True)
    best = np.maximum.reduceat(data.labels, data.offsets[:-1])
    constant = data.features.min(axis=0) == data.features.max(axis=0)
    return {
        "queries": data.n_queries,
        "rows": data.n_rows,
        "documents_per_query": {
            "min": int(lengths.min()),
            "mean": round(float(lengths.mean()), 2),
            "max": int(lengths.max()),
        },
        "labels": {str(grade): int(count) for grade, count in zip(grades, counts, strict=True)},
        "queries_without_relevant": int(np.count_nonzero(best == 0)),
        "constant_features": (np.flatnonzero(constant) + 1).tolist(),
        "document_ids": data.document_ids is not None,
    }
