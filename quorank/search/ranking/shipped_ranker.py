"""Order of a list, and the ranker that a search starts with.

A list is ordered by band, habits first, then by score; learning never moves a document out of its band. A habit is a
document that was chosen for at least half of the last choices for the query, with three choices added as doubt: three
of three, or eight of ten, come first in their band.

The shipped ranker weighs BM25, a little recency and habit, so that lists are good before anything is learned.
"""

from __future__ import annotations

import numpy as np

from quorank.kernels.arrays import Booleans, Doubles, Integers
from quorank.search.index import SearchCandidates
from quorank.search.ranking.search_features import SEARCH_FEATURES

BAND_NAMES = ("exact name", "beginning of the name", "all words", "some words")
HABIT = 0.5
SCALE = 10.0
"""Length of the weight of BM25: the sharpness of a softmax over the scores."""
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
"""Relative weights of features; all others are 0."""
_CHOSEN = SEARCH_FEATURES.index("chosen for this query")


def shipped_parameters() -> Doubles:
    """Return θ of the shipped ranker."""
    theta = np.zeros(len(SEARCH_FEATURES))
    for name, weight in WEIGHTS.items():
        theta[SEARCH_FEATURES.index(name)] = SCALE * weight
    return theta


def habits(features: Doubles) -> Booleans:
    """Return (documents,) whether each is a habit for this query; at most one is."""
    return np.asarray(features[:, _CHOSEN] >= HABIT)


def rank_candidates(found: SearchCandidates, features: Doubles, theta: Doubles) -> tuple[Integers, Doubles]:
    """Return the rows of the candidates in display order, and all their scores.

    Of equal scores the newer document comes first, then the lower id.
    """
    scores = np.round(features @ theta, 9)  # so that the order of summation decides nothing
    keys = (found.ids, -found.modified, -scores, ~habits(features), found.bands)
    return np.lexsort(keys), scores
