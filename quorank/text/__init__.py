"""From raw documents and queries to features: tokens, statistics, the LETOR feature set."""

from quorank.text.collection import Collection, Document, Query
from quorank.text.documents import IndexedDocuments
from quorank.text.features import (
    FEATURE_NAMES,
    FEATURES,
    FIELD_FEATURES,
    Features,
    FieldCounts,
    field_features,
    pair_features,
)
from quorank.text.field_statistics import FieldStatistics, pooled
from quorank.text.index import UNSEEN, Index
from quorank.text.ranking_rows import QueryRows, collection_rows, to_ranking_data
from quorank.text.readers import read_collection
from quorank.text.tokens import TOKENISERS, Tokeniser

__all__ = [
    "FEATURES", "FEATURE_NAMES", "FIELD_FEATURES", "TOKENISERS", "UNSEEN", "Collection", "Document", "Features",
    "FieldCounts", "FieldStatistics", "Index", "IndexedDocuments", "Query", "QueryRows", "Tokeniser", "collection_rows",
    "field_features", "pair_features", "pooled", "read_collection", "to_ranking_data",
]  # fmt: skip
