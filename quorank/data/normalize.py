"""Query-level normalisation: within each query, each feature is brought to [0, 1] by its minimum and maximum.

This is how LETOR publishes MQ2007 and MQ2008; a feature that is constant in a query becomes 0.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from quorank.data.ranking import RankingData
from quorank.kernels.arrays import Floats, Integers
from quorank.kernels.compiled import kernel


@kernel
def _normalize(padded: Floats, offsets: Integers, n_features: int) -> Any:
    low, scale = np.empty(n_features), np.empty(n_features)
    for q in range(len(offsets) - 1):
        first, last = offsets[q], offsets[q + 1]
        if first == last:
            continue
        for f in range(n_features):
            low[f] = scale[f] = padded[first, f]
        for r in range(first + 1, last):
            for f in range(n_features):
                low[f] = min(low[f], padded[r, f])
                scale[f] = max(scale[f], padded[r, f])
        for f in range(n_features):
            scale[f] -= low[f]
        for r in range(first, last):
            for f in range(n_features):
                # in double: the range of two float32 may be beyond float32, and their ratio must not exceed 1
                padded[r, f] = (padded[r, f] - low[f]) / scale[f] if scale[f] > 0.0 else 0.0


def normalize_queries(data: RankingData) -> RankingData:
    """Return (x - min) / (max - min) per query and feature; the data given is left as it is."""
    padded = data.padded.copy()
    _normalize(padded, data.offsets, data.n_features)
    return replace(data, padded=padded)
