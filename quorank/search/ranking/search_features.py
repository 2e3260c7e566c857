"""Features of search results: sixteen of the text, twelve of the document and of the person's use of it.

Features of the text, and the likeness of a document to the first results (`index.likeness`), are normalised to
[0, 1] within the candidates of a search. The others have fixed scales from 0 to 1, so that one choice counts the same
in every list:

- recency, 2^(−age/30 days) of the document; frecency, f/(f + 2) with f = Σ 2^(−age/30 days) over its visits and
  openings from other queries' lists;
- chosen for this query, n/(N + 3): n of the last N ≤ 10 choices for the query; chosen for a longer query, the same over
  queries that begin with this one;
- file, mail, page: the kind of its source; depth of path, a tenth for each folder, at most 1; title is the query;
- early match, 1/(1 + words before it/20); close match, terms of the query over the words that they span.

Ages count from the beginning of the day, so that a list stays the same all day.

The shipped ranker weighs BM25, a little recency and habit, so that lists are good before anything is learned. A list is
ordered by band, habits first, then by score; learning never moves a document out of its band. A habit is a document
that was chosen for at least half of the last choices for the query, with three choices added as doubt: three of three,
or eight of ten, come first in their band.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from quorank.kernels.arrays import Booleans, Doubles, Integers
from quorank.search.index import SearchCandidates
from quorank.text.features import FEATURE_NAMES

PERSONAL_FEATURES = (
    "recency", "frecency", "chosen for this query", "chosen for a longer query", "file", "mail", "page", "depth of path",
    "title is the query", "early match", "close match", "like the first results",
)  # fmt: skip
SEARCH_FEATURES = FEATURE_NAMES + PERSONAL_FEATURES  # names of the features, in the order of the ranker's parameters
DAY = 86400.0
HALF_LIFE = 30 * DAY
FAMILIAR = 2.0  # number of openings today for a frecency of one half
WINDOW = 10  # number of last choices for a query that count
DOUBT = 3.0  # number of choices added to the denominator of a share
FOLDERS = 10.0
EARLY = 20.0
_KINDS = {"file": ("folder",), "mail": ("mbox", "maildir", "mail"), "page": ("firefox", "chromium")}

BAND_NAMES = ("exact name", "beginning of the name", "all words", "some words")
HABIT = 0.5
SCALE = 10.0  # length of the weight of BM25: the sharpness of a softmax over the scores
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
CHOSEN = SEARCH_FEATURES.index("chosen for this query")

Document = tuple[int, str]  # source and key of a document, which stay the same when it is indexed again


class PastChoices(NamedTuple):
    """Earlier choices of a person, as needed for one search."""

    here: Mapping[Document, int]  # counts of the last choices for this query
    total: int  # number of these choices, at most WINDOW
    longer: Mapping[Document, int]  # of the last choices for queries that begin with it
    longer_total: int
    opened: Mapping[Document, Sequence[float]]  # times of openings from lists of other queries


def share(chosen: int, total: int) -> float:
    """Return n/(N + 3): one choice of one is a quarter, eight of ten are more than a half."""
    return chosen / (total + DOUBT)


def decayed(times: tuple[float, ...], now: float) -> float:
    """Return Σ 2^(−age/30 days); a future time counts as now."""
    return float(sum(2.0 ** (-max(now - at, 0.0) / HALF_LIFE) for at in times))


def search_features(found: SearchCandidates, past: PastChoices, terms: int, now: float) -> Doubles:
    """Compute (documents, 28) the features of the candidates of a query with this number of terms."""
    today = now // DAY * DAY
    out = np.zeros((len(found), len(SEARCH_FEATURES)))
    out[:, : len(FEATURE_NAMES)] = within_list(found.features)
    own = out[:, len(FEATURE_NAMES) :]
    own[:, 0] = 2.0 ** (-np.maximum(today - found.modified, 0.0) / HALF_LIFE)
    for row, document in enumerate(documents_of(found)):
        uses = decayed((*found.visits[row], *past.opened.get(document, ())), today)
        own[row, 1] = uses / (uses + FAMILIAR)
        own[row, 2] = share(past.here.get(document, 0), past.total)
        own[row, 3] = share(past.longer.get(document, 0), past.longer_total)
    for at, kinds in enumerate(_KINDS.values()):
        own[:, 4 + at] = [kind in kinds for kind in found.kinds]
    own[:, 7] = np.minimum(found.depths / FOLDERS, 1.0)
    own[:, 8] = found.title_is_query
    own[:, 9] = np.where(found.first_match >= 0, 1.0 / (1.0 + np.maximum(found.first_match, 0) / EARLY), 0.0)
    own[:, 10] = np.where(found.match_span > 0, np.minimum(terms / np.maximum(found.match_span, 1), 1.0), 0.0)
    own[:, 11] = within_list(found.likeness[:, None])[:, 0]
    return out


def documents_of(found: SearchCandidates) -> list[Document]:
    """Return source and key of each candidate."""
    return list(zip(found.sources.tolist(), found.keys, strict=True))


def within_list(values: Doubles) -> Doubles:
    """Normalise each column (documents, features) to [0, 1]; a constant column becomes 0."""
    if not len(values):
        return values
    low, high = values.min(axis=0), values.max(axis=0)
    spread = np.where(high > low, high - low, 1.0)
    return np.asarray((values - low) / spread)


def shipped_parameters() -> Doubles:
    """Return θ of the shipped ranker."""
    theta = np.zeros(len(SEARCH_FEATURES))
    for name, weight in WEIGHTS.items():
        theta[SEARCH_FEATURES.index(name)] = SCALE * weight
    return theta


def habits(features: Doubles) -> Booleans:
    """Return (documents,) whether each is a habit for this query; at most one is."""
    return np.asarray(features[:, CHOSEN] >= HABIT)


def rank_candidates(found: SearchCandidates, features: Doubles, theta: Doubles) -> tuple[Integers, Doubles]:
    """Return the rows of the candidates in display order, and all their scores.

    Of equal scores the newer document comes first, then the lower id.
    """
    scores = np.round(features @ theta, 9)  # so that the order of summation decides nothing
    keys = (found.ids, -found.modified, -scores, ~habits(features), found.bands)
    return np.lexsort(keys), scores
