"""Order of a list: by band, habits first, then by score; learning never takes a document out of its band.

A habit is a document that was chosen at least half as often as the last choices for the query, three of which are held
against it as doubt: three of three, or eight of ten, come first in their band, whatever was learned.
"""

from __future__ import annotations

import numpy as np

from quorank.kernels.arrays import Booleans, Doubles, Integers
from quorank.search.index import SearchCandidates
from quorank.search.ranking.search_features import SEARCH_FEATURES

BAND_NAMES = ("exact name", "beginning of the name", "all words", "some words")
HABIT = 0.5
_CHOSEN = SEARCH_FEATURES.index("chosen for this query")


def habits(features: Doubles) -> Booleans:
    """(documents,) whether each is a habit for this query: at most one is."""
    return np.asarray(features[:, _CHOSEN] >= HABIT)


def ranked(found: SearchCandidates, features: Doubles, theta: Doubles) -> tuple[Integers, Doubles]:
    """Return the rows of the candidates in the order to show, and all their scores.

    Of equal scores the newer document comes first, then the lower id.
    """
    scores = np.round(features @ theta, 9)  # so that the order of summation decides nothing
    keys = (found.ids, -found.modified, -scores, ~habits(features), found.bands)
    return np.lexsort(keys), scores
