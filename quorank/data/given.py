"""Collections that a program gives as arrays: named by their digest, since no file holds them.

A run on such data says `source = "arrays:…"` in its `run.toml`; whoever goes on with it gives the same data again.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np

from quorank.data.normalisation import WithinQuery
from quorank.data.normalize import normalize_queries
from quorank.data.ranking import Collection
from quorank.data.source import GIVEN, DataSource, scaled_collection
from quorank.errors import require


def source_of(collection: Collection) -> str:
    """Return what `[data] source` says of these raw data: a digest of all splits, features, labels and queries."""
    digest = hashlib.blake2b(digest_size=16)
    for name, data in collection.splits.items():
        digest.update(f"{name} {data.n_rows} {data.n_features} {data.n_queries}\n".encode())
        for array in (np.ascontiguousarray(data.features), data.labels, data.offsets):
            digest.update(array.view(np.uint8).data)
        digest.update("\0".join(data.query_ids).encode())
    return f"{GIVEN}{digest.hexdigest()}"


def prepared(collection: Collection, source: DataSource) -> Collection:
    """Return given data as a run reads them: normalised as its source says; other data than the source's are refused."""
    sentence = "these are other data than those that the run began with; give it the same arrays"
    require(source_of(collection) == source.source, "data.other-arrays", sentence, source.source)
    named = replace(collection, name=source.source)
    if source.normalize.kind == WithinQuery.kind:
        named = named.changed(normalize_queries)
    return scaled_collection(named, source.normalize).resident()
