"""Search of a party's own documents in the order of its group's ranker.

The search returns the first documents by BM25, as in the training (`lists`), and the ranker orders them by the same
features: those of texts and the party's own evidence, each normalised to [0, 1] within the list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast, get_args

import numpy as np

from quorank.rankers.ranker_file import SavedRanker
from quorank.silos.holdings import Holding
from quorank.silos.training.lists import EvidenceName, OwnSearch, PartySearch
from quorank.text import FEATURE_NAMES, Features

EVIDENCE = {
    "feedback of body": "BM25 of the query expanded by 20 terms of its 5 best documents by BM25 (RM3; α = 0.3)",
    "latent of body": "cosine of query and document in 64 latent dimensions of all bodies (LSA of log tf · idf)",
    "embedding of body": "cosine of the embeddings of query and document",
}
"""Definition of each evidence by the name of its feature."""


def search_of_ranker(saved: SavedRanker) -> OwnSearch | None:
    """Return the search whose features a group's ranker takes; None for a ranker of other features.

    >>> names = OwnSearch(evidence=("latent",)).feature_names
    >>> from quorank.rankers import Linear
    >>> search_of_ranker(SavedRanker(Linear(), 17, np.ones(17), feature_names=names)).evidence
    ('latent',)
    """
    names = saved.feature_names
    evidence = tuple(name.removesuffix(" of body") for name in names[len(FEATURE_NAMES) :])
    known = names[: len(FEATURE_NAMES)] == FEATURE_NAMES and {*evidence} <= {*get_args(EvidenceName)}
    if not known or not (evidence or saved.origin.by == "silo"):
        return None
    return OwnSearch(evidence=cast("tuple[EvidenceName, ...]", evidence))


class RankedSearch:
    """Search of a party's own documents, ordered by a ranker.

    Args:
        party: The party's documents.
        searched: Depth of the search, and the evidence among the ranker's features.
        ranker: The group's ranker.
        features: Parameters of the text features, as in the training.
    """

    def __init__(
        self, party: Holding, searched: OwnSearch, ranker: SavedRanker, features: Features | None = None
    ) -> None:
        self.ranker, self._search = ranker, PartySearch(party, searched, features or Features())

    def ranked(self, terms: Sequence[str], query: int | None = None) -> list[tuple[int, float]]:
        """Return the rows of the found documents with the ranker's scores, best first; ties in the order of BM25.

        Args:
            terms: Different terms of the query.
            query: Number of the party's query, needed where embeddings are agreed on.
        """
        rows, features = self._search.candidates(terms, query)
        if not len(rows):
            return []
        scores = self.ranker.score(features, [len(rows)])
        return [(int(rows[at]), float(scores[at])) for at in np.argsort(-scores, kind="stable")]
