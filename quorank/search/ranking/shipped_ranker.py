"""Ranker that a search begins with: BM25, a little recency and habit, so that lists are good before anything is learned."""

from __future__ import annotations

import numpy as np

from quorank.kernels.arrays import Doubles
from quorank.search.ranking.search_features import SEARCH_FEATURES

SCALE = 10.0
"""Length of the weight of BM25: how sharply a softmax over the scores tells documents apart."""
WEIGHTS = {
    "BM25 of body": 1.0,
    "BM25 of title": 0.1,
    "recency": 0.1,
    "frecency": 0.1,
    "chosen for this query": 0.4,
    "chosen for a longer query": 0.3,
    "title is the query": 0.2,
    "like the first results": 0.4,
}
"""Relative weights of features; all others begin at 0."""


def shipped_parameters() -> Doubles:
    """Return θ of the ranker that is shipped."""
    theta = np.zeros(len(SEARCH_FEATURES))
    for name, weight in WEIGHTS.items():
        theta[SEARCH_FEATURES.index(name)] = SCALE * weight
    return theta
