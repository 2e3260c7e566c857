"""From raw documents and queries to features: tokens, statistics, the LETOR feature set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quorank import lazy_exports

if TYPE_CHECKING:
    from quorank.text.collection import Document, Query, Skipped, SkipRecord, TextCollection, describe_skipped
    from quorank.text.features import FEATURE_NAMES, Features, FieldCounts, FieldStatistics, pair_features, pooled
    from quorank.text.index import UNSEEN, Index, IndexedDocuments
    from quorank.text.ranking_rows import QueryRows, to_ranking_data
    from quorank.text.readers import read_collection
    from quorank.text.tokens import Tokeniser

__all__ = [
    "FEATURE_NAMES", "UNSEEN", "Document", "Features", "FieldCounts", "FieldStatistics", "Index", "IndexedDocuments",
    "Query", "QueryRows", "SkipRecord", "Skipped", "TextCollection", "Tokeniser", "describe_skipped", "pair_features",
    "pooled", "read_collection", "to_ranking_data",
]  # fmt: skip

__getattr__ = lazy_exports(
    __name__,
    {
        "quorank.text.collection": "Document Query Skipped SkipRecord TextCollection describe_skipped",
        "quorank.text.features": "FEATURE_NAMES Features FieldCounts FieldStatistics pair_features pooled",
        "quorank.text.index": "UNSEEN Index IndexedDocuments",
        "quorank.text.ranking_rows": "QueryRows to_ranking_data",
        "quorank.text.readers": "read_collection",
        "quorank.text.tokens": "Tokeniser",
    },
)
